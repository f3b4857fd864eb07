# SPDX-License-Identifier: Apache-2.0
"""Where the engine keeps its KV, told by the registered tensors alone.

What must stay true: a block is moved only when, in every layer, it is one contiguous run of bytes and
blocks follow each other at that distance. Nothing is guessed from a shape: two layouts can have one
shape. Any object with shape, stride(), element_size(), data_ptr(), dtype and device will do.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .config import ConfigError


@dataclass(frozen=True)
class Layout:
    """One group of layers of equal blocks."""

    names: Tuple[str, ...]
    """In the order of the KV cache group, which is the order inside an object."""
    addresses: Tuple[int, ...]
    """Of block 0 of each layer."""
    block_count: int
    block_bytes: int
    """Of one block in one layer."""
    block_tokens: int
    device: Optional[int]
    """The GPU that has it, as CUDA counts them in this process; None is the CPU."""
    fingerprint: Mapping[str, Any]
    """What makes these bytes readable elsewhere; no address and no block count is in it."""


def read_layout(kv_caches: Mapping[str, Any], kv_cache_config: Any, block_tokens: int) -> Layout:
    """The layout of @kv_caches; ConfigError says why it cannot be moved."""
    names = _layer_names(kv_caches, kv_cache_config)
    block_count = getattr(kv_cache_config, "num_blocks", None) or kv_caches[names[0]].shape[0]
    addresses: List[int] = []
    rows: List[Dict[str, Any]] = []
    sizes = set()
    seen = set()
    devices: Dict[Optional[int], str] = {}
    for name in names:
        tensor = kv_caches[name]
        devices.setdefault(_device(name, tensor), name)
        block_bytes = _block_bytes(name, tensor, block_count)
        if tensor.data_ptr() in seen:
            continue  # layers that share their KV are one
        seen.add(tensor.data_ptr())
        addresses.append(tensor.data_ptr())
        sizes.add(block_bytes)
        rows.append(
            {
                "name": name,
                "shape": [int(n) for n in tensor.shape[1:]],
                "stride": [int(n) for n in tensor.stride()],
                "dtype": str(tensor.dtype),
                "block_bytes": block_bytes,
            }
        )
    if len(devices) != 1:
        places = " and ".join(
            f"layer {name} on {'the CPU' if device is None else f'GPU {device}'}"
            for device, name in devices.items()
        )
        raise ConfigError(f"the KV caches are in different memory, {places}: must be in one")
    (device,) = devices
    if len(sizes) != 1:
        raise ConfigError(
            f"the layers' blocks have {', '.join(map(str, sorted(sizes)))} bytes: must have one size"
        )
    (block_bytes,) = sizes
    _check_spec(kv_cache_config, block_bytes)
    return Layout(
        tuple(row["name"] for row in rows),
        tuple(addresses),
        int(block_count),
        block_bytes,
        block_tokens,
        device,
        {
            "kv_cache_layout": str(getattr(kv_cache_config, "kv_cache_layout", "unknown")),
            "layer_count": len(rows),
            "first_layer": rows[0],
            "layers_sha256": _digest(rows),
        },
    )


def _device(name: str, tensor: Any) -> Optional[int]:
    device = getattr(tensor, "device", "cpu")
    kind = str(getattr(device, "type", device))
    if kind == "cpu":
        return None
    index = getattr(device, "index", None)
    if kind == "cuda" and isinstance(index, int):
        return index
    raise ConfigError(
        f"the KV cache of layer {name} is on device {str(device)!r}: must be 'cpu' or 'cuda:N'"
    )


def _layer_names(kv_caches: Mapping[str, Any], kv_cache_config: Any) -> Sequence[str]:
    groups = getattr(kv_cache_config, "kv_cache_groups", None)
    names = list(groups[0].layer_names) if groups else list(kv_caches)
    missing = [name for name in names if name not in kv_caches]
    if missing or not names or len(names) != len(kv_caches):
        raise ConfigError(
            f"{len(kv_caches)} KV caches are registered for {len(names)} layers of the group"
            + (f", without {missing[0]}" if missing else "")
            + ": must be one for each"
        )
    return names


def _block_bytes(name: str, tensor: Any, block_count: int) -> int:
    """Bytes of one block of the manager; the tensor may have its blocks split into equal rows."""
    shape = [int(n) for n in tensor.shape]
    stride = [int(n) for n in tensor.stride()]
    item = int(tensor.element_size())
    if len(shape) < 2 or shape[0] < block_count or shape[0] % block_count:
        raise ConfigError(
            f"layer {name} has the shape {tuple(shape)}: its first dimension must count the "
            f"{block_count} blocks"
        )
    run = 1  # elements of a dense block, in whatever order its dimensions lie
    for extent, step in sorted(zip(shape[1:], stride[1:]), key=lambda pair: pair[1]):
        if extent == 1:
            continue
        if step != run:
            break
        run *= extent
    elements = 1
    for extent in shape[1:]:
        elements *= extent
    if run != elements or stride[0] != elements:
        raise ConfigError(
            f"layer {name} has the shape {tuple(shape)} with strides {tuple(stride)}: each block "
            "must be one contiguous run, and blocks must follow each other"
        )
    return elements * item * (shape[0] // block_count)


def _check_spec(kv_cache_config: Any, block_bytes: int) -> None:
    groups = getattr(kv_cache_config, "kv_cache_groups", None)
    spec = getattr(groups[0], "kv_cache_spec", None) if groups else None
    page = getattr(spec, "page_size_bytes", None)
    if isinstance(page, int) and page != block_bytes:
        raise ConfigError(
            f"a block of a layer has {block_bytes} bytes where vLLM counts {page}: must be equal"
        )


def processor_fingerprint(block_tokens: int, head_size: Any) -> Dict[str, Any]:
    """What vLLM's CPU attention chooses its packing by. A probe that is missing is "unknown"."""
    found: Dict[str, Any] = {
        "machine": platform.machine(),
        "block_tokens": block_tokens,
        "head_size": head_size if isinstance(head_size, int) else "unknown",
    }
    for name in ("_is_amx_tile_supported", "_is_avx512_supported"):
        try:
            import torch

            found[name.strip("_")] = bool(getattr(torch.cpu, name)())
        except Exception:  # no torch, or one without this probe
            found[name.strip("_")] = "unknown"
    return found


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
