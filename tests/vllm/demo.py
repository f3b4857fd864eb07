# SPDX-License-Identifier: Apache-2.0
"""The demo with a real vLLM: one engine computes, it ends, another one loads, and a server too.

    demo.py [--json FILE] [--work DIR]       with MARUD, MARU_LIBRARY and the Python that has vLLM

Prompts are text with a shared prefix; model and tokenizer are made here, so no network is needed. It
prints the time to the first token computed, found in the engine's own cache, and loaded from Maru, and
whether the output is the same.
"""

import argparse
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]

TOPICS = ("a lighthouse", "the number seven", "an old bridge", "rain", "a chess opening")
BLOCK, CHUNK = 128, 256
OUTPUT_TOKENS = 16


def prompts():
    """Questions about one long text: some 2,100 tokens, one byte each, all but the last ones shared."""
    sentence = "Maru keeps what was computed once, so that nobody has to compute it again. "
    shared = "".join(f"({number}) {sentence}" for number in range(1, 27))[:2060]
    return [f"{shared}\nNow tell me about {topic}." for topic in TOPICS]


def make_tokenizer(folder):
    """One token a byte: what any text needs, and nothing to download."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        return
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<pad>", "<s>", "</s>", *alphabet]
    names += [f"<unused{number}>" for number in range(4096 - len(names))]
    made = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)


def transfer(spec):
    return {
        "kv_connector": "MaruConnector",
        "kv_connector_module_path": "maru_vllm.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": spec["extra"],
    }


def engine_phase(spec):
    """An engine's life: each prompt twice (computed or loaded, then from its own cache)."""
    import phase  # noqa: F401 - sets the environment before vLLM is imported
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    llm = LLM(
        model=spec["model"],
        generation_config="vllm",
        dtype="bfloat16",
        enforce_eager=True,
        seed=0,
        max_model_len=4096,
        max_num_seqs=1,
        max_num_batched_tokens=4096,
        block_size=BLOCK,
        kv_cache_memory_bytes=512 << 20,
        enable_prefix_caching=True,
        disable_log_stats=False,
        kv_transfer_config=KVTransferConfig(**transfer(spec)),
    )

    def ask(text, tokens, salt=None):
        began = time.perf_counter()
        answer = llm.generate(
            [{"prompt": text, **({"cache_salt": salt} if salt else {})}],
            SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True),
            use_tqdm=False,
        )[0]
        return (time.perf_counter() - began) * 1e3, answer

    for warm_up in ("x" * 2100, "y" * 2100, "z" * 300):
        ask(warm_up, 1)
    seen = {"computed": [], "first": [], "again": [], "text": [], "cached": []}
    for number, text in enumerate(prompts()):
        assert llm.reset_prefix_cache()  # the prompts share a prefix: each is to stand alone
        # One with a salt is not for the cache: nothing of it is loaded, whoever has its prefix.
        seen["computed"].append(ask(text, 1, salt=f"alone-{number}")[0])
        took, answer = ask(text, 1)
        seen["first"].append(took)
        seen["cached"].append(answer.num_cached_tokens)
        seen["again"].append(ask(text, 1)[0])
        assert llm.reset_prefix_cache()
        seen["text"].append(ask(text, OUTPUT_TOKENS)[1].outputs[0].text)
    seen["hits"] = next(m.value for m in llm.get_metrics() if m.name == "vllm:maru_hit_tokens")
    return seen


def run_engine(spec, work, number):
    files = [os.path.join(work, f"engine{number}.{kind}") for kind in ("json", "out.json", "log")]
    with open(files[0], "w", encoding="utf-8") as file:
        json.dump(spec, file)
    with open(files[2], "w", encoding="utf-8") as log:
        done = subprocess.run(
            [sys.executable, __file__, "--engine", files[0], files[1]], stdout=log, stderr=log
        )
    if done.returncode:
        sys.exit(pathlib.Path(files[2]).read_text(errors="replace")[-4000:])
    with open(files[1], encoding="utf-8") as file:
        return json.load(file)


def run_server(spec, work):
    """The same prompts through HTTP: (texts, hit tokens)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", spec["model"], "--generation-config", "vllm", "--dtype", "bfloat16"]
    command += ["--enforce-eager", "--seed", "0", "--max-model-len", "4096", "--max-num-seqs", "1"]
    command += ["--max-num-batched-tokens", "4096", "--block-size", str(BLOCK)]
    command += ["--kv-cache-memory-bytes", str(512 << 20), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--kv-transfer-config", json.dumps(transfer(spec))]
    import phase  # noqa: F401 - the environment of vLLM on the CPU

    settings = dict(os.environ, VLLM_SERVER_DEV_MODE="1", VLLM_ENABLE_V1_MULTIPROCESSING="1")
    with open(os.path.join(work, "server.log"), "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            command, env=settings, stdout=log, stderr=log, start_new_session=True
        )

    def ask(method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request(
            method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        return text

    try:
        deadline = time.monotonic() + 300
        while True:
            try:
                ask("GET", "/health")
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > deadline:
                    sys.exit(pathlib.Path(work, "server.log").read_text(errors="replace")[-4000:])
                time.sleep(0.5)
        texts = []
        for text in prompts():
            ask("POST", "/reset_prefix_cache")
            request = {"model": spec["model"], "prompt": text, "max_tokens": OUTPUT_TOKENS}
            request.update(temperature=0, ignore_eos=True)
            answer = json.loads(ask("POST", "/v1/completions", request))
            texts.append(answer["choices"][0]["text"])
        lines = ask("GET", "/metrics").splitlines()
        hits = sum(float(l.split()[-1]) for l in lines if l.startswith("vllm:maru_hit_tokens_total"))
        return texts, hits
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def shared_pools(daemon):
    import maru

    with maru.Client("demo-ask", role="scheduler", socket_path=daemon.socket_path) as client:
        return client.has_capability("shared_storage_v1")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--work")
    parser.add_argument("--engine", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.engine:
        with open(chosen.engine[0], encoding="utf-8") as file:
            seen = engine_phase(json.load(file))
        with open(chosen.engine[1], "w", encoding="utf-8") as file:
            json.dump(seen, file)
        return 0
    import models
    import support

    folder = tempfile.TemporaryDirectory(prefix="maru-demo-")
    work = chosen.work or folder.name
    os.makedirs(work, exist_ok=True)
    model = models.make_model(os.path.join(work, "small"), "small")
    make_tokenizer(model)
    support.CONFIG = support.CONFIG.replace('"4M"', '"64M"')  # segments, as a real one has them
    daemon = support.Daemon()
    try:
        daemon.start()
        host = shared_pools(daemon)
        print(f"marud runs at {daemon.socket_path}")
        spec = {
            "model": model,
            "extra": {
                "maru_socket": daemon.socket_path,
                "maru_cpu_pool_size": "512M",
                "maru_engine_id": "demo",
                "maru_cache_namespace": "demo-model@7",
                "maru_kv_chunk_tokens": CHUNK,
                "maru_cpu_scope": "host" if host else "worker",
            },
        }
        first = run_engine(spec, work, 1)
        print("engine 1 computed five prompts, and has ended")
        second = run_engine(spec, work, 2)
        print("engine 2 answered them, and has ended")
        texts, server_hits = run_server(spec, work)
        print("an API server answered them")
    finally:
        daemon.cleanup()
    median = statistics.median
    result = {
        "same_output": first["text"] == second["text"] == texts,
        "external_hits": int(second["hits"] + server_hits),
        "outlives_the_engine": host,
        "ttft_ms": {
            "recompute": round(median(first["computed"] + second["computed"]), 1),
            "local_hit": round(median(first["again"] + second["again"]), 1),
            "maru_hit": round(median(second["first"]), 1),
        },
    }
    ttft = result["ttft_ms"]
    print(f"\ntime to the first token of a prompt of {len(prompts()[0])} tokens, medians:")
    print(f"  computed             {ttft['recompute']:8.1f} ms")
    print(f"  engine's own cache   {ttft['local_hit']:8.1f} ms")
    print(f"  loaded from Maru     {ttft['maru_hit']:8.1f} ms")
    print(f"tokens loaded: {result['external_hits']}; same output: {result['same_output']}")
    if not host:
        print("this marud has no pools that outlive an engine: the second engine computed again")
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    good = result["same_output"] and (result["external_hits"] > 0)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
