#!/usr/bin/env bash
# The connector in a real vLLM: tests/vllm/run.sh [TEST...], with MARUD, MARU_LIBRARY, MARU_CALL_SHIM_LIBRARY and
# MARU_VLLM_PYTHON set as by tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [ ! -x "${MARU_VLLM_PYTHON:-}" ]; then
    echo "SKIP: no Python with vLLM; tests/setup.sh --vllm makes one"
    exit 77
fi
exec python3 -m unittest -v "${@:-test_vllm}"
