# SPDX-License-Identifier: Apache-2.0
"""A circuit breaker: marud that does not answer costs a few steps, not every step.

What must stay true: no step ever tries an open breaker. It is closed by a thread of its own, which
asks once a second and lives only while the breaker is open. Any thread may call anything here.
"""

from __future__ import annotations

import threading
from typing import Callable, Optional


class Breaker:
    """Opens after @limit failures in a row; @ping, called from a thread, says when marud is back."""

    def __init__(self, ping: Callable[[], bool], limit: int = 2, period_s: float = 1.0) -> None:
        self._ping = ping
        self._limit = limit
        self._period = period_s
        self._lock = threading.Lock()
        self._failures = 0
        self._thread: Optional[threading.Thread] = None
        self._stop = threading.Event()
        self.opened = 0
        """How often it opened."""

    @property
    def closed(self) -> bool:
        """May a step ask marud?"""
        return self._failures < self._limit

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            if self._failures != self._limit or self._stop.is_set():
                return
            self.opened += 1
            self._thread = threading.Thread(target=self._wait, name="maru-breaker", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread, if there is one. The breaker stays as it is."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _wait(self) -> None:
        while not self._stop.wait(self._period):
            try:
                back = self._ping()
            except Exception:  # whatever it is, marud is not back
                back = False
            if back:
                with self._lock:
                    self._failures = 0
                return
