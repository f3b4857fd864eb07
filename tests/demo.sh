#!/usr/bin/env bash
# Maru's main job on real input: builds what is needed, starts marud as the calling user, replays a
# conversation trace through several worker processes, verifies every loaded byte, prints the figures.
#
#   tests/demo.sh [--trace FILE] [--kill [--seed N]] [--json FILE] [--quick] [replayer options]
#
#   --trace FILE   JSON lines of timestamp, input_length, output_length, hash_ids; default: the
#                  conversation trace in ../shared/traces when it is there, else a generated one
#   --quick        only the first 600 requests
#   --kill         kill -9 workers and marud at random moments; must still read no wrong byte
#   --vllm         instead: a real vLLM on the CPU computes prompts, ends, and another one loads them; with --json FILE
#   --restarts     instead: a real vLLM is restarted twenty times, every second time killed, in a pool of eight segments
#   --build DIR    use this build directory; --no-setup: install nothing
#   --help         with the options of the replayer
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

build= setup=1 trace= quick=0 help=0 vllm=
pass=()
while [ $# -gt 0 ]; do
    case "$1" in
    --build | --trace)
        [ $# -ge 2 ] || { echo "demo.sh: $1 needs a value" >&2; exit 2; }
        printf -v "${1#--}" '%s' "$2"
        shift
        ;;
    --no-setup) setup=0 ;;
    --quick) quick=1 ;;
    -h | --help) help=1 ;;
    --vllm) vllm=demo.py ;;
    --restarts) vllm=restarts.py ;;
    *) pass+=("$1") ;;
    esac
    shift
done

if [ $help -eq 1 ]; then
    sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
fi
[ -z "$trace" ] || [ -r "$trace" ] || { echo "demo.sh: cannot read trace '$trace'" >&2; exit 2; }

if [ -z "$build" ]; then
    build=$top/build-release
    [ $setup -eq 1 ] && "$top/tests/setup.sh" demo
    if [ ! -f "$build/build.ninja" ]; then
        cxx=g++ cc=gcc
        command -v ccache >/dev/null && { cxx="ccache $cxx"; cc="ccache $cc"; }
        CXX=$cxx CC=$cc meson setup "$build" "$top" --buildtype=release -Dtests=false -Dsim=false
    fi
    ninja -C "$build"
fi
build=$(cd "$build" && pwd)
if [ -n "$vllm" ]; then
    venv=${MARU_VLLM_VENV:-$top/build/vllm-venv${MARU_VLLM_VERSION:+-$MARU_VLLM_VERSION}}
    [ $setup -eq 1 ] && "$top/tests/setup.sh" --vllm "$venv"
    [ -x "$venv/bin/python" ] || { echo "demo.sh: there is no vLLM in '$venv'; tests/setup.sh --vllm makes one" >&2; exit 1; }
    exec env MARUD="$build/daemon/event/marud" MARU_LIBRARY="$build/libmaru/capi/libmaru.so.0" \
        PYTHONPATH="$top/libmaru/python" "$venv/bin/python" "$top/tests/vllm/$vllm" "${pass[@]}"
fi
replay=$build/tests/replay/maru-replay
if [ $help -eq 1 ]; then
    exec "$replay" --help
fi

published=$top/../shared/traces/mooncake_conversation.jsonl
[ -z "$trace" ] && [ -f "$published" ] && trace=$published
[ -n "$trace" ] && pass+=(--trace "$trace")
[ $quick -eq 1 ] && pass+=(--requests 600)
exec "$replay" --marud "$build/daemon/event/marud" --maructl "$build/daemon/maructl/maructl" "${pass[@]}"
