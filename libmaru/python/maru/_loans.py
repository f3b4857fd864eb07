# SPDX-License-Identifier: Apache-2.0
"""Bytes of a pool that Python has borrowed: a lease to read, or a reservation to write.

What must stay true:
- The bytes are exported by one ctypes array per loan, at most one at a time, made at the first view
  and shared by all of them. Every memoryview, numpy array or tensor made from a view keeps that
  array alive; nothing ever exports the pool's mapping itself. So "the array is alive" *is*
  "somebody can still read the bytes", and "it is dead" means that nobody can.
- The array refers to the same sentinel as the Lease or Reservation. When the last of them is gone
  the sentinel's callback queues the token, no more, and the next call on the client gives the bytes
  back. The C library unmaps nothing that is leased or reserved.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import weakref
from array import array
from typing import TYPE_CHECKING, Any, Optional, Tuple

from . import _abi
from ._sentinel import Sentinel, sentinel, untrack

if TYPE_CHECKING:
    from ._handles import ClientHandle, Handle

_tokens = itertools.count(1)


@functools.lru_cache(maxsize=32)
def _bytes_type(length: int) -> Any:
    """The ctypes array type of @length bytes; objects of a session mostly have one size."""
    return ctypes.c_uint8 * length


RUN_WORDS = ctypes.sizeof(_abi.maru_reservation) // 8
"""struct maru_reservation, as words: data, length, offset, generation."""


class Loan:
    """One lease or one reservation. Guarded by the client's lock, except for its constants."""

    __slots__ = ("token", "lease", "pool", "run", "address", "length", "_array")

    def __init__(
        self, lease: Any = None, pool: Optional[Handle] = None, run: Optional[array] = None
    ) -> None:
        self.token = next(_tokens)
        self.lease = lease
        self.pool = pool
        self.run = run  # RUN_WORDS words of array("Q"): the reservation, as C gave it
        self.address: int = 0  # of a lease: read from C at its first view
        self.length: int = 0
        if run is not None:
            self.address, self.length = run[0], run[1]
        self._array: Optional[weakref.ref] = None

    @property
    def kind(self) -> str:
        return "lease" if self.lease is not None else "reservation"

    def viewed(self) -> bool:
        """Can anything still read or write the bytes through a Python object?"""
        return self._array is not None and self._array() is not None

    def export(self, hold: Sentinel) -> memoryview:
        """A new writable view of the bytes, on the loan's one array. @hold is the loan's
        sentinel.
        """
        array = self._array() if self._array is not None else None
        if array is None:
            array = _bytes_type(self.length).from_address(self.address)
            array.maru_hold = hold
            untrack(array)
            self._array = weakref.ref(array)
        return memoryview(array).cast("B")


def lend(root: ClientHandle, loan: Loan) -> Tuple[Loan, Sentinel]:
    """Enter @loan into the client's books; it is given back when the returned sentinel dies."""
    root.loans[loan.token] = loan
    return loan, sentinel(root.dead.append, loan.token)
