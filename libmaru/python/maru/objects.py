# SPDX-License-Identifier: Apache-2.0
"""Probe, store, load and lease objects of a namespace.

All forms are batches; results come per item, in request order, and batches of any size are split by
the library. KV bytes are copied straight between the caller's buffers and the pool: no call here
copies them on the way.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from . import _abi
from ._buffers import hold_all
from ._handles import ClientHandle, NotPicklable
from ._loans import Loan
from .errors import last_error
from .keys import (
    Digests,
    Keys,
    Manifest,
    as_digests,
    key_array,
    manifest_struct,
    prefix_digests,
    text_bytes,
)
from .leases import Leases, lease_array, leases_of
from .pool import Pool, Reservation, put_back, take
from .results import PRESENT, UNTRIED, Hits, Probe, Results, results_array, results_of

if TYPE_CHECKING:
    from .client import Client


def flags_of(prefix_only: bool) -> int:
    return _abi.PREFIX_ONLY if prefix_only else 0


class Namespace(NotPicklable):
    """Objects that may be mixed, named by the full text of what makes KV compatible.

    Made by ``Client.namespace()``; belongs to its client. Any thread may use it.
    """

    __slots__ = ("_client", "_root", "_pointer", "_text", "__weakref__")

    def __init__(self, client: Client, root: ClientHandle, pointer: Any, text: str) -> None:
        self._client = client  # a namespace keeps its client alive
        self._root = root
        self._pointer = pointer
        self._text = text

    @property
    def text(self) -> str:
        """The full text."""
        return self._text

    def digests(self, tokens: Any, chunk_tokens: int, parent: Optional[bytes] = None) -> Digests:
        """Chained digests of a prompt's full chunks in this namespace:
        ``maru.prefix_digests()``.
        """
        return prefix_digests(self._text, tokens, chunk_tokens, parent)

    def describe(self, object_bytes: int, format: str) -> None:
        """Set this session's KV schema, once, before its first commit. One round trip.

        object_bytes: logical size of every object; a commit of another size is refused.
        format: storage format, 1 to 256 bytes in UTF-8; part of compatibility.

        The same schema again is no error. Raises MaruConflict when it is already another,
        MaruIncompatible when the namespace has another size or format, MaruNotConnected,
        MaruTimeout.
        """
        schema = _abi.maru_schema(
            ctypes.sizeof(_abi.maru_schema),
            _uint64(object_bytes, "object_bytes"),
            text_bytes(format, "format"),
        )
        with self._root as client:
            self._root.check(self._root.library.maru_client_describe(client, self._pointer, schema))

    def probe(
        self,
        digests: Union[Digests, Any],
        manifest: Optional[Manifest] = None,
        prefix_only: bool = False,
    ) -> Probe:
        """Which of these chunks could this engine's worker read now?

        digests: in prefix order.
        manifest: None is one object a chunk; else a chunk counts only if all its objects are
        readable. prefix_only: stop at the first miss; later chunks read as misses.

        Promises nothing and protects nothing. One round trip, pipelined for large batches. Raises
        MaruNotConnected, MaruTimeout.
        """
        keys = as_digests(digests)
        count = len(keys)
        bitmap = (ctypes.c_uint8 * ((count + 7) // 8))()
        with self._root:
            prefix = self._root.check(
                self._root.library.maru_probe(
                    self._pointer,
                    keys._array,
                    count,
                    manifest_struct(manifest),
                    flags_of(prefix_only),
                    bitmap,
                )
            )
        return Probe(prefix, Hits(bytes(bitmap), count))

    def store(self, pool: Pool, keys: Keys, buffers: Sequence[Any]) -> Results:
        """Reserve, copy and commit: ``buffers[i]`` becomes the object ``keys[i]``.

        buffers: any contiguous buffers, read-only ones too, all of one length; read in place and
            not kept.

        Objects that are already present are not copied (-EEXIST, a success). When the pool fills up
        in the middle, the first ones are stored and the rest are -ENOSPC. ``succeeded`` is the
        number of objects now present. The copy and two round trips. Raises only when nothing was
        tried.
        """
        self._same_client(pool)
        array = key_array(keys)
        results = results_array(len(array))
        with hold_all(len(array), buffers, False, "keys") as source, pool._handle as pool_pointer:
            library = self._root.library
            count = library.maru_store(
                self._pointer,
                pool_pointer,
                array,
                source.addresses,
                source.length,
                len(array),
                results,
            )
            return results_of(library, count, results)

    def load(
        self,
        digests: Union[Digests, Any],
        buffers: Sequence[Any],
        manifest: Optional[Manifest] = None,
        prefix_only: bool = False,
    ) -> Results:
        """Acquire, copy out, release: the chunk ``digests[i]`` into ``buffers[i]``.

        buffers: writable, contiguous, all of one length; with a manifest one for each object, chunk
            by chunk, shards outer, parts inner. An object of another size is -EMEDIUMTYPE, never
            cut; the buffer of a miss (-ENOENT) is untouched.

        ``succeeded`` is the number of chunks loaded. One round trip and the copy. Raises only when
        nothing was tried.
        """
        keys = as_digests(digests)
        objects = len(keys) * (manifest.objects if manifest else 1)
        results = results_array(objects)
        with hold_all(objects, buffers, True, "objects") as target, self._root:
            library = self._root.library
            count = library.maru_load(
                self._pointer,
                keys._array,
                len(keys),
                manifest_struct(manifest),
                flags_of(prefix_only),
                target.addresses,
                target.length,
                results,
            )
            return results_of(library, count, results)

    def acquire(
        self,
        digests: Union[Digests, Any],
        manifest: Optional[Manifest] = None,
        prefix_only: bool = False,
    ) -> Leases:
        """Protect objects and expose their bytes: a Lease per object, None for a miss.

        manifest: None, or all-or-nothing per chunk.

        One round trip, pipelined for large batches. Raises MaruQuota (too many leases), MaruAccess
        (a scheduler), MaruNotConnected, MaruTimeout; then nothing is held.
        """
        keys = as_digests(digests)
        array = lease_array(len(keys) * (manifest.objects if manifest else 1))
        with self._root:
            library = self._root.library
            chunks = self._root.check(
                library.maru_acquire(
                    self._pointer,
                    keys._array,
                    len(keys),
                    manifest_struct(manifest),
                    flags_of(prefix_only),
                    array,
                )
            )
            return leases_of(self._root, chunks, array)

    def commit(self, pool: Pool, keys: Keys, reservations: Sequence[Reservation]) -> Results:
        """Publish written reservations of @pool as objects.

        Results: 0 published; -EEXIST already there (its run was given back); -EINPROGRESS fate
        unknown, the library settles it; anything else: not published, the run was given back. Every
        reservation is consumed whatever its result; ``succeeded`` counts 0 and -EEXIST.

        Raises, with nothing consumed, MaruBufferError while any reservation is viewed, MaruClosed
        for one that ended before, MaruInvalid. One round trip per 1024 items, pipelined.
        """
        self._same_client(pool)
        array = key_array(keys)
        if len(array) != len(reservations):
            raise ValueError(
                f"{len(reservations)} reservations for {len(array)} keys: there must be one for "
                "each"
            )
        results = results_array(len(array))
        with pool._handle as pool_pointer:
            loans = take(pool._handle, reservations, "commit")
            runs = reservation_array(loans)
            library = self._root.library
            result = library.maru_commit(
                self._pointer, pool_pointer, array, runs, len(array), results
            )
            return commit_results(pool, loans, result, results)

    def retire(self, keys: Keys) -> Results:
        """Withdraw one's own objects and give their memory back.

        Results: 0 retired (pages return when the last reader is gone), -ENOENT not there or not
        this worker's. ``succeeded`` is the number retired. One round trip per 1024.
        """
        array = key_array(keys)
        results = results_array(len(array))
        with self._root:
            library = self._root.library
            count = library.maru_retire(self._pointer, array, len(array), results)
            return results_of(library, count, results)

    def _same_client(self, pool: Pool) -> None:
        if pool._handle.root is not self._root:
            raise ValueError("pool and namespace are of different clients")

    def __repr__(self) -> str:
        shown = self._text if len(self._text) <= 60 else self._text[:57] + "..."
        return f"<maru.Namespace {shown!r}{' closed' if self._root.closed else ''}>"


def _uint64(value: int, name: str) -> int:
    if not 1 <= value < 1 << 64:
        raise ValueError(f"{name} is {value}: must be at least 1 and below 2**64")
    return value


def reservation_array(loans: Sequence[Loan]) -> Any:
    return (_abi.maru_reservation * len(loans))(*[loan.run for loan in loans])


def commit_results(pool: Pool, loans: Sequence[Loan], result: int, array: Any) -> Results:
    """Results of a commit whose whole-call result is @result; MaruInvalid puts @loans back."""
    items = list(array)
    if result < 0 and (not items or items[0] == UNTRIED):
        put_back(pool._handle, loans)
        raise last_error(pool._handle.library, result)
    return Results(sum(1 for item in items if item in PRESENT), items)
