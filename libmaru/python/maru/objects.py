# SPDX-License-Identifier: Apache-2.0
"""Probe, store, load and lease objects of a namespace.

All forms are batches; results come per item, in request order, and batches of any size are split by
the library. KV bytes are copied straight between the caller's buffers and the pool: no call here
copies them on the way.
"""

from __future__ import annotations

import ctypes
import errno
from array import array
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from . import _abi
from ._buffers import hold_all
from ._handles import ClientHandle, NotPicklable
from ._loans import Loan
from .errors import last_error
from .keys import (
    DIGEST_BYTES,
    KEY_BYTES,
    Digests,
    Keys,
    Manifest,
    as_digests,
    key_bytes,
    manifest_struct,
    prefix_digests,
    text_bytes,
)
from .leases import Leases, lease_array, leases_of
from .pool import Pool, Reservation, put_back, take
from .results import (
    ONE_PROBED,
    UNTRIED,
    Probe,
    Results,
    bitmap_type,
    probed,
    results_array,
    results_of,
)

if TYPE_CHECKING:
    from .client import Client

# Arguments as ``library.untyped_probe`` takes them.
_size = ctypes.c_size_t.from_param
_ONE = _size(1)
_NO_FLAGS = ctypes.c_uint32.from_param(0)
_PREFIX_ONLY = ctypes.c_uint32.from_param(_abi.PREFIX_ONLY)


def flags_of(prefix_only: bool) -> int:
    return _abi.PREFIX_ONLY if prefix_only else 0


def by_reference(manifest: Optional[Manifest]) -> Any:
    return None if manifest is None else ctypes.byref(manifest_struct(manifest))


class Namespace(NotPicklable):
    """Objects that may be mixed, named by the full text of what makes KV compatible.

    Made by ``Client.namespace()``; belongs to its client. Any thread may use it.
    """

    __slots__ = ("_client", "_root", "_pointer", "_address", "_parameter", "_text", "__weakref__")

    def __init__(self, client: Client, root: ClientHandle, pointer: Any, text: str) -> None:
        self._client = client  # a namespace keeps its client alive
        self._root = root
        self._pointer = pointer
        self._address = ctypes.cast(pointer, ctypes.c_void_p).value
        self._parameter = ctypes.c_void_p.from_param(self._address)
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
        flat = (digests if type(digests) is Digests else Digests(digests))._flat
        count = len(flat) // DIGEST_BYTES
        shape = None if manifest is None else by_reference(manifest)
        flags = _PREFIX_ONLY if prefix_only else _NO_FLAGS
        # marud answers in a few microseconds, and the processor comes cold out of the wait: little is done
        # around it. The prefix of one chunk says all, so that an answer to it is there already.
        if count == 1:
            size, bitmap = _ONE, None
        else:
            size, bitmap = _size(count), bitmap_type(count)()
        root = self._root
        calls = root.begin()
        try:
            prefix = root.library.untyped_probe(self._parameter, flat, size, shape, flags, bitmap)
            if prefix < 0:
                raise last_error(root.library, prefix)
        finally:
            calls.pop()
        return ONE_PROBED[prefix] if bitmap is None else probed(prefix, bitmap, count)

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
        flat = key_bytes(keys)
        objects = len(flat) // KEY_BYTES
        results = results_array(objects)
        with hold_all(objects, buffers, False, "keys") as source, pool._handle as pool_pointer:
            library = self._root.library
            count = library.by_address.maru_store(
                self._pointer,
                pool_pointer,
                flat,
                source.addresses,
                source.length,
                objects,
                results.buffer_info()[0],
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
            count = library.by_address.maru_load(
                self._pointer,
                keys._flat,
                len(keys),
                by_reference(manifest),
                flags_of(prefix_only),
                target.addresses,
                target.length,
                results.buffer_info()[0],
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
        leases = lease_array(len(keys) * (manifest.objects if manifest else 1))
        with self._root:
            library = self._root.library
            chunks = self._root.check(
                library.by_address.maru_acquire(
                    self._pointer,
                    keys._flat,
                    len(keys),
                    by_reference(manifest),
                    flags_of(prefix_only),
                    leases,
                )
            )
            return leases_of(self._root, chunks, leases)

    def commit(self, pool: Pool, keys: Keys, reservations: Sequence[Reservation]) -> Results:
        """Publish written reservations of @pool as objects.

        Results: 0 published; -EEXIST already there (its run was given back); -EINPROGRESS fate
        unknown, the library settles it; anything else: not published, the run was given back. Every
        reservation is consumed whatever its result; ``succeeded`` counts 0 and -EEXIST.

        Raises, with nothing consumed, MaruBufferError while any reservation is viewed, MaruClosed
        for one that ended before, MaruInvalid. One round trip per 1024 items, pipelined.
        """
        commit = ReservedCommit(self, pool, keys, reservations)
        with pool._handle as pool_pointer:
            commit.take()
            return commit.finish(
                self._root.library.by_address.maru_commit(
                    self._pointer, pool_pointer, *commit.arguments()
                )
            )

    def retire(self, keys: Keys) -> Results:
        """Withdraw one's own objects and give their memory back.

        Results: 0 retired (pages return when the last reader is gone), -ENOENT not there or not
        this worker's. ``succeeded`` is the number retired. One round trip per 1024.
        """
        flat = key_bytes(keys)
        objects = len(flat) // KEY_BYTES
        results = results_array(objects)
        with self._root:
            library = self._root.library
            count = library.by_address.maru_retire(
                self._pointer, flat, objects, results.buffer_info()[0]
            )
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


class Commit:
    """What C is given for one commit, which must live until it is done with it: keys and results."""

    __slots__ = ("library", "keys", "results")

    def __init__(self, library: ctypes.CDLL, keys: bytes) -> None:
        self.library = library
        self.keys = keys
        self.results = results_array(len(keys) // KEY_BYTES)

    def put_back(self) -> None:
        """C consumed nothing."""

    def finish(self, result: int) -> Results:
        """Results of a whole call that gave @result; MaruInvalid puts the reservations back."""
        items = self.results.tolist()
        if result < 0 and (not items or items[0] == UNTRIED):
            self.put_back()
            raise last_error(self.library, result)
        return Results(items.count(0) + items.count(-errno.EEXIST), items)


class ReservedCommit(Commit):
    """One of reservations that Python has made before."""

    __slots__ = ("runs", "_pool", "_kept", "_loans")

    def __init__(
        self, namespace: Namespace, pool: Pool, keys: Keys, reservations: Sequence[Reservation]
    ) -> None:
        namespace._same_client(pool)
        super().__init__(pool._handle.library, key_bytes(keys))
        if len(self.results) != len(reservations):
            raise ValueError(
                f"{len(reservations)} reservations for {len(self.results)} keys: there must be one "
                "for each"
            )
        self.runs = array("Q")
        self._pool = pool._handle
        self._kept = list(reservations)
        self._loans: Sequence[Loan] = ()

    def arguments(self) -> Any:
        """Keys, runs, count and room for the results, as C takes them."""
        results, count = self.results.buffer_info()
        return self.keys, self.runs.buffer_info()[0], count, results

    def take(self) -> None:
        """Consume the reservations; the caller is inside the pool's handle."""
        self._loans = take(self._pool, self._kept, "commit")
        for loan in self._loans:
            self.runs.extend(loan.run)

    def put_back(self) -> None:
        put_back(self._pool, self._loans)
