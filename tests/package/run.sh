#!/usr/bin/env bash
# Builds the Debian packages, judges them by lintian, and installs, uses, upgrades, removes and purges
# them in the machine of tests/systemd. Usage: tests/package/run.sh BUILD_DIR [--results FILE]
#
#   --results FILE  append a line "passed|failed|skipped NAME [REASON]" for each test
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$top/tests/systemd/machine.sh"

[ $# -ge 1 ] || { echo "run.sh: the build directory is missing" >&2; exit 2; }
build=$(cd "$1" && pwd)
shift
lines=
if [ "${1:-}" = --results ]; then
    lines=$2
fi

for tool in dpkg-buildpackage dh lintian; do
    command -v $tool >/dev/null || machine_skip "$tool is missing: tests/setup.sh installs it"
done
machine_need "$build"
root=$(machine_root "$build")

packages=$build/package
"$top/tests/package/build.sh" "$packages" >"$build/package.log" 2>&1 || {
    tail -n 40 "$build/package.log" >&2
    exit 1
}

echo "== lintian"
lintian --allow-root --fail-on error --tag-display-limit 0 "$packages"/*.changes

# The same content as a later version, which is all that dpkg and the maintainer scripts look at.
work=$build/machine/package
rm -rf "$work"
mkdir -p "$work/first" "$work/second" "$work/results" "$work/tests"
cp "$packages"/*.deb "$work/first"
for deb in "$packages"/*.deb; do
    version=$(dpkg-deb -f "$deb" Version)
    next=$version+next1
    dpkg-deb -R "$deb" "$work/unpacked"
    sed -i -e "s/^Version: .*/Version: $next/" -e "/^Depends:/s/libmaru0 (\([>=]*\) $version)/libmaru0 (\1 $next)/" \
        "$work/unpacked/DEBIAN/control"
    dpkg-deb -Znone --root-owner-group -b "$work/unpacked" "$work/second" >/dev/null
    rm -rf "$work/unpacked"
done

cp -a "$top"/tests/systemd/guest/{main.py,support.py,worker.py,maru-check.service} "$top"/tests/package/guest/*.py "$work/tests"
machine_run "$build" "$root" "$work" 600 "$lines" package -- \
    --bind-ro="$work/first:/packages/first" --bind-ro="$work/second:/packages/second"
