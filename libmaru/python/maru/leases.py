# SPDX-License-Identifier: Apache-2.0
"""Leases: objects that are protected, and their bytes where they lie in the pool.

The rule, whose mechanics are in ``maru._loans``: a lease with a live view is not released, and one
without an owner and without a view is released by itself.
"""

from __future__ import annotations

import ctypes
import errno
from typing import Any, Iterator, List, Optional, Sequence, overload

from . import _abi
from ._buffers import Buffers
from ._handles import ClientHandle, NotPicklable
from ._loans import Loan, lend
from ._sentinel import Sentinel
from .errors import MaruClosed, MaruError, last_error


class Lease(NotPicklable):
    """One object that stays mapped and unchanged until release; made by ``Namespace.acquire()``.

    The lease ends by ``release()``, or when the Lease and the last view of its bytes are gone;
    never by a clock. What the views belong to may end before them: the pool's owner, an operator,
    marud, the Client object. Any thread may use it.
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
        long as array or tensor live. torch knows no read-only tensors and keeps
        only the memoryview it was given: never write to such a tensor, and do not call that view's
        release() while the tensor lives.
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
            with self._root.lock:
                loan = self._locate()
                busy = loan.export(self._hold)  # a release elsewhere is refused meanwhile
            with busy:
                if target.length != loan.length:
                    raise ValueError(f"a buffer of {target.length} bytes for {loan.length} bytes")
                library = self._root.library
                library.maru_copy_out(target.addresses[0], loan.address, loan.length)

    def release(self) -> None:
        """End the lease. The message is queued and does not wait for marud's answer.

        Raises MaruBufferError, and keeps the lease, while any view of its bytes lives; MaruClosed
        if it was released before.
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

    While an exception unwinds, its frames may hold views; the leases then end with the last of
    them.
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

    With a manifest the leases come chunk by chunk, shards outer, parts inner. As a context manager
    it releases all of them at the end of the block.
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
        release_all(
            self._root, [item for item in self._items if item is not None and not item.released]
        )

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


def lease_array(count: int) -> Any:
    return (ctypes.POINTER(_abi.maru_lease) * count)()
