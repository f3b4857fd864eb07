# SPDX-License-Identifier: Apache-2.0
"""Addresses of Python buffers, read-only ones too, without a copy.

ctypes itself refuses the address of a read-only buffer, so this asks the buffer protocol. The two
functions of CPython used here need the GIL and do not wait for anything; only they go through a
PyDLL. While a buffer is held its exporter neither moves nor frees it.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import Any, Sequence


class _PyBuffer(Structure):
    """Py_buffer of the CPython ABI; the same in 3.9 to 3.13, part of the stable ABI since 3.11."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_SIMPLE = 0  # PyBUF_SIMPLE: bytes in C order, without gaps
_WRITABLE = 1  # PyBUF_WRITABLE

# An own PyDLL: the types set on ctypes.pythonapi are shared with every other package.
_python = ctypes.PyDLL(None)
_get = _python.PyObject_GetBuffer
_get.restype = c_int
_get.argtypes = [py_object, POINTER(_PyBuffer), c_int]
_release = _python.PyBuffer_Release
_release.restype = None
_release.argtypes = [POINTER(_PyBuffer)]


class Buffers:
    """@things, buffers of one common length, held in place until the ``with`` block ends.

    ``addresses`` is a ctypes array of their addresses, ``length`` their common length in bytes.
    TypeError for what is no buffer, BufferError for one that is not contiguous or, with @writable,
    is read-only, ValueError for unequal or empty ones.
    """

    def __init__(self, things: Sequence[Any], writable: bool, name: str = "buffers") -> None:
        if isinstance(things, (bytes, bytearray, memoryview, str)) or not hasattr(
            things, "__len__"
        ):
            raise TypeError(
                f"{name} must be a sequence of buffers, one for each object, not a "
                f"{type(things).__name__}"
            )
        self._things = things
        self._writable = writable
        self._name = name
        self._held: Any = None
        self._count = 0
        self.addresses: Any = None
        self.length = 0

    def __enter__(self) -> Buffers:
        count = len(self._things)
        self._held = (_PyBuffer * count)()
        self.addresses = (c_void_p * count)()
        try:
            for index, thing in enumerate(self._things):
                self._hold(index, thing)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: Any) -> None:
        for index in range(self._count):
            _release(self._held[index])
        self._count = 0

    def _hold(self, index: int, thing: Any) -> None:
        where = f"{self._name}[{index}]"
        held = self._held[index]
        try:
            _get(thing, held, _WRITABLE if self._writable else _SIMPLE)
        except TypeError:
            raise TypeError(
                f"{where} is a {type(thing).__name__}, which has no buffer; pass bytes, bytearray, "
                "memoryview, array, a numpy array, or tensor.view(torch.uint8).numpy() of a CPU "
                "tensor"
            ) from None
        except (BufferError, ValueError) as error:
            need = "writable and contiguous" if self._writable else "contiguous"
            raise BufferError(f"{where} must be {need}: {error}") from None
        self._count = index + 1
        if index == 0:
            self.length = held.len
            if self.length == 0:
                raise ValueError(f"{where} is empty: an object has at least one byte")
        elif held.len != self.length:
            raise ValueError(
                f"{where} has {held.len} bytes and {self._name}[0] has {self.length}: all must "
                "have the same length"
            )
        self.addresses[index] = held.buf


def hold_all(count: int, things: Sequence[Any], writable: bool, what: str) -> Buffers:
    """Buffers of @things, of which there must be @count, one for each @what."""
    buffers = Buffers(things, writable)
    if len(things) != count:
        raise ValueError(f"{len(things)} buffers for {count} {what}: there must be one for each")
    return buffers
