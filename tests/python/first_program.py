# A first Maru program in Python: store the KV of a prompt, find it again, read it in place.
import sys

import maru

CHUNK_TOKENS, CHUNK_BYTES = 256, 1 << 20

tokens = list(range(1000))  # 3 full chunks and a rest, which is not cached
kv = [bytes([chunk]) * CHUNK_BYTES for chunk in range(3)]  # what the model computed for them

with maru.Client(engine="first-program") as client:
    ns = client.namespace("app=demo model=tiny rev=1 dtype=u8 layout=raw chunk=256")
    ns.describe(CHUNK_BYTES, format="raw-v1")
    with client.pool(64 << 20, wait_populated=True) as pool:
        keys = ns.digests(tokens, CHUNK_TOKENS)
        ns.store(pool, keys, kv).raise_failed()

        hit = ns.probe(keys)
        print(f"{hit.prefix} of {len(keys)} chunks are in the cache")

        with ns.acquire(keys[: hit.prefix]) as leases:
            for chunk, lease in enumerate(leases):
                assert lease.view == kv[chunk]  # the pool's own memory: nothing was copied
        if client.info().leases:
            sys.exit("a lease was left")
