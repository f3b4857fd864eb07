# SPDX-License-Identifier: Apache-2.0
"""The same operations without blocking: submit, poll the queue's descriptor, reap.

What must stay true: the arrays of an operation that is not reaped are never freed, whatever becomes
of the Queue, the client or the interpreter, because libmaru writes its results into them. Each such
operation carries one reference that only reaping drops.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
from array import array
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Union

from . import _abi
from ._handles import ClientHandle, Handle, NotPicklable, close_at_exit
from .errors import MaruBusy, MaruError, last_error
from .keys import KEY_BYTES, Digests, Keys, Manifest, as_digests, key_bytes, uint32
from .leases import lease_array, leases_of
from .objects import Namespace, ReservedCommit, by_reference, flags_of
from .pool import Pool, Reservation
from .results import Probe, bitmap_type, probed, results_array, results_of

if TYPE_CHECKING:
    from .client import Client

# CPython's own reference counting; neither waits for anything, both need the GIL.
_python = ctypes.PyDLL(None)
_pin = _python.Py_IncRef
_unpin = _python.Py_DecRef
_pin.restype = _unpin.restype = None
_pin.argtypes = _unpin.argtypes = [ctypes.py_object]

_tokens = itertools.count(1)


class Operation(NotPicklable):
    """A submitted operation. Any thread may look at it; it never blocks."""

    __slots__ = ("_kind", "_arrays", "_finish", "_value", "_error", "_done")

    def __init__(self, kind: str, arrays: Any, finish: Callable[[int], Any]) -> None:
        self._kind = kind
        self._arrays = arrays
        self._finish: Optional[Callable[[int], Any]] = finish
        self._value: Any = None
        self._error: Optional[BaseException] = None
        self._done = False

    @property
    def done(self) -> bool:
        """Was it reaped?"""
        return self._done

    def result(self) -> Any:
        """What the blocking form returns or raises; MaruBusy before the operation was reaped."""
        if not self._done:
            raise MaruBusy(errno.EBUSY, f"this {self._kind} is not reaped yet: call Queue.reap()")
        if self._error is not None:
            raise self._error
        return self._value

    def _complete(self, result: int) -> None:
        assert self._finish is not None
        try:
            self._value = self._finish(result)
        except MaruError as error:
            self._error = error
        self._finish = self._arrays = None  # what was submitted is the caller's again
        self._done = True

    def __repr__(self) -> str:
        return f"<maru.Operation {self._kind}: {'done' if self._done else 'submitted'}>"


class _State:
    """A C queue and what it has in flight. The client's handle owns it, not the Queue object."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.pending: Dict[int, Operation] = {}

    def expect(self, operation: Operation) -> int:
        """Its token. Before C knows it: another thread may reap it before the submit returns."""
        token = next(_tokens)
        self.pending[token] = operation
        _pin(operation)
        return token

    def forget(self, token: int) -> None:
        """It was not submitted."""
        _unpin(self.pending.pop(token))

    def reap(self, most: int, timeout_ms: int) -> List[Operation]:
        """The caller keeps the queue open."""
        completions = array("q", bytes(ctypes.sizeof(_abi.maru_completion) * most))
        library = self.handle.library
        count = self.handle.check(
            library.by_address.maru_queue_reap(
                self.handle.pointer, completions.buffer_info()[0], most, timeout_ms
            )
        )
        reaped = []
        for at in range(0, 2 * count, 2):  # user_data, result
            operation = self.pending.pop(completions[at])
            operation._complete(completions[at + 1])
            _unpin(operation)
            reaped.append(operation)
        return reaped

    def close_for_client(self) -> None:
        """The client closes: take what is finished, then end the queue or raise MaruBusy."""
        while self.pending and self.reap(64, 0):
            pass
        self.close()

    def close(self) -> None:
        """The caller began the close of the queue, or of the whole client."""
        handle = self.handle
        handle.check(handle.library.maru_queue_close(handle.pointer))
        handle.root.queues.remove(self)


class Queue(NotPicklable):
    """A completion queue of one client; made by ``Client.queue()``.

    Submitting never waits for marud, and gives an ``Operation``. Finished ones are reaped;
    ``fileno()`` polls readable while any wait, for ``select``, ``asyncio.loop.add_reader`` and the
    like. The deadline of each is the client's timeout_ms from the submit. Any thread may use it.
    A context manager: leaving the block closes it.
    """

    __slots__ = ("_client", "_handle", "_state", "__weakref__")

    def __init__(self, client: Client, handle: Handle, state: _State) -> None:
        self._client = client
        self._handle = handle
        self._state = state

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def fileno(self) -> int:
        """The descriptor to poll for reading, level-triggered; never read or close it."""
        with self._handle as queue:
            return self._handle.check(self._handle.library.maru_queue_fd(queue))

    def reap(self, most: int = 256, timeout_ms: int = 0) -> List[Operation]:
        """Take up to @most finished operations.

        timeout_ms: 0 returns at once; else waits for at least one. An empty list after the
            time-out.
        """
        if not 1 <= most <= 1 << 20:
            raise ValueError(f"most is {most}: must be from 1 to 1048576")
        timeout = uint32(timeout_ms, "timeout_ms")
        with self._handle:
            return self._state.reap(most, timeout)

    def probe(
        self,
        namespace: Namespace,
        digests: Union[Digests, Any],
        manifest: Optional[Manifest] = None,
        prefix_only: bool = False,
    ) -> Operation:
        """Submit ``Namespace.probe``. Raises MaruAgain when too many are in flight: reap first."""
        keys = as_digests(digests)
        count = len(keys)
        bitmap = bitmap_type(count)()
        shape = by_reference(manifest)

        def finish(result: int) -> Probe:
            return probed(self._finished(result), bitmap, count)

        return self._submit(
            Operation("probe", (keys, shape, bitmap), finish),
            self._handle.library.by_address.maru_probe_submit,
            self._pointer(namespace),
            keys._flat,
            count,
            shape,
            flags_of(prefix_only),
            bitmap,
        )

    def acquire(
        self,
        namespace: Namespace,
        digests: Union[Digests, Any],
        manifest: Optional[Manifest] = None,
        prefix_only: bool = False,
    ) -> Operation:
        """Submit ``Namespace.acquire``; the leases are held once it is reaped."""
        keys = as_digests(digests)
        shape = by_reference(manifest)
        leases = lease_array(len(keys) * (manifest.objects if manifest else 1))
        root = self._handle.root

        def finish(result: int) -> Any:
            return leases_of(root, self._finished(result), leases)

        return self._submit(
            Operation("acquire", (keys, shape, leases), finish),
            self._handle.library.by_address.maru_acquire_submit,
            self._pointer(namespace),
            keys._flat,
            len(keys),
            shape,
            flags_of(prefix_only),
            leases,
        )

    def commit(
        self, namespace: Namespace, pool: Pool, keys: Keys, reservations: Sequence[Reservation]
    ) -> Operation:
        """Submit ``Namespace.commit``; the reservations are consumed unless this raises."""
        commit = ReservedCommit(namespace, pool, keys, reservations)
        with pool._handle as pool_pointer:
            commit.take()
            try:
                return self._submit(
                    Operation("commit", commit, commit.finish),
                    self._handle.library.by_address.maru_commit_submit,
                    self._pointer(namespace),
                    pool_pointer,
                    *commit.arguments(),
                )
            except BaseException:
                commit.put_back()
                raise

    def retire(self, namespace: Namespace, keys: Keys) -> Operation:
        """Submit ``Namespace.retire``."""
        flat = key_bytes(keys)
        objects = len(flat) // KEY_BYTES
        results = results_array(objects)
        library = self._handle.library

        def finish(result: int) -> Any:
            return results_of(library, result, results)

        return self._submit(
            Operation("retire", (flat, results), finish),
            library.by_address.maru_retire_submit,
            self._pointer(namespace),
            flat,
            objects,
            results.buffer_info()[0],
        )

    def close(self) -> None:
        """Free the queue. Idempotent. MaruBusy while operations are unfinished or unreaped."""
        if not self._handle.begin_close():
            return
        closed = False
        try:
            self._state.close()
            closed = True
        finally:
            self._handle.end_close(closed)

    def _pointer(self, namespace: Namespace) -> Any:
        if namespace._root is not self._handle.root:
            raise ValueError("queue and namespace are of different clients")
        return namespace._pointer

    def _finished(self, result: int) -> int:
        return self._handle.check(result)

    def _submit(self, operation: Operation, function: Any, *arguments: Any) -> Operation:
        """@function of the queue, @arguments and the operation's token."""
        with self._handle as queue:
            token = self._state.expect(operation)
            refused = False
            try:
                # An interrupt may come just behind the call: unless C has said no, it has the arrays.
                result = function(queue, *arguments, token)
                if result < 0:
                    refused = True
                    raise last_error(self._handle.library, result)
            except ctypes.ArgumentError:
                refused = True
                raise
            finally:
                if refused:
                    self._state.forget(token)
        return operation

    def __enter__(self) -> Queue:
        self._handle.check_process()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        close_at_exit(self, kind)

    def __repr__(self) -> str:
        if self.closed:
            return "<maru.Queue closed>"
        return f"<maru.Queue: {len(self._state.pending)} in flight>"


def open_queue(client: Client, root: ClientHandle) -> Queue:
    """A new queue of @client."""
    pointer = ctypes.POINTER(_abi.maru_queue)()
    with root as client_pointer:
        root.check(root.library.maru_queue_open(client_pointer, pointer))
        handle = Handle("queue", root.library, pointer, root)
        state = _State(handle)
        root.queues.append(state)
    return Queue(client, handle, state)
