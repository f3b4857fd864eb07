# SPDX-License-Identifier: Apache-2.0
"""The namespace text: everything that makes KV of one engine unreadable for another.

What must stay true: two engines have one text exactly if each may read the other's bytes. So no
address, path, host name, process or count of blocks is in it, and every field is tagged.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Optional, Tuple

from .config import Settings
from .layout import Layout, processor_fingerprint

FORMAT = "maru-vllm-blocks-v1"
MAX_BYTES = 16384

# Of a Hugging Face config: where a node keeps the model, and who wrote the file.
NODE_LOCAL = ("_name_or_path", "name_or_path", "transformers_version", "_commit_hash")


def storage_format(settings: Settings) -> str:
    """Of an object's bytes; a checksum makes another format."""
    return FORMAT + ("+xxh3" if settings.verify == "load" else "")


def namespace_text(
    settings: Settings, vllm_config: Any, layout: Layout, chunk_tokens: int, vllm_version: str
) -> str:
    """The text, in UTF-8 at most MAX_BYTES long."""
    model = getattr(vllm_config, "model_config", None)
    cache = getattr(vllm_config, "cache_config", None)
    fields: Dict[str, Any] = {
        "format": storage_format(settings),
        "namespace": settings.cache_namespace,
        "model_sha256": _model_digest(model),
        "revision": _text(getattr(model, "revision", None)),
        "model_dtype": _text(getattr(model, "dtype", None)),
        "quantization": _text(getattr(model, "quantization", None)),
        "kv_cache_dtype": _text(getattr(cache, "cache_dtype", None)),
        "chunk_tokens": chunk_tokens,
        "vllm": vllm_version,
        "layout": dict(layout.fingerprint),
        "processor": (
            processor_fingerprint(layout.block_tokens, _called(model, "get_head_size"))
            if layout.device is None
            else {"device": "cuda", "block_tokens": layout.block_tokens}
        ),
        "parallel": {"tensor": 1, "pipeline": 1, "context": 1, "rank": 0},
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert len(text.encode("utf-8")) <= MAX_BYTES
    return text


def cut_of(text: str) -> Optional[Tuple[int, int]]:
    """Tokens of a chunk and of a block, by a namespace's text; None: it is not one of these."""
    try:
        fields = json.loads(text)
        if not fields["format"].startswith(FORMAT):
            return None
        return int(fields["chunk_tokens"]), int(fields["processor"]["block_tokens"])
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


def _model_digest(model: Any) -> str:
    """Of the model's config, which says its geometry; the weights' identity comes from the user."""
    config = getattr(model, "hf_config", None)
    try:
        values = dict(config.to_dict())
    except Exception:  # not a Hugging Face config
        return "unknown"
    for name in NODE_LOCAL:
        values.pop(name, None)
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _called(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name)()
    except Exception:
        return None
