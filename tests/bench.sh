#!/usr/bin/env bash
# Measures Maru beside the floors of this machine, in the same run, and prints a table.
#
#   tests/bench.sh                 five interleaved rounds, medians
#   tests/bench.sh --json FILE     write {name, value, unit, floor, ratio} per entry as well
#   tests/bench.sh --rounds N      more or fewer rounds
#   tests/bench.sh --floors        the floors alone, without marud
#   tests/bench.sh --no-setup      do not install packages
#
# Builds with optimisation below build-release/, as demo.sh does. Figures of different machines do not compare: ratios do.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
setup=1 floors=0 arguments=()
while [ $# -gt 0 ]; do
    case "$1" in
    --json)
        [ $# -ge 2 ] || { echo "bench.sh: --json needs a file" >&2; exit 2; }
        arguments+=(--json "$(realpath -m "$2")")
        shift
        ;;
    --rounds)
        [ $# -ge 2 ] || { echo "bench.sh: --rounds needs a number" >&2; exit 2; }
        arguments+=(--rounds "$2")
        shift
        ;;
    --floors) floors=1 ;;
    --no-setup) setup=0 ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bench.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
cd "$top"
[ $setup -eq 1 ] && tests/setup.sh demo
build=build-release
if [ ! -f $build/build.ninja ]; then
    cxx=g++ cc=gcc
    command -v ccache >/dev/null && { cxx="ccache $cxx"; cc="ccache $cc"; }
    CXX=$cxx CC=$cc meson setup $build --buildtype=release -Dtests=false -Dsim=false >/dev/null
fi
targets=(tests/bench/bench)
[ $floors -eq 0 ] && targets+=(daemon/event/marud)
ninja -C $build "${targets[@]}" >/dev/null
[ $floors -eq 0 ] && arguments+=(--marud "$top/$build/daemon/event/marud")
exec $build/tests/bench/bench ${arguments[@]+"${arguments[@]}"}
