# SPDX-License-Identifier: Apache-2.0
"""Whole blocks of an engine's memory, to and from the cache, in one call each way."""

import ctypes
import errno
import unittest
from array import array
from unittest import mock

import maru
from support import MaruTest, unique

LAYERS, BLOCKS, BLOCK = 3, 16, 4096
PER_OBJECT = 2
LENGTH = LAYERS * PER_OBJECT * BLOCK


class Engine:
    """KV memory of its own, whose every block can be told from the others."""

    def __init__(self, checksum=False):
        self.bytes = (ctypes.c_uint8 * (LAYERS * BLOCKS * BLOCK))()
        layer = BLOCKS * BLOCK
        addresses = [ctypes.addressof(self.bytes) + layer * i for i in range(LAYERS)]
        self.memory = maru.PagedMemory(addresses, BLOCK, BLOCKS, checksum=checksum)

    def fill(self, first):
        for layer in range(LAYERS):
            for block in range(BLOCKS):
                self.write(layer, block, bytes([(first + 31 * layer + block) % 251]) * BLOCK)
        return self

    def write(self, layer, block, contents):
        at = (layer * BLOCKS + block) * BLOCK
        self.bytes[at : at + BLOCK] = contents

    def read(self, block):
        return [
            bytes(self.bytes[(layer * BLOCKS + block) * BLOCK :][:BLOCK]) for layer in range(LAYERS)
        ]


class PagedTest(MaruTest):
    needs_daemon = True

    def opened(self, checksum=False, capacity=1 << 20):
        engine = Engine(checksum)
        client = self.client()
        pool = client.pool(capacity, page_bytes=4096, wait_populated=True)
        namespace = client.namespace(unique("namespace"))
        namespace.describe(engine.memory.object_bytes(PER_OBJECT), "blocks")
        return engine, client, pool, namespace, client.queue()

    def stored(self, objects, **options):
        engine, client, pool, namespace, queue = self.opened(**options)
        engine.fill(1)
        digests = self.digests(namespace, objects)
        blocks = array("I", range(objects * PER_OBJECT))
        operation = engine.memory.store(queue, namespace, pool, digests, blocks, PER_OBJECT)
        queue.reap(timeout_ms=30000)
        self.assertEqual(list(operation.result()), [0] * objects)
        return engine, client, pool, namespace, queue, digests

    def test_what_was_stored_is_loaded_into_other_blocks(self):
        for checksum in (False, True):
            with self.subTest(checksum=checksum):
                engine, client, pool, namespace, queue, digests = self.stored(3, checksum=checksum)
                other = Engine(checksum)
                results = other.memory.load(namespace, digests, [9, 8, 7, 6, 5, 4], PER_OBJECT)
                self.assertEqual((results.succeeded, list(results)), (3, [0, 0, 0]))
                for source, target in zip(range(6), (9, 8, 7, 6, 5, 4)):
                    self.assertEqual(other.read(target), engine.read(source))
                self.assertEqual(other.read(10), [bytes(BLOCK)] * LAYERS)
                self.assertEqual(client.info().leases, 0)
                self.assertEqual(len(client._handle.loans), 0)

    def test_what_is_acquired_after_the_submit_finds_the_objects(self):
        engine, client, pool, namespace, queue = self.opened(capacity=64 << 20)
        for number in range(50):
            digests = self.digests(namespace, 2, first=100 * number)
            engine.memory.store(queue, namespace, pool, digests, [1, 2, 3, 4], PER_OBJECT)
            with namespace.acquire(digests) as leases:
                self.assertEqual(leases.chunks, 2, number)
        while queue._state.pending:
            self.assertTrue(queue.reap(timeout_ms=30000))

    def test_a_load_ends_at_the_first_that_is_not_there(self):
        engine, client, pool, namespace, queue, digests = self.stored(3)
        namespace.retire(digests[1:2])
        other = Engine()
        results = other.memory.load(namespace, digests, [9, 8, 7, 6, 5, 4], PER_OBJECT)
        self.assertEqual((results.succeeded, list(results)), (1, [0, -errno.ENOENT, -errno.ENOENT]))
        self.assertEqual(other.read(9), engine.read(0))
        self.assertEqual(other.read(7), [bytes(BLOCK)] * LAYERS)
        absent = self.digests(namespace, 2, first=900)
        nothing = other.memory.load(namespace, absent, [1, 2, 3, 4], PER_OBJECT)
        self.assertEqual((nothing.succeeded, list(nothing)), (0, [-errno.ENOENT] * 2))
        self.assertEqual(len(other.memory.load(namespace, maru.Digests(), [], PER_OBJECT)), 0)
        self.assertEqual(client.info().leases, 0)

    def test_a_block_may_be_left_out_of_a_load(self):
        engine, client, pool, namespace, queue, digests = self.stored(1)
        other = Engine()
        other.memory.load(namespace, digests, [maru.NO_BLOCK, 5], PER_OBJECT)
        self.assertEqual(other.read(5), engine.read(1))
        self.assertFalse(any(any(map(any, other.read(block))) for block in range(5)))

    def test_damage_is_told_and_no_lease_is_left(self):
        engine, client, pool, namespace, queue, digests = self.stored(2, checksum=True)
        with namespace.acquire(digests[1:]) as leases:
            leases[0].length
            ctypes.c_uint8.from_address(leases[0]._loan.address + 5).value ^= 1
        other = Engine(True)  # the memory that is loaded into is its owner's to keep
        results = other.memory.load(namespace, digests, [0, 1, 2, 3], PER_OBJECT)
        self.assertEqual((results.succeeded, list(results)), (1, [0, -errno.EBADMSG]))
        self.assertEqual(client.info().leases, 0)

    def test_an_object_of_another_size_is_refused_and_no_lease_is_left(self):
        engine, client, pool, namespace, queue, digests = self.stored(2)
        with self.assertRaises(maru.MaruIncompatible):
            engine.memory.load(namespace, digests, [0, 1, 2, 3, 4, 5], 3)
        self.assertEqual(client.info().leases, 0)

    def test_what_cannot_be_stored_takes_nothing_of_the_pool(self):
        engine, client, pool, namespace, queue = self.opened(capacity=3 * LENGTH)
        memory, four = engine.memory, self.digests(namespace, 4)
        two = four[:2]
        with self.assertRaises(maru.MaruFull):
            memory.store(queue, namespace, pool, four, range(8), PER_OBJECT)
        with self.assertRaises(maru.MaruInvalid):  # no such block
            memory.store(queue, namespace, pool, two, [0, 1, 2, BLOCKS], PER_OBJECT)
        with self.assertRaisesRegex(ValueError, "there must be 4"):
            memory.store(queue, namespace, pool, two, [0, 1, 2], PER_OBJECT)
        with self.assertRaisesRegex(ValueError, "at least one"):
            memory.store(queue, namespace, pool, maru.Digests(), [], PER_OBJECT)
        for other in (
            (self.client().queue(), namespace, pool),
            (queue, self.client().namespace("x"), pool),
            (queue, namespace, self.client().pool(1 << 20)),
        ):
            with self.assertRaisesRegex(ValueError, "different clients"):
                memory.store(*other, two, range(4), PER_OBJECT)
        self.assertEqual(pool.info().allocated_bytes, 0)
        self.assertFalse(queue._state.pending)
        operation = memory.store(queue, namespace, pool, two, range(4), PER_OBJECT)
        with self.assertRaisesRegex(maru.MaruBusy, "not reaped"):
            operation.result()
        queue.reap(timeout_ms=30000)
        self.assertEqual(operation.result().succeeded, 2)

    def test_what_is_there_already_gives_its_pages_back(self):
        engine, client, pool, namespace, queue, digests = self.stored(2)
        used = pool.info().allocated_bytes
        again = engine.memory.store(queue, namespace, pool, digests, range(4), PER_OBJECT)
        queue.reap(timeout_ms=30000)
        self.assertEqual(list(again.result()), [-errno.EEXIST] * 2)
        self.assertEqual(again.result().succeeded, 2)
        self.assertEqual(pool.info().allocated_bytes, used)

    def test_blocks_are_not_resized_under_a_copy(self):
        engine, client, pool, namespace, queue, digests = self.stored(1)
        blocks = array("I", [0, 1])
        seen = []

        def refuse(*arguments):
            try:
                blocks.append(2)
            except BufferError as error:
                seen.append(error)
            return -errno.EINVAL

        by_address = engine.memory._library.by_address
        with mock.patch.object(by_address, "maru_store_blocks_submit", refuse):
            with self.assertRaises(maru.MaruInvalid):
                engine.memory.store(queue, namespace, pool, digests, blocks, PER_OBJECT)
        with mock.patch.object(by_address, "maru_load_blocks", refuse):
            with self.assertRaises(maru.MaruInvalid):
                engine.memory.load(namespace, digests, blocks, PER_OBJECT)
        self.assertEqual(len(seen), 2)
        self.assertFalse(queue._state.pending)

    def test_an_interrupt_behind_the_call_leaves_its_arrays_to_c(self):
        engine, client, pool, namespace, queue = self.opened()
        digests = self.digests(namespace, 1)
        by_address = engine.memory._library.by_address

        def interrupted(function):
            def call(*arguments):
                function(*arguments)
                raise KeyboardInterrupt

            return call

        for name, submit in (
            (
                "maru_store_blocks_submit",
                lambda: engine.memory.store(queue, namespace, pool, digests, [0, 1], PER_OBJECT),
            ),
            ("maru_probe_submit", lambda: queue.probe(namespace, digests)),
        ):
            with mock.patch.object(by_address, name, interrupted(getattr(by_address, name))):
                with self.assertRaises(KeyboardInterrupt):
                    submit()
            self.assertEqual(len(queue._state.pending), 1, name)
            self.assertEqual(len(queue.reap(timeout_ms=30000)), 1)
            self.assertFalse(queue._state.pending)
        self.assertEqual(namespace.probe(digests).prefix, 1)


if __name__ == "__main__":
    unittest.main()
