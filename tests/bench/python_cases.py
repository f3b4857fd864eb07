#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times Maru's Python calls for the benchmark. Usage: python_cases.py BLOCKING_SOCKET SPINNING_SOCKET

Reads lines "NAME TURNS" and answers each with the median in microseconds, or "! why".
"""

import array
import statistics
import sys
import time

import maru

SPIN_US = 1000  # as the C client beside it
KEYS = 4096
TOKENS, CHUNK = 100_000, 256


class Prober:
    """A worker with the objects it asks for."""

    def __init__(self, socket_path, spin_us):
        self.client = maru.Client(
            "python", socket_path=socket_path, timeout_ms=60_000, spin_us=spin_us
        )
        self.namespace = self.client.namespace("python-bench")
        self.namespace.describe(4096, "bench")
        self.pool = self.client.pool(4096 * KEYS, page_bytes=4096, wait_populated=True)
        self.digests = self.namespace.digests(array.array("I", range(KEYS)), 1)
        block = bytes(4096)
        for first in range(0, KEYS, 256):
            keys = self.digests[first : first + 256]
            stored = self.namespace.store(self.pool, keys, [block] * len(keys)).succeeded
            if stored != len(keys):
                raise RuntimeError(f"{stored} of {len(keys)} objects stored")

    def probe(self, keys, turns):
        asked = self.digests[:keys]
        namespace = self.namespace
        return timed(lambda: namespace.probe(asked), turns, lambda found: found.prefix == keys)


def timed(call, turns, is_right):
    for _ in range(20 if turns > 20 else 1):  # the first wake an idle processor
        call()
    clock, times = time.perf_counter_ns, []
    for _ in range(turns):
        begin = clock()
        result = call()
        times.append(clock() - begin)
        if not is_right(result):
            raise RuntimeError(f"a wrong result: {result!r:.100}")
    return statistics.median(times) / 1000


def digests(tokens, turns):
    expected = TOKENS // CHUNK
    return timed(
        lambda: maru.prefix_digests("bench", tokens, CHUNK),
        turns,
        lambda made: len(made) == expected,
    )


def main():
    blocking, spinning = Prober(sys.argv[1], 0), Prober(sys.argv[2], SPIN_US)
    listed = [(7 * i) % 128_000 for i in range(TOKENS)]
    packed = array.array("I", listed)
    cases = {
        "probe-1-blocking": lambda turns: blocking.probe(1, turns),
        "probe-1-spinning": lambda turns: spinning.probe(1, turns),
        "probe-4096-blocking": lambda turns: blocking.probe(KEYS, turns),
        "digests-array": lambda turns: digests(packed, turns),
        "digests-list": lambda turns: digests(listed, turns),
    }
    print("ready", flush=True)
    for line in sys.stdin:
        name, turns = line.split()
        try:
            print(f"{cases[name](int(turns)):.4f}", flush=True)
        except Exception as error:  # told to the bench, which names the case
            print(f"! {type(error).__name__}: {error}".replace("\n", " "), flush=True)
    for prober in (blocking, spinning):
        prober.pool.close(forced=True)
        prober.client.close()


if __name__ == "__main__":
    main()
