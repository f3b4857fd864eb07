# SPDX-License-Identifier: Apache-2.0
"""MaruConnector with a place where the tests break things: between the probe and the load."""

import time

import maru
from maru_vllm.connector import MaruConnector

before_load = []
"""Callables of (worker side, step metadata); each is called once, before the next load."""


class FaultyConnector(MaruConnector):
    def start_load_kv(self, forward_context=None, **kwargs):
        step = self._step()
        if step is not None and step.loads:
            while before_load:
                before_load.pop()(self._worker, step)
        super().start_load_kv(forward_context, **kwargs)


def replace_session(worker, step=None):
    """The worker's session is over, and another one is there."""
    old = worker.link.current
    worker.link.lost(old)
    deadline = time.monotonic() + 60
    while worker.link.current in (None, old):
        assert time.monotonic() < deadline, "no new session"
        time.sleep(0.01)


def drop(first):
    """From chunk @first on, everything is gone."""

    def fault(worker, step):
        for job in step.loads:
            digests = worker._digests[job.request][first:]
            worker.link.current.namespace.retire(digests)

    return fault


def flip(chunk):
    """Some bytes of @chunk are others."""

    def fault(worker, step):
        import ctypes

        digests = worker._digests[step.loads[0].request][chunk : chunk + 1]
        with worker.link.current.namespace.acquire(digests) as leases:
            lease = leases[0]
            length = lease.length
            address = lease._loan.address
            for offset in range(0, length - maru.CHECKSUM_BYTES, 64):
                ctypes.c_uint8.from_address(address + offset + 3).value ^= 0x40

    return fault
