#!/usr/bin/env bash
# Builds Maru and runs its tests; the last line is "N passed, N failed, N skipped".
#
#   tests/run.sh                 all suites that are quick
#   tests/run.sh SUITE...        only these: unit capi abi integration sim fuzz python container bench demo soak lint systemd package vllm
#   tests/run.sh vllm            a real vLLM on the CPU, only when it is named (3.4 GB of Python packages, 10 minutes);
#                                MARU_VLLM_VERSION=0.31.0 makes it an older one than the newest that is tested
#   tests/run.sh --all           the slow forms as well (long simulation and fuzzing, whole traces), and package
#   tests/run.sh --asan|--tsan   with address+undefined or thread sanitizer (a build of its own)
#   tests/run.sh --clang         with clang++ instead of g++
#   tests/run.sh --no-setup      do not install packages
#
# A skip prints what was missing. Everything is written below build*/ only.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top"

quick=(unit capi abi integration sim fuzz python container bench demo soak lint systemd)
slow=(package)  # compiles everything once more, as a package is compiled
suites=()
all=0 setup=1 name=build options=(-Dwerror=true -Db_lundef=false)
cxx=g++ cc=gcc
while [ $# -gt 0 ]; do
    case "$1" in
    --all) all=1 ;;
    # Optimised less: instrumented code takes two to three times as long to compile.
    --asan) name=build-asan options+=(-Db_sanitize=address,undefined -Doptimization=1) ;;
    --tsan) name=build-tsan options+=(-Db_sanitize=thread -Doptimization=1 -Dsim=false) ;;
    --clang) cxx=clang++ cc=clang ;;
    --no-setup) setup=0 ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "run.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
    *)
        printf '%s\n' "${quick[@]}" "${slow[@]}" vllm | grep -qx -- "$1" || {
            echo "run.sh: unknown suite '$1'; allowed: ${quick[*]} ${slow[*]} vllm" >&2
            exit 2
        }
        suites+=("$1")
        ;;
    esac
    shift
done
[ "$cxx" = clang++ ] && name=$name-clang
if [ ${#suites[@]} -eq 0 ]; then
    suites=("${quick[@]}")
    [ $all -eq 0 ] || suites+=("${slow[@]}")
    # A sanitizer changes neither the figures nor the sources; the simulation has one thread.
    [[ $name == *asan* ]] && suites=(unit capi abi integration sim python demo soak)
    [[ $name == *tsan* ]] && suites=(unit capi abi integration python demo soak)
fi
has() { printf '%s\n' "${suites[@]}" | grep -qx -- "$1"; }

[ $setup -eq 1 ] && tests/setup.sh tests
vllm_venv=${MARU_VLLM_VENV:-build/vllm-venv${MARU_VLLM_VERSION:+-$MARU_VLLM_VERSION}}
if has vllm && [ $setup -eq 1 ]; then tests/setup.sh --vllm "$vllm_venv"; fi

command -v ccache >/dev/null && { cxx="ccache $cxx"; cc="ccache $cc"; }
if [ ! -f "$name/build.ninja" ]; then
    CXX=$cxx CC=$cc meson setup "$name" "${options[@]}"
fi
ninja -C "$name"

# Sanitizer reports are failures, wherever they happen: also in marud and in forked children.
export ASAN_OPTIONS=abort_on_error=0:exitcode=99:detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:exitcode=99
export MARU_TEST_ALL=$all

results=$name/results
rm -rf "$results"
mkdir -p "$results"
failed=0

meson_suites=()
for suite in unit capi abi integration sim python container bench; do
    has $suite && meson_suites+=(--suite "$suite")
done
if [ ${#meson_suites[@]} -gt 0 ]; then
    # Instrumented programs take several times as long.
    multiplier=1
    [[ $name == build-[at]san* ]] && multiplier=5
    meson test -C "$name" --no-rebuild --print-errorlogs --timeout-multiplier $multiplier "${meson_suites[@]}" || failed=1
    cp "$name/meson-logs/testlog.junit.xml" "$results/meson.xml"
fi

# Runs one command as one test; exit 77 is a skip whose last line says what was missing.
single() {
    local label=$1 status=0
    shift
    echo "== $label"
    "$@" 2>&1 | tee "$results/$label.log" || status=${PIPESTATUS[0]}
    case $status in
    0) echo "passed $label" >>"$results/single.txt" ;;
    77) echo "skipped $label $(tail -n 1 "$results/$label.log")" >>"$results/single.txt" ;;
    *)
        echo "failed $label (exit $status)" >>"$results/single.txt"
        failed=1
        ;;
    esac
}

if has fuzz; then single fuzz tests/fuzz/run.sh "$all"; fi
if has demo; then
    single demo tests/demo.sh --no-setup --build "$name" --quick
    single demo-kill tests/demo.sh --no-setup --build "$name" --quick --kill --seed 1
    if [ "$all" -eq 1 ] && [ -f ../shared/traces/mooncake_conversation.jsonl ]; then
        single demo-conversation tests/demo.sh --no-setup --build "$name" --trace ../shared/traces/mooncake_conversation.jsonl
        single demo-conversation-kill tests/demo.sh --no-setup --build "$name" --trace ../shared/traces/mooncake_conversation.jsonl --kill
    fi
fi
if has soak; then
    seconds=20
    [ "$all" -eq 0 ] || seconds=600
    single soak "$name/tests/soak/maru-soak" --seconds $seconds
    if [ "$all" -eq 1 ]; then single kills tests/soak/kills.sh "$name" 1000; fi
fi
if has systemd; then single systemd tests/systemd/run.sh "$name" --results "$results/single.txt"; fi
if has vllm; then
    library=$(cd "$name" && pwd)/libmaru/capi/libmaru.so.0
    [ -x "$vllm_venv/bin/python" ] && vllm_python=$(cd "$vllm_venv" && pwd)/bin/python
    single vllm env MARUD="$(cd "$name" && pwd)/daemon/event/marud" MARU_LIBRARY="$library" \
        MARU_CALL_SHIM_LIBRARY="$(cd "$name" && pwd)/tests/integration/shim/maru-call-shim.so" \
        MARU_VLLM_PYTHON="${vllm_python:-}" PYTHONPATH="$top/libmaru/python" tests/vllm/run.sh
fi
if has package; then single package tests/package/run.sh "$name" --results "$results/single.txt"; fi
if has lint; then single lint tests/lint.sh "$name"; fi

/usr/bin/env python3 tests/summary.py "$results" || failed=1
exit $failed
