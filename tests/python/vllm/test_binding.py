# SPDX-License-Identifier: Apache-2.0
"""How the scheduler learns whose KV it asks about: from marud, and then from the worker itself."""

import json
import logging
import threading
import time
import unittest
from unittest import mock

import maru
from harness import CHUNK, VllmTest, settings
from maru_vllm import link, namespace, scheduler

PROMPT = list(range(33))


def another_text(text, **changes):
    return json.dumps(dict(json.loads(text), **changes))


class Binding(VllmTest):
    def setUp(self):
        super().setUp()
        self.asked = []  # in the main thread?, answer
        real = maru.Client.worker

        def worker(client):
            answer = self.answer(real(client))
            self.asked.append((threading.current_thread() is threading.main_thread(), answer))
            return answer

        self.answer = lambda answer: answer
        self.enterContext_(mock.patch.object(maru.Client, "worker", worker))
        self.enterContext_(mock.patch.object(link, "FIRST_RETRY_S", 0.02))

    def enterContext_(self, patch):  # unittest has it from Python 3.11 on
        patch.start()
        self.addCleanup(patch.stop)

    def eventually(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)

    def matched(self, engine, request):
        return engine.scheduler.get_num_new_matched_tokens(request, 0)

    def test_marud_tells_what_no_handshake_does(self):
        engine = self.engine(handshake=False)
        side = engine.scheduler._scheduler
        self.assertFalse(side._told)
        self.assertEqual(side._text, engine.worker._worker._text)
        self.assertEqual(side._worker, engine.worker._worker.link.info().session)
        self.assertEqual(self.run_prompt(engine, PROMPT), 0)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, PROMPT), 32)
        # At the start, and never again: not in a step, and not by the thread.
        self.assertEqual(self.asked, [(True, (side._worker, side._text))])

    def test_the_first_prompt_of_a_new_scheduler_hits(self):
        engine = self.engine(handshake=False)
        self.run_prompt(engine, PROMPT)
        engine.scheduler.shutdown()
        engine.start_scheduler()
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, PROMPT), 32)

    def test_while_nobody_is_known_nothing_is_probed_hashed_or_remembered(self):
        engine = self.engine(start=False, handshake=False)
        with mock.patch.object(maru.Namespace, "probe") as probe, mock.patch.object(
            maru, "prefix_digests"
        ) as digests:
            engine.start_scheduler()
            side = engine.scheduler._scheduler
            request = self.request(PROMPT)
            engine.scheduler.on_new_request(request)
            for _ in range(20):
                before = len([1 for main, _ in self.asked if main])
                self.assertEqual(self.matched(engine, request), (0, False))
                # Not in a step.
                self.assertEqual(len([1 for main, _ in self.asked if main]), before)
            # The thread goes on asking, less and less often.
            self.eventually(lambda: len(self.asked) > 3, "nobody asks")
            self.assertEqual(self.matched(engine, request), (0, False))
            self.assertEqual({answer for _, answer in self.asked}, {None})
            record = side.record(request)
            self.assertIsNone(record.digests)
            self.assertEqual((record.probe_first, record.probe_until), (-1, 0.0))
            self.assertIsNone(side.link.current)
            self.assertFalse(side.bound)
            digests.assert_not_called()
            probe.assert_not_called()
        engine.start_worker()
        engine.worker.build_connector_worker_meta = lambda: None
        self.eventually(lambda: side.link.current is not None, "the worker is not found")
        self.run_prompt(engine, PROMPT)
        engine.pool.reset()
        # The very request that could not be asked about.
        self.assertEqual(self.matched(engine, request), (32, False))
        count = len(self.asked)
        time.sleep(0.3)
        self.assertEqual(len(self.asked), count, "the thread asks for what is known")

    def test_a_worker_without_kv_is_not_taken(self):
        engine = self.engine(start=False, handshake=False)
        self.answer = lambda answer: answer and (answer[0], "")
        engine.start()
        self.assertFalse(engine.scheduler._scheduler.bound)
        self.assertTrue(self.asked[0][1])
        self.answer = lambda answer: answer
        self.eventually(lambda: engine.scheduler._scheduler.bound, "nobody asks again")

    def test_the_worker_is_believed_more_than_marud(self):
        """marud told of an earlier life, with other weights."""
        for in_step in (False, True):
            with self.subTest(in_step=in_step):
                self.answer = lambda answer: answer and (
                    answer[0] + 99, another_text(answer[1], namespace="earlier weights")
                )
                engine = self.engine(handshake=False)
                side, worker = engine.scheduler._scheduler, engine.worker._worker
                self.assertIn("earlier weights", side._text)
                waiting = self.request(PROMPT)
                engine.scheduler.on_new_request(waiting)
                self.assertEqual(self.matched(engine, waiting), (0, False))
                wrong = side.record(waiting).digests
                self.assertIsNotNone(wrong)
                self.assertEqual(self.run_prompt(engine, list(range(100, 133))), 0)
                running = engine.add(self.request(list(range(200, 249)), outputs=9))
                engine.step()  # the worker has its digests, by the wrong name
                if in_step:
                    del engine.worker.build_connector_worker_meta
                    engine.step()
                else:
                    engine.shake_hands()
                self.assertEqual((side._text, side._worker), (worker._text, worker._session_id()))
                self.eventually(
                    lambda: side.link.current and side.link.current.namespace.text == side._text,
                    "the namespace is not opened anew",
                )
                while running.state != "finished":
                    engine.step()
                engine.check_output(running)
                # Stored under the right name from then on.
                self.assertEqual(self.stored(engine, running.prompt_token_ids)[-2:], [4, 5])
                self.run_prompt(engine, PROMPT)
                self.assertEqual(self.stored(engine, PROMPT), [0, 1, 2, 3])
                engine.pool.reset()
                self.assertEqual(self.matched(engine, waiting), (32, False))
                self.assertNotEqual(bytes(side.record(waiting).digests), bytes(wrong))
                engine.pool.reset()
                self.assertEqual(self.run_prompt(engine, PROMPT), 32)
                engine.close()

    def test_a_namespace_that_was_being_opened_meanwhile_is_opened_anew(self):
        engine = self.engine()
        self.run_prompt(engine, PROMPT)
        side = engine.scheduler._scheduler
        right = side.link.current
        other = right.client.namespace(another_text(side._text, namespace="other weights"))
        side.link.current = right._replace(namespace=other)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, PROMPT), 0)
        self.eventually(lambda: side.link.current is not None, "it is not opened anew")
        self.assertIs(side.link.current.namespace.text, side._text)
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, PROMPT), 32)

    def test_kv_that_is_cut_differently_is_one_line_and_no_hit(self):
        logging.getLogger("maru_vllm").setLevel(logging.NOTSET)
        for text, words in (
            (lambda text: another_text(text, chunk_tokens=2 * CHUNK), ("16", "8")),
            (lambda text: another_text(text, processor={"block_tokens": 16}), ("16", "4")),
            (lambda text: "weights of another program", ("no KV of vLLM",)),
        ):
            self.asked.clear()
            self.answer = lambda answer: answer and (answer[0], text(answer[1]))  # noqa: B023
            with self.assertLogs("maru_vllm", logging.ERROR) as log:
                engine = self.engine(handshake=False)
                self.eventually(lambda: len(self.asked) > 3, "nobody asks")
            self.assertEqual(len(log.output), 1, log.output)
            for word in words:
                self.assertIn(word, log.output[0])
            self.assertFalse(engine.scheduler._scheduler.bound)
            self.assertEqual(self.run_prompt(engine, PROMPT), 0)
            engine.close()

    def test_a_worker_that_says_it_cuts_differently_ends_what_marud_told(self):
        engine = self.engine(handshake=False)
        side = engine.scheduler._scheduler
        self.assertTrue(side.bound)
        handshake = engine.worker.get_handshake_metadata()
        handshake.chunk_tokens *= 2
        engine.scheduler.set_xfer_handshake_metadata({0: handshake})
        self.assertFalse(side.bound)
        self.assertEqual(self.run_prompt(engine, PROMPT), 0)
        count = len(self.asked)
        time.sleep(0.3)
        self.assertEqual(len(self.asked), count, "the worker has spoken")
        self.assertFalse(side.link._waits())

    def test_a_marud_that_cannot_tell_is_not_asked(self):
        real = maru.Client.has_capability

        def has_capability(client, name):
            return name != scheduler.WORKER_CAPABILITY and real(client, name)

        with mock.patch.object(maru.Client, "has_capability", has_capability):
            engine = self.engine(handshake=False)
            side = engine.scheduler._scheduler
            self.assertFalse(side.bound)
            self.run_prompt(engine, PROMPT)
            engine.shake_hands()
            self.assertTrue(side.bound)
            engine.pool.reset()
            self.run_prompt(engine, PROMPT)
            engine.pool.reset()
            self.assertEqual(self.run_prompt(engine, PROMPT), 32)
            self.assertEqual(self.asked, [])

    def test_a_handshake_is_not_held_up_by_a_long_pause(self):
        engine = self.engine(start=False, handshake=False)
        self.answer = lambda answer: None
        engine.start()
        side = engine.scheduler._scheduler
        needed = side.link._needed
        real, resting = needed.wait, threading.Event()

        def wait(pause=None):
            if pause is not None:
                resting.set()
            return real(pause and 3600)

        with mock.patch.object(needed, "wait", wait):
            self.assertTrue(resting.wait(60))
            del engine.worker.build_connector_worker_meta
            self.run_prompt(engine, PROMPT)  # the first step's report
            self.assertTrue(side._told)
            self.eventually(lambda: side.link.current is not None, "no session")

    def test_the_cut_is_in_the_text(self):
        engine = self.engine(settings(kv_chunk_tokens=6))
        self.assertEqual(namespace.cut_of(engine.worker._worker._text), (8, 4))
        for text in ("", "[" * 16384, "{}", "[]", "1", '"x"', "{", '{"format": 1}', '{"format": "other"}',
                     '{"format": "maru-vllm-blocks-v1", "chunk_tokens": 8}',
                     '{"format": "maru-vllm-blocks-v1", "chunk_tokens": 8, "processor": []}',
                     '{"format": "maru-vllm-blocks-v1", "chunk_tokens": [], "processor": {"block_tokens": 4}}'):
            self.assertIsNone(namespace.cut_of(text), text)


if __name__ == "__main__":
    unittest.main()
