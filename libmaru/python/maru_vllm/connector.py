# SPDX-License-Identifier: Apache-2.0
"""MaruConnector: vLLM's connector contract, method by method, over the two halves.

vLLM makes one object in the scheduler's process and one in the worker's. This file only hands calls
on; what must stay true is written in scheduler.py and worker.py. Methods take ``**kwargs`` where
versions of vLLM differ.
"""

from __future__ import annotations

import logging
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from .base import KVConnectorBase_V1, KVConnectorRole
from .config import ConfigError, Settings, effective_engine_id
from .engine import check_engine
from .records import Handshake, StepMetadata, WorkerReport
from .scheduler import SchedulerSide
from .stats import MaruPromMetrics, MaruStats
from .versions import vllm_version
from .worker import WorkerSide

logger = logging.getLogger("maru_vllm")


class MaruConnector(KVConnectorBase_V1):
    """KV that outlives the engine, through the host's marud."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._scheduler: Optional[SchedulerSide] = None
        self._worker: Optional[WorkerSide] = None
        transfer = vllm_config.kv_transfer_config
        is_worker = role == KVConnectorRole.WORKER
        try:
            # The worker's object is made first: it alone warns.
            settings = Settings.parse(transfer.kv_connector_extra_config, warn=is_worker)
            check_engine(vllm_config, kv_cache_config)
            engine = effective_engine_id(
                settings.engine_id, getattr(transfer, "engine_id", None)
            )
            if is_worker:
                self._worker = WorkerSide(
                    settings, engine, vllm_config, kv_cache_config, vllm_version()
                )
                self._worker.link.start()
            else:
                self._scheduler = SchedulerSide(
                    settings, engine, int(vllm_config.cache_config.block_size)
                )
                self._scheduler.link.start()
        except ConfigError as error:
            logger.error("maru: refused to start: %s", error)
            self.shutdown()
            raise

    # vLLM would otherwise hold back blocks until somebody fetched them.
    requires_kv_delivery = property(lambda self: False)

    # ---- worker side -------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: Dict[str, Any]) -> None:
        if self._worker is None:
            return
        try:
            self._worker.register(kv_caches)
        except ConfigError as error:
            logger.error("maru: refused to start: %s", error)
            self.shutdown()
            raise

    def get_handshake_metadata(self) -> Optional[Handshake]:
        return self._worker.handshake() if self._worker is not None else None

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None and isinstance(connector_metadata, StepMetadata):
            try:
                self._worker.begin(connector_metadata)
            except Exception:  # what is not known to the worker is reported as not loaded
                logger.exception("maru: a step's metadata was not taken")

    def _step(self) -> Optional[StepMetadata]:
        metadata = getattr(self, "_connector_metadata", None)
        return metadata if isinstance(metadata, StepMetadata) else None

    def start_load_kv(self, forward_context: Any = None, **kwargs: Any) -> None:
        step = self._step()
        if self._worker is not None and step is not None:
            self._worker.load(step)

    def has_connector_metadata(self) -> bool:
        """vLLM asks it in every layer, before the two below: no layer has anything to wait for."""
        return False

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads have ended before the first layer."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Chunks are stored when all layers are done."""

    def wait_for_save(self) -> None:
        step = self._step()
        if self._worker is not None and step is not None:
            self._worker.store(step)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """No copy outlives its step, so none can read a block that was given to another request."""

    def get_finished(
        self, finished_req_ids: Set[str]
    ) -> Tuple[Optional[Set[str]], Optional[Set[str]]]:
        return None, None

    def get_block_ids_with_load_errors(self) -> Set[int]:
        return self._worker.load_errors() if self._worker is not None else set()

    def build_connector_worker_meta(self) -> Optional[WorkerReport]:
        return self._worker.report() if self._worker is not None else None

    # ---- scheduler side ----------------------------------------------------------------------------

    def set_xfer_handshake_metadata(self, metadata: Dict[int, Any]) -> None:
        for handshake in (metadata or {}).values():
            if self._scheduler is not None and isinstance(handshake, Handshake):
                self._scheduler.bind(handshake)

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        inherited = getattr(super(), "bind_kv_cache_manager", None)  # not in every version
        if inherited is not None:
            inherited(kv_cache_manager)
        if self._scheduler is not None:
            self._scheduler.garbage.bind(kv_cache_manager)

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        if self._scheduler is not None and not self._scheduler.garbage.can_evict:
            self._scheduler.garbage.bind(gpu_block_pool)

    def on_new_request(self, request: Any) -> None:
        if self._scheduler is not None:
            self._scheduler.record(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> Tuple[Optional[int], bool]:
        if self._scheduler is None:
            return 0, False
        try:
            return self._scheduler.matched(request, num_computed_tokens), False
        except Exception:
            logger.exception("maru: a probe failed; it counts as a miss")
            return 0, False

    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int, **kwargs: Any
    ) -> None:
        if self._scheduler is not None:
            self._scheduler.allocated(request, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> StepMetadata:
        if self._scheduler is None:
            return StepMetadata()
        return self._scheduler.metadata(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        if self._scheduler is not None:
            self._scheduler.update(connector_output)

    def request_finished(
        self, request: Any, block_ids: List[int]
    ) -> Tuple[bool, Optional[Dict[str, Any]]]:
        if self._scheduler is not None:
            self._scheduler.finished(request.request_id)
        return False, None

    def take_events(self) -> Iterable[Any]:
        return ()

    def reset_cache(self) -> Optional[bool]:
        return self._scheduler.reset() if self._scheduler is not None else None

    # ---- both --------------------------------------------------------------------------------------

    def get_kv_connector_stats(self) -> Optional[MaruStats]:
        side = self._worker or self._scheduler
        return side.take_stats() if side is not None else None

    @classmethod
    def build_kv_connector_stats(cls, data: Optional[Dict[str, Any]] = None) -> MaruStats:
        return MaruStats(data)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Any,
        labelnames: List[str],
        per_engine_labelvalues: Dict[int, List[object]],
    ) -> MaruPromMetrics:
        return MaruPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        """Ends the sessions early. Nothing depends on it: an exit of any kind does the same."""
        if self._worker is not None:
            self._worker.close()
        if self._scheduler is not None:
            self._scheduler.link.close()


# The name in command lines that exist.
MaruKVConnector = MaruConnector

if getattr(MaruConnector, "__abstractmethods__", None):
    raise ImportError(
        f"vLLM {vllm_version()} asks connectors for "
        f"{', '.join(sorted(MaruConnector.__abstractmethods__))}, which this version does not have: "
        "use vLLM 0.30 to 0.33"
    )
