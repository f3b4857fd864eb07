#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each from seeds of every message kind.
# Usage: tests/fuzz/run.sh 0|1     0: 10 seconds each, 1: five minutes each. Exit 77: a skip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=10
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

build=build-fuzz
cxx=clang++ cc=clang
command -v ccache >/dev/null && { cxx="ccache $cxx"; cc="ccache $cc"; }
[ -f $build/build.ninja ] ||
    CXX=$cxx CC=$cc meson setup $build -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false -Dsim=false -Dbench=false
ninja -C $build tests/fuzz/frame_fuzz tests/fuzz/frame_seeds

corpus=$build/corpus
mkdir -p $corpus
$build/tests/fuzz/frame_seeds $corpus
# What it finds stays below the build directory; a crash's input is named in the output.
$build/tests/fuzz/frame_fuzz -max_total_time=$seconds -max_len=98304 -artifact_prefix=$build/ -print_final_stats=1 $corpus 2>&1 | tail -n 20
