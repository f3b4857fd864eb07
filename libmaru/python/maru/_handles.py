# SPDX-License-Identifier: Apache-2.0
"""Handles of the C library, guarded: used after close, closed in use, or used in a forked child.

What must stay true:
- No pointer reaches C after its close began, and no close begins while a call on it runs. A call is
  announced in ``uses`` before it looks whether the handle is open, and a close shuts the handle before
  it looks for announced calls: each is one step that no other thread can divide, so that at least one
  of the two sees the other, and no lock is needed around a call.
- A forked child is refused *before* a lock is touched: the lock may have been held by a thread that
  does not exist in the child. Python's own handler of forks says that this is one. After a fork by C
  code that runs no such handlers, libmaru itself refuses each call.
- Nothing here calls C from a finalizer. A client that is dropped without close() goes to a list
  that the next ``Client()`` empties.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import warnings
from array import array
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from . import _abi
from ._loans import RUN_WORDS, Loan
from .errors import MaruBufferError, MaruBusy, MaruClosed, MaruError, MaruForked, last_error


class _Process:
    """Stands for this process: another one in each forked child."""


_process = _Process()


def _forked() -> None:
    global _process
    _process = _Process()


os.register_at_fork(after_in_child=_forked)


class NotPicklable:
    """A handle of this process: it can be neither pickled nor copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: it is a handle of this process; "
            "open a client in the other process instead"
        )


class Handle:
    """A pointer of the C library with the calls that use it now.

    ``with handle as pointer:`` brackets every call. @root is the client's handle, or None for the
    client itself, which has steps of its own; entering a child enters the client, too.
    """

    __slots__ = ("what", "pid", "library", "root", "pointer", "uses", "open", "born", "closing", "lock")

    def __init__(
        self, what: str, library: ctypes.CDLL, pointer: Any, root: Optional[ClientHandle] = None
    ) -> None:
        self.what = what
        self.pid = os.getpid()
        self.library = library
        self.pointer = pointer
        self.uses: Deque[None] = deque()  # one for each call that runs
        self.born = _process
        self.open: Optional[_Process] = self.born  # None: closed, or being closed
        self.closing = False
        if root is None:
            assert isinstance(self, ClientHandle)
            self.root: ClientHandle = self
            self.lock = threading.RLock()  # a collection inside may run a __del__ that calls us
        else:
            self.root = root
            self.lock = root.lock

    def check_process(self) -> None:
        if self.born is not _process or self.pid != os.getpid():
            raise MaruForked(
                errno.EOWNERDEAD,
                f"this {self.what} belongs to process {self.pid} and this is a fork of it, process "
                f"{os.getpid()}: open a client of its own here",
            )

    def refuse(self) -> None:
        """Say why this handle is not open."""
        self.check_process()
        for handle in (self.root, self):
            if handle.pointer is None:
                raise MaruClosed(errno.EBADF, f"this {handle.what} is closed")
        busy = self.root if self.root.closing else self
        raise MaruClosed(errno.EBADF, f"this {busy.what} is being closed")

    def __enter__(self) -> Any:
        calls = self.root.begin()
        self.uses.append(None)
        if self.open is not _process:
            self.uses.pop()
            calls.pop()
            self.refuse()
        return self.pointer

    def __exit__(self, *exception: Any) -> None:
        self.uses.pop()
        self.root.uses.pop()

    @property
    def closed(self) -> bool:
        return self.pointer is None or self.root.pointer is None

    def begin_close(self) -> bool:
        """Keep new calls out. False if it is closed already; MaruBusy while calls run."""
        self.check_process()
        with self.lock:
            if self.pointer is None or self.root.pointer is None:
                return False
            if self.closing:
                raise MaruBusy(errno.EBUSY, f"another thread is closing this {self.what}")
            self.closing, self.open = True, None
            running = len(self.uses)
            if running:
                self.closing, self.open = False, self.born
                raise MaruBusy(
                    errno.EBUSY,
                    f"{running} call(s) of other threads still use this {self.what}: close it "
                    "when they have returned",
                )
        return True

    def end_close(self, closed: bool) -> None:
        with self.lock:
            if closed:
                self.pointer = None
            else:
                self.open = self.born
            self.closing = False

    def check(self, result: int) -> int:
        """@result if it is not negative; else the exception with this thread's message."""
        if result < 0:
            raise last_error(self.library, result)
        return result


class ClientHandle(Handle):
    """The client's own handle: what Python borrowed from its pools, and its queues.

    ``loans`` has every lease and reservation of this client that is not settled, by a token.
    ``dead`` receives tokens from finalizers, in any thread and at any moment.
    """

    __slots__ = ("loans", "dead", "queues", "sentinel")

    def __init__(self, library: ctypes.CDLL, pointer: Any) -> None:
        super().__init__("client", library, pointer)
        self.loans: Dict[int, Loan] = {}
        self.dead: Deque[int] = deque()
        self.queues: List[Any] = []  # those not closed, of async_queue
        self.sentinel: Callable[[], Any] = lambda: None  # dies when the client is dropped

    def begin(self) -> Deque[None]:
        """Enter, for a call that is so short that ``with`` would be felt. The caller pops one from what is
        returned when its call is over, whatever comes of it.
        """
        uses = self.uses
        uses.append(None)
        if self.open is not _process:
            uses.pop()
            self.refuse()
        if self.dead:
            try:
                self.drain()
            except BaseException:
                uses.pop()
                raise
        return uses

    def __enter__(self) -> Any:
        self.begin()
        return self.pointer

    def __exit__(self, *exception: Any) -> None:
        self.uses.pop()

    def drain(self) -> None:
        """Give back what nobody refers to any more. The caller holds the client open."""
        loans: List[Loan] = []
        while True:
            try:
                token = self.dead.popleft()
            except IndexError:
                break
            loan = self.loans.pop(token, None)
            if loan is not None:
                loans.append(loan)
        if loans:
            self.settle(loans)

    def settle(self, loans: List[Loan]) -> None:
        """Give @loans back to C: leases in one call, reservations pool by pool.

        Results are dropped on purpose: the only failure is "not held any more", and the caller is
        whoever happened to come by. An explicit release or abort reports its own.
        """
        leases = [loan.lease for loan in loans if loan.lease is not None]
        if leases:
            self.release_leases(leases)
        by_pool: Dict[Handle, List[Loan]] = {}
        for loan in loans:
            if loan.pool is not None:
                by_pool.setdefault(loan.pool, []).append(loan)
        for pool, reserved in by_pool.items():
            pool.uses.append(None)
            try:
                if pool.open is not None:
                    self.abort_reservations(pool, reserved)
                elif pool.pointer is not None:  # later: the close may still fail
                    for loan in reserved:
                        self.loans[loan.token] = loan
                        self.dead.append(loan.token)
                # else the pool took its reservations with it
            finally:
                pool.uses.pop()

    def release_leases(self, leases: List[Any]) -> int:
        pointers = (ctypes.POINTER(_abi.maru_lease) * len(leases))(*leases)
        return self.library.maru_lease_release(pointers, len(leases))

    def abort_reservations(self, pool: Handle, loans: List[Loan]) -> int:
        runs = array("Q")
        for loan in loans:
            runs.extend(loan.run)
        return self.library.by_address.maru_abort(
            pool.pointer, runs.buffer_info()[0], len(runs) // RUN_WORDS
        )

    def refuse_views(self, loans: List[Loan], action: str) -> None:
        """MaruBufferError if Python objects still view any of @loans."""
        viewed = [loan for loan in loans if loan.viewed()]
        if viewed:
            kinds = sorted({loan.kind for loan in viewed})
            raise MaruBufferError(
                errno.EBUSY,
                f"cannot {action}: Python objects still view the bytes of {len(viewed)} "
                f"{' and '.join(kinds)}(s), {sum(loan.length for loan in viewed)} bytes in all; "
                "drop those views first",
            )

    def close(self) -> None:
        """End the session. MaruBusy, with the client still open, while anything is in use."""
        if not self.begin_close():
            return
        closed = False
        try:
            self.drain()
            with self.lock:
                loans = list(self.loans.values())
            self.refuse_views(loans, "close this client")
            for queue in list(self.queues):
                queue.close_for_client()
            with self.lock:
                loans = list(self.loans.values())  # with what the queues had finished
            for loan in loans:
                self.loans.pop(loan.token, None)
            if loans:
                self.settle(loans)
            self.check(self.library.maru_client_close(self.pointer))
            closed = True
        finally:
            self.end_close(closed)


def close_at_exit(thing: Any, kind: Any) -> None:
    """Leave the ``with`` block of @thing: close it, but never hide the exception @kind that ends
    it.

    While an exception unwinds, its frames may still hold views; the close is then left to whoever
    comes next. A forked child that leaves its parent's block has nothing to close.
    """
    if thing._handle.pid != os.getpid():
        return
    if kind is None:
        thing.close()
        return
    try:
        thing.close()
    except MaruError:
        pass


# Clients that were dropped without close().
_abandoned: Deque[ClientHandle] = deque()


def abandon(handle: ClientHandle, description: str) -> None:
    """Finalizer of a client object. May run in any thread, during a collection: no C call."""
    if handle.pointer is None or handle.pid != os.getpid():
        return
    _abandoned.append(handle)
    warnings.warn(f"unclosed {description}", ResourceWarning, stacklevel=2, source=None)


def close_abandoned() -> None:
    """Close the clients that were dropped without close(), as far as their bytes are not viewed."""
    for _ in range(len(_abandoned)):
        try:
            handle = _abandoned.popleft()
        except IndexError:
            return
        if handle.pid != os.getpid():
            continue
        try:
            handle.close()
        except MaruError:
            _abandoned.append(handle)  # a view lives, or marud answers late: next time
