# SPDX-License-Identifier: Apache-2.0
"""Random schedules against a real marud: whatever happens, every output and every byte is right.

One episode is one engine with some thirty requests over prompts that share prefixes. What happens is
drawn from a seed: admissions, chunked prefill, preemptions, aborts at every point of a step, objects
that vanish between probe and load, resets. MARU_VLLM_SEED=N runs episode N alone, MARU_VLLM_EPISODES
says how many.
"""

import os
import random
import unittest

import harness
import maru
from harness import VllmTest, settings

EPISODES = int(os.environ.get("MARU_VLLM_EPISODES", "150"))


class Episode:
    """What happens to one engine, drawn from @seed."""

    def __init__(self, test, seed):
        self.random = random.Random(seed)
        draw = self.random
        self.verify = draw.random() < 0.3
        self.engine = test.engine(
            settings(
                verify="load" if self.verify else "off",
                cpu_pool_size=draw.choice(["64K", "256K", "4M"]),
                kv_chunk_tokens=draw.choice([4, 8, 12]),
            ),
            blocks=draw.choice([24, 40, 80]),
            budget=draw.choice([6, 16, 40]),
            running=draw.choice([1, 3, 6]),
            threshold=draw.choice([None, None, 5]),
        )
        self.engine.resumed_as_new = draw.random() < 0.3
        trunk = [draw.randrange(40) for _ in range(64)]
        self.trunks = [trunk]
        for _ in range(3):  # others that leave it somewhere
            cut = draw.randrange(4, 48)
            self.trunks.append(trunk[:cut] + [draw.randrange(40) for _ in range(64 - cut)])
        self.left = 30
        self.made = []
        for point in (
            "before_schedule",
            "after_schedule",
            "before_load",
            "before_save",
            "before_update",
        ):
            self.engine.hooks[point] = lambda point=point: self.something(point)

    def prompt(self):
        draw = self.random
        whole = draw.choice(self.trunks)
        return whole[: draw.choice([draw.randrange(1, 64), 8 * draw.randrange(1, 8)])]

    def something(self, point):
        draw = self.random
        engine = self.engine
        if point in ("after_schedule", "before_load") and draw.random() < 0.25:
            self.lose()
        if point in ("before_schedule", "after_schedule", "before_update") and draw.random() < 0.06:
            if engine.requests:
                engine.abort(draw.choice(list(engine.requests)))
        if point == "before_schedule":
            if draw.random() < 0.08 and engine.running:
                engine.preempt(draw.choice(engine.running))
            if draw.random() < 0.1 and not engine.running:
                engine.pool.reset()
            if draw.random() < 0.02:
                assert engine.scheduler.reset_cache() is True

    def lose(self):
        """Some objects are gone, or damaged, since the probe."""
        draw = self.random
        worker = self.engine.worker._worker
        session = worker.link.current
        digests = maru.prefix_digests(worker._text, draw.choice(self.trunks), worker._chunk)
        index = draw.randrange(len(digests))
        victims = digests[index : index + draw.choice([1, 1, 9])]
        if self.verify and draw.random() < 0.5:
            with session.namespace.acquire(victims[:1]) as leases:
                if leases[0] is not None:
                    loan = leases[0]._loan
                    leases[0].length
                    at = loan.address + draw.randrange(loan.length)
                    harness.engine_module.ctypes.c_uint8.from_address(at).value ^= 0x10
            return
        session.namespace.retire(victims)

    def run(self):
        draw = self.random
        engine = self.engine
        steps = 0
        while self.left or engine.requests:
            if self.left and len(engine.requests) < 8 and draw.random() < 0.5:
                self.left -= 1
                features = {}
                if draw.random() < 0.06:
                    features = draw.choice(
                        [{"cache_salt": "s"}, {"prompt_logprobs": 1}, {"lora_request": "a"}]
                    )
                request = harness.Request(
                    f"r{self.left}", self.prompt(), draw.randrange(1, 6), **features
                )
                self.made.append(engine.add(request))
            engine.step()
            steps += 1
            assert steps < 3000, "the engine does not come to an end"
        engine.hooks.clear()
        engine.step()
        engine.step()

    def judge(self):
        engine = self.engine
        for request in self.made:
            engine.check_output(request)
        if not self.verify:  # a damaged object stays damaged
            for trunk in self.trunks:
                harness.stored_chunks(engine, trunk)
        scheduler, worker = engine.scheduler._scheduler, engine.worker._worker
        assert scheduler.open_requests == 0, "the scheduler remembers finished requests"
        assert not worker._digests, "the worker remembers finished requests"
        assert not worker._bad
        assert not worker._errors_logged, worker._errors_logged
        assert worker.link.info().leases == 0, "a lease was left"


class Schedules(VllmTest):
    def test_every_output_and_every_byte_is_right(self):
        only = os.environ.get("MARU_VLLM_SEED")
        seeds = [int(only)] if only else range(EPISODES)
        totals = {}
        for seed in seeds:
            episode = Episode(self, seed)
            try:
                episode.run()
                episode.judge()
            except Exception as error:
                raise AssertionError(f"replay with MARU_VLLM_SEED={seed}: {error}") from error
            finally:
                episode.engine.close()
            for name, amount in episode.engine.totals.items():
                totals[name] = totals.get(name, 0) + amount
        if only is None and EPISODES >= 50:
            for name in (
                "hit_tokens",
                "stored_chunks",
                "load_failures:gone",
                "load_failures:damaged",
                "skipped_chunks:full",
                "skipped_chunks:tainted",
                "misses:bypass",
            ):
                self.assertGreater(totals.get(name, 0), 0, f"{name} never happened: {totals}")


if __name__ == "__main__":
    unittest.main()
