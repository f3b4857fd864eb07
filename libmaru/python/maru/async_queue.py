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
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Union

from . import _abi
from ._handles import ClientHandle, Handle, NotPicklable, close_at_exit
from .errors import MaruBusy, MaruError, last_error
from .keys import Digests, Keys, Manifest, as_digests, key_array, manifest_struct, uint32
from .leases import lease_array, leases_of
from .objects import Namespace, commit_results, flags_of, reservation_array
from .pool import Pool, Reservation, put_back, take
from .results import Hits, Probe, results_array, results_of

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

    def reap(self, most: int, timeout_ms: int) -> List[Operation]:
        """The caller keeps the queue open."""
        completions = (_abi.maru_completion * most)()
        library = self.handle.library
        count = self.handle.check(
            library.maru_queue_reap(self.handle.pointer, completions, most, timeout_ms)
        )
        reaped = []
        for completion in completions[:count]:
            operation = self.pending.pop(completion.user_data)
            operation._complete(completion.result)
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
        bitmap = (ctypes.c_uint8 * ((count + 7) // 8))()
        shape = manifest_struct(manifest)

        def finish(result: int) -> Probe:
            return Probe(self._finished(result), Hits(bytes(bitmap), count))

        return self._submit(
            Operation("probe", (keys, shape, bitmap), finish),
            lambda queue, token: self._handle.library.maru_probe_submit(
                queue,
                self._pointer(namespace),
                keys._array,
                count,
                shape,
                flags_of(prefix_only),
                bitmap,
                token,
            ),
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
        shape = manifest_struct(manifest)
        array = lease_array(len(keys) * (manifest.objects if manifest else 1))
        root = self._handle.root

        def finish(result: int) -> Any:
            return leases_of(root, self._finished(result), array)

        return self._submit(
            Operation("acquire", (keys, shape, array), finish),
            lambda queue, token: self._handle.library.maru_acquire_submit(
                queue,
                self._pointer(namespace),
                keys._array,
                len(keys),
                shape,
                flags_of(prefix_only),
                array,
                token,
            ),
        )

    def commit(
        self, namespace: Namespace, pool: Pool, keys: Keys, reservations: Sequence[Reservation]
    ) -> Operation:
        """Submit ``Namespace.commit``; the reservations are consumed unless this raises."""
        namespace._same_client(pool)
        array = key_array(keys)
        if len(array) != len(reservations):
            raise ValueError(
                f"{len(reservations)} reservations for {len(array)} keys: there must be one for "
                "each"
            )
        results = results_array(len(array))
        kept = list(reservations)
        with pool._handle as pool_pointer:
            loans = take(pool._handle, kept, "commit")
            runs = reservation_array(loans)

            def finish(result: int) -> Any:
                return commit_results(pool, loans, result, results)

            try:
                return self._submit(
                    Operation("commit", (array, runs, results, kept), finish),
                    lambda queue, token: self._handle.library.maru_commit_submit(
                        queue,
                        self._pointer(namespace),
                        pool_pointer,
                        array,
                        runs,
                        len(array),
                        results,
                        token,
                    ),
                )
            except BaseException:
                put_back(pool._handle, loans)
                raise

    def retire(self, namespace: Namespace, keys: Keys) -> Operation:
        """Submit ``Namespace.retire``."""
        array = key_array(keys)
        results = results_array(len(array))
        library = self._handle.library

        def finish(result: int) -> Any:
            return results_of(library, result, results)

        return self._submit(
            Operation("retire", (array, results), finish),
            lambda queue, token: library.maru_retire_submit(
                queue,
                self._pointer(namespace),
                array,
                len(array),
                results,
                token,
            ),
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

    def _submit(self, operation: Operation, call: Callable[[Any, int], int]) -> Operation:
        token = next(_tokens)
        with self._handle as queue:
            # In the books before C knows it: another thread may reap it before the call returns.
            self._state.pending[token] = operation
            _pin(operation)
            submitted = False
            try:
                result = call(queue, token)
                if result < 0:
                    raise last_error(self._handle.library, result)
                submitted = True
            finally:
                if not submitted:
                    del self._state.pending[token]
                    _unpin(operation)
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
