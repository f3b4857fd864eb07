# SPDX-License-Identifier: Apache-2.0
"""The C ABI of libmaru.so.0 as ctypes sees it: structures, constants, function types.

What must stay true: every function of include/maru/*.h has a row in FUNCTIONS with its full
argument and result types, and every structure its fields in the header's order. A missing type
would let ctypes cut pointers and sizes to 32 bits. tests/python/test_abi.py reads the headers and
compares. Nothing here loads the library; that is ``maru._library``.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Dict, List, Tuple

DIGEST_BYTES = 32

ROLE_WORKER = 0
ROLE_SCHEDULER = 1

STATE_ATTACHED = 0
STATE_DISCONNECTED = 1
STATE_RESTORING = 2
STATE_FENCED = 3

NAMESPACE_MAX = 16384

MEDIUM_CPU = 0
MEDIUM_CXL = 1

SCOPE_WORKER = 0
SCOPE_HOST = 1

HUGE_OFF = 0
HUGE_TRY = 1
HUGE_REQUIRED = 2

NUMA_OFF = 0
NUMA_AUTO = 1
NUMA_STRICT = 2

CLOSE_DRAINED = 0
CLOSE_FORCED = 1

PREFIX_ONLY = 1

NO_BLOCK = 4294967295
CHECKSUM = 1
CHECKSUM_BYTES = 16
CPU = -1

TEST_VECTOR_0 = "05aed81c19cbd95a0893c43ac63a324b64846134b0655bcd603f7253127096d5"
TEST_VECTOR_1 = "af936c7bbc8a323cdb63809c99e004edde72c67c9e9b3711b61a4a378a289924"


# Opaque handles are types of their own, so that a pool passed for a client is an ArgumentError.
class maru_client(Structure):
    pass


class maru_namespace(Structure):
    pass


class maru_pool(Structure):
    pass


class maru_lease(Structure):
    pass


class maru_queue(Structure):
    pass


class maru_client_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("socket_path", c_char_p),
        ("engine", c_char_p),
        ("name", c_char_p),
        ("role", c_uint32),
        ("timeout_ms", c_uint32),
        ("connect_ms", c_uint32),
        ("spin_us", c_uint32),
    ]


class maru_client_info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("state", c_uint32),
        ("epoch", c_uint32),
        ("session", c_uint64),
        ("reconnects", c_uint64),
        ("republished", c_uint64),
        ("leases", c_uint64),
        ("unknown_commits", c_uint64),
        ("uid", c_uint32),
        ("probe_keys_max", c_uint32),
        ("server_version", c_char * 32),
    ]


class maru_schema(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("object_bytes", c_uint64),
        ("format", c_char_p),
    ]


class maru_digest(Structure):
    _fields_ = [("bytes", c_uint8 * DIGEST_BYTES)]


class maru_key(Structure):
    _fields_ = [
        ("digest", maru_digest),
        ("shard", c_uint32),
        ("part", c_uint32),
    ]


class maru_manifest(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("first_shard", c_uint32),
        ("shard_count", c_uint32),
        ("first_part", c_uint32),
        ("part_count", c_uint32),
    ]


class maru_pool_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("capacity_bytes", c_uint64),
        ("page_bytes", c_uint64),
        ("medium", c_uint32),
        ("huge_pages", c_uint32),
        ("numa", c_uint32),
        ("numa_node", c_int32),
        ("wait_populated", c_uint32),
        ("populate_margin_mib", c_uint32),
        ("scope", c_uint32),
        ("reserved_0", c_uint32),
    ]


class maru_pool_info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("id", c_uint64),
        ("capacity_bytes", c_uint64),
        ("reserved_bytes", c_uint64),
        ("allocated_bytes", c_uint64),
        ("ready_bytes", c_uint64),
        ("ready_allocated_bytes", c_uint64),
        ("quarantined_bytes", c_uint64),
        ("pinned_bytes", c_uint64),
        ("retiring_bytes", c_uint64),
        ("populated_bytes", c_uint64),
        ("swapped_bytes", c_uint64),
        ("page_bytes", c_uint64),
        ("backing_page_bytes", c_uint64),
        ("numa_node", c_int32),
        ("populating", c_uint32),
        ("populate_result", c_int32),
        ("segment_count", c_uint32),
        ("scope", c_uint32),
        ("reserved_0", c_uint32),
    ]


class maru_reservation(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("length", c_uint64),
        ("offset", c_uint64),
        ("generation", c_uint64),
    ]


class maru_paged_memory(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("layers", POINTER(c_void_p)),
        ("layer_count", c_size_t),
        ("block_bytes", c_uint64),
        ("block_count", c_uint64),
        ("block_stride", c_uint64),
        ("threads", c_uint32),
        ("flags", c_uint32),
    ]


class maru_completion(Structure):
    _fields_ = [
        ("user_data", c_uint64),
        ("result", c_int64),
    ]


# Named for what they point to, as the header writes them; const is the caller's to keep.
_client_p = POINTER(maru_client)
_namespace_p = POINTER(maru_namespace)
_pool_p = POINTER(maru_pool)
_lease_p = POINTER(maru_lease)
_queue_p = POINTER(maru_queue)
_digest_p = POINTER(maru_digest)
_key_p = POINTER(maru_key)
_manifest_p = POINTER(maru_manifest)
_reservation_p = POINTER(maru_reservation)
_int_p = POINTER(c_int)

# What several functions take.
_CHUNKS = [_namespace_p, _digest_p, c_size_t, _manifest_p, c_uint32]
_PROBE = [*_CHUNKS, POINTER(c_uint8)]
_ACQUIRE = [*_CHUNKS, POINTER(_lease_p)]
_COMMIT = [_namespace_p, _pool_p, _key_p, _reservation_p, c_size_t, _int_p]
_RETIRE = [_namespace_p, _key_p, c_size_t, _int_p]
_PAGED = [POINTER(maru_paged_memory), POINTER(c_uint32), c_size_t, POINTER(c_void_p), c_size_t]


_BLOCKS = [
    POINTER(maru_paged_memory),
    POINTER(c_uint32),
    c_size_t,
    c_int,
    c_void_p,
    _int_p,
    POINTER(c_uint64),
]
_STORE_BLOCKS = [_namespace_p, _pool_p, _key_p, c_size_t, *_BLOCKS]


def _submitted(arguments: List[Any]) -> Tuple[Any, List[Any]]:
    """The row of the asynchronous form of a function of @arguments."""
    return (c_int, [_queue_p, *arguments, c_uint64])


# name: (result, arguments)
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    # error.h
    "maru_last_error": (c_char_p, []),
    "maru_error_name": (c_char_p, [c_int]),
    "maru_version": (c_char_p, []),
    # client.h
    "maru_client_open": (c_int, [POINTER(maru_client_options), POINTER(_client_p)]),
    "maru_client_close": (c_int, [_client_p]),
    "maru_client_info": (c_int, [_client_p, POINTER(maru_client_info)]),
    "maru_client_set_timeout": (c_int, [_client_p, c_uint32]),
    "maru_client_bind": (c_int, [_client_p, c_uint64]),
    "maru_client_worker": (c_int, [_client_p, POINTER(c_uint64), POINTER(c_char), c_size_t]),
    "maru_client_has_capability": (c_int, [_client_p, c_char_p]),
    "maru_namespace_open": (c_int, [_client_p, c_char_p, POINTER(_namespace_p)]),
    "maru_client_describe": (c_int, [_client_p, _namespace_p, POINTER(maru_schema)]),
    # key.h
    "maru_prefix_digests": (
        c_int64,
        [c_char_p, POINTER(c_uint32), c_size_t, c_uint32, _digest_p, _digest_p],
    ),
    "maru_digest_format": (c_int, [_digest_p, POINTER(c_char)]),
    "maru_digest_parse": (c_int, [c_char_p, _digest_p]),
    # pool.h
    "maru_pool_open": (c_int, [_client_p, POINTER(maru_pool_options), POINTER(_pool_p)]),
    "maru_pool_close": (c_int, [_pool_p, c_uint32]),
    "maru_pool_info": (c_int, [_pool_p, POINTER(maru_pool_info)]),
    "maru_pool_wait_populated": (c_int, [_pool_p, c_uint32]),
    "maru_reserve": (c_int, [_pool_p, c_uint64, c_size_t, _reservation_p]),
    "maru_abort": (c_int, [_pool_p, _reservation_p, c_size_t]),
    # object.h
    "maru_probe": (c_int64, _PROBE),
    "maru_commit": (c_int, _COMMIT),
    "maru_store": (
        c_int64,
        [_namespace_p, _pool_p, _key_p, POINTER(c_void_p), c_uint64, c_size_t, _int_p],
    ),
    "maru_acquire": (c_int64, _ACQUIRE),
    "maru_lease_data": (c_void_p, [_lease_p]),
    "maru_lease_length": (c_uint64, [_lease_p]),
    "maru_lease_generation": (c_uint64, [_lease_p]),
    "maru_lease_release": (c_int, [POINTER(_lease_p), c_size_t]),
    "maru_load": (c_int64, [*_CHUNKS, POINTER(c_void_p), c_uint64, _int_p]),
    "maru_retire": (c_int64, _RETIRE),
    "maru_copy_in": (None, [c_void_p, c_void_p, c_size_t]),
    "maru_copy_out": (None, [c_void_p, c_void_p, c_size_t]),
    # paged.h
    "maru_gather": (c_int, _PAGED),
    "maru_scatter": (c_int, [*_PAGED, _int_p]),
    # blocks.h
    "maru_store_blocks": (c_int, _STORE_BLOCKS),
    "maru_store_blocks_submit": _submitted(_STORE_BLOCKS),
    "maru_load_blocks": (c_int64, [_namespace_p, _digest_p, c_size_t, *_BLOCKS]),
    # cuda.h
    "maru_cuda_register": (c_int64, [_pool_p, c_uint64, c_uint64, c_uint64, c_int]),
    "maru_cuda_gather": (c_int, [*_PAGED, c_int, c_void_p]),
    "maru_cuda_scatter": (c_int, [*_PAGED, c_int, c_void_p, _int_p]),
    "maru_cuda_wait": (c_int, [c_int, c_void_p]),
    # async.h
    "maru_queue_open": (c_int, [_client_p, POINTER(_queue_p)]),
    "maru_queue_close": (c_int, [_queue_p]),
    "maru_queue_fd": (c_int, [_queue_p]),
    "maru_queue_reap": (c_int64, [_queue_p, POINTER(maru_completion), c_size_t, c_uint32]),
    "maru_probe_submit": _submitted(_PROBE),
    "maru_commit_submit": _submitted(_COMMIT),
    "maru_acquire_submit": _submitted(_ACQUIRE),
    "maru_retire_submit": _submitted(_RETIRE),
}


class Functions:
    """Functions of a library as attributes, by the names of their rows."""


_POINTERS = type(POINTER(c_int))


def declare(library: ctypes.CDLL) -> None:
    """Give every function of @library its types; AttributeError names one that is not there.

    ``library.by_address`` has them a second time, with ``c_void_p`` for every pointer: an address, or
    ``bytes`` that C only reads. ctypes makes an array type for every length it meets, and looks at every
    typed pointer for a long time.

    ``library.untyped_probe`` is maru_probe() without argument types, for calls that are too short to
    convert each argument again. Every argument must have its C type with it (``c_size_t.from_param(1)``,
    ``byref()``) or be ``bytes`` or None: an int would be cut to 32 bits.
    """
    library.by_address = Functions()
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
        again = library[name]
        again.restype = result
        again.argtypes = [c_void_p if isinstance(kind, _POINTERS) else kind for kind in arguments]
        setattr(library.by_address, name, again)
    library.untyped_probe = library["maru_probe"]
    library.untyped_probe.restype = FUNCTIONS["maru_probe"][0]
