# SPDX-License-Identifier: Apache-2.0
"""Says what the connector would refuse, without starting an engine.

    python -m maru_vllm.check CONFIG.json [--live]

CONFIG.json holds what follows --kv-transfer-config; or only its kv_connector_extra_config; or an
engine's arguments with a "kv_transfer_config" in them, of which those that matter are looked at. "-"
reads standard input. Needs no vLLM. --live also asks the running marud: it prints the versions, the
socket, and this user as marud sees it. Exits 0, or 1 with a sentence per problem, or 2 for bad usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

from .config import Settings, default_socket, problems_of
from .engine import engine_problems


def read_config(text: str) -> Tuple[Dict[str, Any], Any]:
    """(the extra config, an object like vLLM's config with what @text says about the engine)."""

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise ValueError(f"{name} is given twice")
            found[name] = value
        return found

    config = json.loads(text, object_pairs_hook=unique)
    if not isinstance(config, dict):
        raise ValueError(f"the file holds a {type(config).__name__}: must be a JSON object")
    if any(name.startswith("maru_") for name in config):
        # Only the extra config: the rest is assumed right.
        return config, _engine({}, {"kv_load_failure_policy": "recompute"})
    transfer = config.get("kv_transfer_config", config)
    engine = config if "kv_transfer_config" in config else {}
    if isinstance(transfer, str):
        transfer = json.loads(transfer, object_pairs_hook=unique)
    if not isinstance(transfer, dict):
        raise ValueError("kv_transfer_config must be a JSON object")
    extra = transfer.get("kv_connector_extra_config") or {}
    misplaced = [name for name in (*transfer, *engine) if name.startswith("maru_")]
    if misplaced:
        raise ValueError(f"{misplaced[0]} belongs inside kv_connector_extra_config")
    return extra, _engine(engine, transfer)


def _engine(engine: Dict[str, Any], transfer: Dict[str, Any]) -> Any:
    """Of vLLM's arguments, what the connector looks at; what is not given is not judged."""
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(**transfer),
        parallel_config=SimpleNamespace(
            **{name: value for name, value in engine.items() if name.endswith("_parallel_size")}
        ),
        model_config=SimpleNamespace(enforce_eager=engine.get("enforce_eager", True)),
        scheduler_config=SimpleNamespace(async_scheduling=engine.get("async_scheduling", False)),
        cache_config=SimpleNamespace(cache_dtype=engine.get("kv_cache_dtype", "auto")),
        speculative_config=engine.get("speculative_config"),
    )


def problems(text: str) -> List[str]:
    """Every sentence that the engine would end with."""
    try:
        extra, engine = read_config(text)
    except ValueError as error:
        return [str(error)]
    return problems_of(extra) + list(engine_problems(engine))


def live(settings: Settings) -> List[str]:
    """Prints what answers; the problems that an engine would have."""
    import maru

    from .link import SHARED_CAPABILITY
    from .versions import CONNECTOR_VERSION, vllm_version

    print(f"maru_vllm {CONNECTOR_VERSION}, vLLM {vllm_version()}")
    try:
        library = maru.library()
    except maru.MaruLibraryError as error:
        return [str(error)]
    print(f"libmaru {library.version} at {library.path}")
    print(f"socket {settings.socket or default_socket()}")
    try:
        client = maru.Client(
            settings.engine_id,
            role="scheduler",
            socket_path=settings.socket,
            name="maru_vllm.check",
            connect_ms=max(1, int(settings.connect_s * 1000)),
        )
    except maru.MaruError as error:
        return [f"marud cannot be reached: {error}"]
    with client:
        info = client.info()
        print(f"marud {info.server_version}, which sees uid {info.uid}")
        if settings.cpu_scope == "host" and not client.has_capability(SHARED_CAPABILITY):
            return [
                f"maru_cpu_scope is 'host', and marud {info.server_version} lacks "
                f"{SHARED_CAPABILITY}: update marud, or set it to 'worker'"
            ]
    return []


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m maru_vllm.check", description="Says what MaruConnector would refuse."
    )
    parser.add_argument("config", metavar="CONFIG.json", help='"-" reads standard input')
    parser.add_argument("--live", action="store_true", help="also ask the running marud")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.config == "-":
            text = sys.stdin.read()
        else:
            with open(chosen.config, encoding="utf-8") as file:
                text = file.read()
    except OSError as error:
        print(f"{chosen.config}: {error.strerror}", file=sys.stderr)
        return 2
    found = problems(text)
    if not found and chosen.live:
        found = live(Settings.parse(read_config(text)[0]))
    for problem in found:
        print(f"{chosen.config}: {problem}", file=sys.stderr)
    if not found:
        print(f"{chosen.config}: nothing is refused")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
