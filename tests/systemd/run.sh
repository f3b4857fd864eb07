#!/usr/bin/env bash
# Boots a Debian with systemd as PID 1, installs the build in it, and runs tests/systemd/guest there.
# Usage: tests/systemd/run.sh BUILD_DIR [--results FILE] [TEST...]
#
#   --results FILE  append a line "passed|failed|skipped NAME [REASON]" for each test
#   TEST            only these: a class, or class.method, as guest/main.py prints them
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$top/tests/systemd/machine.sh"

[ $# -ge 1 ] || { echo "run.sh: the build directory is missing" >&2; exit 2; }
build=$(cd "$1" && pwd)
shift
lines=
if [ "${1:-}" = --results ]; then
    lines=$2
    shift 2
fi

machine_need "$build"
root=$(machine_root "$build")

work=$build/machine/systemd
rm -rf "$work"
mkdir -p "$work/tests" "$work/results"
DESTDIR=$work/stage meson install -C "$build" --no-rebuild --quiet
cp -a "$top/tests/systemd/guest/." "$build/tests/systemd/sandbox-probe" "$work/tests"
printf '%s\n' "$@" >"$work/tests/selection"
machine_run "$build" "$root" "$work" 300 "$lines" \
    install activation restart watchdog configuration journal sandbox user_unit -- \
    --bind-ro="$work/stage:/maru-stage"
