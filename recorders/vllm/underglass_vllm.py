"""Record what vLLM's scheduler decides, as JSON Lines that Underglass draws.

    UNDERGLASS_RECORD=run.jsonl.gz vllm serve MODEL --scheduler-cls underglass_vllm.RecordingScheduler

With asynchronous scheduling name `RecordingAsyncScheduler`. README.md describes the variables and the
lines. Three parts:

- `_Recording` is mixed into vLLM's schedulers. It calls the recorder and decides nothing. An error
  of the recorder ends the recording, never the engine.
- `Recorder` turns calls into lines. It runs in the scheduler's thread, so it only copies numbers.
- `Writer` (`underglass_vllm_writer.py`) compresses and writes in a thread of its own.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from underglass_vllm_live import page
from underglass_vllm_settings import others_of
from underglass_vllm_writer import LOG, Hashes, Line, RecordingError, Writer, numbered
from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

VERSION = 2  # of the lines

Op = list[Any]  # what changed: its name, the request, and more
_NOTHING: Op = []  # equals no head of a queue


class _Recording:
    """A scheduler that reports its decisions to a `Recorder`."""

    _recorder: "Recorder | None" = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        try:
            self._recorder = Recorder(self)
            self._recorder.watch()
        except Exception as error:
            self._stop_recording(error)

    def _stop_recording(self, error: Exception) -> None:
        recorder, self._recorder = self._recorder, None
        LOG.warning("Underglass has stopped recording: %s: %s", type(error).__name__, error)
        if recorder is not None:
            recorder.writer.close(seconds=0)

    def _note(self, what: str, *args: Any) -> None:
        """Call a method of the recorder. Its errors end the recording and go no further."""
        if self._recorder is not None:
            try:
                getattr(self._recorder, what)(*args)
            except Exception as error:
                self._stop_recording(error)

    def add_request(self, request: Any) -> None:
        super().add_request(request)
        self._note("arrived", request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        self._note("step_begins")
        output = super().schedule(*args, **kwargs)
        self._note("scheduled", output)
        return output

    def update_from_output(self, output: Any, *args: Any, **kwargs: Any) -> Any:
        self._note("step_ends")
        clients = super().update_from_output(output, *args, **kwargs)
        self._note("step_ended", output, clients)
        return clients

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        finished = super().finish_requests(*args, **kwargs)
        self._note("between_steps")
        return finished

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super()._preempt_request(request, *args, **kwargs)
        self._note("preempted", request)

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._note("finished", request)
        return super()._free_request(request, *args, **kwargs)

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        done = super().reset_prefix_cache(*args, **kwargs)
        if done:
            self._note("cleared")
        self._note("between_steps")
        return done

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        super().shutdown(*args, **kwargs)
        if self._recorder is not None:
            self._recorder.writer.close()


class _Known(msgspec.Struct):
    """What has been written about a request: how many hashes, and how many stored blocks."""

    hashes: int
    stored: int = 0


class Recorder:
    """Turns the calls of a scheduler into lines.

    Requests are numbered from 1 in order of arrival, steps from 1. Times are microseconds since the
    recorder was made. Block ids are vLLM's, less its null block 0.

    A model whose layers differ, such as full attention and a sliding window, has several KV cache
    groups: tables of their own over one memory. Tables, hashes and hits are those of the first group of
    full attention; of the others, `_tables` has what was written.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        # What vLLM admits by, which may be less than the seats of the model's runner.
        self._seats = getattr(scheduler, "max_num_active_reqs", scheduler.max_num_running_reqs)
        self._manager = scheduler.kv_cache_manager
        self._pool = self._manager.block_pool
        self._start = time.monotonic_ns()
        self._known: dict[str, _Known] = {}
        self._numbers: dict[str, int] = {}  # of those, and of the requests that have just ended
        self._arrivals = self._step = self._began = 0
        self._ops: list[Op] = []  # since the last line
        self._ended: list[str] = []  # the requests that ended since then
        self._in_flight: dict[int, tuple[int, Line]] = {}  # by id of output: step and batch
        self._refused: Op | None = None  # the head of the queue, if it found no blocks in this step
        self._lacks = ""  # the request that found no blocks last
        self._inside = False  # `schedule` or `update_from_output`
        self._idle_head: Op | None = _NOTHING
        self._lacks_reasons = False
        groups = scheduler.kv_cache_config.kv_cache_groups
        self._specs = [group.kv_cache_spec for group in groups]
        full = [n for n, one in enumerate(self._specs) if _is_full(one)]
        if not full:
            kinds = [type(one).__name__ for one in self._specs]
            raise RecordingError(f"no group of the KV cache has full attention: {kinds}")
        self._main, self._others = full[0], [n for n in range(len(groups)) if n != full[0]]
        # Steps of a prompt end at block boundaries, or leave a linear layer's state there.
        self._aligns = getattr(scheduler, "need_mamba_block_aligned_split", False)
        self._tables: dict[str, dict[int, list[int]]] = {}  # by request and group but the main one
        self._hits: list[int] = []  # tokens that each group has of the request to be admitted
        self._freed = False  # blocks, since `allocate_slots` was called; only with several groups
        self._parents: dict[int, bytes] = {}  # by cached block: the hash of the block before it
        self._with_tokens = os.environ.get("UNDERGLASS_RECORD_TOKENS") == "1"
        config = scheduler.vllm_config
        self._header: Line = {
            "type": "underglass_vllm",
            "version": VERSION,
            "engine": f"vLLM {_vllm_version()}",
            "model": Path(config.model_config.model).name,  # without the folders of a local model
            "settings": self._settings(),
            "others": others_of(config),
            "groups": [_group(group.kv_cache_spec, group.layer_names) for group in groups],
            "main_group": self._main,
            "retention": getattr(
                scheduler.kv_cache_config, "prefix_cache_retention_interval", None
            ),
            "tokens": self._with_tokens,
            "unix_us": time.time_ns() // 1000,
            "part": 1,
        }
        parallel = config.parallel_config
        shown = page(parallel.data_parallel_rank if parallel.data_parallel_size > 1 else 0)
        path: Path | None = Path(os.environ.get("UNDERGLASS_RECORD", "underglass.jsonl.gz"))
        if shown is not None and "UNDERGLASS_RECORD" not in os.environ:
            path = None  # nothing is written unless it was asked for
        elif parallel.data_parallel_size > 1:  # a scheduler and a file per rank
            path = numbered(path, "dp", parallel.data_parallel_rank)
        limit = float(os.environ.get("UNDERGLASS_RECORD_ROTATE_MB", "inf")) * 1e6
        tokenizer = config.model_config.tokenizer if self._with_tokens else None
        self.writer = Writer(path, limit, tokenizer, shown)
        self.writer.put(dict(self._header))
        LOG.info("Underglass records the scheduler in %s", path or "no file, for its page")

    def _settings(self) -> Line:
        """Return vLLM's settings, under the names that Underglass has for them."""
        scheduler, config = self._scheduler, self._scheduler.scheduler_config
        lora = getattr(scheduler.vllm_config, "lora_config", None)
        size = self._specs[self._main].block_size
        # Without prefix caching nothing is hashed, and blocks of linear layers have any size.
        sizes = {size, *([self._pool.hash_block_size] if self._pool.enable_caching else ())}
        if len(sizes) != 1 or scheduler.block_size % size:
            sizes |= {scheduler.block_size}
            raise RecordingError(f"allocated, scheduled and hashed blocks differ in size: {sizes}")
        if scheduler.connector is not None:
            raise RecordingError("a KV connector moves blocks that the scheduler does not see")
        return (
            {
                "token_budget": scheduler.max_num_scheduled_tokens,
                "max_batch_size": self._seats,
                "num_blocks": self._pool.num_gpu_blocks - 1,
                "block_size": size,
                "policy": scheduler.policy.value,
                "chunked_prefill": bool(config.enable_chunked_prefill),
                "whole_sequence": bool(getattr(scheduler, "scheduler_reserve_full_isl", False)),
                "prefix_cache": bool(self._pool.enable_caching),
                # A server that has it off can still be given the class for it.
                "async_scheduling": isinstance(scheduler, AsyncScheduler)
                and bool(config.async_scheduling),
            }
            | {
                name: getattr(config, name)
                for name in (
                    "watermark",
                    "long_prefill_token_threshold",
                    "long_prefill_token_threshold_adaptive",
                )
                if hasattr(config, name)
            }
            | ({"max_loras": lora.max_loras} if lora else {})
        )

    def watch(self) -> None:
        """Watch two methods of vLLM's memory manager that know what no output says.

        Which request lacked blocks, and how many; and when a block can be found by its hash.
        """
        allocate, cache = self._manager.allocate_slots, self._pool.cache_full_blocks
        note, ops, empty = self._scheduler._note, self._ops, self._manager.empty_kv_cache_blocks

        # Called for each request that runs, so it costs as little as possible: only `more` is packed,
        # and it is empty for them. Most of them need no block.
        def allocate_slots(
            request: Any, tokens: int, *, num_lookahead_tokens: int = 0, **more: Any
        ) -> Any:
            first = len(ops)
            if more:
                blocks = allocate(
                    request, tokens, num_lookahead_tokens=num_lookahead_tokens, **more
                )
            else:
                blocks = allocate(request, tokens, num_lookahead_tokens=num_lookahead_tokens)
                if blocks is empty:
                    return blocks
            more["num_lookahead_tokens"] = num_lookahead_tokens
            note("allocated", request, blocks, first, tokens, more)
            return blocks

        def cache_full_blocks(request: Any, blocks: Any, **kwargs: Any) -> Any:
            note("stored", request, blocks, kwargs)
            return cache(request, blocks, **kwargs)

        self._manager.allocate_slots = allocate_slots
        self._pool.cache_full_blocks = cache_full_blocks
        if self._others:
            self._watch_groups(allocate)

    def _watch_groups(self, allocate: Callable[..., Any]) -> None:
        """Watch the same for several groups: what each has of a prompt, and windows that move on."""
        note, ops, empty = self._scheduler._note, self._ops, self._manager.empty_kv_cache_blocks
        free = self._pool.free_blocks

        def allocate_slots(
            request: Any, tokens: int, *, num_lookahead_tokens: int = 0, **more: Any
        ) -> Any:
            if more:
                note("looked_up", request)
            self._freed, first = False, len(ops)
            more["num_lookahead_tokens"] = num_lookahead_tokens
            blocks = allocate(request, tokens, **more)
            if blocks is not empty or self._freed:
                note("allocated", request, blocks, first, tokens, more)
            return blocks

        def free_blocks(blocks: Any) -> None:
            self._freed = True
            free(blocks)

        self._manager.allocate_slots = allocate_slots
        self._pool.free_blocks = free_blocks

    # Called for the scheduler

    def arrived(self, request: Any) -> None:
        """A request joined the queue."""
        key = request.request_id
        if key in self._known:
            raise RecordingError(f"request {key!r} continues a session, which is not recorded")
        self._arrivals += 1
        self._known[key] = _Known(len(request.block_hashes))
        self._numbers[key] = self._arrivals
        now = self._now()
        at = int(request.arrival_time * 1e6) - self._header["unix_us"]  # at the API server
        self._put(
            type="arrived",
            t=at if 0 <= at <= now else now,
            request=self._arrivals,
            id=key,
            prompt=self._tokens(request.prompt_token_ids, request.num_prompt_tokens),
            max_tokens=request.max_tokens,
            priority=request.priority,
            hashes=Hashes(list(request.block_hashes)),
            **_extras(request),
        )

    def step_begins(self) -> None:
        """A call of `schedule` begins."""
        if self.writer.full_part == self._header["part"] or self.writer.goes_on():
            self._header["part"] += 1
            self.writer.put(self._header | {"state": self._snapshot()})
        self._began, self._refused, self._inside = self._now(), None, True

    def allocated(self, request: Any, blocks: Any, first: int, tokens: int, given: Line) -> None:
        """`allocate_slots` returned blocks, or None. `first`: the number of ops before the call."""
        number, runs = self._numbers[request.request_id], request.status is RequestStatus.RUNNING
        if self._others:
            first = self._note_tables(request, first)
        if blocks is None:
            self._lacks = request.request_id
            if not runs:
                reason = self._if_known(self._refusal, request, tokens, given)
                self._refused = [number, *(reason or ("", 0, 0))]
            return
        new = self._ids(blocks)
        if runs:
            if not new:
                return
            op = ["grow", number, new]
        else:
            if given.get("delay_cache_blocks"):
                raise RecordingError("a KV connector loads blocks while a request waits")
            table = self._ids(self._manager.get_blocks(request.request_id))
            cached = table[: len(table) - len(new)]
            known = self._known[request.request_id]
            known.stored = max(known.stored, len(cached))
            op = ["admit", number, cached, new, *([self._hits] if self._hits else ())]
        self._ops.insert(first, op)  # the call may have stored some of these blocks already

    def looked_up(self, request: Any) -> None:
        """A waiting request has looked for its prefix; note how long each group has it by itself."""
        self._hits = []
        if self._pool.enable_caching and not request.skip_reading_prefix_cache:
            find = getattr(self._manager.coordinator, "find_longest_cache_hit_per_group", None)
            if find is not None and not request.num_computed_tokens:
                self._hits = list(find(request.block_hashes, request.num_tokens - 1)[1])

    def _note_tables(self, request: Any, first: int) -> int:
        """Write what has changed in a request's tables of the other groups, before op `first`.

        Return the number of ops before those of the main group.
        """
        key, blocks = request.request_id, self._manager.get_blocks(request.request_id).blocks
        tables = self._tables.setdefault(key, {group: [] for group in self._others})
        for group, old in tables.items():
            new = [block.block_id - 1 for block in blocks[group]]
            if new != old:
                longest = range(max(len(new), len(old)))
                changes = [
                    [index, new[index] if index < len(new) else -1]
                    for index in longest
                    if old[index : index + 1] != new[index : index + 1]
                ]
                self._ops.insert(first, ["group", self._numbers[key], group, changes])
                tables[group], first = new, first + 1
        return first

    def stored(self, request: Any, blocks: Any, given: Line) -> None:
        """Full blocks of a request can be found by their hashes from now on."""
        first, end = given["num_cached_blocks"], given["num_full_blocks"]
        hashes = request.block_hashes
        if first >= end:
            return
        if (group := given["kv_cache_group_id"]) != self._main:
            mask = given.get("block_mask") or [True] * (end - first)
            pairs = zip(blocks[first:end], mask, strict=True)
            kept = [one.block_id - 1 for one, is_kept in pairs if is_kept and not one.is_null]
            if kept:
                self._ops.append(["keep", self._numbers[request.request_id], group, kept])
            return
        for index in range(first, end):
            self._parents[blocks[index].block_id] = hashes[index - 1] if index else b""
        known = self._known[request.request_id]
        new = Hashes(list(hashes[known.hashes : end]))
        number = self._numbers[request.request_id]
        self._ops.append(["store", number, first, end - first, new])
        known.hashes, known.stored = max(known.hashes, end), end

    def preempted(self, request: Any) -> None:
        """A running request lost its blocks, because another one or itself found none."""
        self._known[request.request_id].stored = 0
        self._tables.pop(request.request_id, None)
        other = self._numbers.get(self._lacks, -1) if self._inside else -1
        self._ops.append(["preempt", self._numbers[request.request_id], other])

    def finished(self, request: Any) -> None:
        """A request ended, and its blocks are about to be freed."""
        del self._known[request.request_id]
        self._tables.pop(request.request_id, None)
        self._ended.append(request.request_id)
        number = self._numbers[request.request_id]
        self._ops.append(["finish", number, str(request.get_finished_reason())])

    def cleared(self) -> None:
        """The prefix cache was emptied."""
        self._parents.clear()
        self._ops.append(["clear"])

    def scheduled(self, output: Any) -> None:
        """A call of `schedule` returned."""
        self._inside = False
        counts: dict[str, int] = output.num_scheduled_tokens
        batch = self._batch(counts, output) if counts else {}
        head = self._if_known(self._head, output)
        is_idle = not self._scheduler.requests or head == self._idle_head
        if not counts and not self._ops and is_idle:
            return  # vLLM also calls `schedule` when nothing can run, over and over
        self._idle_head = _NOTHING if counts else head
        self._step += 1
        self._in_flight[id(output)] = (self._step, batch)
        self._put(
            type="step",
            step=self._step,
            t=self._began,
            took=self._now() - self._began,
            ops=self._take_ops(),
            batch=batch,
            waiting=self._scheduler.get_request_counts()[1],
            head=head,
            free=self._pool.get_num_free_blocks(),
        )

    def step_ends(self) -> None:
        """A call of `update_from_output` begins."""
        self._inside = True

    def step_ended(self, output: Any, clients: Any) -> None:
        """A call of `update_from_output` returned what it has for each client."""
        self._inside = False
        if id(output) not in self._in_flight:
            self.between_steps()
            return
        step, _ = self._in_flight.pop(id(output))
        numbers = self._numbers
        told = [one for client in clients.values() for one in client.outputs if one.new_token_ids]
        gained: Line = {"requests": [numbers[one.request_id] for one in told]}
        if self._with_tokens:
            gained["ids"] = [list(one.new_token_ids) for one in told]
        elif sum(lengths := [len(one.new_token_ids) for one in told]) > len(told):
            gained["counts"] = lengths
        free = self._pool.get_num_free_blocks()
        self._put(
            type="done", step=step, t=self._now(), gained=gained, ops=self._take_ops(), free=free
        )

    def between_steps(self) -> None:
        """Write what happened outside `schedule` and `update_from_output`, if anything did."""
        if self._ops and not self._inside:
            free = self._pool.get_num_free_blocks()
            self._put(type="between", t=self._now(), ops=self._take_ops(), free=free)

    # What lines consist of

    def _now(self) -> int:
        return (time.monotonic_ns() - self._start) // 1000

    def _put(self, **line: Any) -> None:
        self.writer.put(line)

    def _take_ops(self) -> list[Op]:
        ops = list(self._ops)
        self._ops.clear()
        for key in self._ended:
            del self._numbers[key]
        self._ended.clear()
        return ops

    def _batch(self, counts: dict[str, int], output: Any) -> Line:
        """Return the rows of a step as columns.

        The start of a row is written less the number of the step, and counts only where one is not 1.
        So the columns of a batch that decodes are the same in each step, and take no room when they are
        compressed.
        """
        step, requests = self._step + 1, self._scheduler.requests
        batch: Line = {"requests": [self._numbers[key] for key in counts]}
        if output.total_num_scheduled_tokens == len(counts):
            batch["offsets"] = [requests[key].num_computed_tokens - 1 - step for key in counts]
        else:
            batch["offsets"] = [
                requests[key].num_computed_tokens - count - step for key, count in counts.items()
            ]
            batch["counts"] = [*counts.values()]
        if drafts := output.scheduled_spec_decode_tokens:
            batch["drafts"] = [
                [self._numbers[key], self._tokens(ids, len(ids))] for key, ids in drafts.items()
            ]
        return batch

    def _tokens(self, ids: Any, count: int) -> list[int] | int:
        return list(ids) if self._with_tokens and ids is not None else count

    def _if_known(self, reason: Callable[..., Op | None], *args: Any) -> Op | None:
        """Return why a request waits, or None if this release of vLLM differs in what says it.

        It depends on more of vLLM than all other lines together. Without it, they are still right.
        """
        if not self._lacks_reasons:
            try:
                return reason(*args)
            except Exception as error:
                self._lacks_reasons = True
                LOG.warning(
                    "Underglass does not record why requests wait, because this vLLM differs: %s: %s",
                    type(error).__name__,
                    error,
                )
        return None

    def _head(self, output: Any) -> Op | None:
        """Return the head of the queue: its number, why it waits, and what it needs and has.

        Requests that vLLM itself passes over, such as those that wait for their grammar, are not it.
        The reason is "" if it is none of the known ones.
        """
        scheduler = self._scheduler
        if self._refused is not None or not scheduler.waiting:
            return self._refused
        request = scheduler.waiting.peek_request()
        deferred = getattr(scheduler, "deferred_waiting", ())  # since vLLM 0.32
        if request in deferred:
            request = next((one for one in scheduler.waiting if one not in deferred), None)
            if request is None:
                return None
        left = scheduler.max_num_scheduled_tokens - output.total_num_scheduled_tokens
        reason: tuple[str, int, int] = ("", 0, 0)
        if any(op[0] == "preempt" for op in self._ops):
            reason = ("after_preemption", 0, 0)
        elif not left:
            reason = ("token_budget", 1, 0)
        elif len(scheduler.running) >= self._seats:
            reason = ("batch_full", 1, 0)
        elif not scheduler.scheduler_config.enable_chunked_prefill:
            reason = ("token_budget", request.num_tokens, left)
        elif self._aligns and left < scheduler.block_size:
            reason = ("token_budget", scheduler.block_size, left)
        return [self._numbers[request.request_id], *reason]

    def _ids(self, blocks: Any) -> list[int]:
        """Return the ids of KVCacheBlocks in the main group."""
        return [block.block_id - 1 for block in blocks.blocks[self._main]]

    def _refusal(self, request: Any, tokens: int, given: Line) -> Op:
        """Return the reason for which vLLM gave a waiting request no blocks, need and have."""
        longest, size = self._scheduler.max_model_len, self._pool.hash_block_size
        if self._others:
            return self._refusal_of_groups(request, tokens, given)
        hits = given["new_computed_blocks"].blocks[0] if "new_computed_blocks" in given else ()
        have = self._pool.get_num_free_blocks() - sum(not block.ref_cnt for block in hits)
        if self._scheduler.running:
            have -= getattr(self._manager, "watermark_blocks", 0)
        whole = -(-min(request.num_tokens, longest) // size) - len(hits)
        if given.get("full_sequence_must_fit") and whole > have:
            return ["whole_sequence", whole, have]
        end = request.num_computed_tokens + len(hits) * size + tokens
        end = min(end + given["num_lookahead_tokens"], longest)
        return ["no_free_blocks", -(-end // size) - len(hits), have]

    def _refusal_of_groups(self, request: Any, tokens: int, given: Line) -> Op:
        """Return the same for several groups, as vLLM's own coordinator counts the blocks."""
        longest, have = self._scheduler.max_model_len, self._pool.get_num_free_blocks()
        if self._scheduler.running:
            have -= getattr(self._manager, "watermark_blocks", 0)
        hits = given.get("new_computed_blocks", self._manager.empty_kv_cache_blocks).blocks
        cached = request.num_computed_tokens + given.get("num_new_computed_tokens", 0)
        whole, chunk = min(request.num_tokens, longest), cached + tokens
        end = min(chunk + given["num_lookahead_tokens"], longest)

        def need(slots: int, main_model: int, **cap: Any) -> int:
            if any(getattr(one, "num_prefill_checkpoint_blocks", 0) for one in self._specs):
                cap["prefill_end"] = max(request.num_prompt_tokens, request.num_tokens - 1)
            count = self._manager.coordinator.get_num_blocks_to_allocate
            return count(request.request_id, slots, hits, 0, cached, cached, main_model, **cap)

        if given.get("full_sequence_must_fit"):
            most = need(whole, whole, apply_admission_cap=True)
            if most > have:
                return ["whole_sequence", most, have]
        return ["no_free_blocks", need(end, chunk), have]

    def _snapshot(self) -> Line:
        """Return the state between two steps: what a file needs to be read without those before."""
        requests, waiting = self._scheduler.requests, [*self._scheduler.waiting]
        free = [block for block in self._pool.free_block_queue.get_all_free_blocks()]
        hashed = [block for block in self._pool.blocks if block.block_hash is not None]
        cached = [one for one in hashed if get_group_id(one.block_hash) == self._main]
        return {
            "t": self._now(),
            "step": self._step,
            "arrivals": self._arrivals,
            "requests": [
                {
                    "request": self._numbers[key],
                    "id": key,
                    "prompt": self._tokens(one.prompt_token_ids, one.num_prompt_tokens),
                    "output": self._tokens(one.output_token_ids, one.num_output_tokens),
                    "max_tokens": one.max_tokens,
                    "priority": one.priority,
                    "computed": max(0, one.num_computed_tokens - one.num_in_flight_tokens),
                    "preemptions": one.num_preemptions,
                    "table": self._ids(self._manager.get_blocks(key)),
                    "groups": [*self._tables.get(key, {}).items()],
                    "stored": known.stored,
                    "hashes": Hashes(list(one.block_hashes[: known.hashes])),
                }
                for key, known in self._known.items()
                for one in (requests[key],)
            ],
            "running": [self._numbers[one.request_id] for one in self._scheduler.running],
            "waiting": [self._numbers[one.request_id] for one in waiting],
            "in_flight": list(self._in_flight.values()),
            "free": [block.block_id - 1 for block in free],
            "cached": [block.block_id - 1 for block in cached],
            "hashes": Hashes([get_block_hash(block.block_hash) for block in cached]),
            "parents": Hashes([self._parents[block.block_id] for block in cached]),
        }


def _extras(request: Any) -> Line:
    """Return what decides about a request's use of the prefix cache, as far as it has any of it."""
    adapter = getattr(request, "lora_request", None)
    salt, params = getattr(request, "cache_salt", None), getattr(request, "sampling_params", None)
    extras: Line = {"adapter": adapter.lora_name} if adapter else {}
    if salt:
        extras["salt"] = Hashes([salt.encode()])
    if (scored := getattr(params, "prompt_logprobs", None)) is not None:
        extras["prompt_logprobs"] = scored
    return extras


def _is_full(spec: Any) -> bool:
    name = type(spec).__name__
    return "FullAttention" in name or ("MLA" in name and "Sliding" not in name)


def _group(spec: Any, layers: list[str]) -> Line:
    """Return what a group of the KV cache is: its kind and mode, window, block size and layers."""
    mode = getattr(spec, "mamba_cache_mode", None)
    linear: Line = {"mode": mode} if mode else {}
    if mode == "align":
        can_leave = getattr(spec, "num_prefill_checkpoint_blocks", 0)
        linear["checkpoint"] = can_leave and (spec.prefill_checkpoint_alignment or 0)
        linear["drafts"] = spec.num_speculative_blocks
    window = getattr(spec, "sliding_window", None)
    return linear | {
        "kind": type(spec).__name__.removesuffix("Spec"),
        "window": window or getattr(spec, "attention_chunk_size", None),
        "block_size": spec.block_size,
        "layers": len(layers),
    }


def _vllm_version() -> str:
    from vllm.version import __version__

    return str(__version__)


class RecordingScheduler(_Recording, Scheduler):
    """vLLM's scheduler, recorded."""


class RecordingAsyncScheduler(_Recording, AsyncScheduler):
    """vLLM's scheduler for asynchronous scheduling, recorded."""
