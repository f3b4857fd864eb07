# SPDX-License-Identifier: Apache-2.0
"""The ``maru_`` settings of ``kv_connector_extra_config``.

vLLM passes that dictionary on as it is, so every check is here. What must stay true: a setting that
is not understood is refused, never ignored; each refusal is one sentence that names the setting, what
it is, and what is allowed. Nothing here needs vLLM or libmaru.
"""

from __future__ import annotations

import difflib
import logging
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .sizes import parse_size

logger = logging.getLogger("maru_vllm")

MAX_ENGINE_BYTES = 256
MAX_NAMESPACE_BYTES = 4096
DP_SUFFIX_BYTES = 8  # room for "_dp1234"


class ConfigError(ValueError):
    """A configuration that this connector refuses; the text is one sentence."""


@dataclass(frozen=True)
class Settings:
    """Checked settings. ``Settings.parse()`` makes them."""

    cpu_pool_size: int
    engine_id: str
    cache_namespace: str
    storage_backend: str = "cpu"
    write_order: Tuple[str, ...] = ("cpu",)
    read_order: Tuple[str, ...] = ("cpu",)
    socket: Optional[str] = None
    """None: libmaru looks for it; see ``default_socket()``."""
    kv_chunk_tokens: int = 256
    """As configured; ``chunk_tokens()`` rounds it up to whole blocks."""
    cpu_scope: str = "host"
    deadline_ms: int = 50
    connect_s: float = 5.0
    required: bool = False
    verify: str = "off"

    @classmethod
    def parse(cls, extra: Optional[Mapping[str, Any]], warn: bool = True) -> Settings:
        """Check @extra whole. ConfigError names the first thing that is wrong."""
        given = {name: value for name, value in (extra or {}).items() if name.startswith("maru_")}
        _refuse_names(given)
        values: Dict[str, Any] = {}
        for name, setting in SETTINGS.items():
            if name in given:
                try:
                    values[name] = setting.parse(given[name])
                except ValueError as error:
                    raise ConfigError(f"{name} is {error}") from None
        backend = values.get("maru_storage_backend", "cpu")
        for name in ("maru_cpu_pool_size", "maru_engine_id", "maru_cache_namespace"):
            if name not in values:
                raise ConfigError(
                    f"{name} is missing: maru_storage_backend {backend!r} needs it, "
                    f"{SETTINGS[name].meaning}"
                )
        if "maru_cxl_pool_size" in values:
            raise ConfigError(
                "maru_cxl_pool_size is only used with maru_storage_backend 'mixed': remove it"
            )
        values.pop("maru_cxl_pool_size", None)
        if warn:
            for name in sorted(given):
                if name in IGNORED:
                    logger.warning("%s has no meaning any more and is ignored: remove it", name)
        return cls(**{name[len("maru_") :]: value for name, value in values.items()})

    def chunk_tokens(self, block_tokens: int) -> int:
        """Tokens of a chunk: the setting, rounded up to a multiple of the engine's block."""
        return -(-self.kv_chunk_tokens // block_tokens) * block_tokens


def default_socket() -> str:
    """The socket that is used when maru_socket is not set: libmaru's own rule."""
    named = os.environ.get("MARU_SOCKET")
    if named:
        return named
    system = "/run/maru/marud.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if not os.path.exists(system) and runtime:
        user = os.path.join(runtime, "maru", "marud.sock")
        if os.path.exists(user):
            return user
    return system


def _refuse_names(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name in SETTINGS or name in IGNORED:
            continue
        if name == "maru_pool_size":
            raise ConfigError(
                "maru_pool_size means CXL memory only and is not taken with cpu or mixed storage: "
                "set maru_cpu_pool_size"
            )
        if name in RENAMED:
            raise ConfigError(f"{name} is an older name: {RENAMED[name]}")
        if name in SWITCHED_OFF:
            if value:
                raise ConfigError(
                    f"{name} is {value!r}: must be false, since loads and stores are synchronous and "
                    "of whole chunks"
                )
            continue
        close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.5)
        nearest = f"did you mean {close[0]}?" if close else f"known are {', '.join(SETTINGS)}"
        raise ConfigError(f"{name} is not a setting of this connector: {nearest}")


@dataclass(frozen=True)
class Setting:
    """One row of the table: how a value is checked, its default as documented, what it means."""

    parse: Callable[[Any], Any]
    default: Optional[str]
    meaning: str


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"{value!r}: must be {_or(allowed)}")
        return value

    return parse


def _or(words: Tuple[str, ...]) -> str:
    quoted = [repr(word) for word in words]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " or " + quoted[-1]


def _backend(value: Any) -> str:
    if value in ("mixed", "cxl"):
        raise ValueError(
            f"{value!r}: must be 'cpu' with this version, which has no CXL pools (mixed_storage_v1)"
        )
    return _one_of("cpu")(value)


def _order(value: Any) -> Tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or list(value) != ["cpu"]:
        raise ValueError(f"{value!r}: must be [\"cpu\"] with maru_storage_backend 'cpu'")
    return tuple(value)


def _text(most: int) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{value!r}: must be a text that is not empty")
        if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in value):
            raise ValueError(f"{value!r}: must not have control characters or halves of a pair in it")
        if len(value.encode("utf-8")) > most:
            raise ValueError(
                f"{len(value.encode('utf-8'))} bytes long: must be at most {most} bytes in UTF-8"
            )
        return value

    return parse


def _integer(least: int, most: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{value!r}: must be a whole number from {least} to {most}")
        return value

    return parse


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 600:
        raise ValueError(f"{value!r}: must be a number of seconds above 0 and at most 600")
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r}: must be true or false")
    return value


SETTINGS: Dict[str, Setting] = {
    "maru_storage_backend": Setting(_backend, "cpu", "where KV is kept"),
    "maru_cpu_pool_size": Setting(parse_size, None, "the size of this engine's pool, such as '8G'"),
    "maru_cxl_pool_size": Setting(parse_size, "none", "the size of its CXL pool in mixed mode"),
    "maru_write_order": Setting(_order, '["cpu"]', "which medium is written first"),
    "maru_read_order": Setting(_order, '["cpu"]', "which medium is read first"),
    "maru_engine_id": Setting(
        _text(MAX_ENGINE_BYTES - DP_SUFFIX_BYTES),
        None,
        "a name of this engine that no other live engine of this user has",
    ),
    "maru_cache_namespace": Setting(
        _text(MAX_NAMESPACE_BYTES), None, "a name of exactly these immutable weights"
    ),
    "maru_socket": Setting(
        _text(107), "$MARU_SOCKET, the system's socket, the user's socket", "marud's socket"
    ),
    "maru_kv_chunk_tokens": Setting(
        _integer(1, 1 << 20), "256", "tokens of one object, rounded up to whole blocks"
    ),
    "maru_cpu_scope": Setting(
        _one_of("host", "worker"),
        "host",
        "'host': outlives the engine and is shared; 'worker': private to it",
    ),
    "maru_deadline_ms": Setting(
        _integer(1, 60_000), "50", "how long a step waits for marud before it is a miss"
    ),
    "maru_connect_s": Setting(_seconds, "5", "how long the start waits for marud"),
    "maru_required": Setting(_boolean, "false", "true: without marud the engine does not start"),
    "maru_verify": Setting(
        _one_of("off", "load"), "off", "'load': a checksum per chunk is checked before it is used"
    ),
}

# Of the older connector.
RENAMED = {
    "maru_server_url": "marud has a Unix socket, set maru_socket",
    "maru_server_socket": "set maru_socket",
    "maru_chunk_size": "the size of an object follows from maru_kv_chunk_tokens, set that",
    "maru_timeout_ms": "set maru_deadline_ms",
}
IGNORED = (
    "maru_eager_map",
    "maru_instance_id",
    "maru_node_id",
    "maru_max_inflight",
    "maru_log_timing",
)
SWITCHED_OFF = (
    "maru_async_load",
    "maru_async_store",
    "maru_use_async_rpc",
    "maru_use_layerwise",
    "maru_overlap_load_with_compute",
    "maru_overlap_release_after_layers",
    "maru_load_admission_window",
    "maru_enable_deferred_loading",
    "maru_enable_write_behind",
    "maru_enable_layerwise_overlap",
)


def effective_engine_id(engine_id: str, vllm_engine_id: Any) -> str:
    """@engine_id with the "_dpN" that vLLM gave its own id: each data-parallel core is an engine."""
    head, mark, rank = str(vllm_engine_id or "").rpartition("_dp")
    return f"{engine_id}_dp{rank}" if mark and rank.isdigit() else engine_id


def problems_of(extra: Optional[Mapping[str, Any]]) -> List[str]:
    """What ``Settings.parse()`` would refuse, as sentences; empty when nothing."""
    try:
        Settings.parse(extra, warn=False)
    except ConfigError as error:
        return [str(error)]
    return []
