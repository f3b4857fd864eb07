#!/usr/bin/env bash
# Installs, by package name, what building and testing Maru needs. Idempotent: a second run does nothing.
#
#   tests/setup.sh         what tests/run.sh needs
#   tests/setup.sh demo    what tests/demo.sh needs
#
# Debian 12 and newer. Needs root (or sudo) only when a package is missing.
set -euo pipefail

build=(g++ meson ninja-build pkg-config capnproto libcapnp-dev libsystemd-dev liburing-dev libnuma-dev
    libdaxctl-dev libtomlplusplus-dev python3)
test=(libgtest-dev libgmock-dev clang clang-format clang-tidy mandoc jq python3-numpy util-linux procps
    abigail-tools zsh fish systemd-container mmdebstrap)

wanted=("${build[@]}")
case "${1:-tests}" in
demo) ;;
tests)
    wanted+=("${test[@]}")
    # libFuzzer's runtime carries the compiler's version in its name.
    runtime=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/libclang-rt-\1-dev/p' | head -n 1)
    [ -n "$runtime" ] && wanted+=("$runtime")
    ;;
*)
    echo "setup.sh: '$1' is not a set of packages; allowed: tests, demo" >&2
    exit 2
    ;;
esac

missing() {
    local package
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
}

mapfile -t need < <(missing "${wanted[@]}")
if [ ${#need[@]} -eq 0 ]; then
    exit 0
fi

command -v apt-get >/dev/null || {
    echo "setup.sh: apt-get not found; install these yourself: ${need[*]}" >&2
    exit 1
}
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "setup.sh: not root and no sudo; as root run: apt-get install ${need[*]}" >&2
        exit 1
    }
    as_root=(sudo)
fi

echo "setup.sh: installing ${need[*]}"
"${as_root[@]}" apt-get update -qq
# A fresh machine has no lists before the update, so the fuzzer's runtime is looked up again.
if [ "${1:-tests}" = tests ]; then
    runtime=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/libclang-rt-\1-dev/p' | head -n 1)
    [ -n "$runtime" ] && mapfile -t need < <(missing "${wanted[@]}" "$runtime" | sort -u)
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
mapfile -t need < <(missing "${need[@]}")
if [ ${#need[@]} -ne 0 ]; then
    echo "setup.sh: still missing after installation: ${need[*]}" >&2
    exit 1
fi
