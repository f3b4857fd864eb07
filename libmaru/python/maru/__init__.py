# SPDX-License-Identifier: Apache-2.0
"""Maru: a KV cache for LLM inference that outlives the engine.

A worker opens a client, names a namespace, opens a pool, and then stores and loads. KV bytes are
copied straight to and from the pool's memory; marud sees only names and offsets.

    with maru.Client("engine-0") as client, client.pool(1 << 30) as pool:
        ns = client.namespace("model=... dtype=... chunk=256")
        ns.describe(object_bytes=len(kv), format="raw-v1")
        keys = ns.digests(tokens, chunk_tokens=256)
        ns.store(pool, keys, buffers)               # reserve, copy, commit
        hit = ns.probe(keys).prefix                 # chunks readable from the front
        with ns.acquire(keys[:hit]) as leases:      # no copy: lease.view is the pool's memory
            ...

Needs libmaru.so.0 (``$MARU_LIBRARY``, else the loader's), which is loaded at the first call that
needs it; ``maru.library()`` says which. Every error is a ``MaruError`` with the library's message.
"""

from ._library import MINIMUM_VERSION, Library, library
from .async_queue import Operation, Queue
from .client import Client, ClientInfo
from .errors import (
    MaruAccess,
    MaruAgain,
    MaruBufferError,
    MaruBusy,
    MaruClosed,
    MaruConflict,
    MaruDamaged,
    MaruError,
    MaruExists,
    MaruFenced,
    MaruForked,
    MaruFull,
    MaruIncompatible,
    MaruInvalid,
    MaruLibraryError,
    MaruNoMemory,
    MaruNotConnected,
    MaruNotFound,
    MaruPending,
    MaruProtocol,
    MaruQuota,
    MaruRefused,
    MaruStale,
    MaruTimeout,
    MaruTooLarge,
    MaruUnsupported,
    MaruVersion,
)
from .keys import DIGEST_BYTES, Digests, Key, Manifest, digest_format, digest_parse, prefix_digests
from .leases import Lease, Leases
from .objects import Namespace
from .paged import CHECKSUM_BYTES, NO_BLOCK, PagedMemory
from .pool import Pool, PoolInfo, Reservation
from .results import Hits, Probe, Results

__version__ = "0.1.0"

__all__ = [
    "CHECKSUM_BYTES",
    "DIGEST_BYTES",
    "MINIMUM_VERSION",
    "Client",
    "ClientInfo",
    "Digests",
    "Hits",
    "Key",
    "Lease",
    "Leases",
    "Library",
    "Manifest",
    "MaruAccess",
    "MaruAgain",
    "MaruBufferError",
    "MaruBusy",
    "MaruClosed",
    "MaruConflict",
    "MaruDamaged",
    "MaruError",
    "MaruExists",
    "MaruFenced",
    "MaruForked",
    "MaruFull",
    "MaruIncompatible",
    "MaruInvalid",
    "MaruLibraryError",
    "MaruNoMemory",
    "MaruNotConnected",
    "MaruNotFound",
    "MaruPending",
    "MaruProtocol",
    "MaruQuota",
    "MaruRefused",
    "MaruStale",
    "MaruTimeout",
    "MaruTooLarge",
    "MaruUnsupported",
    "MaruVersion",
    "NO_BLOCK",
    "Namespace",
    "Operation",
    "PagedMemory",
    "Pool",
    "PoolInfo",
    "Probe",
    "Queue",
    "Reservation",
    "Results",
    "digest_format",
    "digest_parse",
    "library",
    "prefix_digests",
]
