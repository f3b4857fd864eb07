# SPDX-License-Identifier: Apache-2.0
"""A small engine that calls the connector as vLLM 0.30 to 0.33 do, with KV that can be judged.

The "model" computes the KV of a token from the token, the layer, and the KV *as it lies in memory* of
the token before it. So whatever is wrong in one block spreads to all that is computed from it, to the
sampled tokens, and to what is stored; and every right value is a function of the token prefix alone.
Scheduler and block pool follow vLLM's order and rules: local prefix cache with hashes given at
allocation, chunked prefill, preemption, sync loads, recompute after invalid blocks.
"""

import ctypes
import functools
import pickle
from types import SimpleNamespace

import stubs  # noqa: F401
from maru_vllm.connector import MaruConnector
from stubs import KVConnectorRole

LAYERS = ("model.layers.0.self_attn.attn", "model.layers.1.self_attn.attn")
BLOCK = 4
MASK = (1 << 64) - 1


def mix(value, token, layer):
    value = (value ^ (token + 1) * 0x9E3779B97F4A7C15 ^ (layer << 56)) & MASK
    value = value * 0xBF58476D1CE4E5B9 & MASK
    return value ^ value >> 29


@functools.lru_cache(maxsize=200_000)
def right_value(prefix, layer):
    """KV of the last token of @prefix."""
    before = right_value(prefix[:-1], layer) if len(prefix) > 1 else 0
    return mix(before, prefix[-1], layer)


def sampled(values):
    return functools.reduce(lambda a, v: mix(a, v & 0xFFFF, 7), values, 1) % 50


@functools.lru_cache(maxsize=100_000)
def right_output(prompt, count, other=0):
    tokens = prompt
    for _ in range(count):
        seen = tuple(token + other for token in tokens)
        tokens += (sampled([right_value(seen, layer) for layer in range(len(LAYERS))]),)
    return tokens[len(prompt) :]


class Tensor:
    """As much of a torch tensor as the connector may look at."""

    dtype = "torch.uint64"
    device = SimpleNamespace(type="cpu")

    def __init__(self, blocks, block=BLOCK):
        self.values = (ctypes.c_uint64 * (blocks * block))(*[0xDEAD] * (blocks * block))
        self.shape = (blocks, 1, block, 1)

    def stride(self):
        return (self.shape[2], self.shape[2], 1, 1)

    def element_size(self):
        return 8

    def data_ptr(self):
        return ctypes.addressof(self.values)


class FullAttentionSpec:
    page_size_bytes = BLOCK * 8
    sliding_window = None


class Request:
    def __init__(self, request_id, prompt, outputs, **features):
        self.request_id = request_id
        self.prompt_token_ids = list(prompt)
        self.wanted = outputs
        self.outputs = []
        self.num_computed_tokens = 0
        self.blocks = []
        self.state = "waiting"
        self.resumed = False
        self.sampling_params = SimpleNamespace(
            prompt_logprobs=features.pop("prompt_logprobs", None)
        )
        self.skip_reading_prefix_cache = self.sampling_params.prompt_logprobs is not None
        self.cache_salt = self.lora_request = self.prompt_embeds = self.pooling_params = None
        self.mm_features = []
        for name, value in features.items():
            setattr(self, name, value)

    @property
    def tokens(self):
        return tuple(self.prompt_token_ids) + tuple(self.outputs)

    @property
    def num_tokens(self):
        return len(self.prompt_token_ids) + len(self.outputs)

    @property
    def model_tokens(self):
        """What its KV is a function of: an adapter or a salt makes another model of it."""
        other = 1000 * (bool(self.cache_salt) + 2 * bool(self.lora_request))
        return tuple(token + other for token in self.tokens)

    def key(self, blocks):
        """The hash of its first @blocks blocks."""
        return self.model_tokens[: blocks * BLOCK]


class BlockPool:
    """Blocks, reference counts, and the prefix cache."""

    def __init__(self, count):
        self.free = list(range(1, count))  # block 0 is vLLM's null block
        self.count = count
        self.references = [0] * count
        self.hash_of = {}
        self.cached = {}

    def allocate(self):
        block = self.free.pop(0)
        self.evict_blocks({block})
        self.references[block] = 1
        return block

    def touch(self, block):
        if self.references[block] == 0:
            self.free.remove(block)
        self.references[block] += 1

    def release(self, blocks):
        for block in reversed(blocks):
            self.references[block] -= 1
            assert self.references[block] >= 0
            if self.references[block] == 0:
                self.free.append(block)

    def cache(self, block, key):
        if block not in self.hash_of and key not in self.cached:
            self.hash_of[block] = key
            self.cached[key] = block

    def evict_blocks(self, block_ids):
        for block in block_ids:
            assert 0 <= block < self.count
            key = self.hash_of.pop(block, None)
            if key is not None:
                del self.cached[key]

    def reset(self):
        self.hash_of.clear()
        self.cached.clear()


class Engine:
    """One engine: scheduler, worker, and a connector in each."""

    def __init__(
        self,
        extra,
        blocks=48,
        budget=16,
        running=4,
        chunk=8,
        threshold=None,
        start=True,
        handshake=True,
    ):
        self.handshake = handshake  # does the worker ever say who it is?
        self.budget, self.max_running, self.threshold = budget, running, threshold
        self.chunk = chunk
        # Where versions of vLLM and its two model runners differ:
        self.resumed_as_new = False  # how a resumed request is told
        self.saves_when_idle = True  # 0.30 does not, in a step without tokens
        self.saves_last = False  # after it asked what came of the step
        # Does a step wait until what it stored is committed? vLLM does not; most tests must not depend
        # on how quick marud is.
        self.patient = True
        self.load_arguments = {}  # what start_load_kv is given besides
        self.pool = BlockPool(blocks)
        self.tensors = {name: Tensor(blocks) for name in LAYERS}
        self.config = vllm_config(extra)
        self.kv_config = SimpleNamespace(
            num_blocks=blocks,
            kv_cache_layout="LBHNC",
            kv_cache_groups=[
                SimpleNamespace(layer_names=list(LAYERS), kv_cache_spec=FullAttentionSpec())
            ],
        )
        self.waiting, self.running, self.requests = [], [], {}
        self.finished_ids, self.preempted_ids = set(), set()
        self.done = {}
        self.cached_blocks = {}  # request id -> blocks that got their hash
        self.invalid = set()
        self.hooks = {}
        self.totals = {}  # of the connector's own counts, both sides
        self.worker = self.scheduler = None
        if start:
            self.start()

    def start(self):
        self.start_worker()
        self.start_scheduler()
        if self.handshake:
            self.shake_hands()
        else:
            self.worker.build_connector_worker_meta = lambda: None

    def start_worker(self):
        self.worker = MaruConnector(self.config, KVConnectorRole.WORKER, self.kv_config)
        self.worker.register_kv_caches(self.tensors)

    def start_scheduler(self):
        self.scheduler = MaruConnector(self.config, KVConnectorRole.SCHEDULER, self.kv_config)
        assert self.scheduler.requires_kv_delivery is False
        self.scheduler.bind_kv_cache_manager(self.pool)

    def shake_hands(self):
        handshake = self.worker.get_handshake_metadata()
        self.scheduler.set_xfer_handshake_metadata({0: over_the_wire(handshake)})

    def close(self):
        for connector in (self.worker, self.scheduler):
            if connector is not None:
                connector.shutdown()

    def at(self, point):
        """Something may happen here: the test says what."""
        hook = self.hooks.get(point)
        if hook is not None:
            hook()

    # ---- requests --------------------------------------------------------------------------------

    def add(self, request):
        self.requests[request.request_id] = request
        self.scheduler.on_new_request(request)
        self.waiting.append(request)
        return request

    def abort(self, request_id):
        request = self.requests.get(request_id)
        if request is not None:
            self.finish(request)

    def finish(self, request):
        """As vLLM does: the connector first, then the blocks."""
        delayed, _ = self.scheduler.request_finished(
            request, request.blocks[: -(-request.num_computed_tokens // BLOCK)]
        )
        assert delayed is False
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)
        self.pool.release(request.blocks)
        request.blocks = []
        request.state = "finished"
        self.finished_ids.add(request.request_id)
        self.cached_blocks.pop(request.request_id, None)
        del self.requests[request.request_id]
        self.done[request.request_id] = request

    def preempt(self, request):
        self.running.remove(request)
        self.pool.release(request.blocks)
        request.blocks = []
        request.num_computed_tokens = 0
        request.state = "preempted"
        self.cached_blocks.pop(request.request_id, None)
        self.waiting.insert(0, request)
        self.preempted_ids.add(request.request_id)

    def run(self, request):
        """Alone, to its end: its output tokens."""
        self.add(request)
        for _ in range(200):
            if request.state == "finished":
                break
            self.step()
        assert request.state == "finished"
        self.step()  # the step that tells the connector
        return tuple(request.outputs)

    # ---- a step ----------------------------------------------------------------------------------

    def step(self):
        self.at("before_schedule")
        output, external = self.schedule()
        self.at("after_schedule")
        result = self.execute(output, external)
        self.at("before_update")
        self.update(output, result)
        self.check_local_cache()

    def _grow(self, request, tokens):
        """Blocks for @tokens tokens, or None. Nothing changes on None."""
        need = -(-tokens // BLOCK) - len(request.blocks)
        if need > len(self.pool.free):
            return None
        new = [self.pool.allocate() for _ in range(max(0, need))]
        request.blocks += new
        return new

    def _cache(self, request, tokens):
        first = self.cached_blocks.get(request.request_id, 0)
        full = min(tokens, request.num_tokens) // BLOCK
        for index in range(first, full):
            self.pool.cache(request.blocks[index], request.key(index + 1))
        self.cached_blocks[request.request_id] = max(first, full)

    def schedule(self):
        budget = self.budget
        counts, new, cached = {}, [], []
        external_of = {}
        for request in list(self.running):
            if request not in self.running or budget <= 0:
                continue
            count = min(request.num_tokens - request.num_computed_tokens, budget)
            if self.threshold:
                count = min(count, self.threshold)
            if count <= 0:
                continue
            while (blocks := self._grow(request, request.num_computed_tokens + count)) is None:
                victim = self.running[-1]
                if victim.request_id in counts:  # it was scheduled in this very step
                    budget += counts.pop(victim.request_id)
                    cached = [entry for entry in cached if entry[0] is not victim]
                self.preempt(victim)
                if victim is request:
                    break
            if request not in self.running:
                continue
            cached.append((request, blocks, request.num_computed_tokens, False))
            counts[request.request_id] = count
            budget -= count
            self._cache(request, request.num_computed_tokens + count)
        skipped = []
        while self.waiting and budget > 0 and len(self.running) < self.max_running:
            if self.preempted_ids:
                break
            request = self.waiting[0]
            local = self._local_hit(request)
            known = len(local) * BLOCK
            external, is_async = self.scheduler.get_num_new_matched_tokens(request, known)
            assert is_async is False
            if external is None:  # vLLM asks again in the next step
                skipped.append(self.waiting.pop(0))
                continue
            assert external >= 0
            computed = known + external
            count = min(request.num_tokens - computed, budget)
            assert count > 0, "a hit must leave a token to compute"
            if self.threshold:
                count = min(count, self.threshold)
            for block in local:
                self.pool.touch(block)
            request.blocks = list(local)
            if self._grow(request, computed + count) is None:
                self.pool.release(request.blocks)
                request.blocks = []
                break
            self.scheduler.update_state_after_alloc(request, None, external)
            self.waiting.pop(0)
            self.running.append(request)
            if external:
                external_of[request.request_id] = external
            self.cached_blocks[request.request_id] = len(local)
            self._cache(request, computed + count)
            again = request.state == "preempted"
            entry = (request, list(request.blocks), computed, again)
            (cached if again and not self.resumed_as_new else new).append(entry)
            request.state = "running"
            request.num_computed_tokens = computed
            counts[request.request_id] = count
            budget -= count
        self.waiting[:0] = skipped
        output = SimpleNamespace(
            scheduled_new_reqs=[
                SimpleNamespace(
                    req_id=request.request_id,
                    prompt_token_ids=list(request.prompt_token_ids),
                    block_ids=(list(blocks),),
                    num_computed_tokens=computed,
                )
                for request, blocks, computed, _ in new
            ],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[request.request_id for request, *_ in cached],
                resumed_req_ids={
                    request.request_id for request, _, _, resumed in cached if resumed
                },
                new_block_ids=[(list(blocks),) if blocks else None for _, blocks, *_ in cached],
                num_computed_tokens=[computed for _, _, computed, _ in cached],
            ),
            num_scheduled_tokens=dict(counts),
            finished_req_ids=self.finished_ids,
            preempted_req_ids=self.preempted_ids,
            has_sync_kv_loads=bool(external_of),
            kv_connector_metadata=None,
        )
        self.finished_ids, self.preempted_ids = set(), set()
        output.kv_connector_metadata = self.scheduler.build_connector_meta(output)
        assert output.kv_connector_metadata is not None
        # What the worker works on, whatever happens to the requests meanwhile.
        output.rows = [
            (
                request_id,
                list(self.requests[request_id].blocks),
                self.requests[request_id].model_tokens,
                self.requests[request_id].num_computed_tokens,
                count,
            )
            for request_id, count in counts.items()
        ]
        for request_id, count in counts.items():
            self.requests[request_id].num_computed_tokens += count
        return output, external_of

    def _local_hit(self, request):
        found = []
        if request.skip_reading_prefix_cache:
            return found
        for index in range((request.num_tokens - 1) // BLOCK):
            block = self.pool.cached.get(request.key(index + 1))
            if block is None:
                break
            found.append(block)
        return found

    def execute(self, output, external):
        worker = self.worker
        metadata = over_the_wire(output.kv_connector_metadata)
        worker.handle_preemptions(metadata)
        worker.bind_connector_metadata(metadata)
        self.at("before_load")
        if output.has_sync_kv_loads:
            worker.start_load_kv(None, **self.load_arguments)
        for name in LAYERS if worker.has_connector_metadata() else ():
            worker.wait_for_layer_load(name)
        samples = {request_id: self.forward(*row) for request_id, *row in output.rows}
        for name in LAYERS if worker.has_connector_metadata() else ():
            worker.save_kv_layer(name, self.tensors[name], None)
        if not output.has_sync_kv_loads:
            worker.start_load_kv(None, **self.load_arguments)
        self.at("before_save")
        saves = self.saves_when_idle or output.num_scheduled_tokens
        if saves and not self.saves_last:
            self.save()
        assert worker.get_finished(set(output.finished_req_ids)) == (None, None)
        invalid = set(worker.get_block_ids_with_load_errors())
        loaded = {block for i, blocks, *_ in output.rows if i in external for block in blocks}
        assert invalid <= loaded, "only loaded blocks may be reported"
        result = SimpleNamespace(
            samples=samples,
            invalid_block_ids=invalid,
            kv_connector_stats=over_the_wire(worker.get_kv_connector_stats()),
            kv_connector_worker_meta=over_the_wire(worker.build_connector_worker_meta()),
        )
        if saves and self.saves_last:
            self.save()
        worker.clear_connector_metadata()
        return result

    def save(self):
        self.worker.wait_for_save()
        if self.patient:
            self.worker._worker.settle()

    def forward(self, blocks, tokens, computed, count):
        """KV of tokens computed .. computed + count - 1, from what lies in memory before them."""
        sample = []
        for layer, name in enumerate(LAYERS):
            values = self.tensors[name].values
            at = computed - 1
            before = values[blocks[at // BLOCK] * BLOCK + at % BLOCK] if computed else 0
            for position in range(computed, computed + count):
                before = mix(before, tokens[position], layer)
                values[blocks[position // BLOCK] * BLOCK + position % BLOCK] = before
            sample.append(before)
        return sampled(sample)

    def update(self, output, result):
        skipped = self._invalid_blocks(result.invalid_block_ids, output.num_scheduled_tokens)
        for request_id in output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is None or request_id in skipped or request.state != "running":
                continue
            if request.num_computed_tokens == request.num_tokens:
                request.outputs.append(result.samples[request_id])
                if len(request.outputs) >= request.wanted:
                    self.finish(request)
        self.invalid |= result.invalid_block_ids
        self.scheduler.update_connector_output(result)
        for stats in (result.kv_connector_stats, self.scheduler.get_kv_connector_stats()):
            for name, amount in stats.data["counts"].items() if stats is not None else ():
                self.totals[name] = self.totals.get(name, 0) + amount

    def _invalid_blocks(self, invalid, counts):
        """vLLM's rule for the policy "recompute", shared blocks included."""
        affected, marked = set(), set()
        for request in self.running:
            if not invalid:
                break
            before = request.num_computed_tokens - counts.get(request.request_id, 0)
            is_affected = is_first = False
            for index, block in zip(range(-(-before // BLOCK)), request.blocks):
                if block not in invalid:
                    continue
                is_affected = True
                if block in marked:
                    continue
                marked.add(block)
                if not is_first:
                    is_first = True
                    request.num_computed_tokens = index * BLOCK
            if is_affected:
                if not is_first:
                    request.num_computed_tokens = before
                affected.add(request.request_id)
        return affected

    # ---- the oracle ------------------------------------------------------------------------------

    def check_local_cache(self):
        """Every block that a later request may find by its hash holds what the hash says."""
        for tokens, block in self.pool.cached.items():
            for layer, name in enumerate(LAYERS):
                values = self.tensors[name].values
                for offset in range(BLOCK):
                    prefix = tokens[: len(tokens) - BLOCK + offset + 1]
                    wanted = right_value(prefix, layer)
                    found = values[block * BLOCK + offset]
                    # A block is hashed when it is allocated and may wait for its turn to be computed.
                    if found != wanted and not self._still_to_compute(block):
                        raise AssertionError(
                            f"block {block} holds garbage under the hash of {len(tokens)} tokens"
                        )

    def _still_to_compute(self, block):
        for request in self.requests.values():
            if block in request.blocks:
                start = request.blocks.index(block) * BLOCK
                if start + BLOCK > request.num_computed_tokens:
                    return True
        return False

    def check_output(self, request):
        other = request.model_tokens[0] - request.tokens[0]
        wanted = right_output(tuple(request.prompt_token_ids), len(request.outputs), other)
        if tuple(request.outputs) != wanted:
            raise AssertionError(f"{request.request_id}: {request.outputs} is not {wanted}")


def over_the_wire(thing):
    """To another process and back."""
    return pickle.loads(pickle.dumps(thing))


def vllm_config(extra, **changes):
    config = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config=dict(extra),
            engine_id="0f0e-uuid",
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
        ),
        model_config=SimpleNamespace(
            enforce_eager=True,
            use_mla=False,
            get_sliding_window=lambda: None,
            get_head_size=lambda: 32,
            revision=None,
            dtype="float32",
            quantization=None,
            hf_config=SimpleNamespace(to_dict=lambda: {"hidden_size": 64, "_name_or_path": "/a"}),
        ),
        scheduler_config=SimpleNamespace(async_scheduling=False),
        cache_config=SimpleNamespace(block_size=BLOCK, cache_dtype="auto"),
        speculative_config=None,
    )
    for path, value in changes.items():
        thing = config
        *parents, last = path.split("__")
        for parent in parents:
            thing = getattr(thing, parent)
        setattr(thing, last, value)
    return config
