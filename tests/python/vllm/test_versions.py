# SPDX-License-Identifier: Apache-2.0
"""Where versions of vLLM from 0.30 to 0.33, and its two model runners, call the connector differently."""

import unittest
from types import SimpleNamespace
from unittest import mock

from harness import CHUNK, VllmTest
from maru_vllm import scheduler

PROMPT = list(range(45))
STORED = list(range(45 // CHUNK))


class Versions(VllmTest):
    def store_and_load(self, engine):
        """@engine stores, forgets, and loads what it stored."""
        self.run_prompt(engine, PROMPT, outputs=2)
        self.assertEqual(self.stored(engine, PROMPT), STORED)
        engine.step()  # one without tokens
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, PROMPT, outputs=2), CHUNK * len(STORED))
        self.assertFalse(engine.scheduler._scheduler.open_requests)
        self.assertFalse(engine.worker._worker._digests)

    def test_a_step_without_tokens_may_save_nothing(self):
        """0.30; later ones call wait_for_save() in every step."""
        for saves in (False, True):
            with self.subTest(saves_when_idle=saves):
                engine = self.engine()
                engine.saves_when_idle = saves
                self.store_and_load(engine)

    def test_no_layer_has_anything_to_wait_for(self):
        engine = self.engine()
        with mock.patch.object(type(engine.worker), "wait_for_layer_load") as waited, (
            mock.patch.object(type(engine.worker), "save_kv_layer")
        ) as saved:
            self.store_and_load(engine)
        waited.assert_not_called()
        saved.assert_not_called()

    def test_a_load_may_be_started_with_more_arguments(self):
        """The second model runner says which step it is, and each version says more of it."""
        engine = self.engine()
        engine.load_arguments = {
            "scheduler_output": SimpleNamespace(),
            "request_state_indices": [0],
            "request_ids": ["a"],
            "num_tokens": 1,
            "attn_metadata": {},
        }
        self.store_and_load(engine)

    @mock.patch.object(scheduler, "PROBE_LIFE_S", 0.0)
    def test_a_resumed_request_may_be_told_as_a_new_one(self):
        for as_new in (False, True):
            with self.subTest(resumed_as_new=as_new):
                engine = self.engine()
                engine.resumed_as_new = as_new
                request = engine.add(self.request(PROMPT, 3))
                while not request.outputs:
                    engine.step()
                engine.preempt(request)
                engine.pool.reset()
                while request.state != "finished":
                    engine.step()
                engine.check_output(request)
                self.assertEqual(engine.totals["hit_tokens"], CHUNK * len(STORED))

    def test_the_saves_may_come_after_the_results(self):
        """With a draft model, vLLM asks first which blocks were not loaded, and lets save afterwards."""
        for last in (False, True):
            with self.subTest(saves_last=last):
                engine = self.engine()
                engine.saves_last = last
                self.run_prompt(engine, PROMPT[:33])
                engine.pool.reset()
                self.lose_before_load(engine, PROMPT, slice(0, 4))
                request = engine.add(self.request(PROMPT))
                engine.step()  # computes what a chunk has behind those that are not there
                self.assertTrue(engine.invalid)
                self.assertEqual(self.stored(engine, PROMPT), [])
                while request.state != "finished":
                    engine.step()
                engine.check_output(request)
                self.assertEqual(self.stored(engine, PROMPT), STORED)

    def test_the_block_pool_alone_can_take_hashes_away(self):
        """vLLM's cache manager is its own affair; a connector may be given the pool only."""
        engine = self.engine(start=False)
        del engine.kv_config.kv_cache_layout
        engine.start()
        engine.scheduler._scheduler.garbage._evict = None
        engine.scheduler.bind_gpu_block_pool(engine.pool)
        self.store_and_load(engine)


if __name__ == "__main__":
    unittest.main()
