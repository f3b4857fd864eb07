# SPDX-License-Identifier: Apache-2.0
"""The connector in a real vLLM on the CPU: what comes out is what comes out without it.

Each phase is one process (see phase.py) of the Python that MARU_VLLM_PYTHON names, with a marud of the
test's own. Tokens and log-probabilities are compared bit for bit with an engine without a connector;
a load with a local prefix hit, which computes in the same shape. MARU_VLLM_WORK keeps the files.
"""

import functools
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "python")]

import call_shim
import maru
import support

PYTHON = os.environ.get("MARU_VLLM_PYTHON", "")
SHIM = os.environ.get("MARU_CALL_SHIM_LIBRARY", "")
PROMPT_CHUNKS = 3  # of 64 tokens, in a prompt of 209
OBJECT_BYTES = 3 * 2 * 16384  # layers x blocks x bytes of a block in a layer
TIMEOUT = 600


def work_folder():
    named = os.environ.get("MARU_VLLM_WORK")
    if named:
        os.makedirs(named, exist_ok=True)
        return named
    made = tempfile.TemporaryDirectory(prefix="maru-vllm-")
    unittest.addModuleCleanup(made.cleanup)
    return made.name


def setUpModule():
    if not PYTHON or not os.access(PYTHON, os.X_OK):
        raise unittest.SkipTest(
            "MARU_VLLM_PYTHON names no Python with vLLM: tests/setup.sh --vllm makes one"
        )
    if not support.MARUD or not os.environ.get("MARU_LIBRARY"):
        raise unittest.SkipTest("MARUD or MARU_LIBRARY is not set")
    global WORK, MODEL, VERSION
    WORK = work_folder()
    MODEL = os.path.join(WORK, "tiny")
    program = "from maru_vllm.versions import vllm_version; print(vllm_version())"
    said = subprocess.run(
        [PYTHON, "-c", program], env=environment(), check=True, capture_output=True, text=True
    )
    VERSION = said.stdout.strip()
    wanted = os.environ.get("MARU_VLLM_VERSION") or VERSION
    if wanted != VERSION:
        raise AssertionError(f"MARU_VLLM_VERSION is {wanted}, and {PYTHON} has vLLM {VERSION}")
    print(f"vLLM {VERSION}", file=sys.stderr)
    program = f"import models; models.make_model({MODEL!r})"
    subprocess.run([PYTHON, "-c", program], env=environment(), check=True, timeout=TIMEOUT)


def environment(**more):
    path = os.pathsep.join([str(support.PACKAGE), str(HERE)])
    return dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", **more)


def run_phase(name, spec, restart=None, check=True, **more):
    """What the phase saw; with @check False, (exit status, everything it printed)."""
    spec = {"model": MODEL, **spec}
    spec_file = os.path.join(WORK, support.unique(name) + ".json")
    out_file = spec_file[: -len("json")] + "out.json"
    with open(spec_file, "w", encoding="utf-8") as file:
        json.dump(spec, file)
    log_file = spec_file[: -len("json")] + "log"
    with open(log_file, "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [PYTHON, str(HERE / "phase.py"), name, spec_file, out_file],
            env=environment(**more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if restart else log,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        watchdog = threading.Timer(TIMEOUT, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            if restart:
                for line in process.stdout:
                    if line.strip() == "restart" and restart == "SIGKILL":
                        process.kill()
                    elif line.strip() == "restart":
                        process.stdin.write(f"{restart() or ''}\n")
                        process.stdin.flush()
                process.stdout.close()
            process.stdin.close()
            status = process.wait(timeout=TIMEOUT)
        finally:
            watchdog.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    said = pathlib.Path(log_file).read_text(errors="replace")
    if not check:
        return status, said
    if status != 0:
        raise AssertionError(f"phase {name} ended with {status}:\n{said[-6000:]}")
    with open(out_file, encoding="utf-8") as file:
        return json.load(file)


@functools.lru_cache(maxsize=None)
def oracle(kind="oracle", **engine):
    """Without a connector; in a folder that is kept it is asked once."""
    options = "".join(f"-{name}-{value}" for name, value in sorted(engine.items()))
    kept = pathlib.Path(WORK, f"{kind}-{VERSION}{options}.kept")
    if not kept.exists():
        kept.write_text(json.dumps(run_phase(kind, {"engine": engine, "connector": False})))
    return json.loads(kept.read_text())


class VllmTest(unittest.TestCase):
    scope = "worker"

    def setUp(self):
        self.daemon = support.Daemon()
        self.addCleanup(self.daemon.cleanup)
        self.daemon.start()

    def extra(self, **changes):
        made = {
            "maru_socket": self.daemon.socket_path,
            "maru_cpu_pool_size": "64M",
            "maru_engine_id": "test",
            "maru_cache_namespace": "tiny@7",
            "maru_kv_chunk_tokens": 64,
            "maru_cpu_scope": self.scope,
            "maru_deadline_ms": 1000,  # of a loaded machine
        }
        made.update({"maru_" + name: value for name, value in changes.items()})
        return made

    def phase(self, name, extra=None, **spec):
        more = spec.pop("environment", {})
        restart = spec.pop("restart", None)
        return run_phase(name, {"extra": extra or self.extra(), **spec}, restart, **more)

    def assertSame(self, seen, wanted, cached=None):
        self.assertEqual(seen["tokens"], wanted["tokens"])
        self.assertEqual(seen["logprobs"], wanted["logprobs"])
        if cached is not None:
            self.assertEqual(seen["cached"], cached)


class Output(VllmTest):
    def test_store_then_load(self):
        seen, wanted = self.phase("store_then_load"), oracle()
        for name in ("a", "exact", "b"):
            self.assertSame(seen[name]["full"], wanted[name]["full"], 0 if name != "exact" else None)
        # 3 + 3 + 3 chunks, of which "exact" shares all with "a".
        metrics = seen["metrics"]
        self.assertEqual(seen["hits"]["vllm:maru_hit_tokens"], 192)
        self.assertEqual(seen["hits"]["vllm:external_prefix_cache_hits"], 192)
        self.assertEqual(seen["hits"]["vllm:maru_loaded_bytes"], PROMPT_CHUNKS * OBJECT_BYTES)
        self.assertEqual(metrics["vllm:maru_stored_bytes"], 2 * PROMPT_CHUNKS * OBJECT_BYTES)
        self.assertSame(seen["a"]["hit"], wanted["a"]["hit"], 192)
        self.assertSame(seen["b"]["hit"], wanted["b"]["hit"], 192)
        # A prompt that is cached to its last token: one token is left, and nothing breaks.
        self.assertEqual(seen["exact"]["hit"]["tokens"], wanted["exact"]["full"]["tokens"])
        self.assertEqual(seen["exact"]["hit"]["cached"], 128)
        # Not for the cache.
        self.assertEqual(seen["bypassed"]["vllm:maru_hit_tokens"], 0)
        self.assertEqual(seen["salted"]["tokens"], wanted["a"]["full"]["tokens"])
        self.assertEqual(seen["prompt_logprobs"]["tokens"], wanted["a"]["full"]["tokens"])
        self.assertEqual(metrics["vllm:maru_misses:bypass"], 1)
        self.assertEqual(metrics["vllm:maru_misses:prompt_logprobs"], 1)
        # Retired by reset_cache(): computed again.
        self.assertEqual(seen["reset"]["vllm:maru_hit_tokens"], 0)
        self.assertSame(seen["after_reset"], wanted["a"]["full"], 0)

    def test_chunked_prefill(self):
        """Steps of 96 tokens, where a chunk has 64."""
        engine = {"max_num_batched_tokens": 96}
        seen, wanted = self.phase("store_then_load", engine=engine), oracle(**engine)
        for name in ("a", "b"):
            self.assertSame(seen[name]["full"], wanted[name]["full"], 0)
            self.assertSame(seen[name]["hit"], wanted[name]["hit"], 192)
        self.assertEqual(seen["metrics"]["vllm:maru_stored_bytes"], 2 * PROMPT_CHUNKS * OBJECT_BYTES)

    def test_with_vllms_processes(self):
        """Front end, scheduler and worker each a process of their own."""
        several = {"environment": {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}}
        seen, wanted = self.phase("store_then_load", **several), oracle()
        for name in ("a", "b"):
            self.assertSame(seen[name]["full"], wanted[name]["full"], 0)
            self.assertSame(seen[name]["hit"], wanted[name]["hit"], 192)
        self.assertSame(seen["after_reset"], wanted["a"]["full"], 0)

    def test_a_crowd_with_preemption(self):
        wanted = oracle("crowd")
        seen = self.phase("crowd", connector=True)
        self.assertEqual(seen["first"], wanted["first"])
        self.assertEqual(seen["second"], wanted["first"])
        self.assertGreater(seen["metrics"]["vllm:maru_hit_tokens"], 0)

    def test_a_pool_smaller_than_the_working_set(self):
        seen, wanted = self.phase("full_pool", self.extra(cpu_pool_size="384K")), oracle()
        self.assertSame(seen["full"], wanted["a"]["full"], 0)
        self.assertSame(seen["hit"], wanted["a"]["hit"], 192)
        self.assertGreater(seen["metrics"]["vllm:maru_skipped_chunks:full"], 0)


class Faults(VllmTest):
    def test_what_is_lost_between_probe_and_load_is_computed_again(self):
        seen, wanted = self.phase("faults"), oracle()
        self.assertSame(seen["full"], wanted["a"]["full"], 0)
        self.assertSame(seen["fault0"], wanted["a"]["full"])  # computed again in one piece
        for first in (1, 2):
            self.assertEqual(seen[f"fault{first}"]["tokens"], wanted["a"]["full"]["tokens"])
        for first in (0, 1, 2):  # the failing step stored nothing, the next one did
            self.assertSame(seen[f"again{first}"], wanted["a"]["hit"], 192)
        self.assertEqual(seen["metrics"]["vllm:maru_load_failures:gone"], 3 + 2 + 1)

    def test_a_failed_load_and_an_abort_leave_no_garbage(self):
        seen, wanted = self.phase("abort_hazard"), oracle()
        self.assertSame(seen["next"], wanted["a"]["full"], 0)
        self.assertSame(seen["again"], wanted["a"]["hit"], 192)

    def test_damage_is_found_with_verification(self):
        seen, wanted = self.phase("flipped", self.extra(verify="load")), oracle()
        self.assertSame(seen["full"], wanted["a"]["full"], 0)
        self.assertSame(seen["flip0"], wanted["a"]["full"])
        self.assertEqual(seen["flip2"]["tokens"], wanted["a"]["full"]["tokens"])
        self.assertSame(seen["again0"], wanted["a"]["hit"], 192)
        self.assertSame(seen["again2"], wanted["a"]["hit"], 192)
        self.assertGreaterEqual(seen["metrics"]["vllm:maru_load_failures:damaged"], 2)

    def test_damage_changes_the_output_without(self):
        """The negative control: if this passed unnoticed, no test here would notice anything."""
        seen, wanted = self.phase("flipped", self.extra(verify="off")), oracle()
        self.assertSame(seen["full"], wanted["a"]["full"], 0)
        self.assertNotEqual(seen["flip0"]["tokens"], wanted["a"]["full"]["tokens"])

    def test_marud_killed_between_probe_and_load_and_during_generation(self):
        seen = self.phase(
            "marud_killed",
            self.extra(deadline_ms=200),
            marud=self.daemon.pid,
            restart=self.start_again,
        )
        wanted = oracle()
        self.assertSame(seen["killed"], wanted["a"]["full"])
        self.assertSame(seen["without"], wanted["a"]["full"], 0)
        self.assertSame(seen["back"], wanted["a"]["hit"], 192)
        self.assertSame(seen["during"], wanted["b"]["full"], 0)
        self.assertSame(seen["after"], wanted["b"]["full"], 0)

    def test_the_workers_session_is_replaced(self):
        seen, wanted = self.phase("sessions"), oracle()
        # What the session before had stored ended with it; nothing of it is loaded.
        self.assertSame(seen["replaced"], wanted["a"]["full"], 0)
        self.assertSame(seen["again"], wanted["a"]["hit"], 192)
        self.assertSame(seen["stale"], wanted["a"]["full"])
        self.assertSame(seen["last"], wanted["a"]["hit"], 192)
        self.assertEqual(seen["metrics"]["vllm:maru_hit_tokens"], 2 * 192)

    def test_marud_killed_between_commit_and_reply(self):
        if not SHIM:
            self.skipTest("MARU_CALL_SHIM_LIBRARY is not set: nothing holds marud's answers back")
        rules = os.path.join(WORK, support.unique("shim"))
        call_shim.CallShim(rules)
        self.daemon.cleanup()
        self.daemon = support.Daemon(["env", f"LD_PRELOAD={SHIM}", f"{call_shim.VARIABLE}={rules}"])
        self.addCleanup(self.daemon.cleanup)
        self.daemon.start()
        seen = self.phase(
            "commit_unanswered",
            self.extra(deadline_ms=500),
            marud=self.daemon.pid,
            shim=rules,
            restart=self.start_again,
        )
        wanted = oracle()
        self.assertSame(seen["full"], wanted["a"]["full"], 0)
        self.assertSame(seen["without"], wanted["a"]["full"], 0)
        self.assertSame(seen["back"], wanted["a"]["hit"], 192)
        self.assertEqual(seen["metrics"]["vllm:maru_skipped_chunks:pending"], 3)

    def start_again(self):
        self.daemon._process.wait(timeout=30)
        self.daemon._process = None
        self.daemon.start()
        return self.daemon.pid

    def test_the_policy_fail_is_refused_at_the_start(self):
        for several in ("0", "1"):
            status, said = run_phase(
                "refused",
                {"extra": self.extra(), "policy": "fail"},
                check=False,
                VLLM_ENABLE_V1_MULTIPROCESSING=several,
            )
            self.assertNotEqual(status, 0)
            self.assertIn("kv_load_failure_policy is 'fail': must be 'recompute'", said)

    def test_no_marud_at_all(self):
        extra = self.extra(socket=str(self.daemon.directory / "nobody.sock"))
        seen, wanted = self.phase("load_only", extra), oracle()
        self.assertSame(seen["hit"], wanted["a"]["full"], 0)
        self.assertEqual(seen["metrics"]["vllm:maru_disconnected"], 1)


class HostScope(VllmTest):
    """A cache that outlives the engine, and is shared by those that live."""

    scope = "host"

    def setUp(self):
        super().setUp()
        with maru.Client("ask", role="scheduler", socket_path=self.daemon.socket_path) as client:
            if not client.has_capability("shared_storage_v1"):
                self.skipTest("this marud has no shared_storage_v1")

    def test_a_new_process_loads_what_an_earlier_one_stored(self):
        wanted = oracle()
        for ended in ("closed", "killed"):
            extra = self.extra(cache_namespace=ended)
            if ended == "closed":
                self.phase("hold", extra, restart=lambda: None)
            else:
                with self.assertRaises(AssertionError):
                    self.phase("hold", extra, restart="SIGKILL")
            seen = self.phase("load_only", extra)
            self.assertSame(seen["hit"], wanted["a"]["hit"], 192)

    def test_other_namespaces_and_other_models_share_nothing(self):
        self.phase("hold", restart=lambda: None)
        seen = self.phase("load_only", self.extra(cache_namespace="tiny@8"))
        self.assertSame(seen["hit"], oracle()["a"]["full"], 0)
        # Another model under the same name, which is the user's mistake: its KV has another layout.
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            program = f"import models; models.make_model({folder!r}, 'flat')"
            subprocess.run([PYTHON, "-c", program], env=environment(), check=True, timeout=TIMEOUT)
            seen = self.phase("load_only", model=folder)
        self.assertEqual(seen["hit"]["cached"], 0)
        self.assertEqual(seen["metrics"]["vllm:maru_misses:absent"], 1)
        self.assertSame(self.phase("load_only")["hit"], oracle()["a"]["hit"], 192)

    def test_two_engines_at_once(self):
        wanted = oracle()
        others = []

        def another():
            others.append(self.phase("load_only", self.extra(engine_id="other")))

        seen = self.phase("hold", restart=another)
        self.assertSame(others[0]["hit"], wanted["a"]["hit"], 192)
        self.assertSame(seen["hit"], wanted["a"]["hit"], 192)


class Server(VllmTest):
    def test_the_api_server(self):
        """Stored and loaded through HTTP, with a restart of the local prefix cache between."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        transfer = {
            "kv_connector": "MaruConnector",
            "kv_connector_module_path": "maru_vllm.connector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": self.extra(),
        }
        command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", MODEL, "--skip-tokenizer-init", "--generation-config", "vllm"]
        command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512"]
        command += ["--max-num-seqs", "1", "--block-size", "32", "--seed", "0"]
        command += ["--max-num-batched-tokens", "512", "--kv-cache-memory-bytes", str(64 << 20)]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        command += ["--kv-transfer-config", json.dumps(transfer)]
        settings = environment(
            VLLM_TARGET_DEVICE="cpu",
            VLLM_CPU_OMP_THREADS_BIND="nobind",
            OMP_NUM_THREADS="2",
            HF_HUB_OFFLINE="1",
            VLLM_NO_USAGE_STATS="1",
            VLLM_CPU_CI_ENV="1",
            VLLM_SERVER_DEV_MODE="1",  # for POST /reset_prefix_cache
        )
        log_name = os.path.join(WORK, "server.log")
        with open(log_name, "w", encoding="utf-8") as log:
            server = subprocess.Popen(
                command, env=settings, stdout=log, stderr=log, start_new_session=True
            )
        self.addCleanup(self.end, server)

        def ask(method, path, body=None):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            self.assertEqual(answer.status, 200, text)
            return text

        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                ask("GET", "/health")
                break
            except OSError:
                log = pathlib.Path(log_name).read_text(errors="replace")
                self.assertIsNone(server.poll(), log[-4000:])
                self.assertLess(time.monotonic(), deadline, log[-4000:])
                time.sleep(0.5)
        program = "import json, phase; print(json.dumps(phase.prompt()))"
        ids = json.loads(
            subprocess.run(
                [PYTHON, "-c", program], env=environment(), check=True, capture_output=True
            ).stdout
        )
        request = {
            "model": MODEL,
            "prompt": ids,
            "max_tokens": 24,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        answers = []
        for _ in range(2):
            answer = json.loads(ask("POST", "/v1/completions", request))
            answers.append(answer["choices"][0]["token_ids"])
            ask("POST", "/reset_prefix_cache")
        wanted = oracle()["a"]
        self.assertEqual(answers, [wanted["full"]["tokens"], wanted["hit"]["tokens"]])
        metrics = ask("GET", "/metrics")
        hits = [line for line in metrics.splitlines() if line.startswith("vllm:maru_hit_tokens_total")]
        self.assertEqual([float(line.rsplit(" ", 1)[1]) for line in hits], [192.0], hits)
        self.assertIn('vllm:maru_skipped_chunks_total{engine="0"', metrics)

    def end(self, server):
        server.terminate()
        try:
            server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(server.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        server.wait()


if __name__ == "__main__":
    unittest.main(verbosity=2)
