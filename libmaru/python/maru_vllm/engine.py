# SPDX-License-Identifier: Apache-2.0
"""What vLLM itself must be configured like, read from its config objects without importing vLLM.

Fields move between versions of vLLM, so every one is asked for by name with a default that means "not
there, nothing to refuse". What must stay true: anything that this connector cannot store and load
byte for byte is refused here, at construction, with one sentence that names the setting and what is
allowed.
"""

from __future__ import annotations

from typing import Any, Iterator

from .config import ConfigError

PLAIN_KV_DTYPES = ("auto", "float16", "bfloat16", "float32", "half", "float")


def check_engine(vllm_config: Any, kv_cache_config: Any = None) -> None:
    """ConfigError for the first thing that is refused."""
    for problem in engine_problems(vllm_config, kv_cache_config):
        raise ConfigError(problem)


def engine_problems(vllm_config: Any, kv_cache_config: Any = None) -> Iterator[str]:
    """Every refusal as a sentence."""
    yield from _transfer(getattr(vllm_config, "kv_transfer_config", None))
    yield from _parallel(vllm_config)
    yield from _model(vllm_config)
    yield from _scheduler(vllm_config)
    if kv_cache_config is not None:
        yield from _groups(kv_cache_config)


def _transfer(transfer: Any) -> Iterator[str]:
    policy = getattr(transfer, "kv_load_failure_policy", None)
    if policy != "recompute":
        given = "missing" if policy is None else f"{policy!r}"
        yield (
            f"kv_load_failure_policy is {given}: must be 'recompute', so that what is lost from the "
            "cache is computed again"
        )
    role = getattr(transfer, "kv_role", "kv_both")
    if role != "kv_both":
        yield f"kv_role is {role!r}: must be 'kv_both', one engine both stores and loads"


def _parallel(vllm_config: Any) -> Iterator[str]:
    parallel = getattr(vllm_config, "parallel_config", None)
    for name in (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        size = getattr(parallel, name, 1)
        if isinstance(size, int) and size > 1:
            yield f"{name} is {size}: must be 1"
    size = getattr(parallel, "data_parallel_size", 1)
    if isinstance(size, int) and size > 1:
        yield (
            f"data_parallel_size is {size}: must be 1 for a model with experts; the engines of a "
            "dense model each see 1"
        )


def _model(vllm_config: Any) -> Iterator[str]:
    model = getattr(vllm_config, "model_config", None)
    if getattr(model, "enforce_eager", True) is False:
        yield "enforce_eager is false: must be true (--enforce-eager)"
    if getattr(model, "use_mla", False) is True:
        yield "the model uses MLA: must be a model with plain attention"
    window = _called(model, "get_sliding_window")
    if isinstance(window, int) and window > 0:
        yield f"the model has a sliding window of {window}: must be a model with full attention"
    if getattr(vllm_config, "speculative_config", None) is not None:
        yield "speculative_config is set: must be absent, there is no speculative decoding"
    dtype = getattr(getattr(vllm_config, "cache_config", None), "cache_dtype", "auto")
    if isinstance(dtype, str) and dtype not in PLAIN_KV_DTYPES:
        yield f"kv_cache_dtype is {dtype!r}: must be 'auto', KV that is not quantised"


def _scheduler(vllm_config: Any) -> Iterator[str]:
    scheduler = getattr(vllm_config, "scheduler_config", None)
    if getattr(scheduler, "async_scheduling", False) is True:
        yield "async_scheduling is true: must be false (--no-async-scheduling)"


def _groups(kv_cache_config: Any) -> Iterator[str]:
    groups = getattr(kv_cache_config, "kv_cache_groups", None)
    if groups is None:
        return
    if len(groups) != 1:
        yield f"the model has {len(groups)} KV cache groups: must be a model with one"
        return
    spec = getattr(groups[0], "kv_cache_spec", None)
    kind = type(spec).__name__
    if "FullAttention" not in kind:
        yield f"the KV cache is of kind {kind}: must be FullAttentionSpec"
    for name in ("sliding_window", "attention_chunk_size"):
        if getattr(spec, name, None) is not None:
            yield f"the KV cache has a {name} of {getattr(spec, name)}: must have none"


def _called(thing: Any, name: str) -> Any:
    method = getattr(thing, name, None)
    if not callable(method):
        return None
    try:
        return method()
    except Exception:  # not every model config can answer
        return None
