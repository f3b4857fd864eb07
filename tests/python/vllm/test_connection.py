# SPDX-License-Identifier: Apache-2.0
"""marud absent, refusing, slow, restarted, and engines that want one id."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import harness
import maru
from harness import VllmTest, settings
from maru_vllm import scheduler
from maru_vllm.breaker import Breaker
from maru_vllm.config import ConfigError

HOLDER = """
import maru, sys, time
client = maru.Client(sys.argv[1], socket_path=sys.argv[2])
print("held", flush=True)
time.sleep(600)
"""


class Connection(VllmTest):
    def own_daemon(self):
        daemon = harness.support.Daemon()
        self.addCleanup(daemon.cleanup)
        daemon.start()
        return daemon

    def eventually(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)

    def test_an_absent_marud_is_one_line_and_the_engine_starts(self):
        path = str(self.daemon.directory / "nobody.sock")
        logging.getLogger("maru_vllm").setLevel(logging.NOTSET)
        with self.assertLogs("maru_vllm", logging.ERROR) as log:
            engine = self.engine(settings(socket=path))
        lines = [record.getMessage() for record in log.records]
        self.assertEqual(len(lines), 1, lines)
        for line in lines:
            for word in (path, "ENOENT", "Start marud"):
                self.assertIn(word, line)
        logging.getLogger("maru_vllm").setLevel(logging.CRITICAL)
        self.assertEqual(self.run_prompt(engine, list(range(33))), 0)
        self.assertEqual(engine.worker._worker.take_stats().data["disconnected"], 1)
        self.assertGreater(engine.totals["skipped_chunks:disconnected"], 0)
        self.assertGreater(engine.totals["misses:disconnected"], 0)

    def test_a_marud_that_comes_later_is_found(self):
        daemon = harness.support.Daemon()
        self.addCleanup(daemon.cleanup)
        engine = self.engine(settings(socket=daemon.socket_path))
        self.assertEqual(self.run_prompt(engine, list(range(33))), 0)
        daemon.start()
        for side in (engine.worker._worker, engine.scheduler._scheduler):
            self.eventually(lambda side=side: side.link.current is not None, "no session")
        self.run_prompt(engine, list(range(50, 83)))
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, list(range(50, 83))), 32)

    def test_required_means_required(self):
        path = str(self.daemon.directory / "nobody.sock")
        with self.assertRaisesRegex(ConfigError, "maru_required.*nobody.sock"):
            self.engine(settings(socket=path, required=True))

    def test_a_socket_that_may_not_be_opened_names_the_remedy(self):
        if os.getuid() == 0:
            self.skipTest("root may open every socket")
        daemon = self.own_daemon()
        os.chmod(daemon.socket_path, 0)
        logging.getLogger("maru_vllm").setLevel(logging.NOTSET)
        with self.assertLogs("maru_vllm", logging.ERROR) as log:
            self.engine(settings(socket=daemon.socket_path))
        self.assertIn("member of its group", log.output[0])

    def test_a_limit_of_marud_is_not_called_a_lack_of_memory(self):
        daemon = harness.support.Daemon()
        daemon.config = daemon.config.replace("per_uid = 65536", "per_uid = 1")
        self.addCleanup(daemon.cleanup)
        daemon.start()
        self.engine(settings(socket=daemon.socket_path))
        logging.getLogger("maru_vllm").setLevel(logging.NOTSET)
        with self.assertLogs("maru_vllm", logging.ERROR) as log:
            self.engine(settings(socket=daemon.socket_path))
        self.assertIn("limits.namespaces_per_uid", log.output[0])
        self.assertIn("Raise the limit", log.output[0])

    def test_the_host_scope_is_refused_by_a_marud_without_it(self):
        client = self.client()
        if client.has_capability("shared_storage_v1"):
            self.skipTest("this marud has shared_storage_v1")
        with self.assertRaisesRegex(ConfigError, "maru_cpu_scope is 'host'.*'worker'"):
            self.engine(settings(cpu_scope="host"))

    def test_an_engine_id_in_use_is_refused_at_once(self):
        extra = settings()
        self.engine(extra)
        started = time.monotonic()
        extra["maru_connect_s"] = 60
        with self.assertRaisesRegex(ConfigError, f"pid {os.getpid()}.*set another maru_engine_id"):
            self.engine(extra)
        self.assertLess(time.monotonic() - started, 30)

    def test_an_engine_id_of_a_process_that_dies_is_waited_for(self):
        extra = settings()
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, extra["maru_engine_id"], self.daemon.socket_path],
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=str(harness.support.PACKAGE)),
        )
        self.addCleanup(holder.wait)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.kill)
        self.assertEqual(holder.stdout.readline(), b"held\n")
        holder.send_signal(signal.SIGKILL)
        self.engine(extra)

    def test_a_slow_marud_costs_a_step_its_deadline_and_then_nothing(self):
        daemon = self.own_daemon()
        engine = self.engine(settings(deadline_ms=60, socket=daemon.socket_path), running=8)
        engine.budget = 400
        prompts = [[n] * 17 for n in range(8)]
        for prompt in prompts:
            self.run_prompt(engine, prompt)
        engine.pool.reset()
        link = engine.scheduler._scheduler.link
        link.breaker._period = 0.05
        os.kill(daemon.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, daemon.pid, signal.SIGCONT)
        asked, waited = [], []
        real = maru.Namespace.probe

        def probe(*arguments, **named):
            if threading.current_thread() is threading.main_thread():  # not the breaker's own
                asked[-1] += 1
            return real(*arguments, **named)

        with mock.patch.object(maru.Namespace, "probe", probe):
            for _ in range(4):
                asked.append(0)
                started = time.monotonic()
                for prompt in prompts:
                    engine.scheduler.on_new_request(self.request(prompt))
                    found = engine.scheduler.get_num_new_matched_tokens(self.request(prompt), 0)
                    self.assertEqual(found, (0, False))
                waited.append(time.monotonic() - started)
                engine.step()
        # Two steps wait, each once for all of its eight requests; the others ask nobody.
        self.assertEqual(asked, [1, 1, 0, 0])
        self.assertGreater(waited[0], 0.05)
        self.assertFalse(link.breaker.closed)
        os.kill(daemon.pid, signal.SIGCONT)
        self.eventually(lambda: link.breaker.closed, "the breaker stays open")
        self.eventually(lambda: self.loads(engine, prompts[0]), "no hit after marud went on")

    def loads(self, engine, prompt):
        engine.pool.reset()
        return self.run_prompt(engine, prompt) > 0

    def test_output_is_right_while_marud_is_killed_and_started(self):
        daemon = self.own_daemon()
        engine = self.engine(settings(deadline_ms=300, socket=daemon.socket_path))
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        for point in ("after_schedule", "before_load", "before_save", "before_update"):
            with self.subTest(point=point):
                self.eventually(lambda: self.loads(engine, prompt), "no hit")

                def kill(point=point):
                    engine.hooks.pop(point)
                    daemon.stop(signal.SIGKILL)

                engine.pool.reset()
                engine.hooks[point] = kill
                self.run_prompt(engine, prompt, outputs=5)
                self.run_prompt(engine, list(range(100, 133)))
                daemon.start()
                for side in (engine.worker._worker, engine.scheduler._scheduler):
                    side.link.breaker._period = 0.05
                    self.eventually(
                        lambda side=side: side.link.breaker.closed, "the breaker stays open"
                    )

    def test_a_fenced_session_is_opened_again(self):
        engine = self.engine()
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        worker = engine.worker._worker
        first = worker.link.current
        worker.link.lost(first)
        self.assertIsNone(worker.link.current)
        engine.pool.reset()
        self.run_prompt(engine, prompt)  # a miss or a failed load, and right
        self.eventually(lambda: worker.link.current is not None, "no new session")
        self.assertNotEqual(worker.link.current.id, first.id)
        engine.pool.reset()
        self.run_prompt(engine, prompt)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, prompt), 32)

    def test_probes_ask_for_the_workers_session_alone(self):
        engine = self.engine()
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        scheduler, worker = engine.scheduler._scheduler, engine.worker._worker
        own = worker.link.info().session
        for named, tokens in ((own + 99, 0), (0, 0), (own, 32)):
            engine.pool.reset()
            scheduler._worker = named
            request = self.request(prompt)
            matched, _ = engine.scheduler.get_num_new_matched_tokens(request, 0)
            self.assertEqual(matched, tokens, named)
            scheduler.finished(request.request_id)
        # Another session of the worker is told in its next step.
        worker.link.lost(worker.link.current)
        self.eventually(lambda: worker.link.current is not None, "no new session")
        self.run_prompt(engine, list(range(100, 133)))
        self.assertNotEqual(scheduler._worker, own)
        self.assertEqual(scheduler._worker, worker.link.info().session)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, list(range(100, 133))), 32)

    def test_a_marud_that_has_lost_its_records_gets_a_new_session(self):
        daemon = self.own_daemon()
        engine = self.engine(settings(deadline_ms=300, socket=daemon.socket_path))
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        scheduler, side = engine.scheduler._scheduler, engine.worker._worker
        own = side.link.current.id
        self.assertEqual((scheduler._worker, side.link.info().session), (own, own))
        daemon.stop(signal.SIGKILL)
        for record in (daemon.directory / "sessions").iterdir():
            record.unlink()
        daemon.start()
        self.eventually(lambda: self.loads(engine, prompt), "nothing is stored and loaded again")
        self.assertNotEqual(side.link.current.id, own)
        self.assertEqual(side.link.info().session, side.link.current.id)
        self.assertEqual(scheduler._worker, side.link.current.id)

    def test_nothing_is_asked_before_the_worker_is_known(self):
        engine = self.engine(start=False)
        engine.start()
        scheduler = engine.scheduler._scheduler
        scheduler._text = None
        self.assertEqual(engine.scheduler.get_num_new_matched_tokens(self.request([1] * 33), 0), (0, False))
        request = engine.add(self.request(list(range(33))))
        self.assertEqual(engine.scheduler.get_num_new_matched_tokens(request, 0), (0, False))
        self.assertIsNone(scheduler.record(request).digests)
        while request.state != "finished":  # the worker's first report binds it as well
            engine.step()
        self.assertIsNotNone(scheduler._text)
        engine.check_output(request)

    def test_a_waiting_request_is_asked_about_once(self):
        engine = self.engine()
        request = self.request(list(range(33)))
        calls = []
        real = maru.Namespace.probe
        maru.Namespace.probe = lambda *a, **k: calls.append(1) or real(*a, **k)
        self.addCleanup(setattr, maru.Namespace, "probe", real)
        engine.scheduler.on_new_request(request)
        for life, expected in ((3600.0, 1), (0.0, 20)):
            calls.clear()
            engine.scheduler._scheduler.record(request).probe_first = -1
            with mock.patch.object(scheduler, "PROBE_LIFE_S", life):
                for _ in range(20):
                    engine.scheduler.get_num_new_matched_tokens(request, 0)
            self.assertEqual(len(calls), expected)

    def test_reset_cache_retires_what_this_engine_stored(self):
        engine = self.engine()
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        self.assertEqual(self.stored(engine, prompt), [0, 1, 2, 3])
        self.assertIs(engine.scheduler.reset_cache(), True)
        engine.pool.reset()
        request = engine.add(self.request(prompt))
        self.assertEqual(engine.scheduler.get_num_new_matched_tokens(request, 0), (0, False))
        while request.state != "finished":
            engine.step()
        engine.check_output(request)
        self.assertEqual(engine.totals["loaded_chunks"] if "loaded_chunks" in engine.totals else 0, 0)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, prompt), 32)  # stored again after the reset

    def test_reset_cache_leaves_what_others_stored(self):
        one, other = self.engine(), self.engine()
        self.run_prompt(one, list(range(33)))
        other.scheduler.reset_cache()
        self.run_prompt(other, list(range(33)))
        self.assertEqual(self.stored(one, list(range(33))), [0, 1, 2, 3])

    def test_check_live_says_who_is_there_without_vllm(self):
        def live(**changes):
            return subprocess.run(
                [sys.executable, "-m", "maru_vllm.check", "-", "--live"],
                input=json.dumps(dict(settings(socket=self.daemon.socket_path), **changes)),
                env=dict(os.environ, PYTHONPATH=str(harness.support.PACKAGE)),
                capture_output=True,
                text=True,
                timeout=60,
            )

        done = live()
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("maru_vllm 0.1.0", "libmaru 0.1.0", "marud 0.1.0", f"uid {os.getuid()}"):
            self.assertIn(word, done.stdout)
        self.assertIn(self.daemon.socket_path, done.stdout)
        done = live(maru_socket="/nowhere/marud.sock")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/marud.sock", done.stderr)

    def test_a_full_pool_keeps_its_hits(self):
        engine = self.engine(settings(cpu_pool_size="16K"))
        prompt = list(range(33))
        self.run_prompt(engine, prompt)
        self.run_prompt(engine, list(range(100, 133)))
        self.assertEqual(engine.totals["skipped_chunks:full"], 4)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, prompt), 32)

    def test_shutdown_gives_everything_back(self):
        engine = self.engine()
        self.run_prompt(engine, list(range(33)))
        engine.close()
        engine.close()
        self.assertIsNone(engine.worker._worker.link.info())


class BreakerTest(unittest.TestCase):
    def test_it_opens_after_two_failures_in_a_row_and_is_closed_by_its_thread(self):
        answers = iter([False, RuntimeError(), True])

        def ping():
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        breaker = Breaker(ping, period_s=0.01)
        breaker.failed()
        breaker.succeeded()
        breaker.failed()
        self.assertTrue(breaker.closed)
        breaker.failed()
        self.assertFalse(breaker.closed)
        self.assertEqual(breaker.opened, 1)
        breaker._thread.join(timeout=30)
        self.assertTrue(breaker.closed)
        breaker.stop()


if __name__ == "__main__":
    unittest.main()
