# SPDX-License-Identifier: Apache-2.0
"""conftest.py for a copy of vLLM's own scheduler tests, with MaruConnector where they put a Mock.

Each test replaces its scheduler's connector by a Mock and says what a probe or a finished request
answers; everything else a Mock swallows. Here the Mock wraps a scheduler-side MaruConnector: what the
test sets is what it set, everything else is really called.
"""

import os
import unittest.mock

import pytest
from maru_vllm.connector import MaruConnector
from maru_vllm.records import Handshake
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.core.sched.scheduler import Scheduler

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

# Renamed after these tests were written.
if not hasattr(Scheduler, "skipped_waiting"):
    Scheduler.skipped_waiting = property(lambda self: self.kv_holding_waiting)

made = []
schedulers = []


def maru_connector():
    from types import SimpleNamespace as Config

    config = Config(
        kv_transfer_config=Config(
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            engine_id="0",
            kv_connector_extra_config={
                "maru_cpu_pool_size": "1M",
                "maru_engine_id": "vllms-own-tests",
                "maru_cache_namespace": "none",
                "maru_kv_chunk_tokens": 16,
                "maru_connect_s": 0.1,
            },
        ),
        cache_config=Config(block_size=16, cache_dtype="auto"),
    )
    groups = Config(prefix_cacheable_group_ids=(0,))
    connector = MaruConnector(config, KVConnectorRole.SCHEDULER, groups)
    connector.bind_kv_cache_manager(schedulers[-1].kv_cache_manager)
    connector.set_xfer_handshake_metadata({0: Handshake("vLLM's own tests", 16, 16, 64, 1)})
    made.append(connector)
    return connector


def substitute(*arguments, **named):
    if arguments or named:
        return unittest.mock.Mock(*arguments, **named)
    return unittest.mock.Mock(wraps=maru_connector())


@pytest.fixture(autouse=True)
def with_maru(request, monkeypatch):
    made.clear()
    real = Scheduler.__init__

    def remember(self, *arguments, **named):
        real(self, *arguments, **named)
        schedulers.append(self)

    monkeypatch.setattr(Scheduler, "__init__", remember)
    if hasattr(request.module, "Mock"):
        monkeypatch.setattr(request.module, "Mock", substitute)
    yield
    for connector in made:
        connector.shutdown()


def pytest_sessionfinish(session, exitstatus):
    print(f"\nMaruConnector stood in for the Mock; exit status {int(exitstatus)}")
