#!/usr/bin/env bash
# Measures Maru beside the floors of this machine, in the same run, and says which targets are met.
#
#   tests/bench.sh                 five interleaved rounds and one before them that is not used; medians
#   tests/bench.sh --json FILE     write an entry for each target as well: name, value, floor, target, sense, against, met
#   tests/bench.sh --rounds N      more or fewer rounds
#   tests/bench.sh --only TEXT     only groups with TEXT in their name; --groups prints the names
#   tests/bench.sh --readme        the table as Markdown, too
#   tests/bench.sh --peers DIR     other systems beside it: the drivers in DIR (driver.py, peer_NAME.py), and ours
#   tests/bench.sh --guard         instruction counts against tests/bench/guard.json; --guard-update writes them there
#   tests/bench.sh --no-setup      do not install packages
#
# Builds with optimisation below build-release/, as demo.sh does. Figures of different machines do not compare: ratios do.
# The whole of it takes about 15 minutes and 10 GiB of memory; what does not fit is left out, and the last line says so.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
setup=1 peers='' guard='' json='' arguments=()
needs_value() {
    [ "$2" -ge 2 ] || { echo "bench.sh: $1 needs a value" >&2; exit 2; }
}
while [ $# -gt 0 ]; do
    case "$1" in
    --json)
        needs_value "$1" $#
        json=$(realpath -m "$2")
        shift
        ;;
    --rounds | --only)
        needs_value "$1" $#
        arguments+=("$1" "$2")
        shift
        ;;
    --peers)
        needs_value "$1" $#
        peers=$(realpath "$2")
        shift
        ;;
    --guard) guard=check ;;
    --guard-update) guard=update ;;
    --readme | --groups | --quick) arguments+=("$1") ;;
    --no-setup) setup=0 ;;
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bench.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
cd "$top"
[ $setup -eq 1 ] && tests/setup.sh bench
build=build-release
if [ ! -f $build/build.ninja ]; then
    cxx=g++ cc=gcc
    command -v ccache >/dev/null && { cxx="ccache $cxx"; cc="ccache $cc"; }
    CXX=$cxx CC=$cc meson setup $build --buildtype=release -Dtests=false -Dsim=false >/dev/null
fi
ninja -C $build tests/bench/bench tests/bench/guard-program daemon/event/marud >/dev/null
marud=$top/$build/daemon/event/marud
export MARU_LIBRARY=$top/$build/libmaru/capi/libmaru.so.0 PYTHONPATH=$top/libmaru/python PYTHONDONTWRITEBYTECODE=1

if [ -n "$guard" ]; then
    kind="gcc $(gcc -dumpversion | cut -d. -f1), O3"
    [ "$guard" = check ] || set -- --update
    exec tests/bench/guard.py --build "$kind" "$marud" $build/tests/bench/guard-program "$@"
fi
status=0
$build/tests/bench/bench --marud "$marud" --python "$top/tests/bench" ${json:+--json "$json"} \
    ${arguments[@]+"${arguments[@]}"} || status=$?
if [ -n "$peers" ]; then
    tests/bench/peers.py --marud "$marud" ${json:+--json "${json%.json}-peers.json"} "$peers" || status=$?
fi
exit $status
