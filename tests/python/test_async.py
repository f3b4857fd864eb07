# SPDX-License-Identifier: Apache-2.0
"""Queues: submit, poll, reap; nothing that C still writes to is ever freed."""

import errno
import gc
import os
import select
import signal
import threading
import time
import unittest

import maru
from support import MaruTest, pattern


class QueueTest(MaruTest):
    def reap_one(self, queue):
        self.assertTrue(
            select.select([queue], [], [], 30)[0], "the descriptor never became readable"
        )
        reaped = queue.reap()
        self.assertEqual(len(reaped), 1)
        return reaped[0]

    def test_each_operation_gives_what_its_blocking_form_gives(self):
        client, pool, ns = self.worker()
        digests = self.digests(ns, 3)
        with client.queue() as queue:
            runs = pool.reserve_batch(65536, 3)
            for index, run in enumerate(runs):
                run.write(pattern(65536, index))
            commit = queue.commit(ns, pool, digests, runs)
            self.assertTrue(all(run.ended for run in runs))
            self.assertIs(self.reap_one(queue), commit)
            self.assertTrue(commit.done)
            self.assertEqual(list(commit.result()), [0, 0, 0])

            probe = queue.probe(ns, digests + self.digests(ns, 1, first=900))
            self.reap_one(queue)
            self.assertEqual(probe.result().prefix, 3)
            self.assertEqual(list(probe.result().hits), [True, True, True, False])

            acquire = queue.acquire(ns, digests)
            self.reap_one(queue)
            with acquire.result() as leases:
                self.assertEqual(leases.chunks, 3)
                self.assertEqual(bytes(leases[2].view), pattern(65536, 2))

            retire = queue.retire(ns, digests[:1] + self.digests(ns, 1, first=900))
            self.reap_one(queue)
            self.assertEqual(list(retire.result()), [0, -errno.ENOENT])
            self.assertEqual(queue.reap(), [])

    def test_a_result_before_the_reap_is_refused(self):
        client, pool, ns = self.worker()
        with client.queue() as queue:
            probe = queue.probe(ns, self.digests(ns, 1))
            with self.assertRaisesRegex(maru.MaruBusy, "not reaped"):
                probe.result()
            self.assertIn("probe: submitted", repr(probe))
            self.reap_one(queue)
            self.assertEqual(probe.result().prefix, 0)

    def test_closing_with_operations_in_flight_is_refused(self):
        client, pool, ns = self.worker()
        queue = client.queue()
        queue.probe(ns, self.digests(ns, 1))
        with self.assertRaises(maru.MaruBusy):
            queue.close()
        self.reap_one(queue)
        queue.close()
        queue.close()
        for use in (queue.reap, queue.fileno, lambda: queue.probe(ns, self.digests(ns, 1))):
            with self.assertRaisesRegex(maru.MaruClosed, "this queue is closed"):
                use()

    def test_a_dropped_queue_is_ended_with_its_client(self):
        client, pool, ns, digests, contents = self.stored(count=1)
        queue = client.queue()
        queue.acquire(ns, digests)
        select.select([queue], [], [], 30)
        del queue
        gc.collect()
        client.close()
        self.assertTrue(client.closed)

    def test_a_viewed_reservation_is_not_submitted(self):
        client, pool, ns = self.worker()
        with client.queue() as queue:
            run = pool.reserve(65536)
            view = run.view
            with self.assertRaisesRegex(BufferError, "cannot commit"):
                queue.commit(ns, pool, self.digests(ns, 1), [run])
            del view
            self.assertFalse(run.ended)
            with self.assertRaisesRegex(ValueError, "different clients"):
                queue.commit(self.client().namespace("x"), pool, self.digests(ns, 1), [run])
            self.assertFalse(run.ended)
            run.abort()

    def test_threads_submit_and_one_reaps(self):
        client, pool, ns, digests, contents = self.stored(count=4)
        submitted = []
        with client.queue() as queue:

            def work():
                for _ in range(20):
                    submitted.append(queue.probe(ns, digests))

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            reaped = []
            while len(reaped) < 80:
                reaped += queue.reap(timeout_ms=1000)
            for thread in threads:
                thread.join()
            self.assertEqual({id(one) for one in reaped}, {id(one) for one in submitted})
            self.assertEqual({one.result().prefix for one in reaped}, {4})

    def test_the_interpreter_may_end_with_operations_in_flight(self):
        self.program("""
import maru, sys
client = maru.Client("in-flight-exit")
ns = client.namespace("in-flight-exit")
queue = client.queue()
for _ in range(50):
    queue.probe(ns, ns.digests(range(4000), 4))
""")


class DeadlineTest(MaruTest):
    needs_daemon = True

    def test_an_operation_ends_at_its_deadline_though_nothing_happens(self):
        """libmaru's own thread may have gone to sleep for longer before it was submitted."""
        client, pool, ns = self.worker()
        digests = self.digests(ns, 1)
        with client.queue() as queue:
            for timeout_ms in (300, 100):
                client.set_timeout(30000)
                queue.probe(ns, digests)
                self.assertEqual(len(queue.reap(timeout_ms=30000)), 1)
                time.sleep(0.2)  # for that thread to be asleep again
                os.kill(self.daemon.pid, signal.SIGSTOP)
                try:
                    client.set_timeout(timeout_ms)
                    began = time.monotonic()
                    late = queue.probe(ns, digests)
                    self.assertEqual(queue.reap(timeout_ms=30000), [late])
                    self.assertLess(time.monotonic() - began, 0.8 + timeout_ms / 1e3)
                    with self.assertRaises(maru.MaruTimeout):
                        late.result()
                finally:
                    os.kill(self.daemon.pid, signal.SIGCONT)

    def test_a_later_one_with_less_time_ends_first(self):
        client, pool, ns = self.worker()
        digests = self.digests(ns, 1)
        with client.queue() as queue:
            os.kill(self.daemon.pid, signal.SIGSTOP)
            try:
                client.set_timeout(20000)
                patient = queue.probe(ns, digests)
                client.set_timeout(100)
                hasty = queue.probe(ns, digests)
                self.assertEqual(queue.reap(timeout_ms=15000), [hasty])
            finally:
                os.kill(self.daemon.pid, signal.SIGCONT)
            self.assertEqual(queue.reap(timeout_ms=30000), [patient])
            self.assertEqual(patient.result().prefix, 0)


if __name__ == "__main__":
    unittest.main()
