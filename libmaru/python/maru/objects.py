# SPDX-License-Identifier: Apache-2.0
"""Probe, store, load and lease objects of a namespace.

All forms are batches; results come per item, in request order, and batches of any size are split by
the library. KV bytes are copied straight between the caller's buffers and the pool: no call here
copies them on the way.
"""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Sequence, Union
from typing import overload

from . import _abi
from ._buffers import Buffers, hold_all
from ._handles import ClientHandle, NotPicklable
from ._loans import Loan, lend
from ._sentinel import Sentinel
from .errors import MaruClosed, MaruError, error_of, last_error
from .keys import Digests, Keys, Manifest, as_digests, key_array, manifest_struct, prefix_digests
from .keys import text_bytes
from .pool import Pool, Reservation, put_back, take

if TYPE_CHECKING:
    from .client import Client

# What no function returns: items that still have it after a commit were not tried.
UNTRIED = 1

_PRESENT = (0, -errno.EEXIST)


class Results(Sequence[int]):
    """A result per item: 0, or a negative errno as in the C API.

    ``count`` is what the call counts: objects present after a store, chunks loaded, objects retired.
    """

    __slots__ = ("count", "_items")

    def __init__(self, count: int, items: Sequence[int]) -> None:
        self.count = count
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return tuple(other) == self._items if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @property
    def failed(self) -> List[int]:
        """Indexes of the items that are neither 0 nor -EEXIST ("already there")."""
        return [index for index, item in enumerate(self._items) if item not in _PRESENT]

    def error(self, index: int) -> Optional[MaruError]:
        """The exception that stands for item @index, or None for 0."""
        item = self._items[index]
        if item == 0:
            return None
        name = errno.errorcode.get(-item, str(item))
        return error_of(item, f"item {index} of {len(self)}: {name}")

    def raise_failed(self) -> None:
        """Raise the error of the first item that is neither 0 nor -EEXIST, if there is one."""
        for index in self.failed:
            error = self.error(index)
            assert error is not None
            raise error

    def __repr__(self) -> str:
        return f"<maru.Results {self.count} of {len(self)}: {len(self.failed)} failed>"


class Hits(Sequence[bool]):
    """Which chunks are readable: a read-only sequence of bool over the C bitmap."""

    __slots__ = ("bitmap", "_count")

    def __init__(self, bitmap: bytes, count: int) -> None:
        self.bitmap = bitmap
        """Bit i, least significant first, is chunk i."""
        self._count = count

    @overload
    def __getitem__(self, index: int) -> bool: ...

    @overload
    def __getitem__(self, index: slice) -> List[bool]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(f"chunk {index} of {self._count}")
        return bool(self.bitmap[index >> 3] >> (index & 7) & 1)

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return list(other) == list(self) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<maru.Hits {sum(self)} of {self._count}>"


class Probe(NamedTuple):
    """The answer of a probe."""

    prefix: int
    """The number of leading chunks that are all readable."""
    hits: Hits
    """Readable or not, for each chunk."""


class Lease(NotPicklable):
    """One object that stays mapped and unchanged until release; made by ``Namespace.acquire()``.

    The lease ends by ``release()``, or when the Lease and the last view of its bytes are gone; never
    by a clock. What the views belong to may end before them: the pool's owner, an operator, marud,
    the Client object. Any thread may use it.
    """

    __slots__ = ("_root", "_loan", "_hold", "_client_lives", "__weakref__")

    def __init__(self, root: ClientHandle, loan: Loan, hold: Sentinel) -> None:
        self._root = root
        self._client_lives = root.sentinel()  # a Lease keeps its client from being "dropped"
        self._loan = loan
        self._hold = hold

    @property
    def released(self) -> bool:
        return self._loan.token not in self._root.loans

    def _check(self) -> None:
        if self.released:
            raise MaruClosed(errno.EBADF, "this lease was released before")

    def _locate(self) -> Loan:
        """The loan with its address and length; the caller is inside the handle and its lock."""
        self._check()
        loan = self._loan
        if not loan.address:
            library = self._root.library
            loan.length = library.maru_lease_length(loan.lease)
            loan.address = library.maru_lease_data(loan.lease) or 0
        return loan

    @property
    def view(self) -> memoryview:
        """The object's bytes: a read-only memoryview of them, where they lie in the pool; no copy.

        ``numpy.frombuffer(lease.view, dtype)`` and ``torch.frombuffer`` keep the lease alive for as
        long as array or tensor live. torch keeps only the memoryview it was given, so do not call
        that one's release() while the tensor lives.
        """
        with self._root, self._root.lock:
            return self._locate().export(self._hold).toreadonly()

    @property
    def length(self) -> int:
        """Bytes of the object."""
        with self._root, self._root.lock:
            return self._locate().length

    @property
    def generation(self) -> int:
        """The allocation's generation."""
        with self._root, self._root.lock:
            self._check()
            return self._root.library.maru_lease_generation(self._loan.lease)

    def copy_to(self, buffer: Any) -> None:
        """Copy all bytes to @buffer, writable and of just this length, with the best kernel."""
        with self._root, Buffers([buffer], writable=True) as target:
            hold = self._hold
            with self._root.lock:
                loan = self._locate()
                busy = loan.export(hold)  # a release in another thread now waits for the copy
            if target.length != loan.length:
                raise ValueError(f"a buffer of {target.length} bytes for {loan.length} bytes")
            self._root.library.maru_copy_out(target.addresses[0], loan.address, loan.length)
            del busy

    def release(self) -> None:
        """End the lease. The message is queued and does not wait for marud's answer.

        Raises MaruBufferError, and keeps the lease, while any view of its bytes lives; MaruClosed if
        it was released before.
        """
        release_all(self._root, [self])

    def __enter__(self) -> Lease:
        self._check()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        _release_at_exit(self._root, [self], kind)

    def __repr__(self) -> str:
        if self.released:
            return "<maru.Lease released>"
        state = "viewed" if self._loan.viewed() else "held"
        try:
            return f"<maru.Lease {state}: {self.length} bytes, generation {self.generation}>"
        except MaruError as failure:
            return f"<maru.Lease: {failure}>"


def release_all(root: ClientHandle, leases: Sequence[Lease]) -> None:
    """Release @leases with one call: all, or none and an exception."""
    with root:
        loans = [lease._loan for lease in leases]
        with root.lock:
            for lease in leases:
                lease._check()
            root.refuse_views(loans, "release")
            for loan in loans:
                root.loans.pop(loan.token, None)
        if loans:
            result = root.release_leases([loan.lease for loan in loans])
            if result < 0:
                raise last_error(root.library, result)


def _release_at_exit(root: ClientHandle, leases: Sequence[Lease], kind: Any) -> None:
    """Leave a ``with`` block: release what is still held, without hiding an exception that ends it.

    While an exception unwinds, its frames may hold views; the leases then end with the last of them.
    """
    held = [lease for lease in leases if not lease.released]
    if not held or root.closed:
        return
    try:
        release_all(root, held)
    except MaruError:
        if kind is None:
            raise


class Leases(Sequence[Optional[Lease]], NotPicklable):
    """What ``Namespace.acquire()`` got: a Lease per object, None where it was not acquired.

    With a manifest the leases come chunk by chunk, shards outer, parts inner. As a context manager it
    releases all of them at the end of the block.
    """

    __slots__ = ("chunks", "_root", "_items")

    def __init__(self, root: ClientHandle, chunks: int, items: List[Optional[Lease]]) -> None:
        self.chunks = chunks
        """The number of chunks acquired."""
        self._root = root
        self._items = items

    @overload
    def __getitem__(self, index: int) -> Optional[Lease]: ...

    @overload
    def __getitem__(self, index: slice) -> List[Optional[Lease]]: ...

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __iter__(self) -> Iterator[Optional[Lease]]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def release(self) -> None:
        """Release all that are held, in one call. MaruBufferError, with none released, while any of
        them is viewed."""
        release_all(self._root, [item for item in self._items if item is not None and not item.released])

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        _release_at_exit(self._root, [item for item in self._items if item is not None], kind)

    def __repr__(self) -> str:
        held = sum(1 for item in self._items if item is not None and not item.released)
        return f"<maru.Leases {self.chunks} chunks: {held} of {len(self)} objects held>"


def leases_of(root: ClientHandle, chunks: int, array: Any) -> Leases:
    """Take over the lease pointers in @array, which C filled."""
    items: List[Optional[Lease]] = []
    for pointer in array:
        items.append(Lease(root, *lend(root, Loan(lease=pointer))) if pointer else None)
    return Leases(root, chunks, items)


def results_of(library: ctypes.CDLL, count: int, array: Any) -> Results:
    """Results in @array; an exception for a negative @count: nothing was tried."""
    if count < 0:
        raise last_error(library, count)
    return Results(count, array)


def results_array(count: int) -> Any:
    return (ctypes.c_int * count)(*[UNTRIED] * count)


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
        """Chained digests of a prompt's full chunks in this namespace: ``maru.prefix_digests()``."""
        return prefix_digests(self._text, tokens, chunk_tokens, parent)

    def describe(self, object_bytes: int, format: str) -> None:
        """Set this session's KV schema, once, before its first commit. One round trip.

        object_bytes: logical size of every object; a commit of another size is refused.
        format: storage format, 1 to 256 bytes in UTF-8; part of compatibility.

        The same schema again is no error. Raises MaruConflict when it is already another,
        MaruIncompatible when the namespace has another size or format, MaruNotConnected, MaruTimeout.
        """
        schema = _abi.maru_schema(
            ctypes.sizeof(_abi.maru_schema), _uint64(object_bytes, "object_bytes"),
            text_bytes(format, "format"),
        )
        with self._root as client:
            self._root.check(self._root.library.maru_client_describe(client, self._pointer, schema))

    def probe(self, digests: Union[Digests, Any], manifest: Optional[Manifest] = None,
              prefix_only: bool = False) -> Probe:
        """Which of these chunks could this engine's worker read now?

        digests: in prefix order.
        manifest: None is one object a chunk; else a chunk counts only if all its objects are readable.
        prefix_only: stop at the first miss; later chunks read as misses.

        Promises nothing and protects nothing. One round trip, pipelined for large batches. Raises
        MaruNotConnected, MaruTimeout.
        """
        keys = as_digests(digests)
        count = len(keys)
        bitmap = (ctypes.c_uint8 * ((count + 7) // 8))()
        with self._root:
            prefix = self._root.check(self._root.library.maru_probe(
                self._pointer, keys._array, count, manifest_struct(manifest),
                flags_of(prefix_only), bitmap,
            ))
        return Probe(prefix, Hits(bytes(bitmap), count))

    def store(self, pool: Pool, keys: Keys, buffers: Sequence[Any]) -> Results:
        """Reserve, copy and commit: ``buffers[i]`` becomes the object ``keys[i]``.

        buffers: any contiguous buffers, read-only ones too, all of one length; read in place and not
            kept.

        Objects that are already present are not copied (-EEXIST, a success). When the pool fills up
        in the middle, the first ones are stored and the rest are -ENOSPC. ``count`` is the number of
        objects now present. The copy and two round trips. Raises only when nothing was tried.
        """
        self._same_client(pool)
        array = key_array(keys)
        results = results_array(len(array))
        with hold_all(len(array), buffers, False, "keys") as source, pool._handle as pool_pointer:
            library = self._root.library
            count = library.maru_store(
                self._pointer, pool_pointer, array, source.addresses, source.length, len(array),
                results,
            )
            return results_of(library, count, results)

    def load(self, digests: Union[Digests, Any], buffers: Sequence[Any],
             manifest: Optional[Manifest] = None, prefix_only: bool = False) -> Results:
        """Acquire, copy out, release: the chunk ``digests[i]`` into ``buffers[i]``.

        buffers: writable, contiguous, all of one length; with a manifest one for each object, chunk
            by chunk, shards outer, parts inner. An object of another size is -EMEDIUMTYPE, never cut;
            the buffer of a miss (-ENOENT) is untouched.

        ``count`` is the number of chunks loaded. One round trip and the copy. Raises only when nothing
        was tried.
        """
        keys = as_digests(digests)
        objects = len(keys) * (manifest.objects if manifest else 1)
        results = results_array(objects)
        with hold_all(objects, buffers, True, "objects") as target, self._root:
            library = self._root.library
            count = library.maru_load(
                self._pointer, keys._array, len(keys), manifest_struct(manifest),
                flags_of(prefix_only), target.addresses, target.length, results,
            )
            return results_of(library, count, results)

    def acquire(self, digests: Union[Digests, Any], manifest: Optional[Manifest] = None,
                prefix_only: bool = False) -> Leases:
        """Protect objects and expose their bytes: a Lease per object, None for a miss.

        manifest: None, or all-or-nothing per chunk.

        One round trip, pipelined for large batches. Raises MaruQuota (too many leases), MaruAccess
        (a scheduler), MaruNotConnected, MaruTimeout; then nothing is held.
        """
        keys = as_digests(digests)
        array = lease_array(len(keys) * (manifest.objects if manifest else 1))
        with self._root:
            library = self._root.library
            chunks = self._root.check(library.maru_acquire(
                self._pointer, keys._array, len(keys), manifest_struct(manifest),
                flags_of(prefix_only), array,
            ))
            return leases_of(self._root, chunks, array)

    def commit(self, pool: Pool, keys: Keys, reservations: Sequence[Reservation]) -> Results:
        """Publish written reservations of @pool as objects.

        Results: 0 published; -EEXIST already there (its run was given back); -EINPROGRESS fate
        unknown, the library settles it; anything else: not published, the run was given back. Every
        reservation is consumed whatever its result; ``count`` counts 0 and -EEXIST.

        Raises, with nothing consumed, MaruBufferError while any reservation is viewed, MaruClosed for
        one that ended before, MaruInvalid. One round trip per 1024 items, pipelined.
        """
        self._same_client(pool)
        array = key_array(keys)
        if len(array) != len(reservations):
            raise ValueError(
                f"{len(reservations)} reservations for {len(array)} keys: there must be one for each"
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

        Results: 0 retired (pages return when the last reader is gone), -ENOENT not there or not this
        worker's. ``count`` is the number retired. One round trip per 1024.
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


def lease_array(count: int) -> Any:
    return (ctypes.POINTER(_abi.maru_lease) * count)()


def reservation_array(loans: Sequence[Loan]) -> Any:
    return (_abi.maru_reservation * len(loans))(*[loan.reservation for loan in loans])


def commit_results(pool: Pool, loans: Sequence[Loan], result: int, array: Any) -> Results:
    """Results of a commit whose whole-call result is @result; MaruInvalid puts @loans back."""
    items = list(array)
    if result < 0 and (not items or items[0] == UNTRIED):
        put_back(pool._handle, loans)
        raise last_error(pool._handle.library, result)
    return Results(sum(1 for item in items if item in _PRESENT), items)
