# SPDX-License-Identifier: Apache-2.0
"""vLLM's connector classes as the contract describes them, for a Python without vLLM.

Own code, with the methods and defaults that vLLM 0.32 was seen to call. Importing this makes
``import vllm.distributed...`` find them; where a real vLLM is installed it is left alone.
"""

import enum
import importlib.util
import sys
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Dict


class KVConnectorRole(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorHandshakeMetadata(ABC):
    pass


class KVConnectorMetadata(ABC):
    pass


class KVConnectorWorkerMetadata(ABC):
    @abstractmethod
    def aggregate(self, other): ...


@dataclass
class KVConnectorStats:
    data: Dict[str, Any] = field(default_factory=dict)


class KVConnectorPromMetrics:
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        self._gauge_cls = metric_types["Gauge"]
        self._counter_cls = metric_types["Counter"]
        self._histogram_cls = metric_types["Histogram"]


class KVConnectorBase_V1(ABC):
    def __init__(self, vllm_config, role, kv_cache_config):
        self._connector_metadata = None
        self._vllm_config = vllm_config
        self._role = role

    @property
    def requires_kv_delivery(self):
        return True

    def bind_connector_metadata(self, connector_metadata):
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self):
        self._connector_metadata = None

    def has_connector_metadata(self):
        return self._connector_metadata is not None

    def register_kv_caches(self, kv_caches): ...

    def handle_preemptions(self, kv_connector_metadata): ...

    @abstractmethod
    def start_load_kv(self, forward_context, **kwargs): ...

    @abstractmethod
    def wait_for_layer_load(self, layer_name): ...

    @abstractmethod
    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs): ...

    @abstractmethod
    def wait_for_save(self): ...

    def get_finished(self, finished_req_ids):
        return None, None

    def get_block_ids_with_load_errors(self):
        return set()

    def get_kv_connector_stats(self):
        return None

    def get_handshake_metadata(self):
        return None

    def build_connector_worker_meta(self):
        return None

    def set_xfer_handshake_metadata(self, metadata): ...

    def bind_kv_cache_manager(self, kv_cache_manager):
        self._kv_cache_manager = kv_cache_manager

    @abstractmethod
    def get_num_new_matched_tokens(self, request, num_computed_tokens): ...

    @abstractmethod
    def update_state_after_alloc(self, request, blocks, num_external_tokens): ...

    @abstractmethod
    def build_connector_meta(self, scheduler_output): ...

    def on_new_request(self, request): ...

    def update_connector_output(self, connector_output): ...

    def request_finished(self, request, block_ids):
        return False, None

    def reset_cache(self):
        return None

    def shutdown(self): ...


def install():
    found = importlib.util.find_spec("vllm")
    if found is not None and found.origin is not None:  # not just a folder of this name
        return
    base = "vllm.distributed.kv_transfer.kv_connector.v1"
    parts = base.split(".")
    for depth in range(1, len(parts) + 1):
        sys.modules[".".join(parts[:depth])] = types.ModuleType(".".join(parts[:depth]))
    for name, contents in (
        (
            "base",
            (
                KVConnectorBase_V1,
                KVConnectorHandshakeMetadata,
                KVConnectorMetadata,
                KVConnectorRole,
                KVConnectorWorkerMetadata,
            ),
        ),
        ("metrics", (KVConnectorPromMetrics, KVConnectorStats)),
    ):
        module = types.ModuleType(f"{base}.{name}")
        for thing in contents:
            setattr(module, thing.__name__, thing)
        sys.modules[f"{base}.{name}"] = module


install()
