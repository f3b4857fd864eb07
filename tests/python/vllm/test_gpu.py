# SPDX-License-Identifier: Apache-2.0
"""An engine whose KV is on a GPU: with the stand-in for libcuda, whose GPU memory is this process's own.

A stream of the stand-in does nothing before it is waited for. So a chunk that is committed too early, or
a block that is read too early, holds old bytes, which the engine's oracle finds.
"""

import ctypes
import os
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

from harness import CHUNK, VllmTest, engine_module, settings

import maru
from maru_vllm.config import ConfigError

STAND_IN = os.environ.get("MARU_TEST_CUDA_STAND_IN")
STREAM = 0x70


def asked(name):
    function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    function.restype = ctypes.c_ulong
    function.argtypes = [ctypes.c_void_p]
    return function(STREAM)


class Gpu(VllmTest):
    index = 0

    def setUp(self):
        super().setUp()
        device = SimpleNamespace(type="cuda", index=self.index)
        stream = SimpleNamespace(cuda_stream=STREAM)
        torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda device: stream))
        for patch in (
            mock.patch.object(engine_module.Tensor, "device", device),
            mock.patch.dict(sys.modules, {"torch": torch}),
        ):
            patch.start()
            self.addCleanup(patch.stop)


@unittest.skipUnless(STAND_IN, "the stand-in for libcuda is not loaded: the test vllm-connector-cuda does it")
class OnAGpu(Gpu):
    def setUp(self):
        super().setUp()
        try:
            maru.PagedMemory([4096], 4096, 1, device=0)
        except maru.MaruUnsupported as error:
            self.skipTest(error.strerror)

    def registered(self, engine):
        engine.worker._worker._registration._thread.join(30)
        self.assertFalse(engine.worker._worker._registration.running)
        return engine

    def there_and_back(self, engine):
        prompt = list(range(33))
        self.assertEqual(self.run_prompt(engine, prompt, outputs=3), 0)
        self.assertEqual(self.stored(engine, prompt), [0, 1, 2, 3])
        engine.pool.reset()
        self.assertEqual(self.run_prompt(engine, prompt, outputs=3), 32)
        engine.check_local_cache()

    def test_blocks_are_stored_and_loaded_by_kernels_on_the_engines_stream(self):
        engine = self.registered(self.engine())
        before = asked("fake_cuda_launches"), asked("fake_cuda_copies")
        self.there_and_back(engine)
        self.assertGreaterEqual(asked("fake_cuda_launches") - before[0], 2)
        self.assertEqual(asked("fake_cuda_copies"), before[1])

    def test_the_pool_is_registered_and_says_so(self):
        engine = self.registered(self.engine())
        info = engine.worker._worker.link.current.pool.info()
        self.assertEqual(info.pinned_bytes, info.capacity_bytes)
        self.assertEqual(asked("fake_cuda_registered_bytes"), info.capacity_bytes)
        engine.close()
        self.assertEqual(asked("fake_cuda_registered_bytes"), 0)

    def test_a_pool_that_cannot_be_registered_is_copied_by_the_driver(self):
        def refuse(*arguments, **options):
            raise maru.MaruNoMemory(12, "registering was refused")

        with mock.patch.object(maru.Pool, "cuda_register", refuse):
            engine = self.registered(self.engine())
        before = asked("fake_cuda_launches"), asked("fake_cuda_copies")
        self.there_and_back(engine)
        self.assertEqual(asked("fake_cuda_launches"), before[0])
        self.assertGreater(asked("fake_cuda_copies"), before[1])

    def test_checksums_and_damage(self):
        engine = self.registered(self.engine(settings(verify="load")))
        self.there_and_back(engine)
        # The oracle of the engine computes again what was damaged.
        prompt = list(range(100, 133))
        self.run_prompt(engine, prompt)
        session = engine.worker._worker.link.current
        digests = maru.prefix_digests(engine.worker._worker._text, prompt, CHUNK)
        with session.namespace.acquire(digests) as leases:
            self.assertGreater(leases[0].length, 0)
            ctypes.c_uint8.from_address(leases[0]._loan.address + 3).value ^= 1
        engine.pool.reset()
        request = self.request(prompt)
        engine.run(request)
        engine.check_output(request)
        self.assertGreater(engine.totals["load_failures:damaged"], 0)

    def test_a_gather_that_fails_stores_nothing(self):
        engine = self.registered(self.engine())
        prompt = list(range(33))
        with mock.patch.dict(os.environ, MARU_TEST_CUDA_FAILED="719"):
            self.assertEqual(self.run_prompt(engine, prompt), 0)
        self.assertEqual(self.stored(engine, prompt), [])
        self.assertEqual(self.run_prompt(engine, list(range(50, 83))), 0)
        self.assertEqual(len(self.stored(engine, list(range(50, 83)))), 32 // CHUNK)

    def test_what_another_device_has_is_another_namespace(self):
        on_gpu = self.engine().worker._worker._text
        with mock.patch.object(engine_module.Tensor, "device", SimpleNamespace(type="cpu")):
            self.assertNotEqual(self.engine().worker._worker._text, on_gpu)


@unittest.skipUnless(STAND_IN, "the stand-in for libcuda is not loaded: the test vllm-connector-cuda does it")
class OnAGpuThatIsNotThere(Gpu):
    index = 1

    def test_it_is_refused_at_the_start(self):
        with self.assertRaises(ConfigError) as caught:
            self.engine()
        self.assertIn("GPU 1", str(caught.exception))


class WithoutCuda(Gpu):
    def test_what_is_missing_is_said_at_the_start(self):
        try:
            maru.PagedMemory([4096], 4096, 1, device=0)
        except maru.MaruUnsupported as error:
            missing = error.strerror
        else:
            self.skipTest("there is a GPU, or the stand-in for one")
        with self.assertRaises(ConfigError) as caught:
            self.engine()
        self.assertIn("GPU 0", str(caught.exception))
        self.assertIn(missing, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
