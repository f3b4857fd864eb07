# SPDX-License-Identifier: Apache-2.0
"""Views and the bytes behind them: no view ever outlives the right to its bytes.

A view that does would read memory that was given to another object, or unmapped. So: what still has
a view is not released, not committed, not closed; and what has none left goes back by itself.
"""

import ctypes
import gc
import unittest
import warnings

import maru
from maru import _handles
from support import MaruTest, optional, pattern, unique


class LeaseTest(MaruTest):
    def leased(self):
        client, pool, ns, digests, contents = self.stored()
        return client, pool, ns, digests, ns.acquire(digests)[0], contents[0]

    def test_the_view_is_the_read_only_memory_of_the_pool(self):
        client, pool, ns, digests, lease, content = self.leased()
        view = lease.view
        self.assertTrue(view.readonly)
        self.assertEqual((view.format, view.ndim, len(view)), ("B", 1, 65536))
        self.assertEqual(view, content)
        with self.assertRaises(TypeError):
            view[0] = 1
        with self.assertRaises(TypeError):
            (ctypes.c_char * 1).from_buffer(view)
        self.assertIsInstance(view.obj, ctypes.Array)

    def test_one_array_exports_all_views(self):
        client, pool, ns, digests, lease, content = self.leased()
        first, second = lease.view, lease.view
        self.assertIs(first.obj, second.obj)

    def test_release_is_refused_while_a_view_lives(self):
        client, pool, ns, digests, lease, content = self.leased()
        view = lease.view[100:200]
        for _ in range(2):
            with self.assertRaises(BufferError) as caught:
                lease.release()
            self.assertIsInstance(caught.exception, maru.MaruBusy)
            self.assertIn("65536 bytes", str(caught.exception))
            self.assertFalse(lease.released)
            self.assertEqual(client.info().leases, 1)
            self.assertEqual(view, content[100:200])
        view.release()
        lease.release()
        self.assertEqual(client.info().leases, 0)

    def test_a_second_release_is_refused(self):
        client, pool, ns, digests, lease, content = self.leased()
        lease.release()
        for use in (
            lease.release,
            lambda: lease.view,
            lambda: lease.length,
            lambda: lease.generation,
        ):
            with self.assertRaisesRegex(maru.MaruClosed, "released before"):
                use()
        self.assertIn("released", repr(lease))

    def test_the_last_view_ends_the_lease(self):
        client, pool, ns, digests, lease, content = self.leased()
        view = lease.view
        part = view[10:20]
        del lease, view
        gc.collect()
        self.assertEqual(client.info().leases, 1)
        self.assertEqual(part, content[10:20])
        ns.retire(digests)
        self.assertEqual(part, content[10:20])
        del part
        self.assertEqual(client.info().leases, 0)

    def test_a_dropped_lease_ends_without_a_view(self):
        client, pool, ns, digests, lease, content = self.leased()
        del lease
        self.assertEqual(client.info().leases, 0)

    def test_views_may_come_and_go(self):
        client, pool, ns, digests, lease, content = self.leased()
        for _ in range(3):
            self.assertEqual(lease.view, content)
            self.assertEqual(client.info().leases, 1)
        lease.release()

    def test_numpy_holds_the_lease(self):
        numpy = optional("numpy")
        client, pool, ns, digests, lease, content = self.leased()
        made = numpy.frombuffer(lease.view, "u4")[5:].reshape(-1, 1)
        self.assertFalse(made.flags.writeable)
        with self.assertRaises(BufferError):
            lease.release()
        with self.assertRaises(BufferError):
            client.close()
        del lease
        gc.collect()
        self.assertEqual(client.info().leases, 1)
        self.assertEqual(made.tobytes(), content[20:])
        del made
        self.assertEqual(client.info().leases, 0)

    def test_torch_holds_the_lease(self):
        torch = optional("torch")
        client, pool, ns, digests, lease, content = self.leased()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch has no read-only tensors
            made = torch.frombuffer(lease.view, dtype=torch.uint8)[7:]
        with self.assertRaises(BufferError):
            lease.release()
        del lease
        gc.collect()
        self.assertEqual(client.info().leases, 1)
        self.assertEqual(bytes(made.numpy()), content[7:])
        del made
        self.assertEqual(client.info().leases, 0)

    def test_closing_the_pool_is_refused_while_a_view_lives(self):
        client, pool, ns, digests, lease, content = self.leased()
        view = lease.view
        with self.assertRaises(maru.MaruBusy) as caught:
            pool.close()
        self.assertTrue(caught.exception.strerror)
        self.assertFalse(pool.closed)
        self.assertEqual(view, content)
        del view
        lease.release()
        pool.close()
        pool.close()
        with self.assertRaisesRegex(maru.MaruClosed, "this pool is closed"):
            pool.info()

    def test_closing_the_client_is_refused_while_a_view_lives(self):
        client, pool, ns, digests, lease, content = self.leased()
        view = lease.view
        for _ in range(2):
            with self.assertRaisesRegex(BufferError, "close this client"):
                client.close()
            self.assertEqual(view, content)
            self.assertEqual(client.info().leases, 1)
        del view
        client.close()
        self.assertTrue(client.closed and pool.closed and lease.released)
        client.close()
        for use in (
            client.info,
            pool.info,
            lambda: lease.view,
            lambda: ns.probe(digests),
            lambda: pool.reserve(1),
            lease.release,
        ):
            with self.assertRaisesRegex(maru.MaruClosed, "closed|released"):
                use()

    def test_a_batch_is_released_at_the_end_of_its_block(self):
        client, pool, ns, digests, contents = self.stored(count=3)
        with ns.acquire(digests + self.digests(ns, 1, first=900)) as leases:
            self.assertEqual((leases.chunks, len(leases)), (3, 4))
            self.assertIsNone(leases[3])
            self.assertBytes([lease.view for lease in leases[:3]], contents)
            leases[1].release()
            self.assertEqual(client.info().leases, 2)
        self.assertEqual(client.info().leases, 0)

    def test_a_batch_is_released_as_a_whole_or_not_at_all(self):
        client, pool, ns, digests, contents = self.stored(count=3)
        leases = ns.acquire(digests)
        view = leases[2].view
        with self.assertRaises(BufferError):
            leases.release()
        self.assertEqual(client.info().leases, 3)
        view.release()
        leases.release()
        self.assertEqual(client.info().leases, 0)

    def test_a_block_that_ends_with_views_says_so(self):
        client, pool, ns, digests, contents = self.stored()
        with self.assertRaises(BufferError):
            with ns.acquire(digests) as leases:
                view = leases[0].view
        self.assertEqual(view, contents[0])

    def test_an_exception_in_the_block_is_not_hidden(self):
        client, pool, ns, digests, contents = self.stored()
        kept = []
        with self.assertRaisesRegex(KeyError, "mine"):
            with ns.acquire(digests) as leases:
                kept.append(leases[0].view)
                raise KeyError("mine")
        self.assertEqual(kept[0], contents[0])
        del leases
        kept.clear()
        gc.collect()
        self.assertEqual(client.info().leases, 0)

    def test_a_finalizer_in_a_cycle_still_reads_the_right_bytes(self):
        """weakref callbacks of cyclic garbage run before its __del__ methods, which may read
        views.
        """
        client, pool, ns, digests, lease, content = self.leased()
        seen = []

        class Reader:
            def __del__(self):
                ns.retire(digests)  # a call: whatever was queued by now is given back
                seen.append((client.info().leases, bytes(self.view)))

        reader = Reader()
        reader.itself = reader
        reader.view = lease.view
        del lease, reader
        gc.collect()
        self.assertEqual([leases for leases, read in seen], [1])
        self.assertBytes([read for leases, read in seen], [content])
        self.assertEqual(client.info().leases, 0)

    def test_a_finalizer_in_a_cycle_cannot_release_what_it_views(self):
        client, pool, ns, digests, lease, content = self.leased()
        seen = []

        class Releaser:
            def __del__(self):
                try:
                    lease.release()
                except BufferError:
                    seen.append(bytes(self.view))

        releaser = Releaser()
        releaser.itself = releaser
        releaser.view = lease.view
        del releaser
        gc.collect()
        self.assertBytes(seen, [content])
        lease.release()

    def test_a_finalizer_in_a_cycle_may_take_the_first_view(self):
        client, pool, ns, digests, lease, content = self.leased()
        seen = []

        class Late:
            def __del__(self):
                seen.append(bytes(self.lease.view))

        late = Late()
        late.itself = late
        late.lease = lease
        del lease, late
        gc.collect()
        self.assertBytes(seen, [content])
        self.assertEqual(client.info().leases, 0)

    def test_a_view_that_a_finalizer_saves_stays_good(self):
        client, pool, ns, digests, lease, content = self.leased()
        saved = []

        class Phoenix:
            def __del__(self):
                saved.append(self.view)

        bird = Phoenix()
        bird.itself = bird
        bird.view = lease.view
        bird.lease = lease
        del lease, bird
        gc.collect()
        self.assertEqual(client.info().leases, 1)
        ns.retire(digests)
        self.assertEqual(saved[0], content)
        saved.clear()
        gc.collect()
        self.assertEqual(client.info().leases, 0)

    def test_a_lease_keeps_its_client_open_and_views_the_session(self):
        def alone():
            opened = maru.Client(unique("engine"), socket_path=self.socket_path())
            pool = opened.pool(1 << 20, wait_populated=True)
            ns = opened.namespace(unique("alone"))
            ns.describe(4096, "raw-v1")
            digests = self.digests(ns, 1)
            ns.store(pool, digests, [pattern(4096, 3)])
            return ns.acquire(digests)[0]

        lease = alone()
        self.client()  # closes clients that were dropped; this one is not
        view = lease.view
        self.assertEqual(view, pattern(4096, 3))
        with self.assertWarnsRegex(ResourceWarning, "unclosed maru.Client for engine 'engine-"):
            del lease
        self.client()  # tries to close the dropped one, which the view forbids
        self.assertEqual(view, pattern(4096, 3))
        del view
        self.client()
        self.assertEqual(len(_handles._abandoned), 0)


class ReservationTest(MaruTest):
    def test_commit_is_refused_while_a_view_lives(self):
        client, pool, ns = self.worker()
        digests = self.digests(ns, 2)
        runs = pool.reserve_batch(65536, 2)
        view = runs[1].view[5:]
        with self.assertRaisesRegex(BufferError, "cannot commit.*1 reservation"):
            ns.commit(pool, digests, runs)
        self.assertEqual([run.ended for run in runs], [False, False])
        self.assertEqual(ns.probe(digests).prefix, 0)
        view.release()
        self.assertEqual(list(ns.commit(pool, digests, runs)), [0, 0])

    def test_abort_is_refused_while_a_view_lives(self):
        client, pool, ns = self.worker()
        run = pool.reserve(65536)
        view = run.view
        view[:] = bytes(range(256)) * 256
        with self.assertRaisesRegex(BufferError, "cannot abort"):
            run.abort()
        with self.assertRaises(maru.MaruBusy):
            pool.close()
        with self.assertRaises(maru.MaruBusy):
            pool.close(forced=True)
        with self.assertRaises(BufferError):
            client.close()
        self.assertEqual(view[:256], bytes(range(256)))
        del view
        run.abort()
        pool.close()

    def test_a_dropped_reservation_is_given_back_after_its_last_view(self):
        client, pool, ns = self.worker()
        empty = pool.info().allocated_bytes
        run = pool.reserve(65536)
        view = run.view
        del run
        gc.collect()
        self.assertGreater(pool.info().allocated_bytes, empty)
        view[0] = 7
        del view
        client.info()  # any call gives it back
        if self.daemon:
            self.assertEqual(pool.info().allocated_bytes, empty)
        pool.close()

    def test_a_block_without_commit_aborts(self):
        client, pool, ns = self.worker()
        with pool.reserve(65536) as run:
            run.write(b"half")
        self.assertTrue(run.ended)
        pool.close()

    def test_a_reservation_of_another_pool_is_refused(self):
        client, pool, ns = self.worker()
        other = client.pool(1 << 20, wait_populated=True)
        run = other.reserve(65536)
        with self.assertRaisesRegex(ValueError, "of another pool"):
            ns.commit(pool, self.digests(ns, 1), [run])
        run.abort()


if __name__ == "__main__":
    unittest.main()
