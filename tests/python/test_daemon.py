# SPDX-License-Identifier: Apache-2.0
"""With a real marud: restarts, roles, budgets, and the errors that only it can give."""

import errno
import gc
import os
import signal
import subprocess
import sys
import time
import unittest

import maru
from support import MIB, PACKAGE, Daemon, MaruTest, pattern, unique


class DaemonTest(MaruTest):
    needs_daemon = True

    def test_a_scheduler_probes_for_its_engine_and_owns_nothing(self):
        engine = unique("engine")
        worker = self.client(engine)
        pool = worker.pool(MIB, wait_populated=True)
        ns = worker.namespace("shared text")
        ns.describe(4096, "raw-v1")
        digests = self.digests(ns, 2)
        ns.store(pool, digests[:1], [pattern(4096, 1)])
        scheduler = self.client(engine, role="scheduler")
        asked = scheduler.namespace("shared text")
        self.assertEqual(list(asked.probe(digests).hits), [True, False])
        self.assertNotEqual(worker.info().session, scheduler.info().session)
        for session, found in ((scheduler, 0), (worker, 1), (None, 1)):
            scheduler.bind(session.info().session if session else 0)
            self.assertEqual(asked.probe(digests).prefix, found)
        with self.assertRaises(maru.MaruAccess) as caught:
            scheduler.pool(MIB)
        self.assertTrue(caught.exception.strerror)
        with self.assertRaises(maru.MaruAccess):
            asked.acquire(digests)

    def test_a_scheduler_asks_who_the_worker_of_its_engine_is(self):
        engine = unique("engine")
        scheduler = self.client(engine, role="scheduler")
        self.assertTrue(scheduler.has_capability("engine_worker_v1"))
        self.assertIsNone(scheduler.worker())
        worker = self.client(engine)
        self.assertEqual(scheduler.worker(), (worker.info().session, ""))
        worker.namespace("größer als ASCII").describe(4096, "raw-v1")
        self.assertEqual(scheduler.worker(), (worker.info().session, "größer als ASCII"))
        worker.close()
        self.assertIsNone(scheduler.worker())

    def test_the_holder_of_an_engine_is_named(self):
        engine = unique("engine")
        self.client(engine)
        with self.assertRaises(maru.MaruBusy) as caught:
            self.client(engine, connect_ms=200)
        self.assertIn(str(os.getpid()), caught.exception.strerror)

    def test_a_missing_marud_is_named_by_its_socket(self):
        with self.assertRaises(maru.MaruNotFound) as caught:
            maru.Client("lonely", socket_path="/nonexistent/marud.sock", connect_ms=200)
        self.assertIn("/nonexistent/marud.sock", caught.exception.strerror)

    def test_a_schema_is_set_once(self):
        client, pool, ns = self.worker(length=4096)
        ns.describe(4096, "raw-v1")
        with self.assertRaises(maru.MaruConflict):
            ns.describe(8192, "raw-v1")
        run = pool.reserve(8192)
        results = ns.commit(pool, self.digests(ns, 1), [run])
        self.assertEqual(list(results), [-errno.EMEDIUMTYPE])
        self.assertEqual(results.succeeded, 0)
        with self.assertRaises(maru.MaruIncompatible):
            results.raise_failed()

    def test_a_grant_above_the_budget_is_refused_with_the_figures(self):
        client = self.client()
        with self.assertRaises((maru.MaruFull, maru.MaruQuota)) as caught:
            client.pool(1 << 50)
        self.assertRegex(caught.exception.strerror, r"\d")

    def test_a_grant_above_four_gib_arrives_whole(self):
        client = self.client()
        # A margin that no host has keeps the population from starting.
        pool = client.pool(5 << 30, populate_margin_mib=0xFFFFFFFF)
        self.assertEqual(pool.info().capacity_bytes, 5 << 30)
        with self.assertRaises(maru.MaruFull):
            pool.reserve(5 << 30)
        pool.close(forced=True)

    def test_manifests_are_all_or_nothing(self):
        client, pool, ns = self.worker(length=4096)
        digests = self.digests(ns, 2)
        keys = [maru.Key(digests[0], 0), maru.Key(digests[0], 1), maru.Key(digests[1], 0)]
        ns.store(pool, keys, [pattern(4096, n) for n in range(3)]).raise_failed()
        both = maru.Manifest(shard_count=2)
        self.assertEqual(list(ns.probe(digests, both).hits), [True, False])
        for digest, hit in zip(digests, (True, False)):
            self.assertEqual(ns.probe([digest]).prefix, 1)
            answer = ns.probe([digest], both)
            self.assertEqual((answer.prefix, list(answer.hits)), (hit, [hit]))
        with ns.acquire(digests, both) as leases:
            self.assertEqual(leases.chunks, 1)
            self.assertBytes(
                [lease.view for lease in leases[:2]], [pattern(4096, 0), pattern(4096, 1)]
            )
            self.assertEqual(leases[2:], [None, None])
        buffers = [bytearray(4096) for _ in range(4)]
        results = ns.load(digests, buffers, both)
        self.assertEqual(results.succeeded, 1)
        self.assertBytes(buffers[:2], [pattern(4096, 0), pattern(4096, 1)])

    def test_what_a_lease_protects_outlives_a_forced_close(self):
        client, pool, ns, digests, contents = self.stored(count=1)
        short = self.client(timeout_ms=300)
        pool = short.pool(MIB, wait_populated=True)
        ns = short.namespace(unique("ns"))
        ns.describe(4096, "raw-v1")
        digests = self.digests(ns, 1)
        ns.store(pool, digests, [pattern(4096, 5)])
        lease = ns.acquire(digests)[0]
        view = lease.view
        with self.assertRaises(maru.MaruTimeout):
            pool.close(forced=True)
        self.assertFalse(pool.closed)
        self.assertBytes([view], [pattern(4096, 5)])
        self.assertEqual(ns.probe(digests).prefix, 0)
        del view
        lease.release()
        pool.close(forced=True)
        self.assertTrue(pool.closed)

    def test_the_first_program_of_the_readme(self):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "first_program.py")
        environment = dict(os.environ, MARU_SOCKET=self.socket_path(), PYTHONPATH=str(PACKAGE))
        ended = subprocess.run(
            [sys.executable, "-W", "error", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertIn("3 of 3 chunks are in the cache", ended.stdout)


class RestartTest(MaruTest):
    """Each test has a marud of its own, which it kills."""

    needs_daemon = True

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.cleanup)
        self.daemon.start()

    def wait_attached(self, client, reconnects):
        """The client comes back by itself, after its back-off; nothing tells when."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            info = client.info()
            if info.state == "attached" and info.reconnects >= reconnects:
                return info
            time.sleep(0.01)
        self.fail(f"the client did not come back: {client.info()}")

    def test_leases_and_views_survive_a_killed_marud(self):
        client, pool, ns, digests, contents = self.stored(count=2)
        lease = ns.acquire(digests[:1])[0]
        view = lease.view
        run = pool.reserve(65536)
        written = run.view
        written[:5] = b"hello"
        epoch = client.info().epoch
        self.daemon.stop(signal.SIGKILL)
        self.assertBytes([view], contents[:1])
        with self.assertRaises((maru.MaruNotConnected, maru.MaruTimeout)):
            ns.probe(digests)
        with self.assertRaises((maru.MaruNotConnected, maru.MaruTimeout)):
            ns.probe(digests[:1])
        self.assertEqual(len(client._handle.uses), 0)
        self.daemon.start()
        info = self.wait_attached(client, 1)
        self.assertNotEqual(info.epoch, epoch)
        self.assertEqual(info.leases, 1)
        self.assertBytes([view, written[:5]], [contents[0], b"hello"])
        self.assertEqual(ns.probe(digests).prefix, 2)
        with self.assertRaises(BufferError):
            client.close()
        with self.assertRaises(BufferError):
            lease.release()
        del view, written
        lease.release()
        self.assertEqual(client.info().leases, 0)
        self.assertEqual(list(ns.commit(pool, self.digests(ns, 1, first=700), [run])), [0])
        targets = [bytearray(65536) for _ in digests]
        self.assertEqual(ns.load(digests, targets).succeeded, 2)
        self.assertBytes(targets, contents)
        client.close()

    def test_views_outlive_a_marud_that_stays_away(self):
        client, pool, ns, digests, contents = self.stored(count=1)
        lease = ns.acquire(digests)[0]
        view = lease.view
        del lease
        self.daemon.stop(signal.SIGKILL)
        self.assertBytes([view], contents)
        with self.assertRaises(BufferError):
            client.close()
        del view
        gc.collect()
        client.close()  # marud away is not an error
        self.assertTrue(client.closed)

    def test_the_interpreter_may_end_with_views_and_no_marud(self):
        text = """
import maru, os, signal, sys
client = maru.Client("exit-without-marud")
pool = client.pool(1 << 20, wait_populated=True)
ns = client.namespace("exit")
ns.describe(4096, "raw-v1")
digests = ns.digests(range(4), 4)
ns.store(pool, digests, [b"v" * 4096])
view = ns.acquire(digests)[0].view
os.kill(int(sys.argv[1]), signal.SIGKILL)
assert bytes(view) == b"v" * 4096
sys.modules["kept"] = view
"""
        self.program(text, str(self.daemon.pid))


if __name__ == "__main__":
    unittest.main()
