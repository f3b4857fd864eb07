# SPDX-License-Identifier: Apache-2.0
"""Pools of scope "host": read by every client of the uid, and kept when their own has ended."""

import time
import unittest

from support import MIB, MaruTest, pattern, unique


class HostScopeTest(MaruTest):
    needs_daemon = True

    def sharer(self, text, engine=None, scope="host"):
        client = self.client(engine)
        pool = client.pool(4 * MIB, scope=scope, wait_populated=True)
        namespace = client.namespace(text)
        namespace.describe(65536, "raw-v1")
        return client, pool, namespace

    def eventually(self, count, namespace, digests):
        """Adoption needs the proof that the writer is gone."""
        deadline = time.monotonic() + 30
        while namespace.probe(digests)[0] != count and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(namespace.probe(digests)[0], count)

    def test_what_a_closed_client_stored_is_loaded_by_the_next(self):
        text, engine = unique("namespace"), unique("engine")
        client, pool, namespace = self.sharer(text, engine)
        self.assertEqual(pool.info().scope, "host")
        digests = self.digests(namespace, 5)
        contents = [pattern(65536, index) for index in range(5)]
        self.assertEqual(namespace.store(pool, digests, contents).succeeded, 5)
        _, _, reader = self.sharer(text, scope="worker")
        buffers = [bytearray(65536) for _ in digests]
        self.assertEqual(reader.load(digests, buffers).succeeded, 5)
        self.assertBytes(buffers, contents)
        client.close()
        _, pool, again = self.sharer(text, engine)
        self.eventually(5, again, digests)
        with again.acquire(digests) as leases:
            self.assertBytes([lease.view for lease in leases], contents)
            with self.assertRaises(TypeError):
                leases[0].view[0] = 1
        self.assertEqual(again.store(pool, digests, contents).succeeded, 5)  # present
        self.assertEqual(pool.info().allocated_bytes, 0)

    def test_a_private_pool_stays_private(self):
        text = unique("namespace")
        _, pool, namespace = self.sharer(text, scope="worker")
        digests = self.digests(namespace, 1)
        namespace.store(pool, digests, [pattern(65536, 1)]).raise_failed()
        _, _, other = self.sharer(text)
        self.assertEqual(other.probe(digests)[0], 0)


if __name__ == "__main__":
    unittest.main()
