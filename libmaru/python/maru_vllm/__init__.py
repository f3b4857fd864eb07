# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV cache through Maru: what was computed once is loaded, not recomputed.

    vllm serve MODEL --enforce-eager --kv-transfer-config '{"kv_connector": "MaruConnector",
        "kv_connector_module_path": "maru_vllm", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {
        "maru_cpu_pool_size": "8G", "maru_engine_id": "inference-a",
        "maru_cache_namespace": "my-model@revision-1"}}'

Importing this package needs neither vLLM nor libmaru; the class is made when it is asked for.
``python -m maru_vllm.check CONFIG.json`` tells what would be refused, without starting an engine.
"""

from typing import Any

from .config import ConfigError, Settings

__all__ = ["ConfigError", "MaruConnector", "MaruKVConnector", "Settings"]


def __getattr__(name: str) -> Any:
    if name in ("MaruConnector", "MaruKVConnector"):
        from .connector import MaruConnector

        return MaruConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
