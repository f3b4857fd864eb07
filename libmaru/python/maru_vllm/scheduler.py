# SPDX-License-Identifier: Apache-2.0
"""The scheduler's half: what can be loaded, and who loads and stores what in this step.

It maps no memory and holds no lease. What must stay true:
- Nothing here raises into vLLM's scheduler, and no step waits for marud longer than the deadline, all
  its requests together. Whatever goes wrong is a miss.
- A hit leaves at least one token to compute, and is only promised where a failed load can be undone.
- An answer is remembered per request, for a moment. No key is ever remembered as present.
- A chunk is stored by the request that computed it, in the step that completes it, and never when
  anything it was computed from is known to be garbage.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import maru

from .config import Settings
from .garbage import GarbageBlocks
from .link import Link
from .namespace import cut_of
from .records import Handshake, Load, StepMetadata, Store, WorkerReport
from .requests import RequestRecord
from .stats import MaruStats

logger = logging.getLogger("maru_vllm")

PROBE_LIFE_S = 0.05
"""How long a request's answer is good for: a waiting request is asked about at every step."""
SUSPECT_LIFE_S = 10.0
MAX_SUSPECTS = 1024
MAX_PROBE_KEYS = 2048

WORKER_CAPABILITY = "engine_worker_v1"

PING = maru.Digests(bytes(maru.DIGEST_BYTES))


class SchedulerSession(NamedTuple):
    client: maru.Client
    namespace: maru.Namespace
    probe_keys: int


class Scheduled(NamedTuple):
    """One request in the step that is being made."""

    record: RequestRecord
    computed: int
    tokens: int
    admitted: bool


class SchedulerSide:
    def __init__(self, settings: Settings, engine_id: str, block_tokens: int) -> None:
        self._settings = settings
        self._block = block_tokens
        self._chunk = settings.chunk_tokens(block_tokens)
        self._per_chunk = self._chunk // block_tokens
        self._text: Optional[str] = None  # of the namespace; None until it is known
        self._worker = 0  # its session with marud; 0: it has none
        self._told = False  # by the worker itself, who knows best
        self._binding = threading.Lock()  # of setting these; never held while marud is asked
        self._refused: Optional[str] = None  # a text that marud told, and that was not taken
        self._asked_for: Tuple[Optional[SchedulerSession], int] = (None, 0)
        self._requests: Dict[str, RequestRecord] = {}
        self._leaving: List[RequestRecord] = []  # finished, and perhaps in the step that runs
        self._promised: List[RequestRecord] = []  # that load in the step that is being made
        self._forget: List[int] = []
        self._suspects: OrderedDict[bytes, float] = OrderedDict()
        self._damaged: OrderedDict[bytes, None] = OrderedDict()
        self._reset = 0
        self._reset_done = 0
        self._spent = 0.0  # waiting for marud in this step
        self._gave_up = False
        self._shortened = False
        self._breaker_opened = 0
        self.garbage = GarbageBlocks()
        self.stats = MaruStats()
        self.link: Link[SchedulerSession] = Link(
            settings, engine_id, "scheduler", self._prepare, _ping, lambda: not self._told
        )

    # ---- the binding to the worker -----------------------------------------------------------------

    def _prepare(self, client: maru.Client) -> Optional[SchedulerSession]:
        text = self._text or self._ask(client)
        if text is None:
            return None
        namespace = client.namespace(text)
        return SchedulerSession(client, namespace, min(client.info().probe_keys_max, MAX_PROBE_KEYS))

    def _ask(self, client: maru.Client) -> Optional[str]:
        """The text by marud, until the worker itself has spoken: whose worker has this engine now?"""
        if self._told or not client.has_capability(WORKER_CAPABILITY):
            return None
        worker = client.worker()
        if worker is None or not worker[1]:
            return None
        session, text = worker
        cut = cut_of(text)
        if cut != (self._chunk, self._block):
            if text != self._refused:
                self._refused = text
                logger.error(
                    "maru: the engine's worker cuts KV into %s, and not into chunks of %d tokens and "
                    "blocks of %d; nothing is loaded of it",
                    "chunks of %d and blocks of %d" % cut if cut else "what is no KV of vLLM",
                    self._chunk,
                    self._block,
                )
            return None
        with self._binding:
            if not self._told:
                self._worker, self._text = session, text
            return self._text

    def bind(self, handshake: Handshake, in_step: bool = False) -> None:
        """What the worker's KV is called, and its session, which probes name.

        It comes before what marud has told. A text once said stays: the layout does not change. The
        session may be another one later.
        @in_step: do not wait for marud here.
        """
        cut = (handshake.chunk_tokens, handshake.block_tokens)
        with self._binding:
            self._worker = handshake.session
            if self._told and self._text is not None:
                return
            before = self._text
            self._told = True
            self._text = handshake.namespace_text if cut == (self._chunk, self._block) else None
        if before is not None and before != self._text:
            self._renamed()
        if self._text is None:
            logger.error(
                "maru: worker and scheduler cut KV differently (%d and %d tokens a chunk); nothing is "
                "loaded",
                handshake.chunk_tokens,
                self._chunk,
            )
            return
        if in_step:
            self.link.retry()
        else:
            self.link.refresh()

    def _renamed(self) -> None:
        """marud had told of another worker: no digest, and no answer, is of this one."""
        for record in self._requests.values():
            record.digests = None
            record.sent = record.probed = False
            record.probe_first = -1
        session = self.link.current
        if session is not None:
            self.link.stale(session)

    @property
    def bound(self) -> bool:
        return self._text is not None

    # ---- one request -------------------------------------------------------------------------------

    def record(self, request: Any) -> RequestRecord:
        found = self._requests.get(request.request_id)
        if found is None:
            found = self._requests[request.request_id] = RequestRecord(request)
        return found

    def matched(self, request: Any, computed: int) -> Optional[int]:
        """Tokens beyond the @computed ones that can be loaded now; None: ask again in the next step."""
        record = self.record(request)
        record.local = computed
        record.promised = 0
        if self._waits_for_another(record, computed):
            return None
        reason = self._why_not(record)
        if reason:
            self._miss(record, reason)
            return 0
        first = computed // self._chunk
        last = min(len(record.prompt), request.num_tokens - 1) // self._chunk
        if last <= first:
            return 0
        digests = self._digests(record)
        found = self._probe(record, digests, first, last)
        if found < 0:
            return 0
        found = self._trusted(digests, first, found)
        hit = (first + found) * self._chunk - computed if found else 0
        if hit <= 0:
            self._miss(record, "absent")
            return 0
        return hit

    def _waits_for_another(self, record: RequestRecord, computed: int) -> bool:
        """Would it read blocks that another request loads in this very step?

        If that load fails, vLLM lets only the other one compute them again, and lets this one go on
        beside it. The other may be aborted or preempted before it does, or may do it in pieces; then
        this one would read what is not there. One step later it is known what there is.
        """
        for other in self._promised:
            shared = other.local + self._block
            if computed >= shared and record.prompt[:shared] == other.prompt[:shared]:
                return True
        return False

    def _why_not(self, record: RequestRecord) -> str:
        if record.bypass:
            return "bypass"
        if record.blind:
            return "prompt_logprobs"
        if record.no_load:
            return "failed_load"
        if self._text is None or not self.garbage.can_evict:
            return "unbound"
        if not self._worker:  # whose replicas could be asked about
            return "disconnected"
        if self._reset != self._reset_done:
            return "absent"
        return ""

    def _miss(self, record: RequestRecord, reason: str) -> None:
        if record.missed != reason:
            record.missed = reason
            self.stats.add("misses", 1, reason)

    def _digests(self, record: RequestRecord) -> maru.Digests:
        if record.digests is None:
            if self._text is None:
                raise RuntimeError("the worker's namespace is not known")
            record.digests = maru.prefix_digests(self._text, record.prompt, self._chunk)
            self.stats.add("queried_tokens", len(record.digests) * self._chunk)
        return record.digests

    def _probe(self, record: RequestRecord, digests: maru.Digests, first: int, last: int) -> int:
        """How many of chunks first to last - 1 are readable from the front; -1: nobody knows."""
        now = time.monotonic()
        if record.probe_first == first and now < record.probe_until:
            return min(record.probe_prefix, last - first)
        session = self.link.current
        if session is not None and session.namespace.text != self._text:
            self.link.stale(session)  # it was being made while the worker said another one
            session = None
        if session is None or not self.link.breaker.closed:
            self._miss(record, "disconnected")
            return -1
        budget = self._settings.deadline_ms / 1e3 - self._spent
        if self._gave_up or budget < 0.001:
            self._miss(record, "deadline")
            return -1
        try:
            if self._asked_for[0] is not session or self._asked_for[1] != self._worker:
                session.client.bind(self._worker)
                self._asked_for = (session, self._worker)
            if self._spent:  # what other requests of this step have used up
                self._shortened = True
                self.link.set_timeout(max(1, int(budget * 1e3)))
            keys = digests[first : min(last, first + session.probe_keys)]
            prefix = session.namespace.probe(keys, prefix_only=True).prefix
        except maru.MaruError as error:
            self._spent += time.monotonic() - now
            self._gave_up = True
            self._failed(session, error)
            self._miss(record, "deadline")
            return -1
        took = time.monotonic() - now
        self._spent += took
        self.link.breaker.succeeded()
        self.stats.time("probe_seconds", took)
        record.probe_first, record.probe_prefix = first, prefix
        record.probe_until = now + took + PROBE_LIFE_S
        record.probed = True
        return prefix

    def _failed(self, session: SchedulerSession, error: maru.MaruError) -> None:
        if isinstance(error, (maru.MaruFenced, maru.MaruClosed, maru.MaruForked)):
            self.link.lost(session)
            return
        self.link.breaker.failed()
        if self.link.breaker.opened != self._breaker_opened:
            self._breaker_opened = self.link.breaker.opened
            self.stats.add("breaker_opened")
            logger.warning("maru: marud does not answer (%s); its cache rests until it does", error)

    def _trusted(self, digests: maru.Digests, first: int, found: int) -> int:
        """@found, cut before the first chunk that failed to load a moment ago."""
        if not self._suspects and not self._damaged:
            return found
        now = time.monotonic()
        for index in range(found):
            digest = digests[first + index]
            if digest in self._damaged or self._suspects.get(digest, 0.0) > now:
                return index
        return found

    def allocated(self, request: Any, tokens: int) -> None:
        """vLLM has blocks for @tokens that it will take for loaded."""
        record = self.record(request)
        record.promised = max(0, tokens)
        if tokens > 0:
            self._promised.append(record)

    def finished(self, request_id: str) -> None:
        record = self._requests.pop(request_id, None)
        if record is not None:
            if record.blocks:
                self._leaving.append(record)
            if record.sent:
                self._forget.append(record.number)

    # ---- one step ----------------------------------------------------------------------------------

    def metadata(self, output: Any) -> StepMetadata:
        self._leaving.clear()
        self._promised.clear()
        step = StepMetadata(reset=self._reset)
        scheduled = list(self._scheduled(output))
        for one in scheduled:
            record = one.record
            record.loading = None
            end = one.computed + one.tokens
            if one.admitted and record.promised:
                self._load(step, one)
            elif one.admitted:
                record.done = one.computed // self._chunk
            else:  # one that was set back computes, and stores, those chunks again
                record.done = min(record.done, one.computed // self._chunk)
            record.promised = 0
            if len(self.garbage):
                # Blocks that this step begins; one that it goes on with was begun by an earlier step.
                begun = slice(-(-one.computed // self._block), -(-end // self._block))
                self.garbage.written(record.blocks[begun])
        for one in scheduled:
            try:
                self._store(step, one)
            except Exception:
                logger.exception("maru: chunks are not stored")
        for request_id in getattr(output, "finished_req_ids", None) or ():
            self.finished(request_id)
        step.forget, self._forget = self._forget, []
        self._spent, self._gave_up = 0.0, False
        if self._shortened:
            self._shortened = False
            self.link.set_timeout(self._settings.deadline_ms)
        return step

    def _scheduled(self, output: Any) -> Iterator[Scheduled]:
        tokens = output.num_scheduled_tokens
        for new in output.scheduled_new_reqs:
            record = self._requests.get(new.req_id)
            if record is not None:
                record.blocks = list(new.block_ids[0])
                count = tokens.get(new.req_id, 0)
                yield Scheduled(record, new.num_computed_tokens, count, True)
        cached = output.scheduled_cached_reqs
        resumed = getattr(cached, "resumed_req_ids", None) or ()
        for index, request_id in enumerate(cached.req_ids):
            record = self._requests.get(request_id)
            if record is None:
                continue
            given = cached.new_block_ids[index]
            blocks = list(given[0]) if given else []
            again = request_id in resumed
            record.blocks = blocks if again else record.blocks + blocks
            count = tokens.get(request_id, 0)
            yield Scheduled(record, cached.num_computed_tokens[index], count, again)

    def _load(self, step: StepMetadata, one: Scheduled) -> None:
        """Whole chunks, without the blocks that the engine has itself."""
        record = one.record
        start, end = record.local, record.local + record.promised
        chunks = range(start // self._chunk, -(-end // self._chunk))
        blocks = record.block_array(chunks, self._per_chunk)
        base = chunks.start * self._per_chunk
        wanted = range(start // self._block, end // self._block)
        for index in range(len(blocks)):
            if base + index not in wanted:
                blocks[index] = maru.NO_BLOCK
        blocks.extend([maru.NO_BLOCK] * (len(chunks) * self._per_chunk - len(blocks)))
        try:
            self._introduce(step, record)
        except Exception:  # without digests the worker reports these blocks as not loaded
            logger.exception("maru: what is to be loaded cannot be named")
        step.loads.append(Load(record.number, chunks.start, blocks))
        self.garbage.written(record.blocks[wanted.start : wanted.stop])
        record.loading = chunks
        record.done = end // self._chunk

    def _store(self, step: StepMetadata, one: Scheduled) -> None:
        record = one.record
        end = one.computed + one.tokens
        if len(self.garbage):
            first = self.garbage.first_in(record.blocks[: -(-end // self._block)])
            if first >= 0:
                # Computed from garbage, so garbage; the hashes of its full blocks are there already.
                start = max(first, one.computed // self._block)
                self.garbage.add(record.blocks[start : -(-end // self._block)])
                self.stats.add(
                    "skipped_chunks", max(0, end // self._chunk - record.done), "tainted"
                )
                return
        if record.bypass or self._text is None:
            return
        chunks = range(record.done, min(end, len(record.prompt)) // self._chunk)
        if not chunks or chunks.stop * self._per_chunk > len(record.blocks):
            return
        record.done = chunks.stop
        digests = self._digests(record)
        for chunk in chunks if self._suspects else ():
            self._suspects.pop(digests[chunk], None)
        self._introduce(step, record)
        step.stores.append(
            Store(
                record.number,
                chunks.start,
                record.block_array(chunks, self._per_chunk),
                record.block_array(range(0, chunks.stop), self._per_chunk) if step.loads else None,
                not record.probed,
            )
        )

    def _introduce(self, step: StepMetadata, record: RequestRecord) -> None:
        if not record.sent:
            step.digests[record.number] = bytes(self._digests(record))
            record.sent = True

    # ---- after the step ----------------------------------------------------------------------------

    def update(self, output: Any) -> None:
        report = getattr(output, "kv_connector_worker_meta", None)
        if isinstance(report, WorkerReport):
            if report.handshake is not None:
                self.bind(report.handshake, in_step=True)
            self._reset_done = max(self._reset_done, report.reset)
            for digest in report.damaged:
                _remember(self._damaged, digest, None)
        invalid = getattr(output, "invalid_block_ids", None)
        if invalid:
            self._load_failed(set(invalid))
        self._leaving.clear()

    def _load_failed(self, invalid: set) -> None:
        garbage = set(invalid)
        for record in [*self._requests.values(), *self._leaving]:
            first = next((i for i, b in enumerate(record.blocks) if b in invalid), -1)
            if first < 0:
                continue
            garbage.update(record.blocks[first:])
            if record.loading is not None:
                record.no_load = True
                chunk = first // self._per_chunk
                if record.digests is not None and chunk in record.loading:
                    _remember(
                        self._suspects, record.digests[chunk], time.monotonic() + SUSPECT_LIFE_S
                    )
        self.garbage.add(garbage)

    def reset(self) -> bool:
        """Nothing stored before now is loaded any more; the worker retires it in the next step."""
        self._reset += 1
        return True

    def take_stats(self) -> Optional[MaruStats]:
        if self.bound and self.link.current is None:
            self.stats.data["disconnected"] = 1
        return self.stats.take()

    @property
    def open_requests(self) -> int:
        return len(self._requests) + len(self._leaving)


def _remember(table: "OrderedDict[bytes, Any]", digest: bytes, value: Any) -> None:
    table.pop(digest, None)
    table[digest] = value
    while len(table) > MAX_SUSPECTS:
        table.popitem(last=False)


def _ping(session: SchedulerSession) -> bool:
    session.namespace.probe(PING)
    return True
