# SPDX-License-Identifier: Apache-2.0
"""What could go wrong after a load has failed, and what loads nothing in the first place."""

import unittest

from harness import VllmTest


class FailedLoads(VllmTest):
    def test_prompt_logprobs_load_nothing_and_store(self):
        engine = self.engine()
        prompt = list(range(33))
        self.assertEqual(self.run_prompt(engine, prompt, prompt_logprobs=1), 0)
        self.assertEqual(self.stored(engine, prompt), [0, 1, 2, 3])
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, prompt, prompt_logprobs=1), 0)
        self.assertEqual(engine.totals["stored_chunks"], 4)
        self.assertEqual(engine.totals["skipped_chunks:present"], 4)

    def test_what_was_not_promised_by_us_is_not_taken_for_loaded(self):
        """vLLM says that tokens are to be loaded, and nobody knows their names."""
        engine = self.engine()
        engine.scheduler._scheduler._text = None
        engine.scheduler.get_num_new_matched_tokens = lambda request, computed: (16, False)
        engine.worker.build_connector_worker_meta = lambda: None
        prompt = list(range(33))
        self.assertEqual(self.run_prompt(engine, prompt, outputs=3), 0)
        self.assertTrue(engine.invalid)

    def test_the_abort_hazard(self):
        """A failed load, then an abort before anything is computed again."""
        engine = self.engine()
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        engine.pool.reset()
        self.lose_before_load(engine, prompt, slice(0, 4))
        request = engine.add(self.request(prompt))
        engine.step()
        self.assertTrue(engine.invalid)
        self.assertEqual(request.state, "running")
        engine.abort(request.request_id)
        engine.step()
        self.assertEqual(engine.pool.cached, {})
        self.run_prompt(engine, prompt)
        self.assertEqual(self.stored(engine, prompt), [0, 1, 2, 3])

    def test_who_shares_the_blocks_of_a_load_waits_for_its_outcome(self):
        """Two of one prefix in one step; the load fails, and who should compute again is aborted."""
        engine = self.engine(budget=100)
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        engine.pool.reset()
        self.lose_before_load(engine, prompt, slice(0, 4))
        first = engine.add(self.request(prompt))
        second = engine.add(self.request(prompt[:32] + [99], 3))
        engine.step()
        self.assertTrue(engine.invalid)
        self.assertEqual((first.state, second.state), ("running", "waiting"))
        engine.abort(first.request_id)
        while second.state != "finished":
            engine.step()
        engine.check_output(second)

    def test_a_request_that_is_preempted_instead_of_computing_again(self):
        engine = self.engine()
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        engine.pool.reset()
        self.lose_before_load(engine, prompt, slice(0, 4))
        request = engine.add(self.request(prompt, 2))
        engine.step()
        self.assertTrue(engine.invalid)
        engine.preempt(request)
        while request.state != "finished":
            engine.step()
        engine.check_output(request)

    def test_without_a_way_to_evict_nothing_is_loaded(self):
        """A failed load could not be repaired."""
        engine = self.engine()
        self.run_prompt(engine, list(range(33)))
        engine.scheduler._scheduler.garbage._evict = None
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, list(range(33))), 0)


if __name__ == "__main__":
    unittest.main()
