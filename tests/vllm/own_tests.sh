#!/usr/bin/env bash
# vLLM's own scheduler tests of KV connectors with MaruConnector in the place of their Mock: tests/vllm/own_tests.sh
# MARU_VLLM_TREE names a checkout of vLLM (its tests are not in the wheel); MARU_VLLM_PYTHON, MARU_LIBRARY as for run.sh.
# Nothing of that tree is kept.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unit=${MARU_VLLM_TREE:-}/tests/v1/kv_connector/unit
if [ ! -d "$unit" ]; then
    echo "SKIP: MARU_VLLM_TREE names no checkout of vLLM"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/tests/v1/kv_connector/unit
mkdir -p "$to" "$work/facebook/opt-125m"
touch "$work/tests/__init__.py" "$work/tests/v1/__init__.py" "$work/tests/v1/kv_connector/__init__.py" "$to/__init__.py"
cp "$unit/utils.py" "$to"
tests=(kv_load_failure_recovery invalid_blocks_correctness error_propagation cache_pollution_prevention)
for name in "${tests[@]}"; do cp "$unit/test_$name.py" "$to"; done
cp "$here/own_conftest.py" "$to/conftest.py"
# The model that these tests name, so that nothing is fetched: only its numbers are read.
cat >"$work/facebook/opt-125m/config.json" <<'J'
{"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
 "num_attention_heads": 12, "max_position_embeddings": 10000, "vocab_size": 50272, "word_embed_proj_dim": 768,
 "do_layer_norm_before": true, "torch_dtype": "float16", "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
J
printf '[pytest]\nmarkers = cpu_test\n' >"$work/pytest.ini"
cd "$work"
VLLM_TARGET_DEVICE=cpu HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 PYTHONPATH="$here/../../libmaru/python" \
    "$MARU_VLLM_PYTHON" -m pytest -q -p no:cacheprovider tests "$@"
