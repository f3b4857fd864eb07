# SPDX-License-Identifier: Apache-2.0
"""A session with the host's marud."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import weakref
from typing import Any, NamedTuple, Optional, Tuple

from . import _abi, _library
from ._handles import ClientHandle, Handle, NotPicklable, abandon, close_abandoned, close_at_exit
from ._sentinel import sentinel
from .async_queue import Queue, open_queue
from .errors import MaruError, last_error
from .keys import text_bytes, uint32, uint64
from .objects import Namespace
from .pool import HUGE_PAGES, MEDIA, NUMA, SCOPES, Pool, option

ROLES = {"worker": _abi.ROLE_WORKER, "scheduler": _abi.ROLE_SCHEDULER}
STATES = {
    _abi.STATE_ATTACHED: "attached",
    _abi.STATE_DISCONNECTED: "disconnected",
    _abi.STATE_RESTORING: "restoring",
    _abi.STATE_FENCED: "fenced",
}


class ClientInfo(NamedTuple):
    """The state of a client."""

    state: str
    """"attached": connected, session whole; "disconnected": marud is away, retried with back-off;
    "restoring": connected, re-publishing; "fenced": over for good."""
    epoch: int
    """Of marud; 0 before the first connection."""
    session: int
    """Id as maructl shows it."""
    reconnects: int
    """Connections after the first."""
    republished: int
    """Replicas told again after restarts of marud."""
    leases: int
    """Held now."""
    unknown_commits: int
    """Operations whose fate is not settled."""
    uid: int
    """This process as marud sees it."""
    probe_keys_max: int
    """Per message; larger batches are split by the library."""
    server_version: str


class Client(NotPicklable):
    """One session: a worker, which owns pools, or a scheduler, which only asks.

    Reconnects and re-attaches by itself when marud restarts; what it had committed stays a hit.
    Any thread may use it. A forked child may not (MaruForked), and sees no pool memory: touching a
    view there is a segmentation fault. It may open clients of its own.

    A context manager: leaving the block closes it. One that is dropped without close() gives a
    ResourceWarning, and is closed when the next one is opened or with the process.
    """

    def __init__(
        self,
        engine: str,
        *,
        role: str = "worker",
        socket_path: Optional[str] = None,
        name: Optional[str] = None,
        timeout_ms: int = 0,
        connect_ms: int = 0,
        spin_us: int = 0,
    ) -> None:
        """Connect and open the session.

        engine: 1 to 256 bytes in UTF-8; one live worker per (uid, engine). A scheduler names the
            engine whose worker it probes for.
        role: "worker" or "scheduler" (metadata only: maps nothing, allocates nothing).
        socket_path: None is $MARU_SOCKET, /run/maru/marud.sock, the user's socket.
        name: shown to operators, at most 64 bytes; None is the program's name.
        timeout_ms: deadline of each blocking call, the whole round trip; 0 is 5000.
        connect_ms: deadline of opening, with waiting for a dying holder; 0 is 10000.
        spin_us: busy-wait before blocking for a reply; 0 is none.

        Blocks up to connect_ms. Raises MaruNotFound, MaruRefused or MaruAccess with the socket's
        path; MaruBusy when the engine has a live worker (the message names pid and command);
        MaruVersion; MaruQuota; MaruTimeout; MaruLibraryError when libmaru.so.0 is not to be had.
        """
        library = _library.load()
        close_abandoned()
        self._engine = engine
        self._role = role
        path = None if socket_path is None else os.fsencode(socket_path)
        shown = _program_name() if name is None else text_bytes(name, "name")
        options = _abi.maru_client_options(
            ctypes.sizeof(_abi.maru_client_options),
            path,
            text_bytes(engine, "engine"),
            shown or None,
            option("role", role, ROLES),
            uint32(timeout_ms, "timeout_ms"),
            uint32(connect_ms, "connect_ms"),
            uint32(spin_us, "spin_us"),
        )
        pointer = ctypes.POINTER(_abi.maru_client)()
        result = library.maru_client_open(options, pointer)
        if result < 0:
            raise last_error(library, result)
        self._handle = ClientHandle(library, pointer)
        self._dropped = sentinel(abandon, self._handle, f"maru.Client for engine {engine!r}")
        self._handle.sentinel = weakref.ref(self._dropped)

    @property
    def closed(self) -> bool:
        return self._handle.closed

    @property
    def engine(self) -> str:
        return self._engine

    @property
    def role(self) -> str:
        return self._role

    def info(self) -> ClientInfo:
        """The state now. Never blocks."""
        info = _abi.maru_client_info(ctypes.sizeof(_abi.maru_client_info))
        with self._handle as client:
            self._handle.check(self._handle.library.maru_client_info(client, info))
        values = {name: getattr(info, name) for name in ClientInfo._fields}
        values["state"] = STATES.get(info.state, f"state {info.state}")
        values["server_version"] = info.server_version.decode("utf-8", "replace")
        return ClientInfo(**values)

    def set_timeout(self, timeout_ms: int) -> None:
        """Another deadline for blocking calls from now on; 0 is 5000. Never blocks."""
        timeout = uint32(timeout_ms, "timeout_ms")
        with self._handle as client:
            self._handle.check(self._handle.library.maru_client_set_timeout(client, timeout))

    def bind(self, session: int) -> None:
        """Let probes ask for the worker with this session id (info().session) only; 0 is any worker.

        For a scheduler: while the engine's attached worker is another one, they find nothing.
        Never blocks.
        """
        worker = uint64(session, "session")
        with self._handle as client:
            self._handle.check(self._handle.library.maru_client_bind(client, worker))

    def worker(self) -> Optional[Tuple[int, str]]:
        """The engine's attached worker: its session id (info().session), and its namespace's full text.

        For a scheduler that nobody has told them. None while no worker is attached; the text is empty
        until that worker has described a namespace. One round trip. Raises MaruUnsupported when
        marud lacks "engine_worker_v1"; MaruNotConnected, MaruTimeout.
        """
        session = ctypes.c_uint64()
        text = ctypes.create_string_buffer(_abi.NAMESPACE_MAX + 1)
        with self._handle as client:
            result = self._handle.library.maru_client_worker(client, session, text, len(text))
            if result == -errno.ENOENT:
                return None
            self._handle.check(result)
        return session.value, text.value.decode("utf-8")

    def has_capability(self, name: str) -> bool:
        """Does this marud have the capability @name, such as "cpu_storage_v1"? Never blocks."""
        with self._handle as client:
            return bool(
                self._handle.check(
                    self._handle.library.maru_client_has_capability(
                        client, text_bytes(name, "name")
                    )
                )
            )

    def namespace(self, text: str) -> Namespace:
        """Name a namespace by its full text: everything that makes KV incompatible.

        text: application or tenant, weights and revision, adapter, dtype and quantisation,
            geometry, storage format, chunk tokens, parallel layout; 1 to 16384 bytes in UTF-8.

        Two different texts never share a namespace. One round trip. Raises MaruAgain (too many),
        MaruNotConnected, MaruTimeout.
        """
        pointer = ctypes.POINTER(_abi.maru_namespace)()
        with self._handle as client:
            self._handle.check(
                self._handle.library.maru_namespace_open(client, text_bytes(text, "text"), pointer)
            )
        return Namespace(self, self._handle, pointer, text)

    def pool(
        self,
        capacity_bytes: int,
        *,
        page_bytes: int = 0,
        medium: str = "cpu",
        huge_pages: str = "off",
        numa: str = "off",
        numa_node: int = -1,
        wait_populated: bool = False,
        populate_margin_mib: int = 0,
        scope: str = "worker",
    ) -> Pool:
        """Ask for a grant of memory and start to populate it.

        capacity_bytes: at least one page; rounded up to whole pages.
        page_bytes: allocation unit, a power of two from 4096 to 2**30; 0 is 65536.
        medium: "cpu" or "cxl".
        huge_pages: "off", "try", or "required" (or MaruNoMemory with needed and free counts).
        numa: "off", "auto" (bind if the kernel lets us), "strict" (or MaruUnsupported).
        numa_node: with numa the node; -1 is the caller's.
        wait_populated: return only when all of it is populated, or cannot be.
        populate_margin_mib: free memory to leave on host, node and cgroup; 0 is 256.
        scope: "worker" (private, and ended with this client) or "host" (read by every client of
            this uid, and kept by marud when this one has ended).

        One round trip, and the population with wait_populated. Raises MaruAccess for a scheduler,
        MaruFull (host aggregate), MaruQuota (worker grant or uid quota), MaruNoMemory,
        MaruUnsupported, MaruNotConnected, MaruTimeout.
        """
        for what, value in (("capacity_bytes", capacity_bytes), ("page_bytes", page_bytes)):
            if not 0 <= value < 1 << 64:
                raise ValueError(f"{what} is {value}: must be from 0 to 2**64 - 1")
        if not -1 <= numa_node < 1 << 31:
            raise ValueError(f"numa_node is {numa_node}: must be a node, or -1 for the caller's")
        options = _abi.maru_pool_options(
            ctypes.sizeof(_abi.maru_pool_options),
            capacity_bytes,
            page_bytes,
            option("medium", medium, MEDIA),
            option("huge_pages", huge_pages, HUGE_PAGES),
            option("numa", numa, NUMA),
            numa_node,
            int(bool(wait_populated)),
            uint32(populate_margin_mib, "populate_margin_mib"),
            option("scope", scope, SCOPES),
            0,
        )
        pointer = ctypes.POINTER(_abi.maru_pool)()
        with self._handle as client:
            library = self._handle.library
            self._handle.check(library.maru_pool_open(client, options, pointer))
            return Pool(self, Handle("pool", library, pointer, self._handle))

    def queue(self) -> Queue:
        """A completion queue: the same operations without blocking."""
        return open_queue(self, self._handle)

    def close(self) -> None:
        """End the session and close what is still open, pools included.

        Leases and reservations that nothing views any more end with it. Idempotent. Blocks up to
        timeout_ms for marud's answer; marud away is not an error. Raises MaruBufferError, a
        MaruBusy, while Python objects view bytes of a lease or reservation; MaruBusy while other
        threads are inside calls or a queue has unfinished operations. The client is then still
        open.
        """
        self._handle.close()

    def __enter__(self) -> Client:
        self._handle.check_process()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        close_at_exit(self, kind)

    def __repr__(self) -> str:
        what = f"{self._role} of engine {self._engine!r}"
        if self.closed:
            return f"<maru.Client {what}: closed>"
        try:
            info = self.info()
        except MaruError as failure:
            return f"<maru.Client {what}: {failure}>"
        return (
            f"<maru.Client {what}: {info.state}, session {info.session:#x}, {info.leases} leases>"
        )


def _program_name() -> bytes:
    """The name of the running script, cut to what marud takes; b"" lets libmaru choose."""
    script = (
        os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    )
    encoded = os.fsencode(script).split(b"\0")[0][:64]
    return encoded.decode("utf-8", "ignore").encode("utf-8")
