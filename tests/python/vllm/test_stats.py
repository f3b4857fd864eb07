# SPDX-License-Identifier: Apache-2.0
"""The numbers: what they count, how they travel, and that their series are bounded."""

import pickle
import unittest

import harness
from harness import VllmTest
from maru_vllm.stats import COUNTERS, TIMES, MaruPromMetrics, MaruStats


class Metric:
    """A prometheus metric, as far as the connector uses one."""

    made = []

    def __init__(self, name, documentation, labelnames=(), buckets=None):
        self.name, self.labelnames, self.children = name, labelnames, {}
        Metric.made.append(self)

    def labels(self, *values):
        assert len(values) == len(self.labelnames)
        child = self.children.setdefault(values, Child())
        return child


class Child:
    def __init__(self):
        self.value = 0
        self.seen = []

    def inc(self, amount):
        self.value += amount

    def set(self, value):
        self.value = value

    def observe(self, value):
        self.seen.append(value)


def prom(engines=1):
    Metric.made = []
    labels = {index: ["model", str(index)] for index in range(engines)}
    types = {"Gauge": Metric, "Counter": Metric, "Histogram": Metric}
    return MaruPromMetrics(None, types, ["model_name", "engine"], labels)


class Numbers(unittest.TestCase):
    def test_they_add_up_and_survive_the_way_to_the_logger(self):
        worker, scheduler = MaruStats(), MaruStats()
        self.assertTrue(worker.is_empty())
        worker.add("loaded_chunks", 3)
        worker.add("load_failures", 2, "gone")
        worker.time("load_seconds", 0.002)
        scheduler.add("misses", 1, "absent")
        scheduler.add("loaded_chunks", 1)
        sent = pickle.loads(pickle.dumps(worker.take()))
        self.assertTrue(worker.is_empty())
        self.assertIsNone(worker.take())
        both = MaruStats(dict(sent.data)).aggregate(scheduler)
        self.assertEqual(both.count("loaded_chunks"), 4)
        self.assertEqual(both.count("load_failures", "gone"), 2)
        self.assertEqual(both.count("misses", "absent"), 1)
        shown = both.reduce()
        self.assertEqual(shown["Maru loaded chunks"], 4)
        self.assertEqual(shown["Maru load p50 (ms)"], 2.0)

    def test_times_of_an_interval_are_bounded(self):
        stats = MaruStats()
        for _ in range(10_000):
            stats.time("probe_seconds", 0.1)
        self.assertLessEqual(len(stats.data["times"]["probe_seconds"]), 256)

    def test_series_are_made_once_and_never_more(self):
        metrics = prom(engines=2)
        before = sum(len(metric.children) for metric in Metric.made)
        stats = MaruStats()
        for name, (_, reasons) in COUNTERS.items():
            for reason in reasons or ("",):
                stats.add(name, 2, reason)
        for name in TIMES:
            stats.time(name, 0.5)
        stats.add("misses", 1, "a-request-id")
        stats.data["disconnected"] = 1
        metrics.observe(stats.data, 1)
        metrics.observe(stats.data, 7)  # an engine that does not exist
        self.assertEqual(sum(len(metric.children) for metric in Metric.made), before)
        by_name = {metric.name: metric for metric in Metric.made}
        self.assertEqual(by_name["vllm:maru_hit_tokens"].children[("model", "1")].value, 2)
        self.assertEqual(by_name["vllm:maru_hit_tokens"].children[("model", "0")].value, 0)
        self.assertEqual(by_name["vllm:maru_load_seconds"].children[("model", "1")].seen, [0.5])
        self.assertEqual(by_name["vllm:maru_disconnected"].children[("model", "1")].value, 1)
        self.assertEqual(
            by_name["vllm:maru_skipped_chunks"].children[("model", "1", "full")].value, 2
        )


class Counted(VllmTest):
    def test_every_count_that_is_made_has_a_series(self):
        metrics = prom()
        engine = self.engine(harness.settings(cpu_pool_size="16K"))
        for first in (0, 100):
            self.run_prompt(engine, list(range(first, first + 33)))
            engine.pool.reset()
        self.run_prompt(engine, list(range(33)), cache_salt="s")
        engine.pool.reset()
        self.run_prompt(engine, list(range(33)))
        self.assertEqual(set(engine.totals) - set(metrics._counters[0]), set())
        totals = engine.totals
        self.assertEqual(totals["stored_chunks"], 4)
        self.assertEqual(totals["stored_bytes"], 4 * 128)
        self.assertEqual(totals["skipped_chunks:full"], 4)
        self.assertEqual(totals["loaded_chunks"], 4)
        self.assertEqual(totals["loaded_bytes"], 4 * 128)
        self.assertEqual(totals["hit_tokens"], 32)
        self.assertEqual(totals["misses:absent"], 2)
        self.assertEqual(totals["misses:bypass"], 1)


if __name__ == "__main__":
    unittest.main()
