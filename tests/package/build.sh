#!/usr/bin/env bash
# Builds the Debian packages of Maru: tests/package/build.sh OUTPUT_DIR
#
# The sources are copied below OUTPUT_DIR/source, with debian/ beside them; the .deb files and the
# .changes file come to OUTPUT_DIR. Nothing is built if the sources are those of the packages there.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -eq 1 ] || { echo "usage: build.sh OUTPUT_DIR" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
source=$out/source

# What a release of the sources has, without the tests; the two examples go into packages.
cd "$top"
parts=(meson.build meson_options.txt LICENSE README.md daemon include libmaru man subprojects systemd
    tests/capi/example.c tests/python/first_program.py)
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    mapfile -d '' files < <(git ls-files -z --cached --others --exclude-standard -- "${parts[@]}")
else
    mapfile -d '' files < <(find "${parts[@]}" -type f -not -name '*.pyc' -print0)
fi
rm -rf "$source"
mkdir -p "$source"
for file in "${files[@]}"; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | xargs -0 cp -a --parents -t "$source"
cp -a tests/package/debian "$source/debian"
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" meson.build | head -n 1)
[ -n "$version" ] || { echo "build.sh: meson.build names no version" >&2; exit 1; }
stamp=$(git log -1 --format=%cD 2>/dev/null || date -R -r meson.build)
sed -e "s/@VERSION@/$version/" -e "s/@DATE@/$stamp/" "$source/debian/changelog.in" >"$source/debian/changelog"
rm "$source/debian/changelog.in"

# The date of the last commit alone makes no other packages.
hash=$(cd "$source" && find . -type f -not -path ./debian/changelog -print0 | sort -z | xargs -0 sha256sum | sha256sum)
if [ "$(cat "$out/built" 2>/dev/null)" = "$hash" ] && ls "$out"/*.changes >/dev/null 2>&1; then
    echo "the packages in $out are of these sources"
    exit 0
fi
rm -f "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo "$out/built"

# debhelper gives the build a home of its own, where ccache would find nothing.
if command -v ccache >/dev/null && [ -d /usr/lib/ccache ]; then
    CCACHE_DIR=$(ccache -k cache_dir)
    export CCACHE_DIR CCACHE_BASEDIR=$source PATH=/usr/lib/ccache:$PATH
fi
cd "$source"
DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)" dpkg-buildpackage -b -us -uc
echo "$hash" >"$out/built"
