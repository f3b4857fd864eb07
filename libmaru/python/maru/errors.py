# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class per errno that a caller may want to tell apart.

Every one is a ``MaruError``, which is an ``OSError``: ``errno`` is the positive number,
``strerror`` the C library's message, which says what was wrong and what is allowed. Where Python
has a class for the same thing (``TimeoutError``, ``ValueError``, ``PermissionError``,
``BufferError``), the Maru class is one of those too.
"""

from __future__ import annotations

import errno as _errno
from typing import Dict, Type


class MaruLibraryError(ImportError):
    """libmaru.so.0 was not found, is too old, or is something else."""


class MaruError(OSError):
    """Anything that went wrong in libmaru or marud. ``errno`` and ``strerror`` are always set."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(number, message)

    @property
    def name(self) -> str:
        """The symbol of ``errno``, such as ``"ENOSPC"``."""
        return _errno.errorcode.get(self.errno or 0, "?")

    def __str__(self) -> str:
        return f"{self.strerror} [{self.name}]"


class MaruInvalid(MaruError, ValueError):
    """EINVAL: a bad argument; the message names it."""


class MaruNotFound(MaruError):
    """ENOENT: no such thing: a miss, a lease that was released, an unknown operation."""


class MaruExists(MaruError):
    """EEXIST: the object is already present in that placement domain."""


class MaruPending(MaruError):
    """EINPROGRESS: the fate of a commit is not known yet; the library settles it."""


class MaruFull(MaruError):
    """ENOSPC: pool, grant or host aggregate is full. Keep your hits and skip this admission."""


class MaruNoMemory(MaruError):
    """ENOMEM: no memory stands behind it."""


class MaruQuota(MaruError):
    """EDQUOT: a limit of this uid or session."""


class MaruAgain(MaruError):
    """EAGAIN: a bounded table is full; reap, acknowledge or release, then try again."""


class MaruBusy(MaruError):
    """EBUSY: leases, reservations, views, running calls or another holder; the message names
    them.
    """


class MaruBufferError(MaruBusy, BufferError):
    """Python objects still view these bytes; drop them (``del``, ``memoryview.release()``)
    first.
    """


class MaruConflict(MaruError):
    """ENOTUNIQ: the same operation with other content, an overlapping range, or another schema."""


class MaruStale(MaruError):
    """ESTALE: a generation or an epoch that has passed."""


class MaruIncompatible(MaruError):
    """EMEDIUMTYPE: another size or format. Never a hit."""


class MaruDamaged(MaruError):
    """EBADMSG: a checksum is wrong: these are not the bytes that were stored."""


class MaruAccess(MaruError, PermissionError):
    """EACCES: not yours."""


class MaruNotConnected(MaruError, ConnectionError):
    """ENOTCONN: no connection to marud now; the client reconnects by itself."""


class MaruRefused(MaruError, ConnectionRefusedError):
    """ECONNREFUSED: nobody listens at the socket that the message names."""


class MaruFenced(MaruError):
    """EKEYREVOKED: the session is over, another worker has its engine; open a new client."""


class MaruTimeout(MaruError, TimeoutError):
    """ETIMEDOUT: the deadline passed; it covers the whole round trip."""


class MaruProtocol(MaruError):
    """EPROTO: the other side broke the protocol."""


class MaruVersion(MaruError):
    """EPROTONOSUPPORT: library and marud do not fit; the message has both versions."""


class MaruUnsupported(MaruError):
    """EOPNOTSUPP: a capability that this marud or host does not have."""


class MaruTooLarge(MaruError):
    """EMSGSIZE: over a documented limit."""


class MaruForked(MaruError):
    """EOWNERDEAD: the handle belongs to the parent process; open a client of your own."""


class MaruClosed(MaruError, ValueError):
    """EBADF: this Python object was closed, committed, aborted or released before."""


_CLASSES: Dict[int, Type[MaruError]] = {
    _errno.EINVAL: MaruInvalid,
    _errno.ENOENT: MaruNotFound,
    _errno.EEXIST: MaruExists,
    _errno.EINPROGRESS: MaruPending,
    _errno.ENOSPC: MaruFull,
    _errno.ENOMEM: MaruNoMemory,
    _errno.EDQUOT: MaruQuota,
    _errno.EAGAIN: MaruAgain,
    _errno.EBUSY: MaruBusy,
    _errno.ENOTUNIQ: MaruConflict,
    _errno.ESTALE: MaruStale,
    _errno.EMEDIUMTYPE: MaruIncompatible,
    _errno.EBADMSG: MaruDamaged,
    _errno.EACCES: MaruAccess,
    _errno.ENOTCONN: MaruNotConnected,
    _errno.ECONNREFUSED: MaruRefused,
    _errno.EKEYREVOKED: MaruFenced,
    _errno.ETIMEDOUT: MaruTimeout,
    _errno.EPROTO: MaruProtocol,
    _errno.EPROTONOSUPPORT: MaruVersion,
    _errno.EOPNOTSUPP: MaruUnsupported,
    _errno.EMSGSIZE: MaruTooLarge,
    _errno.EOWNERDEAD: MaruForked,
    _errno.EBADF: MaruClosed,
}


def error_of(result: int, message: str) -> MaruError:
    """The exception for a negative @result of the C library and its @message."""
    number = -int(result)
    return _CLASSES.get(number, MaruError)(number, message)


def last_error(library, result: int) -> MaruError:
    """The exception for @result, with the message that libmaru kept for this thread."""
    text = library.maru_last_error()
    message = text.decode("utf-8", "replace") if text else ""
    if not message:
        name = library.maru_error_name(int(result))
        message = "libmaru gave no message for " + (name or b"?").decode("ascii", "replace")
    return error_of(result, message)
