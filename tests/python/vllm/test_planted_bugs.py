# SPDX-License-Identifier: Apache-2.0
"""Each way in which such connectors have gone wrong is planted here; the random schedules find it."""

import contextlib
import errno
import os
import unittest
from unittest import mock

import harness  # noqa: F401
from harness import VllmTest
from maru_vllm import garbage, requests, scheduler, worker
from test_schedules import Episode

TRIES = int(os.environ.get("MARU_VLLM_BUG_EPISODES", "150"))


def whole_prompt_may_hit():
    """No token is left to compute."""
    real = scheduler.SchedulerSide.matched

    def matched(self, request, computed):
        class Longer:
            num_tokens = request.num_tokens + 1
            request_id = request.request_id

        self.record(request)
        return real(self, Longer, computed)

    return mock.patch.object(scheduler.SchedulerSide, "matched", matched)


def garbage_stays_in_the_local_cache():
    """vLLM keeps the blocks of a failed load under their hashes."""
    return mock.patch.object(garbage.GarbageBlocks, "bind", lambda self, owner: setattr(
        self, "_evict", lambda blocks: None
    ))


def the_failing_step_stores():
    real = worker.WorkerSide.store

    def store(self, step):
        bad, self._bad = self._bad, set()
        try:
            real(self, step)
        finally:
            self._bad = bad

    return mock.patch.object(worker.WorkerSide, "store", store)


def only_the_chunks_own_blocks_are_looked_at():
    """The suffix of a failed load is stored: its own blocks are not the bad ones."""
    real = worker.WorkerSide.store

    def store(self, step):
        for job in step.stores:
            job.prefix = None
        real(self, step)

    return mock.patch.object(worker.WorkerSide, "store", store)


def failed_loads_are_not_reported():
    return mock.patch.object(worker.WorkerSide, "load_errors", lambda self: set())


def only_the_first_bad_chunk_is_reported():
    real = worker.WorkerSide.load_errors

    def load_errors(self):
        return set(sorted(real(self))[:1])

    return mock.patch.object(worker.WorkerSide, "load_errors", load_errors)


def bad_blocks_are_forgotten_once_reported():
    """vLLM may save afterwards."""

    def load_errors(self):
        bad, self._bad = self._bad, set()
        return bad

    return mock.patch.object(worker.WorkerSide, "load_errors", load_errors)


def salts_and_adapters_share_the_cache():
    return mock.patch.object(scheduler.RequestRecord, "__init__", _without_bypass)


def _without_bypass(self, request, real=requests.RequestRecord.__init__):
    real(self, request)
    self.bypass = False


def a_resumed_request_keeps_its_old_blocks():
    real = scheduler.SchedulerSide._scheduled

    def scheduled(self, output):
        kept = {i: list(r.blocks) for i, r in self._requests.items() if r.blocks}
        for one in real(self, output):
            for request_id, record in self._requests.items():
                if record is one.record and one.admitted and request_id in kept:
                    record.blocks = kept[request_id] + record.blocks
            yield one

    return mock.patch.object(scheduler.SchedulerSide, "_scheduled", scheduled)


def chunks_are_named_one_off():
    real = scheduler.Store

    def store(request, first, *rest):
        return real(request, first + (first > 0), *rest)

    return mock.patch.object(scheduler, "Store", store)


def unwritten_chunks_are_stored():
    """A chunk counts as computed when its last block has been begun."""
    real = scheduler.SchedulerSide._store

    def store(self, step, one):
        real(self, step, one._replace(tokens=one.tokens + self._block - 1))

    return mock.patch.object(scheduler.SchedulerSide, "_store", store)


def damage_is_not_noticed():
    real = worker.maru.PagedMemory.load

    def load(*arguments, **named):
        results = real(*arguments, **named)
        items = [0 if result == -errno.EBADMSG else result for result in results]
        return worker.maru.Results(items.count(0), items)

    return mock.patch.object(worker.maru.PagedMemory, "load", load)


def leases_are_kept():
    real = worker.WorkerSide._load_some

    def load_some(self, session, job, digests, start, stop):
        self.__dict__.setdefault("kept", []).append(
            list(session.namespace.acquire(digests[job.first : job.first + 1]))
        )
        return real(self, session, job, digests, start, stop)

    return mock.patch.object(worker.WorkerSide, "_load_some", load_some)


def sharers_of_a_load_do_not_wait():
    return mock.patch.object(
        scheduler.SchedulerSide, "_waits_for_another", lambda self, record, computed: False
    )


def finished_requests_are_remembered():
    return mock.patch.object(scheduler.SchedulerSide, "finished", lambda self, request_id: None)


BUGS = [
    whole_prompt_may_hit,
    garbage_stays_in_the_local_cache,
    the_failing_step_stores,
    only_the_chunks_own_blocks_are_looked_at,
    failed_loads_are_not_reported,
    only_the_first_bad_chunk_is_reported,
    bad_blocks_are_forgotten_once_reported,
    salts_and_adapters_share_the_cache,
    a_resumed_request_keeps_its_old_blocks,
    chunks_are_named_one_off,
    unwritten_chunks_are_stored,
    damage_is_not_noticed,
    leases_are_kept,
    sharers_of_a_load_do_not_wait,
    finished_requests_are_remembered,
]


class PlantedBugs(VllmTest):
    def test_the_schedules_find_every_one(self):
        for bug in BUGS:
            with self.subTest(bug=bug.__name__):
                self.assertTrue(self._found(bug), f"{TRIES} episodes did not find {bug.__name__}")

    def _found(self, bug):
        for seed in range(TRIES):
            with bug():
                episode = None
                try:
                    episode = Episode(self, seed)
                    episode.run()
                    episode.judge()
                except Exception as error:
                    print(f"{bug.__name__}: episode {seed}: {str(error)[:90]}")
                    return True
                finally:
                    if episode is not None:
                        with contextlib.suppress(Exception):
                            episode.engine.close()
        return False


if __name__ == "__main__":
    unittest.main()
