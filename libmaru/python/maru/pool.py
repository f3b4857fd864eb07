# SPDX-License-Identifier: Apache-2.0
"""Pools and the runs of pages that are being written.

A reservation's pages come back for reuse at commit or abort, so no view of them may outlive either:
commit and abort raise MaruBufferError while one lives.
"""

from __future__ import annotations

import ctypes
import errno
from array import array
from typing import TYPE_CHECKING, Any, List, NamedTuple, Sequence

from . import _abi
from ._buffers import Buffers
from ._handles import Handle, NotPicklable, close_at_exit
from ._loans import RUN_WORDS, Loan, lend
from ._sentinel import Sentinel
from .errors import MaruClosed, MaruError, last_error
from .keys import uint32

if TYPE_CHECKING:
    from .client import Client
    from .keys import Key
    from .objects import Namespace

MEDIA = {"cpu": _abi.MEDIUM_CPU, "cxl": _abi.MEDIUM_CXL}
SCOPES = {"worker": _abi.SCOPE_WORKER, "host": _abi.SCOPE_HOST}
HUGE_PAGES = {"off": _abi.HUGE_OFF, "try": _abi.HUGE_TRY, "required": _abi.HUGE_REQUIRED}
NUMA = {"off": _abi.NUMA_OFF, "auto": _abi.NUMA_AUTO, "strict": _abi.NUMA_STRICT}


class PoolInfo(NamedTuple):
    """Sizes and usage of a pool, from this process's own books. All sizes in bytes."""

    id: int
    """As maructl shows it; stable for the pool's life."""
    capacity_bytes: int
    """Granted."""
    reserved_bytes: int
    """Backing reserved for the pool, rounding included."""
    allocated_bytes: int
    """Pages handed out, committed or not."""
    ready_bytes: int
    """Logical bytes of committed objects."""
    ready_allocated_bytes: int
    """Their pages."""
    quarantined_bytes: int
    """Pages of commits whose fate is unknown."""
    pinned_bytes: int
    """Registered with CUDA, really."""
    retiring_bytes: int
    """Pages retired whose last reader is not gone."""
    populated_bytes: int
    """Memory that really stands behind it."""
    swapped_bytes: int
    """Of those, on swap now."""
    page_bytes: int
    """Allocation unit."""
    backing_page_bytes: int
    """What the kernel really gave: 4096 or 2097152."""
    numa_node: int
    """-1: unbound."""
    populating: bool
    """The background population still runs."""
    populate_result: int
    """0, or the negative errno that keeps the pool smaller."""
    segment_count: int
    scope: str
    """"worker", or "host": read by every client of the uid, and kept by marud after this one."""


class Pool(NotPicklable):
    """Memory that a worker fills with KV. Made by ``Client.pool()``.

    A context manager: leaving the block closes the pool in the drained way. A pool that is not
    closed lives until its client is closed. Any thread may use it.
    """

    def __init__(self, client: Client, handle: Handle) -> None:
        self._client = client
        self._handle = handle

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def info(self) -> PoolInfo:
        """Sizes and usage now. Never blocks."""
        info = _abi.maru_pool_info(ctypes.sizeof(_abi.maru_pool_info))
        with self._handle as pool:
            self._handle.check(self._handle.library.maru_pool_info(pool, info))
        values = {name: getattr(info, name) for name in PoolInfo._fields}
        values["populating"] = bool(info.populating)
        values["scope"] = "host" if info.scope == _abi.SCOPE_HOST else "worker"
        return PoolInfo(**values)

    def wait_populated(self, timeout_ms: int = 0) -> None:
        """Wait until the background population has ended.

        timeout_ms: 0 asks only. Raises MaruTimeout; MaruNoMemory when the pool stays smaller.
        """
        timeout = uint32(timeout_ms, "timeout_ms")
        with self._handle as pool:
            self._handle.check(self._handle.library.maru_pool_wait_populated(pool, timeout))

    def cuda_register(
        self, offset: int = 0, length: int = 0, *, chunk_bytes: int = 0, device: int = 0
    ) -> int:
        """Let the GPUs of this process use memory of the pool directly.

        offset, length: bytes, multiples of 4096; length 0 is to the end of the pool.
        chunk_bytes: at most so many in one registration; 0 is 16 GiB.
        device: a GPU, as CUDA counts them in this process.

        Registers what is populated and not registered yet; returns how much of the range is registered
        now. It ends with the pool. Blocks for the registration. Raises MaruUnsupported naming what of
        CUDA is missing; MaruNoMemory, MaruAccess, MaruBusy, MaruInvalid; MaruError for no such GPU.
        """
        for what, value in (("offset", offset), ("length", length), ("chunk_bytes", chunk_bytes)):
            if not 0 <= value < 1 << 64:
                raise ValueError(f"{what} is {value}: must be from 0 to 2**64 - 1")
        if not 0 <= device < 1 << 31:
            raise ValueError(f"device is {device}: must be the number of a GPU")
        with self._handle as pool:
            return self._handle.check(
                self._handle.library.maru_cuda_register(pool, offset, length, chunk_bytes, device)
            )

    def reserve(self, length: int) -> Reservation:
        """Allocate one contiguous run for an object of @length bytes, locally, without a message.

        It must end in ``commit`` or ``abort``; one that is dropped is aborted. Never blocks. Raises
        MaruFull when the pool is full now: keep your hits and skip this admission.
        """
        return self.reserve_batch(length, 1)[0]

    def reserve_batch(self, length: int, count: int) -> List[Reservation]:
        """@count runs of @length bytes each: all or none."""
        if count == 0:
            return []
        handle = self._handle
        root = handle.root
        with handle as pool:
            runs = reserve(handle.library, pool, length, count)
            return [
                Reservation(self, *lend(root, Loan(pool=handle, run=runs[at : at + RUN_WORDS])))
                for at in range(0, len(runs), RUN_WORDS)
            ]

    def close(self, forced: bool = False) -> None:
        """Give the pool back: unmapped here, sealed by marud, its budget returned.

        forced: retire everything at once, then wait for the readers up to the client's timeout_ms;
            after MaruTimeout call again to go on waiting.

        Idempotent. Raises MaruBusy, with nothing changed, while leases, reservations or views live
        (drained), MaruBufferError while Python objects view its reservations, MaruTimeout,
        MaruNotConnected. After any of them the pool is still open. One close at a time.
        """
        handle = self._handle
        handle.check_process()
        if handle.closed:
            return
        with handle:  # gives back what was dropped, while the pool still takes it
            pass
        if not handle.begin_close():
            return
        closed = False
        try:
            root = handle.root
            root.uses.append(None)
            try:
                if root.open is None:
                    root.refuse()
                with root.lock:
                    loans = [loan for loan in root.loans.values() if loan.pool is handle]
                root.refuse_views(loans, "close this pool")
                mode = _abi.CLOSE_FORCED if forced else _abi.CLOSE_DRAINED
                handle.check(handle.library.maru_pool_close(handle.pointer, mode))
                closed = True
                for loan in loans:
                    root.loans.pop(loan.token, None)
            finally:
                root.uses.pop()
        finally:
            handle.end_close(closed)

    def __enter__(self) -> Pool:
        self._handle.check_process()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        close_at_exit(self, kind)

    def __repr__(self) -> str:
        if self.closed:
            return "<maru.Pool closed>"
        try:
            info = self.info()
        except MaruError as error:
            return f"<maru.Pool: {error}>"
        return (
            f"<maru.Pool {info.id:#x}: {info.allocated_bytes} of {info.capacity_bytes} bytes "
            f"allocated in pages of {info.page_bytes}>"
        )


class Reservation(NotPicklable):
    """A run of pages being written: write ``view``, then ``Namespace.commit`` or ``abort``.

    One that is dropped, with all its views, is aborted by the next call on the client. As a context
    manager it is aborted at the end of the block unless it was committed. Any thread may use it;
    who writes which bytes is the caller's affair.
    """

    __slots__ = ("_pool", "_loan", "_hold", "__weakref__")

    def __init__(self, pool: Pool, loan: Loan, hold: Sentinel) -> None:
        self._pool = pool
        self._loan = loan
        self._hold = hold

    @property
    def length(self) -> int:
        """Bytes, as asked for."""
        return self._loan.length

    @property
    def offset(self) -> int:
        """Bytes from the start of the pool; page-aligned."""
        return self._loan.run[2]

    @property
    def generation(self) -> int:
        """Of this allocation; never used twice."""
        return self._loan.run[3]

    @property
    def ended(self) -> bool:
        """Was it committed or aborted?"""
        return self._loan.token not in self._pool._handle.root.loans

    def _check(self) -> None:
        if self.ended:
            raise MaruClosed(errno.EBADF, "this reservation was committed or aborted before")

    @property
    def view(self) -> memoryview:
        """A writable memoryview of the pages, ``length`` bytes; no copy.

        ``numpy.frombuffer`` and ``torch.frombuffer`` of it write to the pool. All of them must be
        gone before commit or abort.
        """
        handle = self._pool._handle
        with handle, handle.lock:
            self._check()
            return self._loan.export(self._hold)

    def write(self, buffer: Any, offset: int = 0) -> None:
        """Copy @buffer in at @offset with this machine's best kernel, fenced; no view is left."""
        handle = self._pool._handle
        with handle, Buffers([buffer], writable=False) as source:
            with handle.lock:
                self._check()
                busy = self._loan.export(self._hold)  # a commit or abort elsewhere is refused
            with busy:
                if offset < 0 or offset + source.length > self.length:
                    raise ValueError(
                        f"{source.length} bytes at offset {offset} do not fit in {self.length} "
                        "bytes"
                    )
                handle.library.maru_copy_in(
                    self._loan.address + offset, source.addresses[0], source.length
                )

    def commit(self, namespace: Namespace, key: Key) -> int:
        """Publish it as one object: ``Namespace.commit`` of one. Returns 0 or -EEXIST.

        Raises the item's error otherwise.
        """
        results = namespace.commit(self._pool, [key], [self])
        results.raise_failed()
        return results[0]

    def abort(self) -> None:
        """Give it back unwritten or half written. Never blocks.

        Raises MaruBufferError while it is viewed, MaruClosed if it ended before.
        """
        handle = self._pool._handle
        with handle:
            take(handle, [self], "abort")
            result = handle.root.abort_reservations(handle, [self._loan])
            if result < 0:
                raise last_error(handle.library, result)

    def __enter__(self) -> Reservation:
        self._check()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self.ended:
            return
        try:
            self.abort()
        except MaruError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        state = "ended" if self.ended else "viewed" if self._loan.viewed() else "reserved"
        return (
            f"<maru.Reservation {state}: {self.length} bytes at {self.offset:#x}, generation "
            f"{self.generation}>"
        )


def reserve(library: Any, pool: Any, length: int, count: int) -> array:
    """@count reservations as the words of array("Q"), RUN_WORDS for each; the caller is inside the pool."""
    if length < 1 or length >= 1 << 64:
        raise ValueError(f"length is {length} bytes: an object has at least 1 and below 2**64")
    if count < 0:
        raise ValueError(f"count is {count}: must not be negative")
    runs = array("Q", bytes(8 * RUN_WORDS * count))
    result = library.by_address.maru_reserve(pool, length, count, runs.buffer_info()[0])
    if result < 0:
        raise last_error(library, result)
    return runs


def take(pool: Handle, reservations: Sequence[Reservation], action: str) -> List[Loan]:
    """Take @reservations out of the books for C to consume: all, or none and an exception.

    Under the lock, so that no view is made, and nobody else consumes one, in between.
    """
    root = pool.root
    loans = []
    seen = set()
    for index, reservation in enumerate(reservations):
        if not isinstance(reservation, Reservation):
            raise TypeError(
                f"reservations[{index}] is a {type(reservation).__name__}, not a Reservation"
            )
        if reservation._loan.pool is not pool:
            raise ValueError(f"reservations[{index}] is of another pool")
        if reservation._loan.token in seen:
            raise ValueError(f"reservations[{index}] is given twice")
        seen.add(reservation._loan.token)
        loans.append(reservation._loan)
    with root.lock:
        for reservation in reservations:
            reservation._check()
        root.refuse_views(loans, action)
        for loan in loans:
            root.loans.pop(loan.token)
    return loans


def put_back(pool: Handle, loans: Sequence[Loan]) -> None:
    """Undo take(): C consumed nothing."""
    with pool.lock:
        for loan in loans:
            pool.root.loans[loan.token] = loan


def option(name: str, value: Any, choices: Any) -> int:
    """The C constant for @value of the option @name."""
    try:
        return choices[value]
    except (KeyError, TypeError):
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} is {value!r}: must be one of {allowed}") from None
