# SPDX-License-Identifier: Apache-2.0
"""Entry point of ``vllm.general_plugins``: makes the names known without kv_connector_module_path."""


def register() -> None:
    """Runs in every process of vLLM; a second time changes nothing."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    for name in ("MaruConnector", "MaruKVConnector"):
        if name not in KVConnectorFactory._registry:
            KVConnectorFactory.register_connector(name, "maru_vllm.connector", name)
