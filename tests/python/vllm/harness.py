# SPDX-License-Identifier: Apache-2.0
"""What the tests of the connector share: a marud, engines, and an independent look into the cache."""

import logging
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import engine as engine_module
import maru
import support
from engine import BLOCK, LAYERS, Engine, Request, right_value

CHUNK = 8


def settings(**changes):
    """A configuration that works, with @changes; None removes a setting."""
    extra = {
        "maru_cpu_pool_size": "4M",
        "maru_engine_id": support.unique("engine"),
        "maru_cache_namespace": support.unique("weights"),
        "maru_kv_chunk_tokens": CHUNK,
        "maru_cpu_scope": "worker",
        "maru_deadline_ms": 30000,  # a loaded machine is not a dead marud; tests of that set their own
    }
    for name, value in changes.items():
        extra["maru_" + name] = value
    return {name: value for name, value in extra.items() if value is not None}


class VllmTest(support.MaruTest):
    needs_daemon = True

    def setUp(self):
        logging.getLogger("maru_vllm").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("maru_vllm").setLevel, logging.NOTSET)

    def engine(self, extra=None, **options):
        extra = dict(extra or settings())
        extra.setdefault("maru_socket", self.daemon.socket_path)
        made = Engine(extra, **options)
        self.addCleanup(made.close)
        return made

    def request(self, prompt, outputs=1, **features):
        return Request(support.unique("request"), prompt, outputs, **features)

    def run_prompt(self, engine, prompt, outputs=1, **features):
        """Run it alone, judge its output, and tell the tokens that came from the cache."""
        before = loaded_tokens(engine)
        request = self.request(prompt, outputs, **features)
        engine.run(request)
        engine.check_output(request)
        return loaded_tokens(engine) - before

    def lose_before_load(self, engine, prompt, chunks):
        worker = engine.worker._worker
        digests = maru.prefix_digests(worker._text, prompt, CHUNK)[chunks]

        def lose():
            worker.link.current.namespace.retire(digests)
            engine.hooks.pop("before_load")

        engine.hooks["before_load"] = lose

    def stored(self, engine, prompt):
        """Which chunks of @prompt are in the cache; the bytes of each are judged."""
        return stored_chunks(engine, prompt)


def loaded_tokens(engine):
    return engine.totals.get("hit_tokens", 0)


def stored_chunks(engine, prompt, digests=None):
    """Chunks of @prompt that the engine's worker could read, their bytes compared with the oracle."""
    worker = engine.worker._worker
    session = worker.link.current
    chunk = worker._chunk
    digests = digests or maru.prefix_digests(worker._text, prompt, chunk)
    found = []
    with session.namespace.acquire(digests) as leases:
        for index, lease in enumerate(leases):
            if lease is None:
                continue
            found.append(index)
            view = lease.view
            values = view[: chunk * 8 * len(LAYERS)].cast("Q").tolist()
            del view
            wanted = [
                right_value(tuple(prompt[: index * chunk + offset + 1]), layer)
                for layer in range(len(LAYERS))
                for offset in range(chunk)
            ]
            if values != wanted:
                raise AssertionError(f"chunk {index} of {len(prompt)} tokens holds garbage in marud")
    return found


__all__ = [
    "BLOCK",
    "CHUNK",
    "Engine",
    "Request",
    "VllmTest",
    "engine_module",
    "loaded_tokens",
    "settings",
    "stored_chunks",
]
