# SPDX-License-Identifier: Apache-2.0
"""Whole blocks of an engine's paged KV memory, to and from objects, in one call of the library.

The engine's memory is named by addresses, which the caller vouches for: they stay mapped for as long
as the ``PagedMemory`` is used. What belongs to Maru is guarded as everywhere: a reservation cannot be
committed, nor a lease released, while its bytes are being copied. That holds for a GPU's memory, too:
a copy has ended when its call returns. ``store`` and ``load`` are for engines that move many objects in
every step: no Python object is made for any of them.
"""

from __future__ import annotations

import ctypes
import errno
from array import array
from typing import Any, Optional, Sequence

from . import _abi, _library
from ._handles import NotPicklable
from .async_queue import Operation, Queue
from .errors import last_error
from .keys import Digests, key_bytes
from .leases import Lease
from .objects import Commit, Namespace
from .pool import Pool, Reservation
from .results import Results

NO_BLOCK = _abi.NO_BLOCK
"""In a list of blocks of ``scatter``: leave this one out."""

CHECKSUM_BYTES = _abi.CHECKSUM_BYTES


class PagedMemory(NotPicklable):
    """Layers of equal blocks. An object is some blocks of every layer: all blocks of layer 0, then all
    of layer 1, and so on. Any thread may use it.
    """

    __slots__ = ("_memory", "_place", "_layers", "_library", "_device", "_where", "_row_bytes", "_tail_bytes")

    def __init__(
        self,
        layers: Sequence[int],
        block_bytes: int,
        block_count: int,
        *,
        block_stride: int = 0,
        threads: int = 0,
        checksum: bool = False,
        device: Optional[int] = None,
    ) -> None:
        """layers: address of block 0 of each layer.
        block_bytes: of one block in one layer, one contiguous run. block_count: blocks of each layer.
        block_stride: from one block to the next; 0 is block_bytes.
        threads: for one copy; 0 is as many as are worth it, $MARU_COPY_THREADS at most.
        checksum: 16 bytes behind the blocks of an object are their XXH3-128.
        device: the layers are in the memory of this GPU, as CUDA counts them in this process; None is
            the CPU's. MaruUnsupported says what of CUDA is missing, MaruError that there is no such GPU.
        """
        if device is not None and not 0 <= device < 1 << 31:
            raise ValueError(f"device is {device}: must be the number of a GPU, or None")
        self._library = _library.load()
        self._layers = (ctypes.c_void_p * len(layers))(*layers)
        self._memory = _abi.maru_paged_memory(
            ctypes.sizeof(_abi.maru_paged_memory),
            ctypes.cast(self._layers, ctypes.POINTER(ctypes.c_void_p)),
            len(layers),
            block_bytes,
            block_count,
            block_stride,
            threads,
            _abi.CHECKSUM if checksum else 0,
        )
        self._place = ctypes.addressof(self._memory)
        self._row_bytes = len(layers) * self._memory.block_bytes  # of one block in every layer
        self._tail_bytes = CHECKSUM_BYTES if checksum else 0
        self._device = device
        self._where = _abi.CPU if device is None else device
        if device is not None:
            self._wait(0)  # is it there, and can it be used?

    @property
    def device(self) -> Optional[int]:
        """The GPU whose memory it is; None is the CPU."""
        return self._device

    def _wait(self, stream: int) -> None:
        result = self._library.maru_cuda_wait(self._device, stream)
        if result < 0:
            raise last_error(self._library, result)

    def object_bytes(self, blocks_per_object: int) -> int:
        """Bytes of an object of so many blocks, its checksum included."""
        return blocks_per_object * self._row_bytes + self._tail_bytes

    def gather(
        self,
        blocks: Any,
        blocks_per_object: int,
        reservations: Sequence[Reservation],
        *,
        stream: int = 0,
    ) -> None:
        """Copy blocks into reservations, fenced for the commit that follows.

        blocks: @blocks_per_object block ids for each reservation, one after the other; an
            ``array('I')`` is read in place.
        stream: of a GPU's memory, the CUDA stream that the copy is in order on, as
            ``torch.cuda.current_stream().cuda_stream`` gives it; it is waited for.

        Nobody may write those blocks meanwhile. Raises MaruInvalid (a block id that is not there),
        ValueError, MaruClosed; nothing is written then. MaruError: a GPU failed, and what was written
        is worth nothing.
        """
        count = len(reservations)
        if count == 0:
            return
        ids = self._block_ids(blocks, blocks_per_object, count)
        handle = reservations[0]._pool._handle
        addresses = array("Q")
        busy = []
        with handle:
            with handle.lock:
                for index, reservation in enumerate(reservations):
                    if reservation._pool._handle is not handle:
                        raise ValueError(f"reservations[{index}] is of another pool")
                    reservation._check()
                    self._check_length(reservation.length, blocks_per_object, "reservations", index)
                    busy.append(reservation._loan.export(reservation._hold))
                    addresses.append(reservation._loan.address)
            try:
                self._gather(ids, blocks_per_object, addresses, stream)
            finally:
                for view in busy:
                    view.release()

    def scatter(
        self, blocks: Any, blocks_per_object: int, leases: Sequence[Lease], *, stream: int = 0
    ) -> Results:
        """Copy leased objects out into blocks. NO_BLOCK leaves a block out.

        stream: as for ``gather``; what is given to it afterwards sees the blocks.

        Results: 0 copied; -EBADMSG the checksum is wrong, and no block of that object was written.
        Raises MaruInvalid, ValueError, MaruClosed; nothing is written then. MaruError: a GPU failed, and
        what was written is worth nothing.
        """
        count = len(leases)
        if count == 0:
            return Results(0, ())
        ids = self._block_ids(blocks, blocks_per_object, count)
        root = leases[0]._root
        addresses = array("Q")
        busy = []
        with root:
            with root.lock:
                for index, lease in enumerate(leases):
                    if lease._root is not root:
                        raise ValueError(f"leases[{index}] is of another client")
                    loan = lease._locate()
                    self._check_length(loan.length, blocks_per_object, "leases", index)
                    busy.append(loan.export(lease._hold))
                    addresses.append(loan.address)
            try:
                return self._scatter(ids, blocks_per_object, addresses, stream)
            finally:
                for view in busy:
                    view.release()

    def store(
        self,
        queue: Queue,
        namespace: Namespace,
        pool: Pool,
        digests: Digests,
        blocks: Any,
        blocks_per_object: int,
        *,
        stream: int = 0,
    ) -> Operation:
        """Reserve, gather, and submit the commit: an object for each of @digests, shard 0 and part 0.

        blocks, stream: as for ``gather``. The copy has ended when this returns; marud is not waited for,
            and what is acquired after this over the same client finds the objects.

        The operation's result is that of ``Namespace.commit``. Raises MaruFull when the pool has no room
        for all of them, MaruAgain when @queue is full, and what ``gather`` raises; then nothing is
        stored.
        """
        handle, at = pool._handle, queue._handle
        if handle.root is not at.root or namespace._root is not at.root:
            raise ValueError("queue, namespace and pool are of different clients")
        count = len(digests)
        if count == 0:
            raise ValueError("digests is empty: there must be at least one object to store")
        ids = self._block_ids(blocks, blocks_per_object, count)
        library = self._library
        commit = Commit(library, key_bytes(digests))
        with handle, memoryview(ids):  # nobody resizes it meanwhile
            return queue._submit(
                Operation("store", commit, commit.finish),
                library.by_address.maru_store_blocks_submit,
                namespace._address,
                handle.pointer,
                commit.keys,
                count,
                self._place,
                ids.buffer_info()[0],
                blocks_per_object,
                self._where,
                stream,
                commit.results.buffer_info()[0],
                None,
            )

    def load(
        self,
        namespace: Namespace,
        digests: Digests,
        blocks: Any,
        blocks_per_object: int,
        *,
        stream: int = 0,
    ) -> Results:
        """Acquire, scatter and release: from the front, as many of @digests as are there.

        blocks, stream: as for ``scatter``; @blocks_per_object for each of @digests.

        Results: 0 copied; -ENOENT not there, and none behind it was asked for; -EBADMSG the checksum is
        wrong, and no block of that object was written. Raises what ``Namespace.acquire`` and ``scatter``
        raise, and MaruIncompatible when the objects of @namespace have another length.
        """
        count = len(digests)
        if count == 0:
            return Results(0, ())
        ids = self._block_ids(blocks, blocks_per_object, count)
        results = array("i", bytes(4 * count))
        with namespace._root, memoryview(ids):
            loaded = self._library.by_address.maru_load_blocks(
                namespace._address,
                digests._flat,
                count,
                self._place,
                ids.buffer_info()[0],
                blocks_per_object,
                self._where,
                stream,
                results.buffer_info()[0],
                None,
            )
        if loaded < 0:
            raise last_error(self._library, loaded)
        return Results(loaded, results)

    # ---- the copies --------------------------------------------------------------------------------

    def _gather(self, ids: array, blocks_per_object: int, addresses: array, stream: int) -> None:
        by_address = self._library.by_address
        copy = (self._place, ids.buffer_info()[0], blocks_per_object, *addresses.buffer_info())
        with memoryview(ids):  # nobody resizes it meanwhile
            if self._device is None:
                result = by_address.maru_gather(*copy)
                if result < 0:
                    raise last_error(self._library, result)
            else:
                self._end(by_address.maru_cuda_gather(*copy, self._device, stream), stream)

    def _scatter(self, ids: array, blocks_per_object: int, addresses: array, stream: int) -> Results:
        by_address = self._library.by_address
        results = array("i", bytes(4 * len(addresses)))
        copy = (self._place, ids.buffer_info()[0], blocks_per_object, *addresses.buffer_info())
        into = results.buffer_info()[0]
        with memoryview(ids):
            if self._device is None:
                result = by_address.maru_scatter(*copy, into)
            else:
                result = by_address.maru_cuda_scatter(*copy, self._device, stream, into)
                # Damaged objects are in the results; the others are on their way.
                self._end(0 if result == -errno.EBADMSG else result, stream)
        items = results.tolist()
        if result < 0 and not any(items):
            raise last_error(self._library, result)
        return Results(items.count(0), items)

    def _end(self, result: int, stream: int) -> None:
        """A GPU's copy: nothing of it runs any more, whether it went well or not."""
        if result < 0:
            error = last_error(self._library, result)
            self._library.maru_cuda_wait(self._device, stream)
            raise error
        self._wait(stream)

    def _check_length(self, length: int, blocks_per_object: int, what: str, index: int) -> None:
        wanted = self.object_bytes(blocks_per_object)
        if length != wanted:
            raise ValueError(
                f"{what}[{index}] has {length} bytes, and {blocks_per_object} blocks of each layer "
                f"make {wanted}"
            )

    def _block_ids(self, blocks: Any, blocks_per_object: int, count: int) -> array:
        ids = blocks if isinstance(blocks, array) and blocks.typecode == "I" else array("I", blocks)
        if blocks_per_object < 1 or len(ids) != count * blocks_per_object:
            raise ValueError(
                f"{len(ids)} block ids for {count} objects of {blocks_per_object} blocks: there must "
                f"be {count * blocks_per_object}"
            )
        return ids

    def __repr__(self) -> str:
        memory = self._memory
        return (
            f"<maru.PagedMemory {memory.layer_count} layers of {memory.block_count} blocks of "
            f"{memory.block_bytes} bytes>"
        )
