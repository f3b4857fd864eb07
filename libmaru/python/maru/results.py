# SPDX-License-Identifier: Apache-2.0
"""What probes and batches give back. Plain data: no handle of the library is in it."""

from __future__ import annotations

import ctypes
import errno
import functools
from array import array
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, overload

from .errors import MaruError, error_of, last_error

# What no function returns: items that still have it after a commit were not tried.
UNTRIED = 1

PRESENT = (0, -errno.EEXIST)


class Results(Sequence[int]):
    """A result per item: 0, or a negative errno as in the C API.

    ``succeeded`` is what the call counts: objects present after a store or commit, chunks loaded,
    objects retired.
    """

    __slots__ = ("succeeded", "_items")

    def __init__(self, succeeded: int, items: Sequence[int]) -> None:
        self.succeeded = succeeded
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return tuple(other) == self._items if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @property
    def failed(self) -> List[int]:
        """Indexes of the items that are neither 0 nor -EEXIST ("already there")."""
        return [index for index, item in enumerate(self._items) if item not in PRESENT]

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
        return f"<maru.Results {self.succeeded} of {len(self)}: {len(self.failed)} failed>"


class Hits(Sequence[bool]):
    """Which chunks are readable: a read-only sequence of bool over the C bitmap."""

    __slots__ = ("_bitmap", "_count")

    def __init__(self, bitmap: bytes, count: int) -> None:
        self._bitmap = bitmap
        self._count = count

    @property
    def bitmap(self) -> bytes:
        """Bit i, least significant first, is chunk i."""
        return self._bitmap

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
        return bool(self._bitmap[index >> 3] >> (index & 7) & 1)

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


def probed(prefix: int, bitmap: Any, count: int) -> Probe:
    """The answer of a probe of @count chunks, from what C wrote to @bitmap."""
    # By hand: a probe waits for marud a few microseconds only, and the constructors would be one of them.
    hits = object.__new__(Hits)
    hits._bitmap = bytes(bitmap)
    hits._count = count
    return tuple.__new__(Probe, (prefix, hits))


ONE_PROBED = Probe(0, Hits(b"\0", 1)), Probe(1, Hits(b"\1", 1))
"""The only answers of a probe of one chunk, by its prefix. Nothing in them can be changed."""


@functools.lru_cache(maxsize=64)
def bitmap_type(count: int) -> Any:
    """The ctypes array type of a bitmap of @count chunks; ctypes itself forgets them."""
    return ctypes.c_uint8 * ((count + 7) // 8)


def results_of(library: ctypes.CDLL, count: int, array: Any) -> Results:
    """Results in @array; an exception for a negative @count: nothing was tried."""
    if count < 0:
        raise last_error(library, count)
    return Results(count, array)


_UNTRIED = array("i", [UNTRIED])


def results_array(count: int) -> array:
    return _UNTRIED * count
