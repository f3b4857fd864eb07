#!/usr/bin/env bash
# The bench once, small: that it runs to its end, that no row of it has gone, and that each row says its figure, what
# it is beside, and its target. Never how fast. Usage: quick_test.sh BENCH MARUD LIBMARU PYTHON_FOLDER
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(mktemp)
trap 'rm -f "$out"' EXIT
MARU_LIBRARY=$(realpath "$3") PYTHONPATH=$4 PYTHONDONTWRITEBYTECODE=1 \
    "$1" --marud "$(realpath "$2")" --python "$here" --quick --rounds 1 --json "$out"
python3 "$here/check_rows.py" "$out"
