# SPDX-License-Identifier: Apache-2.0
"""One process of a test with a real vLLM: phase.py PHASE SPEC.json OUT.json

SPEC has the model's folder, the connector's extra config and what the phase needs; OUT gets what was
seen. The parent, test_vllm.py, judges. A fresh process per phase: what it leaves is marud's alone.
"""

import errno
import json
import os
import signal
import sys
import time

os.environ.update(
    VLLM_TARGET_DEVICE="cpu",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    OMP_NUM_THREADS="2",
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_CPU_CI_ENV="1",
)
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")


def prompt(length=209, seed=3, vocabulary=512):
    import torch

    numbers = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocabulary, (length,), generator=numbers).tolist()


class Engine:
    def __init__(self, spec, connector=True, faulty=True, **changes):
        from vllm import LLM
        from vllm.config import KVTransferConfig

        transfer = None
        if connector:
            transfer = KVTransferConfig(
                kv_connector="FaultyConnector" if faulty else "MaruKVConnector",
                kv_connector_module_path="faulty" if faulty else "maru_vllm",
                kv_role="kv_both",
                kv_load_failure_policy=spec.get("policy", "recompute"),
                kv_connector_extra_config=spec["extra"],
            )
        options = dict(
            model=spec["model"],
            skip_tokenizer_init=True,
            generation_config="vllm",
            dtype="float32",
            enforce_eager=True,
            seed=0,
            max_model_len=512,
            max_num_seqs=1,
            max_num_batched_tokens=512,
            block_size=32,
            kv_cache_memory_bytes=64 << 20,
            enable_prefix_caching=True,
            disable_log_stats=False,
            kv_transfer_config=transfer,
        )
        options.update(spec.get("engine", {}), **changes)
        self.llm = LLM(**options)

    def generate(self, *prompts, tokens=24, salt=None, **sampling):
        asked = [
            {"prompt_token_ids": ids, **({"cache_salt": salt} if salt else {})} for ids in prompts
        ]
        outputs = self.llm.generate(asked, self.params(tokens, **sampling), use_tqdm=False)
        return self.seen(outputs)

    def generate_by_steps(self, ids, after_tokens, event, tokens=24):
        """One prompt; @event() is called once that many tokens have come out."""
        core = self.llm.llm_engine
        core.add_request("stepped", {"prompt_token_ids": ids}, self.params(tokens))
        last = None
        while core.has_unfinished_requests():
            for last in core.step():
                if event and len(last.outputs[0].token_ids) >= after_tokens:
                    event()
                    event = None
        assert event is None, "it ended before the event"
        return self.seen([last])

    @staticmethod
    def params(tokens, **sampling):
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=0,
            max_tokens=tokens,
            ignore_eos=True,
            detokenize=False,
            logprobs=5,
            output_kind=RequestOutputKind.CUMULATIVE,
            **sampling,
        )

    @staticmethod
    def seen(outputs):
        seen = [
            {
                "tokens": list(output.outputs[0].token_ids),
                "logprobs": [
                    sorted((token, float(entry.logprob).hex()) for token, entry in step.items())
                    for step in output.outputs[0].logprobs or []
                ],
                "finish": output.outputs[0].finish_reason,
                "cached": output.num_cached_tokens,
            }
            for output in outputs
        ]
        return seen[0] if len(seen) == 1 else seen

    def forget_local(self):
        assert self.llm.reset_prefix_cache()

    def metrics(self):
        found = {}
        for metric in self.llm.get_metrics():
            name = metric.name
            if "external_prefix_cache" not in name and "maru_" not in name:
                continue
            reason = metric.labels.get("reason")
            key = f"{name}:{reason}" if reason else name
            value = getattr(metric, "value", None)
            found[key] = metric.count if value is None else value
        return found

    @property
    def worker(self):
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        return get_kv_transfer_group()._worker

    @property
    def scheduler(self):
        return self.llm.llm_engine.engine_core.engine_core.scheduler


# ---- the phases: each returns what it saw --------------------------------------------------------


def oracle(spec):
    """No connector. "hit" is the local prefix hit: the shape of computation that a load leaves."""
    engine = Engine(spec, connector=False)
    seen = {}
    for name, ids in (("a", prompt()), ("exact", prompt(192)), ("b", prompt(209, 5))):
        seen[name] = {"full": engine.generate(ids), "hit": engine.generate(ids)}
    return seen


def store_then_load(spec):
    engine = Engine(spec, faulty=False)
    seen = {}
    for name, ids in (("a", prompt()), ("exact", prompt(192)), ("b", prompt(209, 5))):
        seen[name] = {"full": engine.generate(ids)}
    engine.forget_local()
    before = engine.metrics()
    seen["a"]["hit"] = engine.generate(prompt())
    after = engine.metrics()
    seen["hits"] = {k: after[k] - before[k] for k in after}
    engine.forget_local()
    seen["exact"]["hit"] = engine.generate(prompt(192))
    engine.forget_local()
    before = engine.metrics()
    seen["salted"] = engine.generate(prompt(), salt="pepper")
    seen["prompt_logprobs"] = engine.generate(prompt(), prompt_logprobs=1)
    after = engine.metrics()
    seen["bypassed"] = {k: after[k] - before[k] for k in after}
    engine.forget_local()
    seen["b"]["hit"] = engine.generate(prompt(209, 5))
    seen["metrics"] = engine.metrics()
    assert engine.llm.reset_prefix_cache(reset_connector=True)
    before = engine.metrics()
    seen["after_reset"] = engine.generate(prompt())
    after = engine.metrics()
    seen["reset"] = {k: after[k] - before[k] for k in after}
    return seen


def load_only(spec):
    engine = Engine(spec, faulty=False)
    return {"hit": engine.generate(prompt()), "metrics": engine.metrics()}


def hold(spec):
    """Stores, waits for what others do meanwhile, and loads its own again."""
    engine = Engine(spec, faulty=False)
    seen = {"full": engine.generate(prompt())}
    print("restart", flush=True)
    sys.stdin.readline()
    engine.forget_local()
    seen["hit"] = engine.generate(prompt())
    return seen


def faults(spec):
    import faulty

    engine = Engine(spec)
    seen = {"full": engine.generate(prompt())}
    for first in (0, 1, 2):
        engine.forget_local()
        faulty.before_load.append(faulty.drop(first))
        seen[f"fault{first}"] = engine.generate(prompt())
        assert not faulty.before_load
        engine.forget_local()
        seen[f"again{first}"] = engine.generate(prompt())
    seen["metrics"] = engine.metrics()
    return seen


def abort_hazard(spec):
    """A failed load, then an abort before anything was computed again."""
    import faulty
    from vllm import SamplingParams

    engine = Engine(spec)
    engine.generate(prompt())
    engine.forget_local()
    faulty.before_load.append(faulty.drop(0))
    core = engine.llm.llm_engine
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False)
    core.add_request("doomed", {"prompt_token_ids": prompt()}, params)
    core.step()
    assert not faulty.before_load, "the step did not load"
    core.abort_request(["doomed"])
    while core.has_unfinished_requests():
        core.step()
    seen = {"next": engine.generate(prompt())}
    engine.forget_local()
    seen["again"] = engine.generate(prompt())
    seen["metrics"] = engine.metrics()
    return seen


def flipped(spec):
    """Some bytes of the first and of the last chunk are others when they are loaded."""
    import faulty

    engine = Engine(spec)
    seen = {"full": engine.generate(prompt())}
    for chunk in (0, 2):
        engine.forget_local()
        faulty.before_load.append(faulty.flip(chunk))
        seen[f"flip{chunk}"] = engine.generate(prompt())
        engine.forget_local()
        seen[f"again{chunk}"] = engine.generate(prompt())
        if spec["extra"].get("maru_verify") != "load":
            break  # what is in the cache is damaged now
    seen["metrics"] = engine.metrics()
    return seen


def marud_killed(spec):
    """Between probe and load; then, with another life of it, during generation."""
    import faulty

    engine = Engine(spec)
    seen = {"full": engine.generate(prompt())}
    engine.forget_local()
    faulty.before_load.append(lambda worker, step: os.kill(spec["marud"], signal.SIGKILL))
    started = time.monotonic()
    seen["killed"] = engine.generate(prompt())
    seen["killed_s"] = time.monotonic() - started
    engine.forget_local()
    started = time.monotonic()
    seen["without"] = engine.generate(prompt())
    seen["without_s"] = time.monotonic() - started
    print("restart", flush=True)
    marud = int(sys.stdin.readline())
    deadline = time.monotonic() + 60
    while True:  # it is found again without a restart of the engine
        engine.forget_local()
        seen["back"] = engine.generate(prompt())
        if seen["back"]["cached"] == 192 or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    seen["during"] = engine.generate_by_steps(
        prompt(209, 5), 6, lambda: os.kill(marud, signal.SIGKILL)
    )
    engine.forget_local()
    seen["after"] = engine.generate(prompt(209, 5))
    seen["metrics"] = engine.metrics()
    return seen


def sessions(spec):
    """The worker's session is replaced: between two requests, and between the probe and the load."""
    import faulty

    engine = Engine(spec)
    seen = {"full": engine.generate(prompt())}
    own = engine.worker.link.info().session
    faulty.replace_session(engine.worker)
    assert engine.worker.link.info().session != own
    engine.forget_local()
    seen["replaced"] = engine.generate(prompt())
    engine.forget_local()
    seen["again"] = engine.generate(prompt())
    engine.forget_local()
    faulty.before_load.append(faulty.replace_session)
    seen["stale"] = engine.generate(prompt())
    assert not faulty.before_load, "the step did not load"
    engine.forget_local()
    seen["last"] = engine.generate(prompt())
    seen["metrics"] = engine.metrics()
    return seen


def commit_unanswered(spec):
    """marud takes a commit, cannot answer it, and is killed; another life of it comes."""
    import call_shim
    import maru

    shim = call_shim.CallShim(spec["shim"])
    store = maru.PagedMemory.store
    commits = []

    def unanswered(*arguments, **named):
        maru.PagedMemory.store = store
        shim.fail(call_shim.SENDMSG, errno.EAGAIN)
        before = shim.failed(call_shim.SENDMSG)
        commits.append(store(*arguments, **named))
        deadline = time.monotonic() + 30
        while shim.failed(call_shim.SENDMSG) == before:  # it has been taken when marud answers
            assert time.monotonic() < deadline, "marud did not answer"
            time.sleep(0.001)
        os.kill(spec["marud"], signal.SIGKILL)
        return commits[0]

    engine = Engine(spec)
    maru.PagedMemory.store = unanswered
    seen = {"full": engine.generate(prompt())}
    assert maru.PagedMemory.store is store, "nothing was committed"
    engine.worker.settle()
    assert set(commits[0].result()) == {-errno.EINPROGRESS}, list(commits[0].result())
    shim.fail(call_shim.SENDMSG, 0)
    engine.forget_local()
    seen["without"] = engine.generate(prompt())
    print("restart", flush=True)
    sys.stdin.readline()
    deadline = time.monotonic() + 60
    while True:
        engine.forget_local()
        seen["back"] = engine.generate(prompt())
        if seen["back"]["cached"] == 192 or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    seen["metrics"] = engine.metrics()
    return seen


def full_pool(spec):
    """The working set does not fit: what is stored stays a hit, the rest is skipped."""
    engine = Engine(spec, faulty=False)
    seen = {"full": engine.generate(prompt())}
    for seed in range(10, 16):
        engine.generate(prompt(209, seed), tokens=1)
    engine.forget_local()
    seen["hit"] = engine.generate(prompt())
    seen["metrics"] = engine.metrics()
    return seen


def crowd(spec):
    """Several requests at once, so few blocks that some are preempted; then all of them again."""
    engine = Engine(
        spec,
        connector=spec["connector"],
        faulty=False,
        max_num_seqs=6,
        num_gpu_blocks_override=26 if spec["connector"] else 400,
    )
    shared = prompt(128, 20)
    prompts = [shared[: 64 * (i % 3)] + prompt(100 + 7 * i, 30 + i) for i in range(6)]
    first = engine.generate(*prompts, tokens=120)
    engine.forget_local()
    second = engine.generate(*prompts, tokens=120)
    return {
        "first": [answer["tokens"] for answer in first],
        "second": [answer["tokens"] for answer in second],
        "metrics": engine.metrics(),
    }


def refused(spec):
    Engine(spec, faulty=False)
    return {"started": True}


PHASES = {
    function.__name__: function
    for function in (
        oracle,
        store_then_load,
        load_only,
        hold,
        faults,
        abort_hazard,
        flipped,
        marud_killed,
        sessions,
        commit_unanswered,
        full_pool,
        crowd,
        refused,
    )
}


def main(name, spec_file, out_file):
    with open(spec_file, encoding="utf-8") as file:
        spec = json.load(file)
    seen = PHASES[name](spec)
    with open(out_file, "w", encoding="utf-8") as file:
        json.dump(seen, file)


if __name__ == "__main__":  # vLLM's own processes import this file again
    main(*sys.argv[1:4])
