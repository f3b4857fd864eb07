# SPDX-License-Identifier: Apache-2.0
"""Random schedules against a real marud: whatever happens, every output and every byte is right.

One episode is one engine with some thirty requests over prompts that share prefixes. What happens is
drawn from a seed: admissions, chunked prefill, preemptions, aborts at every point of a step, objects
that vanish between probe and load, resets. MARU_VLLM_SEED=N runs episode N alone, MARU_VLLM_EPISODES
says how many.
"""

import os
import random
import signal
import unittest
from unittest import mock

import harness
import maru
from harness import VllmTest, settings
from maru_vllm import scheduler

SLOW = os.environ.get("MARU_TEST_ALL") == "1"
EPISODES = int(os.environ.get("MARU_VLLM_EPISODES", "3000" if SLOW else "150"))
DEADLY_EPISODES = int(os.environ.get("MARU_VLLM_DEADLY_EPISODES", "100" if SLOW else "6"))


class Episode:
    """What happens to one engine, drawn from @seed."""

    def __init__(self, test, seed, daemon=None):
        self.random = random.Random(seed)
        self.daemon = daemon  # it is killed now and then
        self.dead = 0
        draw = self.random
        # No clock decides: a seed is replayed exactly, on a slow machine too.
        for name in ("PROBE_LIFE_S", "SUSPECT_LIFE_S"):
            patched = mock.patch.object(scheduler, name, draw.choice([0.0, 3600.0]))
            patched.start()
            test.addCleanup(patched.stop)
        self.verify = draw.random() < 0.3
        self.engine = test.engine(
            settings(
                verify="load" if self.verify else "off",
                cpu_pool_size=draw.choice(["64K", "256K", "4M"]),
                kv_chunk_tokens=draw.choice([4, 8, 12]),
                **({"socket": daemon.socket_path, "deadline_ms": 200} if daemon else {}),
            ),
            blocks=draw.choice([24, 40, 80]),
            budget=draw.choice([6, 16, 40]),
            running=draw.choice([1, 3, 6]),
            threshold=draw.choice([None, None, 5]),
        )
        self.engine.resumed_as_new = draw.random() < 0.3
        version = random.Random(f"version {seed}")
        self.engine.saves_when_idle = version.random() < 0.5
        self.engine.saves_last = version.random() < 0.5
        self.engine.patient = version.random() < 0.5
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
        if self.daemon is not None:
            self.live_or_die()
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

    def live_or_die(self):
        """marud is killed, and comes back some steps later."""
        draw = self.random
        if self.dead:
            self.dead -= 1
            if self.dead == 0:
                self.daemon.start()
        elif draw.random() < 0.01:
            self.daemon.stop(signal.SIGKILL)
            self.dead = draw.randrange(1, 40)

    def lose(self):
        """Some objects are gone, or damaged, since the probe."""
        draw = self.random
        if self.daemon is not None:
            return
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
        if self.dead:
            self.daemon.start()
        engine.step()
        engine.worker._worker.settle()
        engine.step()

    def judge(self):
        engine = self.engine
        for request in self.made:
            engine.check_output(request)
        if not self.verify and self.daemon is None:  # a damaged object stays damaged
            for trunk in self.trunks:
                harness.stored_chunks(engine, trunk)
        side, worker = engine.scheduler._scheduler, engine.worker._worker
        assert side.open_requests == 0, "the scheduler remembers finished requests"
        assert not worker._digests, "the worker remembers finished requests"
        assert not worker._bad
        assert not worker._commits.chunks, "a commit has no end"
        assert not worker._errors_logged, worker._errors_logged
        assert worker.link.info().leases == 0, "a lease was left"

    def run_and_judge(self, variable):
        try:
            self.run()
            self.judge()
        except Exception as error:
            raise AssertionError(f"replay with {variable}: {error}") from error
        finally:
            self.engine.close()
        return self.engine.totals


class Schedules(VllmTest):
    def test_every_output_and_every_byte_is_right(self):
        only = os.environ.get("MARU_VLLM_SEED")
        seeds = [int(only)] if only else range(EPISODES)
        totals = {}
        for seed in seeds:
            found = Episode(self, seed).run_and_judge(f"MARU_VLLM_SEED={seed}")
            for name, amount in found.items():
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

    def test_also_while_marud_is_killed_and_started(self):
        daemon = harness.support.Daemon()
        self.addCleanup(daemon.cleanup)
        daemon.start()
        only = os.environ.get("MARU_VLLM_DEADLY_SEED")
        totals = {}
        for seed in [int(only)] if only else range(DEADLY_EPISODES):
            episode = Episode(self, seed, daemon)
            for side in (episode.engine.worker._worker, episode.engine.scheduler._scheduler):
                side.link.breaker._period = 0.02
            found = episode.run_and_judge(f"MARU_VLLM_DEADLY_SEED={seed}")
            for name, amount in found.items():
                totals[name] = totals.get(name, 0) + amount
        if only is None:
            for name in ("hit_tokens", "misses:disconnected", "breaker_opened"):
                self.assertGreater(totals.get(name, 0), 0, f"{name} never happened: {totals}")


if __name__ == "__main__":
    unittest.main()
