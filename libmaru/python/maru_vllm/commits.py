# SPDX-License-Identifier: Apache-2.0
"""Commits that no step waits for: submitted by one step, looked at by a later one.

What must stay true:
- Every chunk that was submitted is handed out with its result once, whatever becomes of marud, of the
  session or of the step that submitted it.
- At most MAX_FLYING chunks are on their way, and with them their pages of the pool.
- libmaru ends every operation at its deadline, and so does every wait here.
"""

from __future__ import annotations

import time
from typing import Any, List, NamedTuple

import maru

MAX_FLYING = 512
MAX_STEPS = 8
"""How long a result may wait: to look at it costs a step, and looking at several costs no more."""
LATE_S = 1.0
"""How long after its deadline an operation may end, on a machine that is busy."""


class Flight(NamedTuple):
    session: Any
    digests: maru.Digests
    operation: maru.Operation


class Commits:
    """Of one worker. All calls come from the thread of its steps."""

    def __init__(self, deadline_ms: int) -> None:
        self._wait_s = deadline_ms / 1e3 + LATE_S
        self._flights: List[Flight] = []
        self._steps = 0
        self.chunks = 0
        """On their way."""

    def due(self) -> bool:
        """Is it time to see what has landed, in a step that begins?"""
        if not self.chunks:
            return False
        self._steps += 1
        return self._steps >= MAX_STEPS

    def add(self, session: Any, digests: maru.Digests, operation: maru.Operation) -> None:
        self._flights.append(Flight(session, digests, operation))
        self.chunks += len(digests)

    def landed(self) -> List[Flight]:
        """Those that have ended. Never blocks."""
        self._steps = 0
        flights = self._flights
        if not flights:
            return flights
        self._reap(flights[0].session)
        if len(flights) == 1 and flights[0].operation.done:
            self._flights, self.chunks = [], 0
            return flights
        return self._taken()

    def awaited(self, most: int = 0) -> List[Flight]:
        """Those that have ended when no more than @most chunks are on their way, or it is too late."""
        landed = self.landed()
        until = time.monotonic() + self._wait_s
        while self.chunks > most:
            left = until - time.monotonic()
            if left <= 0 or not self._reap(self._flights[0].session, 1 + int(1e3 * left)):
                break
            landed += self._taken()
        return landed

    @staticmethod
    def _reap(session: Any, timeout_ms: int = 0) -> bool:
        try:
            session.queue.reap(16, timeout_ms)
            return True
        except maru.MaruError:  # closed with its client, which has reaped all there was
            return False

    def _taken(self) -> List[Flight]:
        # They end in their order, but for those of a session that was lost.
        landed = [flight for flight in self._flights if flight.operation.done]
        if landed:
            self._flights = [flight for flight in self._flights if not flight.operation.done]
            self.chunks = sum(len(flight.digests) for flight in self._flights)
        return landed
