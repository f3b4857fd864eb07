# SPDX-License-Identifier: Apache-2.0
"""Known failures of ctypes bindings and of keys made in several processes; see tests/README.md."""

import ctypes
import gc
import os
import re
import subprocess
import sys
import unittest

import maru
from maru import _abi
from support import FAKE, MIB, PACKAGE, MaruTest, optional, pattern
from test_abi import constants, functions, source

GIB = 1 << 30

# The keys of a 64-token prompt in chunks of 16, computed once and for all.
TEXT = "app=chat weights=llama-3-8b rev=1"
GOLDEN = [
    "7ac6eb7003009e59ed288f11302e3d0f3d443f72773c685b1d3c310d3b3ea34d",
    "d308c31f9d8338bee701737baed1f491d668faa586df034e3d9da2a027f1fcae",
    "7ea5b1dd33599dd538f689ba7ac6683d913703aea143f033906c3b3752861e6d",
    "8e32b31d6606bb460b9a16cde17359aab0b3a218299eb284ac953d31d70eee6e",
]

KEYS = """
import sys
import maru
optional = {"adapter": None, "salt": None} if sys.argv[1] == "with" else {}
fields = {"app": "chat", "weights": "llama-3-8b", "rev": "1", **optional}
# A set and a dictionary with absent values on the way: their order and hashes must not matter.
text = " ".join(f"{k}={v}" for k, v in fields.items() if v is not None)
assert {hash(None), hash(text), hash("salt")}
for tokens in (list(range(64)), tuple(range(64)), range(64)):
    print(maru.prefix_digests(text, tokens, 16).hex())
"""


class KeysTest(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("MARU_LIBRARY"), "MARU_LIBRARY is not set")
    def test_A60_equal_prompts_have_equal_keys_in_every_process(self):
        if FAKE:
            self.skipTest("the fake library does not hash")
        for seed in (None, "0", "123"):
            for optional_fields in ("with", "without"):
                environment = dict(os.environ, PYTHONPATH=str(PACKAGE))
                environment.pop("PYTHONHASHSEED", None)
                if seed is not None:
                    environment["PYTHONHASHSEED"] = seed
                ended = subprocess.run(
                    [sys.executable, "-c", KEYS, optional_fields],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                self.assertEqual((ended.returncode, ended.stderr), (0, ""))
                for line in ended.stdout.splitlines():
                    self.assertEqual(line, str(GOLDEN), (seed, optional_fields))
                self.assertEqual(len(ended.stdout.splitlines()), 3)


class ViewsTest(MaruTest):
    def check_views(self, make):
        client, pool, ns, digests, contents = self.stored(count=1)
        lease = ns.acquire(digests)[0]
        view = make(lease.view)
        with self.assertRaises(maru.MaruBusy) as caught:
            pool.close()
        self.assertTrue(caught.exception.strerror)
        self.assertFalse(pool.closed)
        self.assertEqual(bytes(view), contents[0])
        with self.assertRaises(maru.MaruBusy):
            client.close()
        self.assertEqual(bytes(view), contents[0])
        del view
        gc.collect()
        lease.release()
        pool.close()
        self.assertTrue(pool.closed)
        if self.daemon:
            # The grant is back: as much again fits.
            client.pool(16 * MIB).close()
        client.close()

    def test_A75_a_pool_with_a_living_memoryview_is_busy(self):
        self.check_views(lambda view: view)

    def test_A75_a_pool_with_a_living_array_is_busy(self):
        numpy = optional("numpy")
        self.check_views(lambda view: numpy.frombuffer(view, dtype=numpy.uint8))

    def test_A75_the_interpreter_may_end_with_living_views(self):
        for close_first in (False, True):
            with self.subTest(close_first=close_first):
                self.program(
                    """
import sys
import maru
client = maru.Client("ending-" + sys.argv[2], socket_path=None)
pool = client.pool(1 << 20, wait_populated=True)
ns = client.namespace("ending")
ns.describe(4096, "raw-v1")
keys = ns.digests([1], 1)
ns.store(pool, keys, [b"k" * 4096]).raise_failed()
lease = ns.acquire(keys)[0]
view = lease.view
if sys.argv[1] == "True":
    try:
        pool.close()
        sys.exit("closed under a view")
    except maru.MaruBusy:
        pass
assert bytes(view) == b"k" * 4096
keep = [view, view[7:]]  # alive until the very end, in a cycle
keep.append(keep)
""",
                    str(close_first),
                    str(os.getpid()) + str(close_first),
                )


class TypesTest(MaruTest):
    def test_A76_every_function_is_bound_with_the_types_of_the_header(self):
        declared = functions(source())
        self.assertGreaterEqual(len(declared), 35)
        self.assertEqual(set(declared), set(_abi.FUNCTIONS))
        library = maru._library.load()
        for name, (result, arguments) in declared.items():
            with self.subTest(function=name):
                bound = getattr(library, name)
                self.assertIs(bound.restype, result)
                self.assertIsNotNone(bound.argtypes, "undeclared: pointers would be cut")
                self.assertEqual(list(bound.argtypes), arguments)
        self.assertTrue(constants())
        # A symbol that is exported and in no header would be called without types.
        exported = self.exported_names()
        if not FAKE:
            self.assertEqual(exported, set(declared))

    def exported_names(self):
        """What the library's own table of symbols says."""
        path = os.environ["MARU_LIBRARY"]
        with open(path, "rb") as file:
            image = file.read()
        names = set(re.findall(rb"\0(maru_[a-z_]+)(?=\0)", image))
        dynamic = {name.decode() for name in names}
        return {name for name in dynamic if self.resolves(path, name)}

    def resolves(self, path, name):
        try:
            ctypes.CDLL(path)[name]
        except AttributeError:
            return False
        return True

    def test_A76_values_above_32_bits_make_the_round_trip(self):
        client = self.client()
        if not FAKE:
            # Every id of a real marud is above 2**32: its upper half is the epoch.
            info = client.info()
            self.assertEqual(info.session >> 32, info.epoch)
            self.assertGreater(info.session, 1 << 32)
            pool = client.pool(5 * GIB, populate_margin_mib=0xFFFFFFFF)
            self.assertEqual(pool.info().capacity_bytes, 5 * GIB)
            self.assertGreater(pool.info().id, 1 << 32)
            pool.close(forced=True)
            client, pool, ns, digests, contents = self.stored()
            with ns.acquire(digests) as leases:
                self.assertGreater(leases[0].generation, 1 << 32)
                self.assertEqual(bytes(leases[0].view), contents[0])
            return
        # The fake's pools are sparse: an offset above 4 GiB costs nothing.
        pool = client.pool(12 * GIB)
        low = pool.reserve(5 * GIB)
        high = pool.reserve(4096)
        self.assertGreater(high.offset, 4 * GIB)
        with high.view as view:
            view[:] = pattern(4096, 9)
        ns = client.namespace("A76")
        digests = ns.digests(range(8), 4)
        self.assertEqual(list(ns.commit(pool, digests, [low, high])), [0, 0])
        with ns.acquire(digests) as leases:
            self.assertEqual(bytes(leases[1].view), pattern(4096, 9))
        self.assertGreater(client.info().session, 1 << 32)


if __name__ == "__main__":
    unittest.main()
