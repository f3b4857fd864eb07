# SPDX-License-Identifier: Apache-2.0
"""KV on a GPU through the binding: the in-process fake has one, the real library says what is missing."""

import ctypes
import errno
import unittest
from array import array

import support

import maru

BLOCK = 4096


class Memory:
    """Two layers of four blocks, each filled with its own byte."""

    def __init__(self):
        self.layers = [(ctypes.c_uint8 * (4 * BLOCK))() for _ in range(2)]
        for number, layer in enumerate(self.layers):
            for block in range(4):
                ctypes.memset(ctypes.addressof(layer) + block * BLOCK, 16 * number + block, BLOCK)

    def paged(self, **options):
        addresses = [ctypes.addressof(layer) for layer in self.layers]
        return maru.PagedMemory(addresses, BLOCK, 4, **options)


class CudaTest(support.MaruTest):
    def test_a_device_is_a_number(self):
        for device in (-1, 1 << 31):
            with self.assertRaises(ValueError) as caught:
                Memory().paged(device=device)
            self.assertIn(str(device), str(caught.exception))
        self.assertIsNone(Memory().paged().device)

    def test_a_range_is_of_numbers(self):
        _, pool, _ = self.worker()
        for options in ({"offset": -1}, {"length": 1 << 64}, {"chunk_bytes": -4096}, {"device": -1}):
            with self.subTest(**options), self.assertRaises(ValueError) as caught:
                pool.cuda_register(**options)
            self.assertIn(str(*options.values()), str(caught.exception))

    def test_without_cuda_it_says_what_is_missing(self):
        if support.FAKE:
            self.skipTest("the fake has a GPU")
        try:
            Memory().paged(device=0)
        except maru.MaruUnsupported as error:
            self.assertIn("CUDA", error.strerror)
        else:
            self.skipTest("there is a GPU")


@unittest.skipUnless(support.FAKE, "needs the in-process fake, which has a GPU")
class FakeGpuTest(support.MaruTest):
    def test_blocks_there_and_back_on_one_stream(self):
        memory = Memory()
        paged = memory.paged(device=0)
        self.assertEqual(paged.device, 0)
        _, pool, namespace = self.worker(length=paged.object_bytes(2))
        self.assertEqual(pool.cuda_register(), 16 * support.MIB)
        self.assertEqual(pool.cuda_register(4096, 8192, chunk_bytes=4096, device=0), 8192)
        digests = self.digests(namespace, 1)
        made = pool.reserve_batch(paged.object_bytes(2), 1)
        paged.gather(array("I", [3, 1]), 2, made, stream=7)
        self.assertEqual(namespace.commit(pool, digests, made).succeeded, 1)
        with namespace.acquire(digests) as leases:
            results = paged.scatter([0, maru.NO_BLOCK], 2, list(leases), stream=8)
            self.assertEqual(list(results), [0])
        self.assertEqual((memory.layers[0][0], memory.layers[1][0]), (3, 16 + 3))
        self.assertEqual(memory.layers[0][BLOCK], 1)

    def test_a_gpu_that_fails_is_an_error_and_the_reservation_is_still_there(self):
        memory = Memory()  # the addresses are those of its layers
        paged = memory.paged(device=0)
        _, pool, _ = self.worker(length=paged.object_bytes(2))
        made = pool.reserve_batch(paged.object_bytes(2), 1)
        with self.assertRaises(maru.MaruError) as caught:
            paged.gather([0, 1], 2, made, stream=13)
        self.assertEqual(caught.exception.errno, errno.EIO)
        made[0].abort()

    def test_a_gpu_that_is_not_there(self):
        with self.assertRaises(maru.MaruError) as caught:
            Memory().paged(device=1)
        self.assertEqual(caught.exception.errno, errno.ENODEV)
        _, pool, _ = self.worker()
        with self.assertRaises(maru.MaruError):
            pool.cuda_register(device=1)


if __name__ == "__main__":
    unittest.main()
