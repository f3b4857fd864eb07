# SPDX-License-Identifier: Apache-2.0
"""Finalizers that run at the real end of an object, and only then."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable


class Sentinel:
    """Dies when its last owner really does: the collector does not know it.

    Python runs weakref callbacks of cyclic garbage *before* the ``__del__`` methods in it, which
    may still use the client, read a view, or bring it back to life. An untracked object is never
    part of such garbage, so that its callback runs at its real end.
    """

    __slots__ = ("__weakref__",)


_untrack = ctypes.PyDLL(None).PyObject_GC_UnTrack
_untrack.restype = None
_untrack.argtypes = [ctypes.py_object]


def untrack(thing: Any) -> Any:
    """Hide @thing from the cyclic collector. Only for things that refer to no Python object of
    ours.

    CPython's own PyObject_GC_UnTrack(): it neither blocks nor runs Python code, and needs the GIL.
    """
    _untrack(thing)
    return thing


def sentinel(callback: Callable[..., Any], *arguments: Any) -> Sentinel:
    """A new Sentinel; at its end @callback(*arguments) runs, but not at interpreter exit."""
    made = untrack(Sentinel())
    weakref.finalize(made, callback, *arguments).atexit = False
    return made
