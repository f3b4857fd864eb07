# SPDX-License-Identifier: Apache-2.0
"""Digests, keys and tokens: plain data."""

import array
import os
import pickle
import unittest

import maru
from maru import _abi
from support import FAKE, optional


class DigestsTest(unittest.TestCase):
    ONE, TWO = bytes(range(32)), bytes(range(32, 64))

    def test_flat_bytes_and_single_digests_give_the_same(self):
        flat = maru.Digests(self.ONE + self.TWO)
        self.assertEqual(flat, maru.Digests([self.ONE, bytearray(self.TWO)]))
        self.assertEqual(list(flat), [self.ONE, self.TWO])
        self.assertEqual(flat[-1], self.TWO)
        self.assertEqual(flat[1:], maru.Digests(self.TWO))
        self.assertEqual(flat[::-1], maru.Digests([self.TWO, self.ONE]))
        self.assertEqual(len(flat[2:1]), 0)
        self.assertEqual(flat[:1] + flat[1:], flat)
        with self.assertRaises(IndexError):
            flat[2]

    def test_digests_survive_pickling_and_hashing(self):
        flat = maru.Digests(self.ONE + self.TWO)
        self.assertEqual(pickle.loads(pickle.dumps(flat)), flat)
        self.assertEqual(len({flat, maru.Digests(bytes(flat))}), 1)

    def test_the_view_cannot_change_a_digest(self):
        flat = maru.Digests(self.ONE)
        self.assertTrue(flat.view.readonly)
        self.assertEqual(bytes(flat.view), self.ONE)

    def test_a_wrong_size_is_named(self):
        with self.assertRaisesRegex(ValueError, "33 bytes of digests: must be a multiple of 32"):
            maru.Digests(b"x" * 33)
        with self.assertRaisesRegex(ValueError, "has 32 bytes, not 5"):
            maru.Digests([b"short"])
        with self.assertRaisesRegex(TypeError, "one write"):
            maru.Digests("ab" * 32)
        with self.assertRaisesRegex(TypeError, "not a int"):
            maru.Digests([7])

    def test_keys_reach_c_with_shard_and_part(self):
        from maru.keys import key_bytes

        flat = key_bytes([maru.Key(self.ONE, 7, 0xFFFFFFFF), (self.TWO, 1, 2), self.TWO])
        self.assertEqual(len(flat), 120)
        made = (_abi.maru_key * 3).from_buffer_copy(flat)
        self.assertEqual([bytes(key.digest.bytes) for key in made], [self.ONE, self.TWO, self.TWO])
        self.assertEqual([(key.shard, key.part) for key in made], [(7, 0xFFFFFFFF), (1, 2), (0, 0)])
        flat = key_bytes(maru.Digests(self.ONE + self.TWO))
        self.assertEqual(flat, self.ONE + bytes(8) + self.TWO + bytes(8))
        with self.assertRaisesRegex(ValueError, r"keys\[0\].shard is -1"):
            key_bytes([maru.Key(self.ONE, -1)])
        with self.assertRaisesRegex(ValueError, "4294967296"):
            key_bytes([maru.Key(self.ONE, 0, 1 << 32)])


@unittest.skipUnless(os.environ.get("MARU_LIBRARY"), "MARU_LIBRARY is not set")
class PrefixDigestsTest(unittest.TestCase):
    def test_the_published_vector(self):
        if FAKE:
            self.skipTest("the fake library does not hash")
        made = maru.prefix_digests("maru-test", range(8), 4)
        self.assertEqual(made.hex(), [_abi.TEST_VECTOR_0, _abi.TEST_VECTOR_1])

    def test_every_form_of_tokens_gives_the_same(self):
        numbers = [0, 1, 2, 3, 0xFFFFFFFF, 5, 6, 7, 8]
        expected = maru.prefix_digests("ns", numbers, 4)
        self.assertEqual(len(expected), 2)
        for made in (
            tuple(numbers),
            array.array("I", numbers),
            array.array("Q", numbers),
            memoryview(array.array("I", numbers)).toreadonly(),
            memoryview(array.array("I", [n for n in numbers for _ in "ab"]))[::2],
        ):
            with self.subTest(kind=type(made)):
                self.assertEqual(maru.prefix_digests("ns", made, 4), expected)

    def test_numpy_tokens(self):
        numpy = optional("numpy")
        numbers = [0, 1, 2, 3, 4, 5, 6, 7]
        expected = maru.prefix_digests("ns", numbers, 4)
        for kind in ("u4", "<u4", "i4", "i8", "u8", "u1"):
            with self.subTest(dtype=kind):
                self.assertEqual(maru.prefix_digests("ns", numpy.array(numbers, kind), 4), expected)
        with self.assertRaisesRegex(ValueError, "outside 0 to 4294967295"):
            maru.prefix_digests("ns", numpy.array([-1, 1], "i4"), 1)
        with self.assertRaisesRegex(ValueError, "one dimension"):
            maru.prefix_digests("ns", numpy.zeros((2, 2), "u4"), 1)
        with self.assertRaises(TypeError):
            maru.prefix_digests("ns", numpy.zeros(4), 1)

    def test_a_parent_continues_the_prompt(self):
        whole = maru.prefix_digests("ns", range(16), 4)
        rest = maru.prefix_digests("ns", range(8, 16), 4, parent=whole[1])
        self.assertEqual(whole[2:], rest)

    def test_fewer_tokens_than_a_chunk_give_no_digest(self):
        self.assertEqual(len(maru.prefix_digests("ns", [], 4)), 0)
        self.assertEqual(len(maru.prefix_digests("ns", [1, 2, 3], 4)), 0)

    def test_what_is_no_token_is_refused(self):
        for wrong in ([-1], [1 << 32]):
            with self.assertRaisesRegex(ValueError, "outside 0 to 4294967295"):
                maru.prefix_digests("ns", wrong, 1)
        for wrong in (["a"], [1.5], "text", b"bytes", None):
            with self.assertRaises(TypeError):
                maru.prefix_digests("ns", wrong, 1)
        with self.assertRaisesRegex(ValueError, "chunk_tokens is 0: must be from 1"):
            maru.prefix_digests("ns", [1], 0)
        with self.assertRaisesRegex(ValueError, "NUL"):
            maru.prefix_digests("n\0s", [1], 1)

    def test_hexadecimal_text_and_back(self):
        text = "0123456789abcdef" * 4
        self.assertEqual(maru.digest_format(maru.digest_parse(text)), text)
        self.assertEqual(maru.digest_parse(text.upper()), bytes.fromhex(text))
        self.assertEqual(maru.Digests([text])[0], bytes.fromhex(text))
        for wrong in (text[:-1], text + "0", "g" * 64):
            with self.assertRaises(maru.MaruInvalid) as caught:
                maru.digest_parse(wrong)
            self.assertIn("64", caught.exception.strerror)


if __name__ == "__main__":
    unittest.main()
