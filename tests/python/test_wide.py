# SPDX-License-Identifier: Apache-2.0
"""Values above 2**32 and rare errors, with the in-process fake, which needs no memory for them.

Run only when MARU_LIBRARY names the fake: its pools are sparse, its ids large on purpose.
"""

import errno
import unittest

import maru
from maru import _abi, errors
from support import FAKE, MaruTest

GIB = 1 << 30


class WideTest(MaruTest):
    def setUp(self):
        if not FAKE:
            self.skipTest("MARU_LIBRARY is not the fake library")

    def test_offsets_lengths_and_generations_above_32_bits(self):
        client = self.client()
        pool = client.pool(12 * GIB)
        self.assertEqual(pool.info().capacity_bytes, 12 * GIB)
        large = pool.reserve(5 * GIB)
        small = pool.reserve(4096)
        self.assertEqual((large.length, large.offset), (5 * GIB, 0))
        self.assertEqual(small.offset, 5 * GIB)
        self.assertGreater(small.generation, 1 << 40)
        with small.view as view:
            view[:4] = b"high"
        with large.view as view:
            self.assertEqual(view.nbytes, 5 * GIB)
            view[5 * GIB - 4 :] = b"last"
        ns = client.namespace("wide")
        digests = ns.digests(range(8), 4)
        self.assertEqual(list(ns.commit(pool, digests, [large, small])), [0, 0])
        with ns.acquire(digests) as leases:
            self.assertEqual(leases[0].length, 5 * GIB)
            self.assertEqual(bytes(leases[0].view[-4:]), b"last")
            self.assertEqual(bytes(leases[1].view[:4]), b"high")
            self.assertGreater(leases[1].generation, 1 << 40)
        self.assertEqual(pool.info().allocated_bytes, 5 * GIB + 65536)

    def test_ids_above_32_bits(self):
        client = self.client()
        self.assertEqual(client.info().session, 0xFFFFFFFE00000003)
        self.assertEqual(client.info().epoch, 0xFFFFFFFE)
        self.assertIn("0xfffffffe00000003", repr(client))
        pool = client.pool(GIB)
        self.assertEqual(pool.info().id, 0xFFFFFFFE00000001)
        self.assertEqual((pool.info().numa_node, pool.info().populate_result), (-1, -errno.ENOMEM))
        client.namespace("größer").describe(4096, "raw-v1")
        self.assertEqual(client.worker(), (0xFFFFFFFE00000003, "größer"))

    def test_options_above_31_bits_arrive_whole(self):
        self.client(timeout_ms=4000000000, spin_us=4000000001)

    def test_pointers_are_above_32_bits(self):
        lease = self.stored()[2].acquire
        self.assertIsNotNone(lease)
        client, pool, ns, digests, contents = self.stored()
        held = ns.acquire(digests)[0]
        self.assertGreater(held._locate().address, 1 << 32)
        self.assertEqual(bytes(held.view), contents[0])

    def test_every_documented_errno_has_a_class_and_its_message(self):
        documented = [
            errno.EINVAL,
            errno.ENOENT,
            errno.EEXIST,
            errno.EINPROGRESS,
            errno.ENOSPC,
            errno.ENOMEM,
            errno.EDQUOT,
            errno.EAGAIN,
            errno.EBUSY,
            errno.ENOTUNIQ,
            errno.ESTALE,
            errno.EMEDIUMTYPE,
            errno.EACCES,
            errno.ENOTCONN,
            errno.EKEYREVOKED,
            errno.ETIMEDOUT,
            errno.EPROTO,
            errno.EPROTONOSUPPORT,
            errno.EOPNOTSUPP,
            errno.EMSGSIZE,
            errno.EOWNERDEAD,
            errno.ECONNREFUSED,
        ]
        classes = set()
        for number in documented:
            with self.assertRaises(maru.MaruError) as caught:
                self.client(engine=f"errno {number}")
            error = caught.exception
            self.assertIsNot(type(error), maru.MaruError, error)
            self.assertEqual((error.errno, error.strerror), (number, f"fake: errno {number}"))
            self.assertIn(error.name, str(error))
            classes.add(type(error))
        self.assertEqual(len(classes), len(documented))
        with self.assertRaises(maru.MaruError) as caught:
            self.client(engine=f"errno {errno.EIO}")
        self.assertIs(type(caught.exception), maru.MaruError)

    def test_python_classes_catch_their_likes(self):
        for number, kind in (
            (errno.ETIMEDOUT, TimeoutError),
            (errno.EACCES, PermissionError),
            (errno.ENOTCONN, ConnectionError),
            (errno.EINVAL, ValueError),
            (errno.ECONNREFUSED, ConnectionRefusedError),
        ):
            with self.assertRaises(kind):
                self.client(engine=f"errno {number}")

    def test_a_refused_commit_consumes_nothing(self):
        client, pool, ns = self.worker()
        refusing = client.namespace("refuse")
        run = pool.reserve(4096)
        with self.assertRaisesRegex(maru.MaruInvalid, "takes no commit"):
            refusing.commit(pool, self.digests(ns, 1), [run])
        self.assertFalse(run.ended)
        with client.queue() as queue:
            operation = queue.commit(refusing, pool, self.digests(ns, 1), [run])
            queue.reap()
            with self.assertRaisesRegex(maru.MaruInvalid, "takes no commit"):
                operation.result()
            self.assertFalse(run.ended)
            for _ in range(256):
                queue.probe(ns, self.digests(ns, 1))
            with self.assertRaisesRegex(maru.MaruAgain, "reap first"):
                queue.commit(ns, pool, self.digests(ns, 1), [run])
            self.assertFalse(run.ended)
            self.assertEqual(len(queue.reap(most=1024)), 256)
        run.abort()

    def test_the_holder_of_an_engine_is_named(self):
        with self.assertRaisesRegex(maru.MaruBusy, "pid 4711"):
            self.client(engine="held")

    def test_a_forced_close_that_runs_out_of_time_keeps_the_pool(self):
        client, pool, ns, digests, contents = self.stored()
        lease = ns.acquire(digests)[0]
        view = lease.view
        with self.assertRaises(maru.MaruTimeout):
            pool.close(forced=True)
        self.assertFalse(pool.closed)
        self.assertEqual(view, contents[0])
        del view
        lease.release()
        pool.close(forced=True)

    def test_an_unknown_error_has_its_number(self):
        error = errors.error_of(-9999, "strange")
        self.assertEqual((type(error), error.errno, error.name), (maru.MaruError, 9999, "?"))

    def test_memory_is_poisoned_when_a_lease_ends(self):
        """The fake's side of the bargain: else the tests of views would prove nothing."""
        client, pool, ns, digests, contents = self.stored()
        lease = ns.acquire(digests)[0]
        address = lease._locate().address
        ns.retire(digests)
        lease.release()
        self.assertEqual(bytes((_abi.c_uint8 * 4).from_address(address)), b"\xdd" * 4)


if __name__ == "__main__":
    unittest.main()
