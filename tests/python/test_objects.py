# SPDX-License-Identifier: Apache-2.0
"""Round trips: store, probe, load, reserve and commit, retire, with every kind of buffer."""

import array
import copy
import errno
import pickle
import threading
import unittest

import maru
from support import MIB, MaruTest, optional, pattern


class ObjectsTest(MaruTest):
    def test_what_was_stored_is_loaded(self):
        client, pool, ns, digests, contents = self.stored(count=5)
        prefix, hits = ns.probe(digests)
        self.assertEqual((prefix, list(hits)), (5, [True] * 5))
        buffers = [bytearray(65536) for _ in digests]
        loaded = ns.load(digests, buffers)
        self.assertEqual((loaded.succeeded, list(loaded)), (5, [0] * 5))
        self.assertBytes(buffers, contents)

    def test_every_kind_of_source_buffer(self):
        client, pool, ns = self.worker(length=4096)
        content = pattern(4096, 1)
        sources = [
            content,
            bytearray(content),
            memoryview(content),
            array.array("B", content),
            array.array("Q", content),
            memoryview(bytearray(content)).toreadonly(),
            memoryview(content * 2)[4096:],
        ]
        digests = self.digests(ns, len(sources))
        self.assertEqual(list(ns.store(pool, digests, sources)), [0] * len(sources))
        targets = [bytearray(4096) for _ in sources]
        self.assertEqual(ns.load(digests, targets).succeeded, len(sources))
        self.assertBytes(targets, [content] * len(sources))

    def test_a_source_is_not_kept(self):
        client, pool, ns = self.worker(length=4096)
        source = bytearray(4096)
        ns.store(pool, self.digests(ns, 1), [source])
        source.append(1)  # BufferError while anything exports it

    def test_numpy_round_trip(self):
        numpy = optional("numpy")
        client, pool, ns = self.worker(length=4096)
        source = numpy.arange(1024, dtype="f4").reshape(32, 32)
        source.flags.writeable = False
        digests = self.digests(ns, 1)
        ns.store(pool, digests, [source])
        target = numpy.zeros((32, 32), "f4")
        self.assertEqual(ns.load(digests, [target]).succeeded, 1)
        self.assertTrue((target == source).all())
        for wrong in (source.T, target[:, ::2]):
            with self.assertRaisesRegex(BufferError, r"buffers\[0\] must be contiguous"):
                ns.store(pool, digests, [wrong])
        with self.assertRaisesRegex(BufferError, "writable"):
            ns.load(digests, [source])

    def test_torch_round_trip(self):
        torch = optional("torch")
        client, pool, ns = self.worker(length=4096)
        source = torch.arange(2048, dtype=torch.float32).to(torch.bfloat16)
        digests = self.digests(ns, 1)
        ns.store(pool, digests, [source.view(torch.uint8).numpy()])
        target = torch.zeros(2048, dtype=torch.bfloat16)
        self.assertEqual(ns.load(digests, [target.view(torch.uint8).numpy()]).succeeded, 1)
        self.assertTrue(torch.equal(source, target))
        with self.assertRaisesRegex(TypeError, r"numpy\(\)"):
            ns.store(pool, digests, [source])

    def test_a_present_object_is_a_success(self):
        client, pool, ns, digests, contents = self.stored(count=2)
        again = ns.store(pool, digests, contents)
        self.assertEqual((again.succeeded, list(again)), (2, [-errno.EEXIST] * 2))
        self.assertEqual(again.failed, [])
        again.raise_failed()
        self.assertIsInstance(again.error(0), maru.MaruExists)

    def test_a_miss_leaves_its_buffer_alone(self):
        client, pool, ns, digests, contents = self.stored(count=1)
        missing = self.digests(ns, 1, first=1000)
        target = [bytearray(65536), bytearray(b"\xaa" * 65536)]
        results = ns.load(digests + missing, target)
        self.assertEqual((results.succeeded, list(results)), (1, [0, -errno.ENOENT]))
        self.assertEqual(target[1], b"\xaa" * 65536)
        self.assertEqual(results.failed, [1])
        with self.assertRaisesRegex(maru.MaruNotFound, "item 1 of 2"):
            results.raise_failed()
        prefix, hits = ns.probe(missing + digests)
        self.assertEqual((prefix, list(hits)), (0, [False, True]))
        self.assertEqual((hits[-1], hits[:1], len(hits)), (True, [False], 2))

    def test_an_object_of_another_size_is_never_cut(self):
        client, pool, ns, digests, contents = self.stored(count=1)
        results = ns.load(digests, [bytearray(65535)])
        self.assertEqual((results.succeeded, list(results)), (0, [-errno.EMEDIUMTYPE]))
        self.assertIsInstance(results.error(0), maru.MaruIncompatible)

    def test_a_full_pool_keeps_what_it_has(self):
        client, pool, ns = self.worker(length=MIB, capacity=4 * MIB)
        digests = self.digests(ns, 8)
        contents = [pattern(MIB, index) for index in range(8)]
        results = ns.store(pool, digests, contents)
        self.assertLessEqual(results.succeeded, 4)
        self.assertGreater(results.succeeded, 0)
        self.assertEqual(set(list(results)[results.succeeded :]), {-errno.ENOSPC})
        self.assertEqual(ns.probe(digests).prefix, results.succeeded)
        with self.assertRaises(maru.MaruFull):
            results.raise_failed()
        with self.assertRaises(maru.MaruFull) as caught:
            pool.reserve(MIB)
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        self.assertTrue(caught.exception.strerror)

    def test_reserve_write_commit(self):
        client, pool, ns = self.worker(length=65536)
        digests = self.digests(ns, 3)
        runs = pool.reserve_batch(65536, 3)
        for index, run in enumerate(runs):
            run.view[:] = pattern(65536, index)
        self.assertEqual(list(ns.commit(pool, digests, runs)), [0, 0, 0])
        self.assertTrue(all(run.ended for run in runs))
        targets = [bytearray(65536) for _ in digests]
        ns.load(digests, targets)
        self.assertBytes(targets, [pattern(65536, index) for index in range(3)])

    def test_one_reservation_by_write_and_commit(self):
        client, pool, ns = self.worker(length=65536)
        digest = self.digests(ns, 1)[0]
        content = pattern(65536, 7)
        with pool.reserve(65536) as run:
            run.write(content[:100])
            run.write(content[100:], offset=100)
            with self.assertRaisesRegex(ValueError, "do not fit in 65536 bytes"):
                run.write(b"xx", offset=65535)
            self.assertEqual(run.commit(ns, digest), 0)
        with ns.acquire([digest]) as leases:
            self.assertEqual(bytes(leases[0].view), content)
            target = bytearray(65536)
            leases[0].copy_to(target)
            self.assertEqual(target, content)
            with self.assertRaisesRegex(ValueError, "5 bytes for 65536 bytes"):
                leases[0].copy_to(bytearray(5))

    def test_a_refused_copy_leaves_no_view(self):
        client, pool, ns, digests, contents = self.stored()
        lease = ns.acquire(digests)[0]
        run = pool.reserve(65536)
        try:
            lease.copy_to(bytearray(5))
        except ValueError:
            lease.release()
        try:
            run.write(b"x", offset=65536)
        except ValueError:
            run.abort()
        self.assertTrue(lease.released and run.ended)

    def test_a_reservation_ends_once(self):
        client, pool, ns = self.worker()
        run = pool.reserve(65536)
        run.abort()
        for use in (
            run.abort,
            lambda: run.view,
            lambda: run.write(b"x"),
            lambda: ns.commit(pool, self.digests(ns, 1), [run]),
        ):
            with self.assertRaisesRegex(maru.MaruClosed, "committed or aborted before"):
                use()
        twice = pool.reserve(65536)
        with self.assertRaisesRegex(ValueError, "given twice"):
            ns.commit(pool, self.digests(ns, 2), [twice, twice])
        self.assertFalse(twice.ended)
        twice.abort()

    def test_a_retired_object_is_a_miss(self):
        client, pool, ns, digests, contents = self.stored(count=2)
        results = ns.retire(digests[:1] + self.digests(ns, 1, first=500))
        self.assertEqual((results.succeeded, list(results)), (1, [0, -errno.ENOENT]))
        self.assertEqual(list(ns.probe(digests).hits), [False, True])

    def test_a_probe_of_one_chunk_is_told_like_any_other(self):
        client, pool, ns, digests, contents = self.stored(count=1)
        missing = self.digests(ns, 1, first=600)
        for asked, hit in ((digests, True), (missing, False)):
            for prefix_only in (False, True, "yes"):
                with self.subTest(hit=hit, prefix_only=prefix_only):
                    one = ns.probe(asked, prefix_only=prefix_only)
                    two = ns.probe(asked + missing, prefix_only=prefix_only)
                    self.assertEqual((one.prefix, list(one.hits)), (int(hit), [hit]))
                    self.assertEqual((one.prefix, one.hits[0]), (two.prefix, two.hits[0]))
                    for answer in (one, two):
                        kinds = type(answer), type(answer.prefix), type(answer.hits)
                        self.assertEqual(kinds, (maru.Probe, int, maru.Hits))
                        self.assertIs(type(answer.hits.bitmap), bytes)
                        self.assertEqual(answer.hits.bitmap, bytes([hit]))
                        self.assertIs(answer.hits[0], hit)
                        self.assertEqual(copy.deepcopy(answer), answer)
                        self.assertEqual(pickle.loads(pickle.dumps(answer)), answer)
            with client.queue() as queue:
                operation = queue.probe(ns, asked)
                queue.reap(timeout_ms=10000)
                self.assertEqual(operation.result(), ns.probe(asked))
            for form in (bytes(asked), bytearray(bytes(asked)), list(asked), asked.hex()):
                self.assertEqual(ns.probe(form), ns.probe(asked))

    def test_probes_of_every_small_size(self):
        client, pool, ns = self.worker(length=4096)
        digests = self.digests(ns, 18)
        present = [index not in (3, 9) for index in range(18)]
        stored = [digest for digest, there in zip(digests, present) if there]
        ns.store(pool, stored, [bytes(4096)] * len(stored)).raise_failed()
        for first in (0, 3):
            for count in range(19 - first):
                with self.subTest(first=first, count=count):
                    expected = present[first : first + count]
                    prefix = (expected + [False]).index(False)
                    answer = ns.probe(digests[first : first + count])
                    self.assertEqual((answer.prefix, list(answer.hits)), (prefix, expected))
                    self.assertEqual(len(answer.hits.bitmap), (count + 7) // 8)
                    answer = ns.probe(digests[first : first + count], prefix_only=True)
                    expected = [True] * prefix + [False] * (count - prefix)
                    self.assertEqual((answer.prefix, list(answer.hits)), (prefix, expected))

    def test_the_answer_of_a_probe_cannot_be_changed(self):
        client, pool, ns, digests, contents = self.stored(count=1)
        for answer in (ns.probe(digests), ns.probe(digests + digests)):
            with self.assertRaises(AttributeError):
                answer.hits.bitmap = b"\0"
            with self.assertRaises(AttributeError):
                answer.hits.other = 1
            with self.assertRaises(TypeError):
                answer.hits[0] = False
            with self.assertRaises(AttributeError):
                answer.prefix = 0

    def test_what_cannot_be_probed(self):
        client, pool, ns, digests, contents = self.stored(count=1)
        text = digests.hex()[0]
        for wrong, error, words in (
            (text, TypeError, "for one write"),
            (bytes(31), ValueError, "multiple of 32"),
            ([5], TypeError, "a digest is 32 bytes"),
            (None, TypeError, "iterable"),
        ):
            with self.subTest(digests=wrong), self.assertRaisesRegex(error, words):
                ns.probe(wrong)
        with self.assertRaisesRegex(ValueError, "manifest.part_count"):
            ns.probe(digests, maru.Manifest(part_count=0))
        self.assertEqual(len(client._handle.uses), 0)
        client.close()

    def test_counts_must_match(self):
        client, pool, ns = self.worker()
        digests = self.digests(ns, 2)
        with self.assertRaisesRegex(ValueError, "1 buffers for 2 keys"):
            ns.store(pool, digests, [b"x"])
        with self.assertRaisesRegex(ValueError, r"buffers\[1\] has 2 bytes and buffers\[0\] has 1"):
            ns.store(pool, digests, [b"x", b"xx"])
        with self.assertRaisesRegex(ValueError, "empty"):
            ns.store(pool, digests[:1], [b""])
        with self.assertRaisesRegex(TypeError, "sequence of buffers"):
            ns.store(pool, digests[:1], b"xx")
        with self.assertRaisesRegex(TypeError, r"buffers\[1\] is a int, which has no buffer"):
            ns.store(pool, digests, [b"x", 5])
        with self.assertRaisesRegex(ValueError, "0 reservations for 2 keys"):
            ns.commit(pool, digests, [])

    def test_handles_of_two_clients_do_not_mix(self):
        client, pool, ns = self.worker()
        other = self.client()
        with self.assertRaisesRegex(ValueError, "different clients"):
            other.namespace("x").store(pool, self.digests(ns, 1), [b"x"])

    def test_empty_batches(self):
        client, pool, ns = self.worker()
        self.assertEqual(pool.reserve_batch(65536, 0), [])
        prefix, hits = ns.probe([])
        self.assertEqual((prefix, len(hits)), (0, 0))
        self.assertEqual(len(ns.acquire([])), 0)
        self.assertEqual(len(ns.commit(pool, [], [])), 0)

    def test_threads_share_one_client(self):
        client, pool, ns = self.worker(length=4096, capacity=32 * MIB)
        failures = []

        def work(number):
            try:
                for turn in range(10):
                    digests = self.digests(ns, 4, first=10000 * number + 100 * turn)
                    contents = [pattern(4096, 1000 * number + 10 * turn + i) for i in range(4)]
                    ns.store(pool, digests, contents).raise_failed()
                    with ns.acquire(digests) as leases:
                        if [bytes(lease.view) for lease in leases] != contents:
                            failures.append((number, turn))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(client.info().leases, 0)

    def test_information(self):
        client, pool, ns, digests, contents = self.stored(count=2)
        info = client.info()
        self.assertEqual((info.state, info.leases), ("attached", 0))
        self.assertTrue(info.server_version)
        self.assertTrue(client.has_capability("cpu_storage_v1"))
        self.assertFalse(client.has_capability("no_such_thing_v9"))
        usage = pool.info()
        self.assertEqual((usage.capacity_bytes, usage.scope), (16 * MIB, "worker"))
        self.assertGreaterEqual(usage.allocated_bytes, 2 * 65536)
        for thing, words in (
            (client, ["worker", "attached"]),
            (pool, ["Pool", "allocated"]),
            (ns, [ns.text]),
            (digests, ["Digests 2"]),
        ):
            for word in words:
                self.assertIn(word, repr(thing))


class OptionsTest(MaruTest):
    def test_wrong_options_are_named(self):
        with self.assertRaisesRegex(
            ValueError, "role is 'boss': must be one of 'worker', 'scheduler'"
        ):
            self.client(role="boss")
        with self.assertRaisesRegex(ValueError, "timeout_ms is -1"):
            self.client(timeout_ms=-1)
        with self.assertRaisesRegex(ValueError, "NUL"):
            self.client(engine="a\0b")
        client = self.client()
        for options, text in (
            ({"huge_pages": True}, "huge_pages is True"),
            ({"numa": "on"}, "numa is 'on'"),
            ({"medium": "tape"}, "medium is 'tape'"),
            ({"scope": "moon"}, "scope is 'moon': must be one of 'worker', 'host'"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                client.pool(MIB, **options)
        # ctypes would cut these without a word.
        with self.assertRaisesRegex(ValueError, "numa_node is 4294967296"):
            client.pool(MIB, numa="auto", numa_node=1 << 32)
        with (
            client.queue() as queue,
            self.assertRaisesRegex(ValueError, "timeout_ms is 4294967296"),
        ):
            queue.reap(timeout_ms=1 << 32)
        with self.assertRaisesRegex(ValueError, "timeout_ms is 4294967296"):
            client.pool(MIB).wait_populated(1 << 32)
        for wrong in (-1, 1 << 64):
            with self.assertRaisesRegex(ValueError, "capacity_bytes"):
                client.pool(wrong)
        with self.assertRaisesRegex(ValueError, "length is 0"):
            client.pool(MIB, wait_populated=True).reserve(0)

    def test_the_message_of_the_library_arrives(self):
        with self.assertRaises(maru.MaruInvalid) as caught:
            maru.Client("", socket_path=self.socket_path())
        self.assertIn("engine", caught.exception.strerror)
        self.assertEqual(caught.exception.name, "EINVAL")
        self.assertIsInstance(caught.exception, ValueError)
        self.assertIsInstance(caught.exception, OSError)
        with self.assertRaises(maru.MaruUnsupported) as caught:
            self.client().pool(MIB, medium="cxl")
        self.assertTrue(caught.exception.strerror)


if __name__ == "__main__":
    unittest.main()
