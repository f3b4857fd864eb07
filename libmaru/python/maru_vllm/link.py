# SPDX-License-Identifier: Apache-2.0
"""A session with marud that is kept: opened at the start, and again when it is over.

libmaru itself reconnects when marud restarts. This is for what it leaves: a marud that was not there
at the start, and a session that was fenced. What must stay true:
- ``current`` is None, or a session that is completely prepared. A step reads it once and never waits.
- Opening, preparing and closing happen at construction or in this link's own thread.
- A wrong configuration raises at the start. A missing marud is one ERROR line; then the engine runs
  without a cache, and each try after that is silent until it succeeds.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from typing import Any, Callable, Generic, List, Optional, TypeVar

import maru

from .breaker import Breaker
from .config import ConfigError, Settings, default_socket

logger = logging.getLogger("maru_vllm")

SETUP_TIMEOUT_MS = 5000
SHARED_CAPABILITY = "shared_storage_v1"
DYING_HOLDER_S = 10.0
ONE_TRY_S = 0.5
PF_EXITING = 0x4
FIRST_RETRY_S = 0.5
LAST_RETRY_S = 30.0

T = TypeVar("T")


class Link(Generic[T]):
    """@prepare makes a client into what the steps use; None means that it is too early for that.

    Whoever brings what it lacks says so by refresh() or retry(). While @asks says so, the thread also
    tries by itself, ever less often.
    """

    def __init__(
        self,
        settings: Settings,
        engine_id: str,
        role: str,
        prepare: Callable[[maru.Client], Optional[T]],
        ping: Callable[[T], bool],
        asks: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._engine = engine_id
        self._role = role
        self._prepare = prepare
        self._asks = asks
        self._client: Optional[maru.Client] = None
        self._old: List[maru.Client] = []
        self._lock = threading.Lock()  # of opening, preparing and closing
        self._lost = threading.Event()  # the client is over for good
        self._needed = threading.Event()  # the thread has something to do
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._thread_lock = threading.Lock()
        self.current: Optional[T] = None
        self.breaker = Breaker(lambda: self.current is not None and ping(self.current))

    # ---- at the start ----------------------------------------------------------------------------

    def start(self) -> None:
        """The first try, in the caller's thread. ConfigError, or what maru_required makes fatal."""
        with self._lock:
            try:
                self._open()
                self._make()
            except ConfigError:
                raise
            except maru.MaruError as error:
                self._refuse_or_report(error)
            if self._waits():
                self.retry()

    def refresh(self) -> None:
        """What @prepare needs is known now: prepare, in the caller's thread if there is a client."""
        with self._lock:
            try:
                self._make()
            except ConfigError:
                raise
            except maru.MaruError as error:
                self._refuse_or_report(error)

    def _refuse_or_report(self, error: maru.MaruError) -> None:
        text = f"no cache through marud at {self.socket}: {error}. {_remedy(error)}"
        if self._settings.required:
            raise ConfigError(f"maru_required is true, and there is {text}") from error
        # The scheduler meets what the worker meets: one line for both.
        level = logging.ERROR if self._role == "worker" else logging.INFO
        logger.log(level, "maru: %s The engine runs without it and tries again.", text)
        self.retry()

    @property
    def socket(self) -> str:
        return self._settings.socket or default_socket()

    # ---- of a step -------------------------------------------------------------------------------

    def lost(self, session: T) -> None:
        """@session is over for good: another is opened by the thread."""
        if self.current is session:
            self.current = None
            self._lost.set()
            self.retry()

    def stale(self, session: T) -> None:
        """@session is not what @prepare makes now: it is made anew, over the same client."""
        if self.current is session:
            self.current = None
            self.retry()

    def _waits(self) -> bool:
        return self.current is None and self._asks()

    def info(self) -> Optional[maru.ClientInfo]:
        client = self._client
        try:
            return None if client is None or client.closed else client.info()
        except maru.MaruError:
            return None

    # ---- the thread ------------------------------------------------------------------------------

    def retry(self) -> None:
        """Let the thread open and prepare. Never blocks."""
        self._needed.set()
        with self._thread_lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="maru-link", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause: Optional[float] = None  # None: until there is something to do
        while True:
            if self._needed.wait(pause):  # something new, which a long pause does not hold up
                self._needed.clear()
                pause = FIRST_RETRY_S
                self._stop.wait(pause)
            if self._stop.is_set():
                return
            assert pause is not None
            pause = min(2 * pause, LAST_RETRY_S)
            try:
                if self._try_again():
                    pause = None
            except ConfigError as error:
                logger.error("maru: %s. The engine runs without the cache.", error)
                pause = None
            except (maru.MaruError, OSError, ValueError):
                continue

    def _try_again(self) -> bool:
        """Is there nothing left to do?"""
        with self._lock:
            if self._stop.is_set():
                return True
            if self._lost.is_set():
                self._lost.clear()
                if self._client is not None:
                    self._old.append(self._client)
                    self._client = None
            self._close_old()
            before = self.current
            self._open()
            self._make()
            if before is None and self.current is not None and self._role == "worker":
                logger.warning("maru: connected to marud at %s", self.socket)
            return not self._old and not self._lost.is_set() and not self._waits()

    def _close_old(self) -> None:
        kept = []
        for client in self._old:
            try:
                client.close()
            except maru.MaruError:  # a step still reads from it
                kept.append(client)
        self._old = kept

    # ---- opening ---------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._client is not None:
            return
        # In short tries, so that a holder that lives is told at once and one that dies is waited for.
        began = time.monotonic()
        patience = self._settings.connect_s
        while True:
            left = patience - (time.monotonic() - began)
            try:
                self._client = maru.Client(
                    self._engine,
                    role=self._role,
                    socket_path=self._settings.socket,
                    name=f"vllm {self._role}",
                    timeout_ms=SETUP_TIMEOUT_MS,
                    connect_ms=max(1, int(min(left, ONE_TRY_S) * 1000)),
                )
                return
            except maru.MaruBusy as error:
                patience = max(patience, DYING_HOLDER_S)
                if _holder_lives(str(error)) or left <= ONE_TRY_S:
                    raise ConfigError(
                        f"maru_engine_id {self._engine!r} is in use: {error.strerror}; set another "
                        "maru_engine_id"
                    ) from error
            except maru.MaruTimeout:
                if left <= ONE_TRY_S:
                    raise

    def _make(self) -> None:
        if self._client is None or self.current is not None:
            return
        self._client.set_timeout(SETUP_TIMEOUT_MS)
        made = self._prepare(self._client)
        self._client.set_timeout(self._settings.deadline_ms)
        if made is not None:
            self.breaker.succeeded()
            self.current = made

    def set_timeout(self, timeout_ms: int) -> None:
        client = self._client
        if client is not None:
            client.set_timeout(timeout_ms)

    def close(self) -> None:
        """End the session. What does not end in time ends with the process."""
        self._stop.set()
        self._needed.set()
        self.breaker.stop()
        with self._thread_lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5)
        self.current = None
        with self._lock:
            try:
                self._close_old()
                if self._client is not None:
                    self._client.close()
            except maru.MaruError as error:
                logger.debug("maru: closing: %s", error)
            self._client = None


def _holder_lives(message: str) -> bool:
    """Is the process that @message names alive, and not just being torn down?

    One that cannot be seen from here may be dying as well as not: it is waited for.
    """
    match = re.search(r"\bpid (\d+)", message)
    if match is None:
        return False
    try:
        with open(f"/proc/{match.group(1)}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        state, flags = fields[0], int(fields[6])
    except (OSError, IndexError, ValueError):
        return False
    return state not in ("Z", "X", "x") and not flags & PF_EXITING


def _remedy(error: maru.MaruError) -> str:
    if isinstance(error, (maru.MaruNotFound, maru.MaruRefused)):
        return "Start marud, or set maru_socket."
    if isinstance(error, maru.MaruAccess):
        return f"Give uid {os.getuid()} access to the socket, as a member of its group."
    if isinstance(error, maru.MaruVersion):
        return "Install a marud and a libmaru of one version."
    if isinstance(error, maru.MaruQuota) and "limits." in str(error):
        return "Raise the limit that is named, in marud's configuration."
    if isinstance(error, (maru.MaruQuota, maru.MaruFull, maru.MaruNoMemory)):
        return "Set a smaller maru_cpu_pool_size, or give marud a larger budget."
    return "See marud's log."
