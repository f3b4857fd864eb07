# SPDX-License-Identifier: Apache-2.0
"""Commits that no step waits for: nothing is lost, whatever becomes of marud before it has answered."""

import os
import signal
import threading
import time
import unittest
from unittest import mock

import harness
from harness import VllmTest, settings
from maru_vllm import commits, worker

PROMPT = list(range(33))  # four chunks
SHORT_MS = 150


class Commits(VllmTest):
    def setUp(self):
        super().setUp()
        self.marud = harness.support.Daemon()
        self.addCleanup(self.marud.cleanup)
        self.marud.start()

    def impatient(self, **changes):
        engine = self.engine(settings(socket=self.marud.socket_path, **changes), budget=400, blocks=200)
        engine.patient = False
        return engine

    def stop(self):
        os.kill(self.marud.pid, signal.SIGSTOP)

    def go_on(self, after_s=0.0):
        if not after_s:
            os.kill(self.marud.pid, signal.SIGCONT)
            return
        timer = threading.Timer(after_s, self.go_on)
        timer.start()
        self.addCleanup(timer.join)

    def store_unanswered(self, engine, prompt=PROMPT):
        """The step that stores @prompt, with marud stopped after it was asked what is there."""
        engine.hooks["before_load"] = self.stop
        request = engine.add(self.request(prompt, outputs=2))
        began = time.monotonic()
        engine.step()
        engine.hooks.clear()
        return request, time.monotonic() - began

    def end(self, engine, request):
        while request.state != "finished":
            engine.step()
        engine.check_output(request)
        engine.step()

    def eventually(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)

    def settled(self, engine):
        """The counts of chunks, when every commit has ended."""
        engine.worker._worker.settle()
        engine.step()
        names = ("stored_chunks", "skipped_chunks:pending", "skipped_chunks:disconnected")
        return tuple(engine.totals.get(name, 0) for name in names)

    def test_no_step_waits_for_the_answer(self):
        engine = self.impatient(deadline_ms=30000)
        request, took = self.store_unanswered(engine)
        self.assertLess(took, 10)
        began = time.monotonic()
        self.end(engine, request)  # the steps after it do not wait either
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(engine.worker._worker._commits.chunks, 4)
        self.assertNotIn("stored_chunks", engine.totals)
        self.go_on()
        self.assertEqual(self.settled(engine), (4, 0, 0))
        self.assertEqual(engine.totals["stored_bytes"], 4 * 128)
        self.assertEqual(self.stored(engine, PROMPT), [0, 1, 2, 3])

    def test_a_later_step_counts_what_has_ended(self):
        engine = self.impatient()
        request = engine.add(self.request(PROMPT, outputs=2))
        engine.step()
        self.assertEqual(engine.worker._worker._commits.chunks, 4)
        self.eventually(lambda: engine.step() or "stored_chunks" in engine.totals, "nothing is counted")
        self.assertEqual(engine.totals["stored_chunks"], 4)
        self.assertEqual(engine.worker._worker._commits.chunks, 0)
        self.end(engine, request)

    def test_steps_look_at_results_now_and_then_whether_they_store_or_not(self):
        engine = self.impatient()
        side = engine.worker._worker
        request = engine.add(self.request(PROMPT, outputs=40))
        engine.step()
        looked = []
        real = side._landed
        side._landed = lambda: looked.append(steps) or real()
        time.sleep(0.2)
        for steps in range(1, 12):
            engine.step()
        self.assertEqual(looked, [commits.MAX_STEPS])
        self.assertEqual(engine.totals["stored_chunks"], 4)
        for first in (100, 200):
            other = engine.add(self.request(list(range(first, first + 33))))
            steps = first
            engine.step()
            self.assertEqual(other.state, "finished")
        for steps in range(300, 300 + commits.MAX_STEPS):
            engine.step()
        # Counted from the first step that began with a commit on its way: 200.
        self.assertEqual(looked, [commits.MAX_STEPS, 300 + commits.MAX_STEPS - 2])
        self.end(engine, request)

    def test_the_next_step_loads_what_was_just_stored(self):
        engine = self.impatient()
        request, _ = self.store_unanswered(engine)
        engine.abort(request.request_id)
        engine.pool.reset()
        # The scheduler's probe goes another way, and must not be what is waited for.
        engine.scheduler.get_num_new_matched_tokens = lambda request, computed: (32, False)
        engine.hooks["before_load"] = lambda: self.go_on(0.2)
        again = engine.add(self.request(PROMPT))
        engine.step()
        self.assertFalse(engine.invalid)
        engine.hooks.clear()
        self.end(engine, again)
        self.assertEqual(engine.totals["hit_tokens"], 32)

    def test_silence_is_one_failure_and_its_chunks_are_hits_in_the_end(self):
        engine = self.impatient(deadline_ms=SHORT_MS)
        link = engine.worker._worker.link
        with mock.patch.object(worker, "MAX_CHUNKS_AT_ONCE", 1):
            request, _ = self.store_unanswered(engine)
        self.assertEqual(len(engine.worker._worker._commits._flights), 4)
        time.sleep(3 * SHORT_MS / 1e3)
        self.end(engine, request)
        self.assertEqual(self.settled(engine), (0, 4, 0))
        self.assertEqual(link.breaker._failures, 1)
        self.go_on()
        self.eventually(lambda: not link.info().unknown_commits, "their fate stays unknown")
        self.assertEqual(self.stored(engine, PROMPT), [0, 1, 2, 3])

    def test_a_marud_that_is_away_opens_the_breaker(self):
        engine = self.impatient(deadline_ms=SHORT_MS)
        side = engine.worker._worker
        engine.scheduler.get_num_new_matched_tokens = lambda request, computed: (0, False)
        engine.hooks["before_load"] = lambda: self.marud.stop(signal.SIGKILL)
        stored = 0
        with mock.patch.object(worker.maru.Namespace, "probe") as probe:
            probe.return_value.hits = [False] * 4
            for first in (0, 100, 200):
                engine.add(self.request(list(range(first, first + 33)), outputs=2))
                engine.step()
                engine.hooks.clear()
                stored += side._commits.chunks
                side.settle()
        self.assertEqual(stored, 8)  # the third found the breaker open
        self.assertEqual(side.link.breaker.opened, 1)
        for _ in range(5):
            engine.step()
        counts = {name: n for name, n in engine.totals.items() if "_chunks" in name}
        self.assertEqual(sum(counts.values()), 12, counts)
        self.assertNotIn("skipped_chunks:error", counts)

    def test_a_reset_retires_what_is_on_its_way(self):
        engine = self.impatient()
        request, _ = self.store_unanswered(engine)
        engine.scheduler.reset_cache()
        self.go_on(0.3)
        self.end(engine, request)
        self.assertEqual(engine.worker._worker._reset_done, 1)
        self.assertEqual(self.stored(engine, PROMPT), [])

    def test_a_reset_is_not_done_before_every_fate_is_known(self):
        engine = self.impatient(deadline_ms=SHORT_MS)
        side = engine.worker._worker
        side.link.breaker._limit = 100
        request, _ = self.store_unanswered(engine)
        side.settle()
        self.assertEqual(side.link.info().unknown_commits, 4)
        engine.scheduler.reset_cache()
        self.end(engine, request)
        self.assertEqual(side._reset_done, 0)
        self.go_on()
        self.eventually(lambda: engine.step() or side._reset_done == 1, "the reset is never done")
        self.assertEqual(self.stored(engine, PROMPT), [])

    def test_a_session_that_is_lost_leaves_no_commit_behind(self):
        engine = self.impatient()
        request, _ = self.store_unanswered(engine)
        side = engine.worker._worker
        old = side.link.current
        side.link.lost(old)
        self.go_on()
        self.eventually(lambda: side.link.current is not None, "no new session")
        self.eventually(lambda: old.client.closed, "the old session is not closed")
        self.end(engine, request)
        self.assertEqual(self.settled(engine), (4, 0, 0))  # they were stored, and have gone since
        self.assertEqual(side._commits.chunks, 0)
        self.assertFalse(side._own)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, PROMPT), 0)
        side.settle()
        self.assertEqual(self.stored(engine, PROMPT), [0, 1, 2, 3])

    def test_what_is_on_its_way_is_bounded(self):
        engine = self.impatient()
        most = []
        real = worker.Commits.add

        def add(commits, *arguments):
            real(commits, *arguments)
            most.append(commits.chunks)

        prompt = list(range(81))
        with mock.patch.object(worker, "MAX_FLYING", 4), mock.patch.object(
            worker, "MAX_CHUNKS_AT_ONCE", 2
        ), mock.patch.object(worker.Commits, "add", add):
            request = engine.add(self.request(prompt))
            self.stop()
            engine.scheduler.get_num_new_matched_tokens = lambda request, computed: (0, False)
            engine.scheduler._scheduler.record(request).probed = True
            self.go_on(0.2)
            self.end(engine, request)
        self.assertEqual(len(most), 5)
        self.assertEqual(max(most), 4)
        self.assertEqual(self.settled(engine), (10, 0, 0))
        self.assertEqual(self.stored(engine, prompt), list(range(10)))

    def test_the_end_of_the_engine_waits_for_them(self):
        engine = self.impatient()
        self.store_unanswered(engine)
        side = engine.worker._worker
        client = side.link.current.client
        self.go_on(0.2)
        engine.close()
        self.assertEqual(side.stats.count("stored_chunks"), 4)
        self.assertTrue(client.closed)

    def test_the_end_does_not_wait_for_ever(self):
        engine = self.impatient(deadline_ms=SHORT_MS)
        self.store_unanswered(engine)
        client = engine.worker._worker.link.current.client
        began = time.monotonic()
        engine.close()
        self.assertLess(time.monotonic() - began, 30)
        self.go_on()
        client.close()

    def test_many_retirements_by_others_do_not_make_the_books_grow(self):
        engine = self.engine(settings(socket=self.marud.socket_path, cpu_pool_size="16K"))
        side = engine.worker._worker
        most = 2 * (16384 // side._object_bytes + 1)
        for first in range(0, 40 * most, 100):
            side._owned(side.link.current, [b"%032d" % (first + i) for i in range(100)])
            self.assertLessEqual(side._own_chunks, 2 * most + 100)
        self.assertEqual(list(side._owned_digests())[-1], b"%032d" % (first + 99))


if __name__ == "__main__":
    unittest.main()
