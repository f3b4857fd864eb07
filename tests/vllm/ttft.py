# SPDX-License-Identifier: Apache-2.0
"""Time to the first token with and without the connector, in one run.

    ttft.py [--prompts N] [--processes N] [--tokens N] [--json FILE] [--hooks]

Alternates processes of "no connector", vLLM's ExampleConnector on tmpfs, and Maru. In each process each
prompt is asked three times: new, again (the engine's own prefix cache), and after that cache was
cleared (only a connector can have it). For Maru the connector's own time over all hooks is told too,
without the copies; --hooks tells each hook's, and marks with ~ what is inside of them and of interest.
All engines run in one process and one thread, as vLLM's offline use does.
"""

import argparse
import ctypes
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]

MODES = ("none", "example", "maru")
KINDS = ("cold", "own", "external")


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Echo:
    """Another process that only answers: what a round trip costs on this machine at a given moment."""

    def __init__(self):
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self._socket.close()
            while packet := other.recv(4096):
                other.send(packet)
            os._exit(0)
        other.close()

    def round_trip(self):
        """In ms."""
        began = time.perf_counter()
        self._socket.send(bytes(300))
        self._socket.recv(4096)
        return (time.perf_counter() - began) * 1e3


class Meter:
    """Time inside the connector's methods, and of it inside the copies."""

    def __init__(self):
        self.own = self.copies = self.inside = 0.0
        self.hooks = {}

    def attach(self, inside):
        import maru
        from maru_vllm.connector import MaruConnector
        from maru_vllm.worker import WorkerSide

        for name, method in list(vars(MaruConnector).items()):
            if callable(method) and not name.startswith("_"):
                setattr(MaruConnector, name, self.timed(method, name, "own"))
        calls = maru._library.load().by_address
        for name, at in (("maru_store_blocks_submit", -2), ("maru_load_blocks", -1)):
            setattr(calls, name, self.copying(getattr(calls, name), at))
        if not inside:  # each of these measurements costs something itself
            return
        for owner, names in (
            (maru.Namespace, ("probe",)),
            (maru.Queue, ("reap",)),
            (maru.PagedMemory, ("store", "load")),
            (WorkerSide, ("_store", "_store_some", "_settle", "_load")),
        ):
            for name in names:
                setattr(owner, name, self.timed(getattr(owner, name), "~" + name, "inside"))
        maru.prefix_digests = self.timed(maru.prefix_digests, "~prefix_digests", "inside")
        for name, function in list(vars(calls).items()):
            setattr(calls, name, self.timed(function, "~~" + name, "inside"))

    def copying(self, function, at):
        """The same, with @at of its arguments asking how long the copy took."""
        took = ctypes.c_uint64()

        def call(*arguments):
            arguments = list(arguments)
            arguments[at] = ctypes.byref(took)
            result = function(*arguments)
            if result >= 0:
                self.copies += took.value / 1e9
            return result

        return call

    def timed(self, method, name, counter):
        def call(*arguments, **named):
            began = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                took = time.perf_counter() - began
                setattr(self, counter, getattr(self, counter) + took)
                self.hooks[name] = self.hooks.get(name, 0.0) + took

        return call

    def take(self):
        """(own time, copies, {hook: its time}) since the last call, in ms."""
        hooks = {name: round(took * 1e3, 3) for name, took in self.hooks.items()}
        taken = (self.own - self.copies) * 1e3, self.copies * 1e3, hooks
        self.own = self.copies = 0.0
        self.hooks = {}
        return taken


def measure(spec):
    echo = Echo()  # before there are threads and much memory to copy
    import phase
    import torch
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    meter = Meter()
    transfer = None
    if spec["mode"] == "example":
        transfer = KVTransferConfig(
            kv_connector="ExampleConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"shared_storage_path": spec["store"]},
        )
    elif spec["mode"] == "maru":
        meter.attach(spec["hooks"])
        transfer = KVTransferConfig(
            kv_connector="MaruConnector",
            kv_connector_module_path="maru_vllm.connector",
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config=spec["extra"],
        )
    length = spec["tokens"] + 2
    llm = LLM(
        model=spec["model"],
        skip_tokenizer_init=True,
        generation_config="vllm",
        dtype="bfloat16",
        enforce_eager=True,
        seed=0,
        max_model_len=spec["tokens"] + 128,
        max_num_seqs=1,
        max_num_batched_tokens=spec["tokens"] + 128,
        block_size=128,
        kv_cache_memory_bytes=512 << 20,
        enable_prefix_caching=True,
        disable_log_stats=False,
        kv_transfer_config=transfer,
    )

    def ask(ids):
        meter.take()
        began = time.perf_counter()
        answer = llm.generate(
            [{"prompt_token_ids": ids}],
            SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False),
            use_tqdm=False,
        )[0]
        took = (time.perf_counter() - began) * 1e3
        return took, list(answer.outputs[0].token_ids), answer.num_cached_tokens, *meter.take()

    for seed in (98, 99):
        ids = phase.prompt(length, seed, 4096)
        ask(ids), ask(ids)
    rows = {"cold": [], "own": [], "external": [], "overhead": {}, "hooks": {}, "copy": [], "cached": []}
    rows["echo"] = {}
    same = True
    for number in range(spec["prompts"]):
        ids = phase.prompt(length, spec["base"] + number, 4096)
        wanted = None
        for kind in KINDS:
            if kind == "external":
                assert llm.reset_prefix_cache()
            # A request comes just after another has ended, with the caches as that has left them.
            rows["echo"].setdefault(kind, []).append(echo.round_trip())
            took, tokens, cached, overhead, copy, hooks = ask(ids)
            rows[kind].append(took)
            rows["overhead"].setdefault(kind, []).append(overhead)
            rows["hooks"].setdefault(kind, []).append(hooks)
            if kind == "external":
                rows["copy"].append(copy)
                rows["cached"].append(cached)
            wanted = wanted or tokens
            same = same and tokens == wanted
    rows["same_first_token"] = same
    assert torch
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--json")
    parser.add_argument("--hooks", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        with open(chosen.measure[0], encoding="utf-8") as file:
            rows = measure(json.load(file))
        with open(chosen.measure[1], "w", encoding="utf-8") as file:
            json.dump(rows, file)
        sys.stdout.flush()
        os._exit(0)
    import models
    import support

    modes = chosen.modes.split(",")
    gathered = {mode: [] for mode in modes}
    with tempfile.TemporaryDirectory(prefix="maru-ttft-", dir="/dev/shm") as store, (
        tempfile.TemporaryDirectory(prefix="maru-ttft-")
    ) as work:
        model = models.make_model(os.path.join(work, "small"), "small")
        support.CONFIG = support.CONFIG.replace('"4M"', '"64M"')  # segments, as a real one has them
        daemon = support.Daemon()
        try:
            daemon.start()
            for turn in range(chosen.processes):
                for mode in modes:
                    spec = {
                        "mode": mode,
                        "model": model,
                        "tokens": chosen.tokens,
                        "prompts": chosen.prompts,
                        "base": 1000 * (turn + 1),
                        "hooks": chosen.hooks,
                        "store": os.path.join(store, str(turn)),
                        "extra": {
                            "maru_socket": daemon.socket_path,
                            "maru_cpu_pool_size": "1G",
                            "maru_engine_id": f"ttft-{turn}",
                            "maru_cache_namespace": f"ttft-{turn}",
                            "maru_cpu_scope": "worker",
                        },
                    }
                    files = [os.path.join(work, f"{mode}{turn}.{kind}") for kind in ("in", "out")]
                    with open(files[0], "w", encoding="utf-8") as file:
                        json.dump(spec, file)
                    done = subprocess.run(
                        [sys.executable, __file__, "--measure", *files],
                        capture_output=True,
                        text=True,
                    )
                    if done.returncode:
                        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])
                    with open(files[1], encoding="utf-8") as file:
                        gathered[mode].append(json.load(file))
        finally:
            daemon.cleanup()
    result = {"tokens": chosen.tokens}
    print(f"{chosen.tokens} tokens, {chosen.prompts} prompts in each of {chosen.processes} processes")
    print(f"{'':10}{'cold':>20}{'own hit':>20}{'external':>20}   p50 (p95) in ms")
    for mode, processes in gathered.items():
        line = f"{mode:10}"
        for kind in KINDS:
            values = [value for rows in processes for value in rows[kind]]
            result.setdefault(mode, {})[kind] = {
                "p50": round(percentile(values, 0.5), 2),
                "p95": round(percentile(values, 0.95), 2),
            }
            line += f"{percentile(values, 0.5):12.2f} ({percentile(values, 0.95):.2f})".rjust(20)
        result[mode]["same_first_token"] = all(rows["same_first_token"] for rows in processes)
        result[mode]["cached"] = sorted({c for rows in processes for c in rows["cached"]})
        print(line)
    if "maru" in gathered:
        ratios = [
            statistics.median(rows["external"]) / statistics.median(rows["own"])
            for rows in gathered["maru"]
        ]
        result["external_to_own"] = [round(ratio, 3) for ratio in ratios]
        print(f"maru: external / own hit, process by process: {result['external_to_own']}")
        for kind in KINDS:
            values = [v for rows in gathered["maru"] for v in rows["overhead"][kind]]
            result["maru"][f"{kind}_overhead_ms"] = round(percentile(values, 0.5), 3)
            echoes = [v for rows in gathered["maru"] for v in rows["echo"][kind]]
            result["maru"][f"{kind}_echo_ms"] = round(percentile(echoes, 0.5), 3)
            calls = [hooks for rows in gathered["maru"] for hooks in rows["hooks"][kind]]
            result["maru"][f"{kind}_hooks_ms"] = {
                name: round(percentile([hooks.get(name, 0.0) for hooks in calls], 0.5), 3)
                for name in sorted({name for hooks in calls for name in hooks})
            }
        copies = [v for rows in gathered["maru"] for v in rows["copy"]]
        result["maru"]["copy_ms"] = round(percentile(copies, 0.5), 3)
        print(
            "maru: own time of all hooks, copies left out: "
            + ", ".join(f"{kind} {result['maru'][kind + '_overhead_ms']} ms" for kind in KINDS)
            + f"; copy of an external hit {result['maru']['copy_ms']} ms"
        )
        print(
            "a bare round trip to another process, just before each request: "
            + ", ".join(f"{kind} {result['maru'][kind + '_echo_ms']} ms" for kind in KINDS)
        )
        if chosen.hooks:
            names = sorted({name for kind in KINDS for name in result["maru"][f"{kind}_hooks_ms"]})
            print(f"{'':34}" + "".join(f"{kind:>10}" for kind in KINDS) + "   p50 in ms")
            for name in names:
                row = (result["maru"][f"{kind}_hooks_ms"].get(name) for kind in KINDS)
                print(f"{name:34}" + "".join(f"{'' if v is None else v:>10}" for v in row))
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
