# SPDX-License-Identifier: Apache-2.0
"""What this connector takes from vLLM: the base classes of the connector contract, nothing else."""

from __future__ import annotations

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import (
        KVConnectorBase_V1,
        KVConnectorHandshakeMetadata,
        KVConnectorMetadata,
        KVConnectorRole,
        KVConnectorWorkerMetadata,
    )
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
        KVConnectorPromMetrics,
        KVConnectorStats,
    )
except ImportError as error:
    raise ImportError(
        f"MaruConnector needs vLLM 0.30 to 0.33, and its connector classes cannot be imported: {error}"
    ) from error

__all__ = [
    "KVConnectorBase_V1",
    "KVConnectorHandshakeMetadata",
    "KVConnectorMetadata",
    "KVConnectorPromMetrics",
    "KVConnectorRole",
    "KVConnectorStats",
    "KVConnectorWorkerMetadata",
]
