# SPDX-License-Identifier: Apache-2.0
"""The demo's other half: a real vLLM that is started again and again in a pool of eight segments.

    restarts.py [--lives 20] [--json FILE] [--work DIR]     with MARUD, MARU_LIBRARY and the Python that has vLLM

Each life of the engine asks a prompt of its own, and the one of a life before it; every second life is
killed. What the lives before have stored is loaded as long as there was room for it, what finds no room
is computed, and no answer ever changes. At the end it says what is left, and makes room by hand.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]

import demo

SEGMENTS, SEGMENT_MIB = 8, 32
CHUNKS = 4  # of a question, which fill less than a segment: each life that finds room takes one
PATIENCE = 30  # seconds; only a failure takes that long


def question(life):
    """Four chunks and some tokens more, nothing of it shared with the question of another life.

    Less than a block more: then the engine's own cache and Maru have equally much of it, and the same
    computation follows.
    """
    text = f"Life {life}: " + f"the engine's life number {life} asks its own question. " * 30
    return text[: CHUNKS * demo.CHUNK + demo.BLOCK // 2]


def life_phase(spec):
    """(answer, cached tokens) of each of the prompts, written before the engine ends."""
    import phase  # noqa: F401 - sets the environment before vLLM is imported
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    llm = LLM(
        model=spec["model"],
        generation_config="vllm",
        dtype="bfloat16",
        enforce_eager=True,
        seed=0,
        max_model_len=2048,
        max_num_seqs=1,
        max_num_batched_tokens=2048,
        block_size=demo.BLOCK,
        kv_cache_memory_bytes=256 << 20,
        enable_prefix_caching=True,
        disable_log_stats=False,
        kv_transfer_config=KVTransferConfig(**demo.transfer(spec)),
    )
    sampling = SamplingParams(temperature=0, max_tokens=demo.OUTPUT_TOKENS, ignore_eos=True)
    seen = []
    for life in spec["asks"]:
        answer = llm.generate([question(life)], sampling, use_tqdm=False)[0]
        # The oracle comes from the engine's own cache: a whole prompt computed at once is another shape.
        again = llm.generate([question(life)], sampling, use_tqdm=False)[0]
        seen.append((again.outputs[0].text, answer.num_cached_tokens, answer.outputs[0].text))
    counters = {metric.name: getattr(metric, "value", None) for metric in llm.get_metrics()}
    return {
        "answers": seen,
        "stored": sum(v for k, v in counters.items() if k == "vllm:maru_stored_chunks"),
        "loaded": counters["vllm:maru_hit_tokens"],
    }


def run_life(spec, work, killed):
    files = [os.path.join(work, f"life.{kind}") for kind in ("json", "out.json", "log")]
    with open(files[0], "w", encoding="utf-8") as file:
        json.dump(dict(spec, killed=killed), file)
    with open(files[2], "w", encoding="utf-8") as log:
        done = subprocess.run(
            [sys.executable, __file__, "--life", files[0], files[1]], stdout=log, stderr=log
        )
    if done.returncode != (-signal.SIGKILL if killed else 0):
        sys.exit(pathlib.Path(files[2]).read_text(errors="replace")[-4000:])
    with open(files[1], encoding="utf-8") as file:
        return json.load(file)


def maructl(daemon, *words):
    program = os.path.join(os.path.dirname(os.environ["MARUD"]), "..", "maructl", "maructl")
    done = subprocess.run(
        [program, *words, "--socket", daemon.socket_path, "--json"],
        capture_output=True, text=True, check=True,
    )
    return json.loads(done.stdout)


def settled(daemon, segments):
    """The status once so many segments are adopted and charged, or after a while what there is instead.

    A life that was killed leaves its segment when marud has proven that nothing maps it any more.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        status = maructl(daemon, "status")
        found = (status["adopted_segments"], status["host_reserved_bytes"] >> 20)
        if found == (segments, segments * SEGMENT_MIB) or time.monotonic() > deadline:
            return status
        time.sleep(0.1)


def faults_of(rows, retired, left_mib):
    """What is not as it must be, a line each."""
    found = []
    stored = 0
    for row in rows:
        life = row["life"]
        # While there is room, a life stores its question and leaves one segment; after that, neither.
        wanted = {
            "stored_chunks": CHUNKS if life <= SEGMENTS else 0,
            "loaded_tokens": CHUNKS * demo.CHUNK if 1 < life <= SEGMENTS + 1 else 0,
            "adopted_segments": min(life, SEGMENTS),
            "charged_mib": min(life, SEGMENTS) * SEGMENT_MIB,
            "wrong_answers": [],
        }
        found += [
            f"life {life}: {name} is {row[name]}, not {value}" for name, value in wanted.items() if row[name] != value
        ]
        stored += row["stored_chunks"]
    if retired != stored:
        found.append(f"maructl retire: {retired} objects retired, {stored} were stored")
    if left_mib != 0:
        found.append(f"maructl retire: {left_mib} MiB are still charged")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lives", type=int, default=20)
    parser.add_argument("--json")
    parser.add_argument("--work")
    parser.add_argument("--life", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.life:
        with open(chosen.life[0], encoding="utf-8") as file:
            spec = json.load(file)
        seen = life_phase(spec)
        with open(chosen.life[1], "w", encoding="utf-8") as file:
            json.dump(seen, file)
        if spec["killed"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0
    import models
    import support

    folder = tempfile.TemporaryDirectory(prefix="maru-restarts-")
    work = chosen.work or folder.name
    os.makedirs(work, exist_ok=True)
    model = models.make_model(os.path.join(work, "small"), "small")
    demo.make_tokenizer(model)
    support.CONFIG = support.CONFIG.replace('host_bytes = "64G"', f'host_bytes = "{SEGMENTS * SEGMENT_MIB}M"')
    support.CONFIG = support.CONFIG.replace('"4M"', f'"{SEGMENT_MIB}M"\nhost_segment_bytes = "{SEGMENT_MIB}M"')
    daemon = support.Daemon()
    oracle, rows = {}, []
    try:
        daemon.start()
        for life in range(1, chosen.lives + 1):
            asks = [life] if life == 1 else [life - 1, life]
            spec = {
                "model": model,
                "asks": asks,
                "extra": {
                    "maru_socket": daemon.socket_path,
                    "maru_cpu_pool_size": f"{SEGMENTS * SEGMENT_MIB}M",
                    "maru_engine_id": "demo",
                    "maru_cache_namespace": "demo-model@7",
                    "maru_kv_chunk_tokens": demo.CHUNK,
                    "maru_cpu_scope": "host",
                },
            }
            seen = run_life(spec, work, killed=life % 2 == 0)
            wrong = []
            for asked, (text, cached, first) in zip(asks, seen["answers"]):
                wanted = oracle.setdefault(asked, text)
                if text != wanted or (cached != 0 and first != wanted):
                    wrong.append(asked)
            status = settled(daemon, min(life, SEGMENTS))
            rows.append(
                {
                    "life": life,
                    "loaded_tokens": int(seen["loaded"]),
                    "stored_chunks": int(seen["stored"]),
                    "adopted_segments": status["adopted_segments"],
                    "charged_mib": status["host_reserved_bytes"] >> 20,
                    "wrong_answers": wrong,
                }
            )
            row = rows[-1]
            print(
                f"life {life:2}: {row['loaded_tokens']:5} tokens loaded, {row['stored_chunks']:2} chunks stored; "
                f"{row['adopted_segments']} segments adopted, {row['charged_mib']} MiB charged",
                flush=True,
            )
        left = rows[-1]
        same = not any(row["wrong_answers"] for row in rows)
        print(f"left after {chosen.lives} lives: {left['adopted_segments']} segments of {SEGMENTS}, "
              f"{left['charged_mib']} MiB; same output: {same}")
        (namespace,) = maructl(daemon, "namespace")["namespaces"]
        retired = maructl(daemon, "retire", "--namespace", namespace["namespace"])["retired"]
        status = settled(daemon, 0)
        print(f"maructl retire --namespace: {retired} objects retired, "
              f"{status['host_reserved_bytes'] >> 20} MiB charged")
    finally:
        daemon.cleanup()
    left_mib = status["host_reserved_bytes"] >> 20
    faults = faults_of(rows, retired, left_mib)
    result = {
        "same_output": same,
        "lives": rows,
        "retired": retired,
        "left_mib": left_mib,
        "faults": faults,
    }
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    for fault in faults:
        print(f"restarts.py: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
