#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each from its seeds: those committed in corpus/TARGET, and
# for frames and records those that frame_seeds makes.
# Usage: tests/fuzz/run.sh 0|1     0: a few seconds each, 1: five minutes each. Exit 77: a skip.
#
# A target per decoder of what another process or a person made: frame (requests and replies, both
# ways), reply (what a client believes of marud), service (sequences of requests with descriptors, from
# hello on), record and objects (what marud wrote for its next life), config, text (sizes, durations, digests, ids,
# command lines), trace. There is no layout in shared memory yet that one side reads and the other
# writes: segments hold the callers' bytes alone.
#
# An input that was found wrong, once put right, is added to corpus/TARGET as regression-*.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=5
[ "${1:-0}" -eq 1 ] && seconds=300

if ! command -v clang++ >/dev/null; then
    echo "clang++ is missing"
    exit 77
fi
if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }' |
    clang++ -fsanitize=fuzzer -x c++ - -o /dev/null 2>/dev/null; then
    echo "clang's fuzzer runtime is missing (package libclang-rt-*-dev)"
    exit 77
fi

targets=(config frame objects record reply service text trace)
build=build-fuzz
cxx=clang++ cc=clang
command -v ccache >/dev/null && { cxx="ccache $cxx"; cc="ccache $cc"; }
[ -f $build/build.ninja ] ||
    CXX=$cxx CC=$cc meson setup $build -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Dsim=false -Dbench=false
programs=("${targets[@]/%/_fuzz}")
ninja -C $build tests/fuzz/frame_seeds "${programs[@]/#/tests/fuzz/}"

# What it finds stays below the build directory; a crash's input is named in the output.
$build/tests/fuzz/frame_seeds $build/corpus
run_target() {
    local target=$1 seeds=($build/corpus/$1) status=0
    mkdir -p $build/corpus/$target
    [ -d tests/fuzz/corpus/$target ] && seeds+=(tests/fuzz/corpus/$target)
    # Bounded from outside as well: a target that does not end is a failure with a log, not a run that hangs.
    timeout --kill-after=5 $((seconds + 90)) $build/tests/fuzz/${target}_fuzz -max_total_time=$seconds -max_len=98304 -timeout=20 -rss_limit_mb=2048 \
        -artifact_prefix=$build/$target- -print_final_stats=1 "${seeds[@]}" >$build/$target.log 2>&1 || status=$?
    echo $status >$build/$target.status
}
# As many at a time as there are processors.
for target in "${targets[@]}"; do
    rm -f $build/$target.status
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    run_target "$target" &
done
wait

failed=0
for target in "${targets[@]}"; do
    echo "== $target"
    status=$(cat $build/$target.status)
    if [ "$status" -eq 0 ]; then
        tail -n 8 $build/$target.log
    else
        echo "$target ended with $status:"
        tail -n 60 $build/$target.log
        failed=1
    fi
done
exit $failed
