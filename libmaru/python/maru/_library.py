# SPDX-License-Identifier: Apache-2.0
"""Finds, checks and loads libmaru.so.0, once per process.

The library is a CDLL: ctypes drops the GIL around each call, so that a call that waits for marud
stops no other Python thread. Order: $MARU_LIBRARY (a file; nothing else is tried when it is set),
then the dynamic loader. A library older than MINIMUM_VERSION, or without a function that this
package calls, is refused before anything of it is used.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple, Optional, Tuple

from . import _abi
from .errors import MaruLibraryError

SONAME = "libmaru.so.0"
MINIMUM_VERSION = (0, 1, 0)


class Library(NamedTuple):
    """The loaded library: ``path`` as the loader resolved it, ``version`` as it states itself."""

    path: str
    version: str


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    ]


def _path_of(function, fallback: str) -> str:
    """The file that @function was loaded from."""
    try:
        dladdr = ctypes.CDLL(None).dladdr
    except (OSError, AttributeError):
        return fallback
    dladdr.restype = ctypes.c_int
    dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]
    info = _DlInfo()
    address = ctypes.cast(function, ctypes.c_void_p)
    if dladdr(address, ctypes.byref(info)) and info.dli_fname:
        return os.path.realpath(os.fsdecode(info.dli_fname))
    return fallback


def _numbers(version: str) -> Tuple[int, ...]:
    """ "0.1.0" as (0, 1, 0); a suffix after the digits of a part is not counted."""
    parts = []
    for part in version.split(".")[:3]:
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        parts.append(int(digits or 0))
    return tuple(parts + [0] * (3 - len(parts)))


def _open() -> Tuple[ctypes.CDLL, str]:
    named = os.environ.get("MARU_LIBRARY")
    if named:
        try:
            return ctypes.CDLL(named), named
        except OSError as error:
            raise MaruLibraryError(
                f"MARU_LIBRARY names '{named}', which cannot be loaded: {error}"
            ) from None
    try:
        return ctypes.CDLL(SONAME), SONAME
    except OSError as error:
        raise MaruLibraryError(
            f"the library {SONAME} cannot be loaded: {error}. Install libmaru where the loader "
            "finds it, or set MARU_LIBRARY to its file"
        ) from None


def _load() -> Tuple[ctypes.CDLL, Library]:
    library, name = _open()
    needed = ".".join(map(str, MINIMUM_VERSION))
    try:
        version_of = library.maru_version
    except AttributeError:
        raise MaruLibraryError(f"'{name}' is not libmaru: it has no maru_version()") from None
    version_of.restype, version_of.argtypes = _abi.FUNCTIONS["maru_version"]
    version = (version_of() or b"").decode("utf-8", "replace")
    path = _path_of(version_of, name)
    if _numbers(version) < MINIMUM_VERSION:
        raise MaruLibraryError(
            f"the library '{path}' is version {version}, and this Python package needs at least "
            f"version {needed}: install a newer libmaru, or set MARU_LIBRARY to one"
        )
    try:
        _abi.declare(library)
    except AttributeError as error:
        raise MaruLibraryError(
            f"the library '{path}', version {version}, lacks a function that this Python package "
            f"calls: {error}"
        ) from None
    return library, Library(path, version)


_loaded: Optional[Tuple[ctypes.CDLL, Library]] = None


def load() -> ctypes.CDLL:
    """The library, loaded on the first call. Raises MaruLibraryError, an ImportError.

    No lock: two threads that load at once get the same library from the loader.
    """
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded[0]


def library() -> Library:
    """Which libmaru this process uses: path and version. Loads it if need be."""
    load()
    assert _loaded is not None
    return _loaded[1]
