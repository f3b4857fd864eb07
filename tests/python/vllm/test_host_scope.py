# SPDX-License-Identifier: Apache-2.0
"""A cache that outlives the engine and is shared by those that live: maru_cpu_scope "host"."""

import errno
import random
import time
import unittest
from unittest import mock

import harness
import maru
from harness import VllmTest, settings


class HostScope(VllmTest):
    def setUp(self):
        super().setUp()
        if not self.client(role="scheduler").has_capability("shared_storage_v1"):
            self.skipTest("this marud has no shared_storage_v1")
        self.extra = settings(cpu_scope="host", cpu_pool_size="64M")

    def another(self, engine_id=None, **options):
        extra = dict(self.extra)
        if engine_id:
            extra["maru_engine_id"] = engine_id
        return self.engine(extra, **options)

    def eventually_loads(self, engine, prompt, expected):
        """Adoption needs the proof that the writer is gone, which takes a moment."""
        deadline = time.monotonic() + 60
        while True:
            engine.pool.reset()
            loaded = self.run_prompt(engine, prompt)
            if loaded == expected or time.monotonic() > deadline:
                self.assertEqual(loaded, expected)
                return
            time.sleep(0.05)

    def test_the_next_life_of_an_engine_loads_what_the_last_one_stored(self):
        prompt = list(range(33))
        engine = self.another()
        self.run_prompt(engine, prompt)
        for _ in range(5):
            engine.close()
            engine = self.another()
            self.assertEqual(self.run_prompt(engine, prompt), 32)

    def test_two_engines_at_once(self):
        prompt = list(range(33))
        one, other = self.another("one"), self.another("other")
        self.run_prompt(one, prompt)
        self.assertEqual(self.run_prompt(other, prompt), 32)
        self.run_prompt(other, list(range(100, 133)))
        self.assertEqual(self.run_prompt(one, list(range(100, 133))), 32)
        self.assertEqual(self.stored(one, prompt), [0, 1, 2, 3])

    def test_both_may_store_one_chunk(self):
        """Neither knew of the other's when it computed."""
        prompt = list(range(33))
        one, other = self.another("one"), self.another("other")
        blind = other.scheduler.get_num_new_matched_tokens
        other.scheduler.get_num_new_matched_tokens = lambda *a: (0, False)
        self.run_prompt(one, prompt)
        self.run_prompt(other, prompt)
        other.scheduler.get_num_new_matched_tokens = blind
        self.assertEqual(other.totals["skipped_chunks:present"], 4)
        allocated = other.worker._worker.link.current.pool.info().allocated_bytes
        self.assertEqual(allocated, 0, "the loser keeps pages")
        other.pool.reset()
        self.assertEqual(self.run_prompt(other, prompt), 32)

    def test_reset_cache_leaves_what_others_stored(self):
        prompt = list(range(33))
        one, other = self.another("one"), self.another("other")
        self.run_prompt(one, prompt)
        other.scheduler.reset_cache()
        other.step()
        other.pool.reset()
        self.assertEqual(self.run_prompt(other, prompt), 32)

    def test_a_segment_that_is_refused_closes_nothing(self):
        """A drain, or no room: what is new is skipped, and what is there is loaded on."""
        prompt = list(range(33))
        engine = self.another()
        self.run_prompt(engine, prompt)
        worker = engine.worker._worker
        session = worker.link.current
        for code in (errno.ENOSPC, errno.EDQUOT, errno.ENODEV, errno.EMFILE, errno.EIO):
            refusal = maru.errors.error_of(-code, "the pool is full")
            with mock.patch.object(maru.PagedMemory, "store", side_effect=refusal):
                for first in (200, 300, 400):
                    self.run_prompt(engine, list(range(first, first + 33)))
            self.assertEqual(worker.link.breaker.opened, 0, refusal)
            self.assertIs(worker.link.current, session)
            engine.pool.reset()
            self.assertEqual(self.run_prompt(engine, prompt), 32)
        self.assertGreater(engine.totals["skipped_chunks:full"], 0)
        self.run_prompt(engine, list(range(500, 533)))
        self.assertEqual(self.stored(engine, list(range(500, 533))), [0, 1, 2, 3])

    def test_engines_that_come_and_go(self):
        """Random prompts on two of them, of which one is closed and made anew now and then."""
        draw = random.Random(5)
        trunk = [draw.randrange(40) for _ in range(64)]
        engines = [self.another(name, blocks=40, budget=24) for name in ("one", "other")]
        loaded = 0
        for _ in range(60):
            which = draw.randrange(2)
            if draw.random() < 0.15:
                engines[which].close()
                engines[which] = self.another(("one", "other")[which], blocks=40, budget=24)
            if draw.random() < 0.3:
                engines[which].pool.reset()
            cut = draw.randrange(1, 64)
            prompt = trunk[:cut] + [draw.randrange(40) for _ in range(draw.randrange(1, 20))]
            loaded += self.run_prompt(engines[which], prompt, outputs=draw.randrange(1, 4))
        self.assertGreater(loaded, 0)
        for engine in engines:
            harness.stored_chunks(engine, trunk)
            self.assertEqual(engine.worker._worker.link.info().leases, 0)


if __name__ == "__main__":
    unittest.main()
