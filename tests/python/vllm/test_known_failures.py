# SPDX-License-Identifier: Apache-2.0
"""Failures that users of such connectors reported; each test is named by its id in tests/README.md."""

import threading
import time
import unittest

import harness
import maru
from harness import BLOCK, CHUNK, VllmTest, settings
from maru_vllm.config import ConfigError
from engine import vllm_config


class KnownFailures(VllmTest):
    def test_A12_no_hit_is_remembered_that_is_gone(self):
        engine = self.engine()
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, prompt), 32)
        session = engine.worker._worker.link.current
        digests = maru.prefix_digests(engine.worker._worker._text, prompt, CHUNK)
        self.assertEqual(session.namespace.retire(digests).succeeded, 4)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, prompt), 0)
        scheduler = engine.scheduler._scheduler
        self.assertEqual(scheduler.open_requests, 0)
        self.assertFalse(scheduler._suspects or scheduler._damaged)

    def test_A73_a_failed_load_is_no_hit_and_is_computed_again(self):
        """The first chunk gone, a later one gone, all gone: right output, nothing counted as a hit."""
        for gone, loaded in ((slice(0, 1), 0), (slice(2, 3), 16), (slice(0, 4), 0)):
            with self.subTest(gone=gone):
                engine = self.engine()
                prompt = list(range(33))
                self.run_prompt(engine, prompt)
                engine.pool.reset()
                self.lose_before_load(engine, prompt, gone)
                self.assertEqual(self.run_prompt(engine, prompt, outputs=4), loaded)
                self.assertTrue(engine.invalid)
                self.assertEqual(self.stored(engine, prompt), [0, 1, 2, 3])
                engine.pool.reset()
                self.assertEqual(self.run_prompt(engine, prompt), 32)

    def test_A61_namespaces_share_nothing_and_a_missing_one_is_refused(self):
        one = self.engine(settings(cache_namespace="weights-1", engine_id="a61-one"))
        self.run_prompt(one, list(range(33)))
        text = one.worker._worker._text
        other = self.engine(settings(cache_namespace="weights-2", engine_id="a61-two"))
        self.assertNotEqual(other.worker._worker._text, text)
        self.assertEqual(self.run_prompt(other, list(range(33))), 0)
        with self.assertRaisesRegex(ConfigError, "maru_cache_namespace is missing"):
            self.engine(settings(cache_namespace=None))

    def test_A62_what_cannot_be_identified_bypasses_the_cache(self):
        engine = self.engine()
        prompt = list(range(40))
        self.run_prompt(engine, prompt)
        stored = engine.totals["stored_chunks"]
        probes = []
        real = maru.Namespace.probe
        maru.Namespace.probe = lambda *a, **k: probes.append(a) or real(*a, **k)
        self.addCleanup(setattr, maru.Namespace, "probe", real)
        for features in (
            {"lora_request": "adapter-a"},
            {"lora_request": "adapter-b"},
            {"cache_salt": "salt"},
            {"prompt_embeds": object()},
            {"mm_features": ["image"]},
            {"pooling_params": object()},
        ):
            with self.subTest(features=features):
                engine.pool.reset()
                self.assertEqual(self.run_prompt(engine, prompt, **features), 0)
        self.assertEqual(probes, [])
        self.assertEqual(engine.totals["stored_chunks"], stored)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, prompt), 32)  # one token is left to compute

    def test_A64_several_ranks_are_refused_by_name(self):
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
            engine = self.engine(start=False)
            setattr(engine.config.parallel_config, name, 2)
            with self.assertRaisesRegex(ConfigError, f"{name} is 2"):
                engine.start()

    def test_A65_a_token_is_always_left_to_compute(self):
        engine = self.engine(blocks=80, budget=100)
        whole = list(range(66))
        self.run_prompt(engine, whole)
        for length, expected in ((64, 56), (65, 64), (63, 56), (8, 0), (7, 0)):
            engine.pool.reset()
            self.assertEqual(self.run_prompt(engine, whole[:length]), expected, length)

    def test_A66_every_chunk_of_a_chunked_prefill_is_stored_once(self):
        for budget in (10, 3, 8, 7):
            engine = self.engine(budget=budget)
            prompt = list(range(33))
            self.run_prompt(engine, prompt)
            self.assertEqual(engine.totals["stored_chunks"], 4)
            self.assertEqual(self.stored(engine, prompt), [0, 1, 2, 3])
            engine.pool.reset()
            self.assertEqual(self.run_prompt(engine, prompt), 32)
            self.assertEqual(engine.totals["stored_chunks"], 4)

    def test_A67_no_partial_chunk_is_stored_and_local_blocks_are_not_rewritten(self):
        engine = self.engine(settings(kv_chunk_tokens=BLOCK), budget=100)
        short = list(range(13))
        self.run_prompt(engine, short)
        self.assertEqual(engine.totals["stored_chunks"], 3)
        for computed, expected in ((0, 12), (4, 8), (8, 4), (12, 0)):
            longer = short + list(range(100 * computed + 50, 100 * computed + 57))
            engine.pool.reset()
            if computed:
                short_one = self.request(longer[: computed + 1])  # its blocks stay in the local cache
                engine.worker.start_load_kv = lambda context: None
                engine.scheduler.get_num_new_matched_tokens = lambda *a: (0, False)
                engine.run(short_one)
                del engine.worker.start_load_kv, engine.scheduler.get_num_new_matched_tokens
            seen = []
            real = engine.worker._worker._load

            def load(job, real=real, seen=seen):
                seen.extend(block for block in job.blocks if block != maru.NO_BLOCK)
                real(job)

            engine.worker._worker._load = load
            self.assertEqual(self.run_prompt(engine, longer), expected, computed)
            self.assertEqual(len(seen), expected // BLOCK)
            del engine.worker._worker._load

    def test_A67_a_hit_may_begin_inside_a_chunk(self):
        engine = self.engine(budget=100)
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        for key in [k for k in engine.pool.cached if len(k) > 3 * BLOCK]:
            engine.pool.evict_blocks({engine.pool.cached[key]})
        kept = {block: key for key, block in engine.pool.cached.items()}
        self.assertEqual(len(kept), 3)
        self.assertEqual(self.run_prompt(engine, prompt), 32 - 3 * BLOCK)

    def test_A68_chunks_of_several_blocks_may_stay_unfilled(self):
        engine = self.engine(settings(kv_chunk_tokens=32), blocks=80, budget=400)
        first = 0
        for length, chunks in ((31, 0), (32, 1), (33, 1), (44, 1), (64, 2)):
            prompt = list(range(first, first + length))
            first += 100
            self.run_prompt(engine, prompt)
            self.assertEqual(len(self.stored(engine, prompt)), chunks, length)
            engine.pool.reset()
            loaded = (length - 1) // 32 * 32
            self.assertEqual(self.run_prompt(engine, prompt), loaded, length)
        engine = self.engine(settings(kv_chunk_tokens=30))
        self.assertEqual(engine.worker._worker._chunk, 32)  # rounded up to whole blocks

    def test_A69_a_copy_has_ended_before_its_blocks_are_anothers(self):
        """A slow store: the hook of the step returns after it, and nothing is left to preempt."""
        engine = self.engine()
        ended = []
        real = maru.PagedMemory.store

        def slow(*arguments, **named):
            time.sleep(0.05)
            operation = real(*arguments, **named)
            ended.append(time.monotonic())
            return operation

        maru.PagedMemory.store = slow
        self.addCleanup(setattr, maru.PagedMemory, "store", real)
        prompt = list(range(33))
        request = engine.add(self.request(prompt, 3))
        returned = []
        while request.state != "finished":
            engine.hooks["before_update"] = lambda: returned.append(time.monotonic())
            engine.step()
            if len(ended) == 1 and request.state == "running" and not request.resumed:
                request.resumed = True
                engine.preempt(request)
                self.run_prompt(engine, list(range(100, 133)))  # takes the blocks
        engine.check_output(request)
        self.assertTrue(ended)
        self.assertEqual(threading.active_count(), 1)
        self.assertEqual(self.stored(engine, prompt), [0, 1, 2, 3])

    def test_A70_a_request_that_was_never_scheduled_leaves_nothing(self):
        engine = self.engine()
        self.run_prompt(engine, list(range(33)))
        engine.pool.reset()
        gone = engine.add(self.request(list(range(33))))
        engine.scheduler.get_num_new_matched_tokens(gone, 0)
        engine.abort(gone.request_id)
        other = self.request(list(range(50, 70)))
        engine.add(other)
        engine.step()
        self.assertEqual(len(engine.scheduler._scheduler._requests), 1)
        while other.state != "finished":
            engine.step()
        engine.step()
        self.assertEqual(engine.scheduler._scheduler.open_requests, 0)
        self.assertEqual(engine.worker._worker.link.info().leases, 0)

    def test_A71_without_marud_a_promised_load_fails_in_time(self):
        daemon = harness.support.Daemon()
        self.addCleanup(daemon.cleanup)
        daemon.start()
        engine = self.engine(settings(deadline_ms=200, socket=daemon.socket_path))
        prompts = [[n] + list(range(32)) for n in (1, 2, 3)]
        for prompt in prompts:
            self.run_prompt(engine, prompt)
        engine.pool.reset()
        daemon_stopped = []

        def stop():
            if not daemon_stopped:
                daemon.stop(harness.support.signal.SIGKILL)
                daemon_stopped.append(time.monotonic())

        engine.budget = 100
        engine.hooks["before_load"] = stop
        requests = [engine.add(self.request(prompt)) for prompt in prompts]
        engine.step()
        self.assertLess(time.monotonic() - daemon_stopped[0], 30)  # and not for ever
        self.assertTrue(engine.invalid)
        while any(request.state != "finished" for request in requests):
            engine.step()
        for request in requests:
            engine.check_output(request)
        engine.hooks.clear()
        daemon.start()
        engine.worker._worker.link.breaker._period = 0.01
        deadline = time.monotonic() + 60
        engine.pool.reset()
        while self.run_prompt(engine, prompts[0]) == 0:
            self.assertLess(time.monotonic(), deadline, "no hit after marud came back")
            engine.pool.reset()
            time.sleep(0.05)

    def test_A72_an_aborted_load_leaves_neither_lease_nor_garbage(self):
        """Aborted at each point of the step that loads, with the load failing and not."""
        for point in ("after_schedule", "before_load", "before_save", "before_update"):
            for fails in (False, True):
                with self.subTest(point=point, fails=fails):
                    engine = self.engine()
                    prompt = list(range(33))
                    self.run_prompt(engine, prompt)
                    engine.pool.reset()
                    if fails:
                        self.lose_before_load(engine, prompt, slice(0, 4))
                    request = engine.add(self.request(prompt))
                    before = engine.hooks.get(point)

                    def abort(before=before):
                        if before is not None:
                            before()
                        engine.hooks.pop(point, None)
                        engine.abort(request.request_id)

                    engine.hooks[point] = abort
                    engine.step()
                    engine.hooks.clear()
                    self.run_prompt(engine, prompt)  # judged: a poisoned prefix gives wrong tokens
                    self.stored(engine, prompt)
                    self.assertEqual(engine.worker._worker.link.info().leases, 0)
                    self.assertEqual(engine.scheduler._scheduler.open_requests, 0)

    def test_A73_only_the_recompute_policy_is_accepted(self):
        for policy in (None, "fail"):
            engine = self.engine(start=False)
            engine.config = vllm_config(
                dict(settings(), maru_socket=self.socket_path()),
                kv_transfer_config__kv_load_failure_policy=policy,
            )
            with self.assertRaisesRegex(ConfigError, "kv_load_failure_policy.*'recompute'"):
                engine.start()
        self.engine()

    def test_A74_nothing_of_one_step_is_looked_up_in_the_next(self):
        engine = self.engine(budget=400, blocks=300, running=250)
        first = engine.add(self.request(list(range(9))))
        second = engine.add(self.request(list(range(20, 30)), 3))
        engine.step()
        self.assertEqual(first.state, "finished")
        engine.step()
        third = engine.add(self.request(list(range(40, 50))))
        while second.state != "finished" or third.state != "finished":
            engine.step()
        many = [engine.add(self.request([n])) for n in range(200)]
        for _ in range(20):
            engine.step()
        self.assertTrue(all(request.state == "finished" for request in many))
        for request in (first, second, third, *many):
            engine.check_output(request)
        worker, scheduler = engine.worker._worker, engine.scheduler._scheduler
        self.assertFalse(worker._digests or worker._bad or scheduler.open_requests)


if __name__ == "__main__":
    unittest.main()
