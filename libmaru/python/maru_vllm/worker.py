# SPDX-License-Identifier: Apache-2.0
"""The worker's half: moves whole blocks between the engine's KV memory and the cache.

What must stay true:
- No hook raises: what cannot be loaded is reported as invalid blocks, what cannot be stored is skipped.
- Loads have ended when ``load`` returns and stores when ``store`` returns, so no block is read or
  written while the engine uses it for something else.
- On a GPU both are in order on the stream that the engine computes on.
- In a step whose load failed, nothing is stored that was computed from a block that was not loaded.
- Reports, tables and marks of one step are gone when the next one begins.
"""

from __future__ import annotations

import errno
import logging
import time
from array import array
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

import maru

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


class WorkerSession(NamedTuple):
    client: maru.Client
    namespace: maru.Namespace
    pool: maru.Pool
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
        self._digests: Dict[int, maru.Digests] = {}
        self._bad: Set[int] = set()  # blocks of this step that do not hold what they should
        self._own: Dict[bytes, None] = {}  # committed by this session; no more than the pool holds
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
        self._kv_caches = dict(kv_caches)  # the addresses are good for as long as these live
        self._layout = layout
        self.link.refresh()

    @property
    def object_bytes(self) -> int:
        return self._memory.object_bytes(self._per_chunk) if self._memory is not None else 0

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
        namespace.describe(self.object_bytes, storage_format(self._settings))
        options = {"scope": "host"} if self._settings.cpu_scope == "host" else {}
        pool = client.pool(
            self._settings.cpu_pool_size, page_bytes=page_bytes(self.object_bytes), **options
        )
        try:
            pool.wait_populated(POPULATE_WAIT_MS)
        except maru.MaruError:
            pass  # it goes on in the background; what is ready is used
        if self._layout.device is not None:
            self._registration = Registration(pool, self._layout.device)
        return WorkerSession(client, namespace, pool, client.info().session)

    def handshake(self) -> Optional[Handshake]:
        if self._layout is None:
            return None
        return Handshake(
            self._text, self._chunk, self._block, self._layout.block_bytes, self._session_id()
        )

    def _session_id(self) -> int:
        """As marud knows it now: a marud that lost its records gives another."""
        return self.link.session() if self.link.current is not None else 0

    # ---- one step ----------------------------------------------------------------------------------

    def begin(self, step: StepMetadata) -> None:
        self._bad.clear()
        for number in step.forget:
            self._digests.pop(number, None)
        for number, digests in step.digests.items():
            self._digests[number] = maru.Digests(digests)
        self._reset = max(self._reset, step.reset)
        if self._reset != self._reset_done:
            self._guarded("reset", self._retire_own)

    def load(self, step: StepMetadata) -> None:
        if not step.loads:
            return
        started = time.perf_counter()
        for job in step.loads:
            before = len(self._bad)
            self._bad.update(block for block in job.blocks if block != maru.NO_BLOCK)
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
        try:
            leases = session.namespace.acquire(keys, prefix_only=True)
        except maru.MaruError as error:
            self._failed(session, error)
            self.stats.add("load_failures", stop - start, "disconnected")
            return 0
        self.link.breaker.succeeded()
        with leases:
            held = [lease for lease in leases[: leases.chunks] if lease is not None]
            blocks = job.blocks[start * self._per_chunk : (start + len(held)) * self._per_chunk]
            assert self._memory is not None
            results = self._memory.scatter(blocks, self._per_chunk, held, **self._order())
        good = next((i for i, result in enumerate(results) if result), len(held))
        self._bad.difference_update(blocks[: good * self._per_chunk])
        moved = sum(1 for block in blocks[: good * self._per_chunk] if block != maru.NO_BLOCK)
        assert self._layout is not None
        self.stats.add("loaded_chunks", good)
        self.stats.add("loaded_bytes", moved * self._layout.block_bytes * len(self._layout.names))
        self.stats.add("hit_tokens", moved * self._block)
        self.stats.add("load_failures", stop - start - len(held), "gone")
        if good < len(held):
            damaged = keys[good : good + 1]
            self.stats.add("load_failures", len(held) - good, "damaged")
            logger.error("maru: the bytes of chunk %s are damaged and not used", damaged.hex()[0])
            if session.namespace.retire(damaged).succeeded == 0:
                self._damaged.append(damaged[0])
        return good

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
        chunks = sum(len(job.blocks) for job in jobs) // self._per_chunk
        session = self._usable()
        if session is None or self._memory is None or self._reset != self._reset_done:
            self.stats.add("skipped_chunks", chunks, "disconnected")
            return
        wanted = self._wanted(session, jobs)
        for start in range(0, len(wanted), MAX_CHUNKS_AT_ONCE):
            if not self._store_some(session, wanted[start : start + MAX_CHUNKS_AT_ONCE]):
                return

    def _wanted(self, session: WorkerSession, jobs: List[Store]) -> List[Tuple[bytes, array]]:
        """(digest, blocks) of each chunk to store, each digest once."""
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
        return list(found.items())

    def _store_some(self, session: WorkerSession, wanted: List[Tuple[bytes, array]]) -> bool:
        """False: the rest need not be tried in this step."""
        reservations = self._reserve(session, len(wanted))
        if len(reservations) < len(wanted):
            self.stats.add("skipped_chunks", len(wanted) - len(reservations), "full")
        if not reservations:
            return False
        digests = [digest for digest, _ in wanted[: len(reservations)]]
        blocks = array("I")
        for _, chunk in wanted[: len(reservations)]:
            blocks.extend(chunk)
        assert self._memory is not None
        self._memory.gather(blocks, self._per_chunk, reservations, **self._order())
        try:
            results = session.namespace.commit(
                session.pool, maru.Digests(b"".join(digests)), reservations
            )
        except maru.MaruError as error:
            self._failed(session, error)
            self.stats.add("skipped_chunks", len(reservations), "disconnected")
            return False
        for digest, result in zip(digests, results):
            self._committed(session, digest, result)
        if -errno.EINPROGRESS in results:
            self.link.breaker.failed()
        else:
            self.link.breaker.succeeded()
        return len(reservations) == len(wanted)

    def _order(self) -> Dict[str, int]:
        """Where in the engine's own work a copy belongs."""
        assert self._layout is not None
        if self._layout.device is None:
            return {}
        return {"stream": current_stream(self._layout.device)}

    def _reserve(self, session: WorkerSession, count: int) -> List[maru.Reservation]:
        """As many as the pool has room for."""
        made: List[maru.Reservation] = []
        while count > 0:
            try:
                made += session.pool.reserve_batch(self.object_bytes, count)
                return made
            except (maru.MaruFull, maru.MaruQuota):
                if count == 1:
                    return made
                # Halves, so that a nearly full pool is filled in few tries.
                half = count // 2
                more = self._reserve(session, half)
                made += more
                if len(more) < half:
                    return made
                count -= half
            except maru.MaruError as error:
                self._failed(session, error, asked=False)
                return made
        return made

    def _committed(self, session: WorkerSession, digest: bytes, result: int) -> None:
        if result == 0:
            self.stats.add("stored_chunks")
            self.stats.add("stored_bytes", self.object_bytes)
        elif result == -errno.EEXIST:
            self.stats.add("skipped_chunks", 1, "present")
            return
        elif result == -errno.EINPROGRESS:
            self.stats.add("skipped_chunks", 1, "pending")
        else:
            self.stats.add("skipped_chunks", 1, "error")
            return
        if self._session_of_own != session.id:
            self._session_of_own = session.id
            self._own.clear()
        self._own[digest] = None
        most = 2 * (self._settings.cpu_pool_size // self.object_bytes + 1)
        while len(self._own) > most:  # those that were retired by somebody else
            del self._own[next(iter(self._own))]

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
        if self._retiring is None:
            self._retiring = maru.Digests(b"".join(self._own))
            self._own.clear()
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
            kind = f"{what}: {type(error).__name__}"
            if kind not in self._errors_logged and len(self._errors_logged) < 32:
                self._errors_logged.add(kind)
                logger.exception("maru: a %s failed; the engine goes on without it", what)
            return False


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
