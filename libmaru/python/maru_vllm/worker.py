# SPDX-License-Identifier: Apache-2.0
"""The worker's half: moves whole blocks between the engine's KV memory and the cache.

What must stay true:
- No hook raises: what cannot be loaded is reported as invalid blocks, what cannot be stored is skipped.
- No block is read or written after ``load`` and ``store`` have returned, when the engine uses it for
  something else. What a step has stored is committed behind it; a load of a later step, which goes the
  same way to marud, finds it.
- On a GPU both are in order on the stream that the engine computes on.
- In a step whose load failed, nothing is stored that was computed from a block that was not loaded.
- Reports, tables and marks of one step are gone when the next one begins.
"""

from __future__ import annotations

import errno
import logging
import time
from array import array
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import maru

from .commits import MAX_FLYING, Commits, Flight
from .config import ConfigError, Settings
from .gpu import Registration, current_stream
from .layout import Layout, read_layout
from .link import SHARED_CAPABILITY, Link
from .namespace import namespace_text, storage_format
from .records import Handshake, Load, StepMetadata, Store, WorkerReport
from .stats import MaruStats

logger = logging.getLogger("maru_vllm")

MAX_CHUNKS_AT_ONCE = 256
"""Leases held, and reservations made, at one time."""
POPULATE_WAIT_MS = 1000
REGISTRATION_END_S = 5.0
COPY_FAILED = (maru.MaruError, maru.MaruInvalid, maru.MaruIncompatible)
"""What a load raises that is no silence of marud."""
SILENCE = frozenset((-errno.EINPROGRESS, -errno.ETIMEDOUT, -errno.ENOTCONN))
"""Results of what marud did not answer."""


class WorkerSession(NamedTuple):
    client: maru.Client
    namespace: maru.Namespace
    pool: maru.Pool
    queue: maru.Queue
    id: int


class WorkerSide:
    def __init__(
        self, settings: Settings, engine_id: str, vllm_config: Any, kv_cache_config: Any, version: str
    ) -> None:
        self._settings = settings
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._version = version
        self._block = int(vllm_config.cache_config.block_size)
        self._chunk = settings.chunk_tokens(self._block)
        self._per_chunk = self._chunk // self._block
        self._layout: Optional[Layout] = None
        self._kv_caches: Dict[str, Any] = {}
        self._text = ""
        self._memory: Optional[maru.PagedMemory] = None
        self._object_bytes = 0
        self._digests: Dict[int, maru.Digests] = {}
        self._commits = Commits(settings.deadline_ms)
        self._bad: Set[int] = set()  # blocks of this step that do not hold what they should
        self._own: List[Sequence[bytes]] = []  # committed by this session: digests, in batches
        self._own_chunks = 0  # no more than the pool holds, about
        self._session_of_own = 0
        self._reset = 0  # asked for
        self._reset_done = 0
        self._retiring: Optional[maru.Digests] = None
        self._damaged: List[bytes] = []
        self._registration: Optional[Registration] = None
        self._told: Tuple[int, int] = (-1, 0)  # session and reset that the scheduler knows of
        self._errors_logged: Set[str] = set()
        self.stats = MaruStats()
        self.link: Link[WorkerSession] = Link(settings, engine_id, "worker", self._prepare, _ping)

    # ---- the start ---------------------------------------------------------------------------------

    def register(self, kv_caches: Mapping[str, Any]) -> None:
        """The engine's KV memory is there. ConfigError for a layout that cannot be moved."""
        layout = read_layout(kv_caches, self._kv_cache_config, self._block)
        self._text = namespace_text(
            self._settings, self._vllm_config, layout, self._chunk, self._version
        )
        try:
            self._memory = maru.PagedMemory(
                layout.addresses,
                layout.block_bytes,
                layout.block_count,
                checksum=self._settings.verify == "load",
                device=layout.device,
            )
        except maru.MaruError as error:
            raise ConfigError(
                f"the KV cache is on GPU {layout.device}, which libmaru cannot use: {error.strerror}"
            ) from error
        self._object_bytes = self._memory.object_bytes(self._per_chunk)
        self._kv_caches = dict(kv_caches)  # the addresses are good for as long as these live
        self._layout = layout
        self.link.refresh()

    def _prepare(self, client: maru.Client) -> Optional[WorkerSession]:
        if self._settings.cpu_scope == "host" and not client.has_capability(SHARED_CAPABILITY):
            raise ConfigError(
                f"maru_cpu_scope is 'host', and marud {client.info().server_version} at "
                f"{self.link.socket} lacks {SHARED_CAPABILITY}: update marud, or set it to 'worker', "
                "a cache that ends with the engine"
            )
        if self._layout is None:
            return None
        namespace = client.namespace(self._text)
        namespace.describe(self._object_bytes, storage_format(self._settings))
        options = {"scope": "host"} if self._settings.cpu_scope == "host" else {}
        pool = client.pool(
            self._settings.cpu_pool_size, page_bytes=page_bytes(self._object_bytes), **options
        )
        try:
            pool.wait_populated(POPULATE_WAIT_MS)
        except maru.MaruError:
            pass  # it goes on in the background; what is ready is used
        if self._layout.device is not None:
            self._registration = Registration(pool, self._layout.device)
        return WorkerSession(client, namespace, pool, client.queue(), client.info().session)

    def handshake(self) -> Optional[Handshake]:
        if self._layout is None:
            return None
        return Handshake(
            self._text, self._chunk, self._block, self._layout.block_bytes, self._session_id()
        )

    def _session_id(self) -> int:
        """0: there is none. A client with a pool never gets another id: marud that has lost its records
        fences it, and the link opens a new one.
        """
        current = self.link.current
        return current.id if current is not None else 0

    # ---- one step ----------------------------------------------------------------------------------

    def begin(self, step: StepMetadata) -> None:
        self._bad.clear()
        for number in step.forget:
            self._digests.pop(number, None)
        for number, digests in step.digests.items():
            self._digests[number] = maru.Digests(digests)
        if self._commits.due():
            self._guarded("commit", self._landed)
        if step.reset > self._reset:
            self._reset = step.reset
        if self._reset != self._reset_done:
            self._guarded("reset", self._retire_own)

    def load(self, step: StepMetadata) -> None:
        if not step.loads:
            return
        started = time.perf_counter()
        for job in step.loads:
            before = len(self._bad)
            self._bad.update(job.blocks)
            self._bad.discard(maru.NO_BLOCK)
            if not self._guarded("load", self._load, job):
                self.stats.add("load_failures", len(job.blocks) // self._per_chunk, "error")
            elif len(self._bad) > before:
                logger.debug("maru: %d blocks were not loaded", len(self._bad) - before)
        self.stats.time("load_seconds", time.perf_counter() - started)

    def _load(self, job: Load) -> None:
        """Takes out of the bad blocks what was really loaded."""
        session = self._usable()
        digests = self._digests.get(job.request)
        chunks = len(job.blocks) // self._per_chunk
        if session is None or digests is None or self._memory is None:
            self.stats.add("load_failures", chunks, "disconnected")
            return
        for start in range(0, chunks, MAX_CHUNKS_AT_ONCE):
            stop = min(start + MAX_CHUNKS_AT_ONCE, chunks)
            loaded = self._load_some(session, job, digests, start, stop)
            if loaded < stop - start:
                return

    def _load_some(
        self, session: WorkerSession, job: Load, digests: maru.Digests, start: int, stop: int
    ) -> int:
        keys = digests[job.first + start : job.first + stop]
        blocks = job.blocks[start * self._per_chunk : stop * self._per_chunk]
        assert self._memory is not None
        try:
            results = self._memory.load(
                session.namespace, keys, blocks, self._per_chunk, **self._order()
            )
        except maru.MaruError as error:
            if type(error) in COPY_FAILED:
                raise
            self._failed(session, error)
            self.stats.add("load_failures", stop - start, "disconnected")
            return 0
        self.link.breaker.succeeded()
        good = len(results)
        if results.succeeded < good:
            good = next(index for index, result in enumerate(results) if result)
            blocks = blocks[: good * self._per_chunk]
        self._bad.difference_update(blocks)
        moved = len(blocks) - blocks.count(maru.NO_BLOCK)
        assert self._layout is not None
        self.stats.add("loaded_chunks", good)
        self.stats.add("loaded_bytes", moved * self._layout.block_bytes * len(self._layout.names))
        self.stats.add("hit_tokens", moved * self._block)
        if good < len(results):
            gone = list(results).count(-errno.ENOENT)
            self.stats.add("load_failures", gone, "gone")
            if results[good] == -errno.EBADMSG:
                self.stats.add("load_failures", len(results) - good - gone, "damaged")
                self._distrust(session, keys[good : good + 1])
        return good

    def _distrust(self, session: WorkerSession, damaged: maru.Digests) -> None:
        """Nobody is to load it again: marud's word for this worker's own, the scheduler's for others'."""
        logger.error("maru: the bytes of chunk %s are damaged and not used", damaged.hex()[0])
        if session.namespace.retire(damaged).succeeded == 0:
            self._damaged.append(damaged[0])

    def store(self, step: StepMetadata) -> None:
        jobs = []
        for job in step.stores:
            if self._bad and not self._bad.isdisjoint(
                job.prefix if job.prefix is not None else job.blocks
            ):
                self.stats.add("skipped_chunks", len(job.blocks) // self._per_chunk, "tainted")
            else:
                jobs.append(job)
        if not jobs:
            return
        started = time.perf_counter()
        if not self._guarded("store", self._store, jobs):
            self.stats.add("skipped_chunks", 1, "error")
        self.stats.time("store_seconds", time.perf_counter() - started)

    def _store(self, jobs: List[Store]) -> None:
        session = self._usable()
        if session is None or self._memory is None or self._reset != self._reset_done:
            chunks = sum(len(job.blocks) for job in jobs) // self._per_chunk
            self.stats.add("skipped_chunks", chunks, "disconnected")
            return
        digests, blocks = self._wanted(session, jobs)
        at, count = 0, len(digests)
        while at < count:
            stored = self._store_some(session, digests, blocks, at)
            if stored == 0:
                return
            at += stored

    def _wanted(self, session: WorkerSession, jobs: List[Store]) -> Tuple[maru.Digests, array]:
        """Digests and blocks of the chunks to store, each digest once."""
        if len(jobs) == 1 and not jobs[0].unprobed:  # the digests of one prompt are all different
            job = jobs[0]
            known = self._digests.get(job.request)
            if known is None:
                return maru.Digests(), array("I")
            count = len(job.blocks) // self._per_chunk
            if count == len(known):
                return known, job.blocks
            return known[job.first : job.first + count], job.blocks
        found: Dict[bytes, array] = {}
        for job in jobs:
            digests = self._digests.get(job.request)
            if digests is None:
                continue
            count = len(job.blocks) // self._per_chunk
            keys = digests[job.first : job.first + count]
            present: Any = ()
            if job.unprobed:
                try:
                    present = session.namespace.probe(keys).hits
                except maru.MaruError as error:
                    self._failed(session, error)
                    break
            for index, digest in enumerate(keys):
                if present and present[index]:
                    self.stats.add("skipped_chunks", 1, "present")
                    continue
                at = index * self._per_chunk
                found.setdefault(digest, job.blocks[at : at + self._per_chunk])
        blocks = array("I")
        for chunk in found.values():
            blocks.extend(chunk)
        return maru.Digests(b"".join(found)), blocks

    def _store_some(
        self, session: WorkerSession, digests: maru.Digests, blocks: array, at: int
    ) -> int:
        """How many chunks from @at on were stored; 0: the rest need not be tried in this step."""
        left = len(digests) - at
        wanted = min(left, MAX_CHUNKS_AT_ONCE)
        if self._commits.chunks + wanted > MAX_FLYING:
            self.settle(MAX_FLYING - wanted)
            if self._commits.chunks + wanted > MAX_FLYING or self._usable() is not session:
                self.stats.add("skipped_chunks", left, "disconnected")
                return 0
        assert self._memory is not None
        per_chunk, order = self._per_chunk, self._order()
        while wanted:  # halves, so that a nearly full pool is filled in few tries
            if wanted < len(digests):
                part = digests[at : at + wanted]
                taken = blocks[at * per_chunk : (at + wanted) * per_chunk]
            else:
                part, taken = digests, blocks
            try:
                operation = self._memory.store(
                    session.queue, session.namespace, session.pool, part, taken, per_chunk, **order
                )
                self._commits.add(session, part, operation)
                return wanted
            except (maru.MaruFull, maru.MaruQuota):
                wanted //= 2
            except maru.MaruError as error:
                self._failed(session, error, asked=False)
                self._report("store", error)
                self.stats.add("skipped_chunks", left, "error")
                return 0
        self.stats.add("skipped_chunks", left, "full")
        return 0

    def _order(self) -> Dict[str, int]:
        """Where in the engine's own work a copy belongs."""
        assert self._layout is not None
        if self._layout.device is None:
            return {}
        return {"stream": current_stream(self._layout.device)}

    # ---- what became of the commits ----------------------------------------------------------------

    def _landed(self) -> None:
        self._settle(self._commits.landed())

    def settle(self, most: int = 0) -> None:
        """Wait until at most @most chunks are on their way; no longer than marud may take."""
        self._settle(self._commits.awaited(most))

    def _settle(self, flights: List[Flight]) -> None:
        """Count what has ended. One silence of marud is one failure, however many waited for it."""
        silent = False
        for flight in flights:
            try:
                results: Any = flight.operation.result()
            except maru.MaruError as error:
                self._failed(flight.session, error, asked=False)
                self.stats.add("skipped_chunks", len(flight.digests), "disconnected")
                continue
            if any(results):
                for digest, result in zip(flight.digests, results):
                    self._committed(flight.session, digest, result)
                silent = silent or not SILENCE.isdisjoint(results)
                if -errno.EKEYREVOKED in results:
                    self.link.lost(flight.session)
            else:
                self.stats.add("stored_chunks", len(results))
                self.stats.add("stored_bytes", len(results) * self._object_bytes)
                self._owned(flight.session, flight.digests)
        if silent:
            self.link.breaker.failed()
        elif flights and self.link.breaker.closed:
            self.link.breaker.succeeded()

    def _committed(self, session: WorkerSession, digest: bytes, result: int) -> None:
        if result == 0:
            self.stats.add("stored_chunks")
            self.stats.add("stored_bytes", self._object_bytes)
            self._owned(session, (digest,))
        elif result == -errno.EINPROGRESS:
            self.stats.add("skipped_chunks", 1, "pending")
            self._owned(session, (digest,))
        elif result == -errno.EEXIST:
            self.stats.add("skipped_chunks", 1, "present")
        elif result in SILENCE or result == -errno.EKEYREVOKED:
            self.stats.add("skipped_chunks", 1, "disconnected")
        else:
            self.stats.add("skipped_chunks", 1, "error")

    def _owned(self, session: WorkerSession, digests: Sequence[bytes]) -> None:
        if session is not self.link.current:
            return  # what another session had is not this one's to retire
        if self._session_of_own != session.id:
            self._session_of_own = session.id
            self._own, self._own_chunks = [], 0
        self._own.append(digests)
        self._own_chunks += len(digests)
        most = 2 * (self._settings.cpu_pool_size // self._object_bytes + 1)
        if self._own_chunks > 2 * most:  # each once, and none that has left the pool long ago
            kept = list(self._owned_digests())[-most:]
            self._own, self._own_chunks = [kept], len(kept)

    def _owned_digests(self) -> Dict[bytes, None]:
        return {digest: None for digests in self._own for digest in digests}

    # ---- between steps -----------------------------------------------------------------------------

    def load_errors(self) -> Set[int]:
        """Of this step; they stay known until the next begins: its saves may come after this question."""
        return set(self._bad)

    def report(self) -> Optional[WorkerReport]:
        state = (self._session_id(), self._reset_done)
        if state == self._told and not self._damaged:
            return None
        self._told = state
        damaged, self._damaged = self._damaged, []
        return WorkerReport(self.handshake(), self._reset_done, damaged)

    def take_stats(self) -> Optional[MaruStats]:
        if self._layout is not None and self.link.current is None:
            self.stats.data["disconnected"] = 1
        return self.stats.take()

    def _retire_own(self) -> None:
        """What this session owns; adopted and others' objects stay. Tried again until it is done."""
        session = self._usable()
        if session is None:
            return
        self.settle()
        if self._commits.chunks or session.client.info().unknown_commits:
            return  # what may yet become a hit was stored before the reset, too
        if self._retiring is None:
            self._retiring = maru.Digests(b"".join(self._owned_digests()))
            self._own, self._own_chunks = [], 0
        if len(self._retiring):
            try:
                session.namespace.retire(self._retiring)
            except maru.MaruError as error:
                self._failed(session, error)
                return
        self._retiring = None
        self._reset_done = self._reset

    def close(self) -> None:
        if self._registration is not None:
            self._registration.stop(REGISTRATION_END_S)
        self._guarded("commit", self.settle)
        self.link.close()

    def _usable(self) -> Optional[WorkerSession]:
        return self.link.current if self.link.breaker.closed else None

    def _failed(self, session: WorkerSession, error: maru.MaruError, asked: bool = True) -> None:
        """Not @asked: a call that sends nothing, whose failure tells nothing of marud."""
        if isinstance(error, (maru.MaruFenced, maru.MaruClosed, maru.MaruForked)):
            self.link.lost(session)
        elif asked:
            self.link.breaker.failed()

    def _guarded(self, what: str, call: Any, *arguments: Any) -> bool:
        """No exception leaves a hook: vLLM would hang or end. Each kind is logged once, whole."""
        try:
            call(*arguments)
            return True
        except Exception as error:
            self._report(what, error)
            return False

    def _report(self, what: str, error: Exception) -> None:
        kind = f"{what}: {type(error).__name__}"
        if kind not in self._errors_logged and len(self._errors_logged) < 32:
            self._errors_logged.add(kind)
            logger.error(
                "maru: a %s failed; the engine goes on without it", what, exc_info=error
            )


def page_bytes(object_bytes: int) -> int:
    """The largest allocation unit that wastes at most a sixteenth of an object."""
    for unit in (65536, 32768, 16384, 8192):
        if -object_bytes % unit <= object_bytes // 16:
            return unit
    return 4096


_PING = maru.Digests(bytes(maru.DIGEST_BYTES))


def _ping(session: WorkerSession) -> bool:
    session.namespace.probe(_PING)
    return True
