"""Record what SGLang's scheduler decides, as a log that Underglass draws.

    UNDERGLASS_RECORD=run.jsonl.gz python -m sglang.launch_server --model-path MODEL

SGLang loads this file as a plugin (entry point `sglang.srt.plugins`). README.md describes the variables
and what is not recorded. Three parts, top down:

- `register` hooks methods of SGLang's `Scheduler` and `PrefillAdder`. The hooks decide nothing, and an
  error in them ends the recording, never the engine.
- `Recorder` turns their calls into the events of Underglass. It reads numbers that are in the CPU's
  memory already, so it never waits for the GPU.
- `_Writer` compresses and writes in a thread of its own, twice a second.
"""

import atexit
import gzip
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

LOG = logging.getLogger("sglang.underglass")
QUEUE = 10_000  # lines that may wait to be written
FLUSH_SECONDS = 0.5  # what a crash may lose
PIECE = 16  # lines that are encoded at once
LEVEL = 6  # of gzip
RECORDED = (
    "settings arrivals step_times scheduled_tokens admissions queue waiting_reasons preemptions "
    "finish_reasons"
)
# What may change a decision and Underglass's engine does not have, with the value that changes none.
OTHERS: dict[str, Any] = {
    "disable_priority_preemption": False,
    "enable_hierarchical_cache": False,
    "enable_lora": False,
    "enable_prefill_delayer": False,
    "prefill_decode_interval": 0,
    "prefill_max_requests": None,
    "priority_scheduling_preemption_threshold": 10,
    "retraction_policy": "length",
}
POLICIES = ("fcfs", "lpm", "priority")  # those that Underglass has, too
CLIP_MAX_NEW_TOKENS = 4096  # what SGLang's forecast counts of an output at most


_ENCODER = msgspec.json.Encoder()


class _Recording:
    """The recorder of this process, in which there is one scheduler, or None."""

    recorder: "Recorder | None" = None


def register() -> None:
    """Hook SGLang's scheduler, if `UNDERGLASS_RECORD` names a file."""
    if not os.environ.get("UNDERGLASS_RECORD"):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for method, hook, kind in (
        ("scheduler.Scheduler.__init__", _created, HookType.AFTER),
        ("scheduler.Scheduler._add_request_to_queue", _queued, HookType.AFTER),
        ("scheduler.Scheduler.get_next_batch_to_run", _scheduling, HookType.AROUND),
        ("scheduler.Scheduler.get_new_batch_prefill", _prefilling, HookType.AROUND),
        ("scheduler.Scheduler.process_batch_result", _processing, HookType.AROUND),
        ("schedule_policy.PrefillAdder.budget_state", _budgeted, HookType.AFTER),
        ("schedule_policy.PrefillAdder.add_one_req", _tried, HookType.AFTER),
        ("schedule_policy.PrefillAdder.preempt_to_schedule", _preempted, HookType.AFTER),
    ):
        HookRegistry.register(f"sglang.srt.managers.{method}", hook, kind)


def _created(_result: None, scheduler: Any, *_args: Any, **_kwargs: Any) -> None:
    try:
        from sglang.srt.runtime_context import get_parallel

        if get_parallel().attn_tp_rank == 0:  # the other ranks decide the same
            _Recording.recorder = Recorder(scheduler)
    except Exception as error:
        _stop(error)


def _queued(_result: None, _scheduler: Any, request: Any, is_retracted: bool = False) -> None:
    _note("queued", request, is_retracted)


def _budgeted(result: Any, adder: Any) -> None:
    _note("budgeted", result.name, adder)


def _tried(result: Any, adder: Any, request: Any, **_kwargs: Any) -> None:
    _note("tried", result.name, adder, request)


def _preempted(result: bool, adder: Any, request: Any) -> None:
    if result:
        _note("preempted_for", request, adder.preempt_list)


def _scheduling(original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    _note("step_begins")
    plan = original(scheduler, *args, **kwargs)
    _note("step_scheduled", plan)
    return plan


def _prefilling(original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    _note("prefilling", *args, **kwargs)
    plan = original(scheduler, *args, **kwargs)
    _note("prefilled", plan)
    return plan


def _processing(
    original: Callable[..., Any], scheduler: Any, batch: Any, *args: Any, **kwargs: Any
) -> Any:
    _note("step_ends")
    result = original(scheduler, batch, *args, **kwargs)
    _note("step_ended")
    return result


def _note(what: str, *args: Any, **kwargs: Any) -> None:
    if _Recording.recorder is not None:
        try:
            getattr(_Recording.recorder, what)(*args, **kwargs)
        except Exception as error:
            _stop(error)


def _stop(error: Exception) -> None:
    recorder, _Recording.recorder = _Recording.recorder, None
    LOG.warning("Underglass has stopped recording: %s: %s", type(error).__name__, error)
    if recorder is not None:
        recorder.writer.close()


class Recorder:
    """Turns the calls of a scheduler into events.

    Requests are numbered from 1 in order of arrival, steps from 1. Times are microseconds since the
    recorder was made.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._start = time.monotonic_ns()
        self._numbers: dict[str, int] = {}  # of the live requests
        self._live: dict[int, Any] = {}
        self._waiting: set[int] = set()
        self._outputs: dict[int, int] = {}  # output tokens that have been written
        self._arrivals = self._step = self._began = self._ending = 0
        self._retracted: list[int] = []
        self._needed_by: dict[int, int] = {}  # of the requests that were preempted in this pass
        self._seats_are_next: bool | None = None  # what SGLang checks next; None: nothing yet
        self._stays_full = False
        self._obstacle: list[Any] = ["batch_full", 1, 0]
        self._in_flight: deque[tuple[int, int, int, list[int]]] = deque()  # oldest first
        self._with_tokens = os.environ.get("UNDERGLASS_RECORD_TOKENS") == "1"
        self.writer = _Writer(Path(os.environ["UNDERGLASS_RECORD"]))
        facts = dict.fromkeys(RECORDED.split(), "recorded")
        if self._with_tokens:
            facts["token_ids"] = "recorded"
        try:
            number = version("sglang")
        except PackageNotFoundError:
            number = "of an unknown version"
        others = self._others()
        source = {
            "engine": f"SGLang {number}",
            "recorder": "underglass-sglang 1",
            "facts": facts,
            **({"others": others} if others else {}),
        }
        self._put(
            type="run_started",
            schema=2,
            settings=self._settings(),
            classes={},
            model={},
            tokenizer={},
            clock="wall",
            source=source,
            t={"unix_us": time.time_ns() // 1000},
        )
        LOG.info("Underglass records the scheduler in %s", os.environ["UNDERGLASS_RECORD"])

    def _others(self) -> dict[str, Any]:
        """Return the settings that may change a decision and that Underglass does not have."""
        from sglang.srt.runtime_context import get_schedule

        one, schedule = self._scheduler, get_schedule()
        values = {
            name: getattr(one, name, getattr(schedule, name, plain)) or plain
            for name, plain in OTHERS.items()
        }
        if one.schedule_policy not in POLICIES:
            values["schedule_policy"] = one.schedule_policy
        if one.enable_priority_scheduling and one.schedule_policy != "fcfs":
            values["enable_priority_scheduling"] = True
        return {
            f"server_args.{name}": value
            for name, value in values.items()
            if value != OTHERS.get(name, "")
        }

    def _settings(self) -> dict[str, Any]:
        """Return SGLang's settings, under the names that Underglass has for them."""
        from sglang.srt.runtime_context import get_schedule

        one, page = self._scheduler, self._scheduler.page_size
        chunk, policy = one.chunked_prefill_size, one.schedule_policy
        if one.enable_priority_scheduling and policy == "fcfs":
            policy = "priority"
        pages = one.max_total_num_tokens // page
        return {
            "token_budget": chunk or one.max_prefill_tokens,
            "scheduler": "sglang_mixed" if one.is_mixed_chunk else "sglang",
            "schedule_conservativeness": get_schedule().schedule_conservativeness,
            "max_batch_size": one.max_running_requests,
            "max_kv_tokens": pages * page,
            "num_blocks": pages,
            "block_size": page,
            "policy": policy if policy in POLICIES else "fcfs",
            "async_scheduling": bool(one.enable_overlap),
            "chunked_prefill": chunk is not None,
            "prefix_cache": "off" if one.tree_cache.disable else "radix",
        }

    # Called by the hooks

    def queued(self, request: Any, is_retracted: bool) -> None:
        """A request joined the queue, for the first time or because it was retracted or preempted."""
        if is_retracted:
            self._retracted.append(self._numbers[request.rid])
        if request.rid in self._numbers:
            return
        self._arrivals += 1
        number = self._numbers[request.rid] = self._arrivals
        self._live[number], self._outputs[number] = request, 0
        self._waiting.add(number)
        ids = list(request.origin_input_ids)
        self._put(
            type="request_arrived",
            request=number,
            prompt=self._ids(ids),
            texts=[""] * len(ids),
            label=request.rid,
            max_tokens=request.sampling_params.max_new_tokens,
            n=1,
            priority=self._priority(request),
            sampling={"ignore_eos": True} if request.sampling_params.ignore_eos else {},
            t={"at": self._now()},
        )

    def step_begins(self) -> None:
        """The scheduler begins to plan a batch."""
        self._began = self._now()
        self._retracted.clear()
        self._needed_by.clear()
        self._seats_are_next = None

    def budgeted(self, verdict: str, adder: Any) -> None:
        """SGLang asked whether another request may be added: CONTINUE, NO_TOKEN or OTHER."""
        self._seats_are_next = verdict != "OTHER"
        if verdict == "OTHER":
            chunk = adder.rem_chunk_tokens
            left = adder.rem_input_tokens if chunk is None else chunk
            self._obstacle = ["token_budget", 1, max(0, left)]

    def tried(self, verdict: str, adder: Any, request: Any) -> None:
        """SGLang tried to admit a request. If it did, this is the verdict about the next one."""
        if verdict == "NO_TOKEN":
            self._obstacle = ["expected_tokens", 1, int(adder.rem_total_tokens)]  # of the next one
            if request not in adder.can_run_list:
                new = request.sampling_params.max_new_tokens - len(request.output_ids)
                need = len(request.full_untruncated_fill_ids) - request.prefix_len + adder.page_size
                need += max(0, min(new, CLIP_MAX_NEW_TOKENS))
                self._obstacle[1] = need
        else:
            self.budgeted(verdict, adder)
        self._seats_are_next = False

    def preempted_for(self, request: Any, victims: list[Any]) -> None:
        """Requests were preempted for a more urgent one."""
        number = self._numbers[request.rid]
        for victim in victims:
            self._needed_by.setdefault(self._numbers[victim.rid], number)

    def prefilling(self, running_batch: Any) -> None:
        """SGLang will try to admit requests, unless the batch has been full since it last did."""
        can_admit = running_batch.is_empty() or self._scheduler.enable_priority_preemption
        self._stays_full = running_batch.batch_is_full and not (
            can_admit or self._scheduler.is_hybrid_swa
        )

    def prefilled(self, plan: Any) -> None:
        """SGLang has tried to admit requests. If it ended at the seats, they are why it did."""
        if self._stays_full:
            return
        is_full = plan.running_batch.batch_is_full
        if self._seats_are_next or (is_full and self._seats_are_next is None):
            self._obstacle = ["batch_full", 1, 0]

    def _blocked(self) -> list[Any] | None:
        """Return the head of the queue, and why it waits."""
        queue = [self._numbers[request.rid] for request in self._scheduler.waiting_queue]
        queue = [number for number in queue if number not in self._retracted]
        if not queue:  # what was retracted in this pass has not been looked at
            return None
        reason, need, have = self._obstacle
        return [queue[0], reason, len(queue) - 1, need, have]

    def step_scheduled(self, plan: Any) -> None:
        """The scheduler has planned a batch, or found nothing to do."""
        batch = plan.batch_to_run
        self._find_aborted()
        blocked = self._blocked()
        if not batch or not batch.reqs:
            if self._in_flight and self._live:  # with overlap, a pass may only end the last step
                self._step += 1
                self._put(type="step_started", step=self._step)
                self._put(type="step_scheduled", rows=[], skipped=[], blocked=blocked)
                self._in_flight.append((self._step, self._began, self._now(), []))
            return
        self._step += 1
        self._put(type="step_started", step=self._step)
        requests = [self._numbers[request.rid] for request in batch.reqs]
        for number in self._retracted:
            self._put_preempted(number)
        is_extend = batch.forward_mode.is_extend()
        decoding = {id(request) for request in batch.decoding_reqs or ()}
        rows = []
        for number, request in zip(requests, batch.reqs, strict=True):
            if number in self._waiting:
                for victim in [one for one, by in self._needed_by.items() if by == number]:
                    self._put_preempted(victim)
                    del self._needed_by[victim]
                self._waiting.discard(number)
                resumed = request.retraction_count > 0
                self._put(
                    type="admitted", request=number, node=0, blocks=[], resumed=resumed, key=[]
                )
            count = request.extend_len if is_extend and id(request) not in decoding else 1
            rows.append([number, request.kv.kv_committed_len - count, count, []])
        for victim in self._needed_by:  # for a request that was not admitted after all
            self._put_preempted(victim)
        skipped = []
        if is_extend:
            idle = sorted(self._live.keys() - self._waiting - set(requests))
            skipped = [[number, "prefill_batch"] for number in idle]
        self._put(type="step_scheduled", rows=rows, skipped=skipped, blocked=blocked)
        self._in_flight.append((self._step, self._began, self._now(), requests))

    def _put_preempted(self, victim: int) -> None:
        self._waiting.add(victim)
        self._put(type="preempted", request=victim, needed_by=-1, refunded=0)

    def step_ends(self) -> None:
        """The oldest batch has been computed."""
        self._ending = self._now()

    def step_ended(self) -> None:
        """Its tokens have been appended, and its requests may have ended."""
        step, start, scheduled, requests = self._in_flight.popleft()
        gains, ended, wasted = [], [], []
        for number in requests:
            request = self._live.get(number)
            if request is None:  # with overlap, a batch may compute a request that has ended
                wasted.append(number)
                continue
            new = list(request.output_ids[self._outputs[number] :])
            if new:
                self._outputs[number] += len(new)
                gains.append([number, self._ids(new), [""] * len(new)])
            if request.finished():
                ended.append((number, request))
        times = {"start": start, "scheduled": scheduled, "end": self._ending}
        self._put(type="step_finished", tokens=gains, step=step, wasted=wasted, t=times)
        for number, request in ended:
            kind = request.finished_reason.to_json()["type"]
            self._end(number, kind if kind in ("stop", "length", "abort") else "error")
        if self._in_flight and not self._in_flight[0][3]:  # a step without a batch ends with it
            self.step_ended()

    def _find_aborted(self) -> None:
        """Find requests that left the queue without having been scheduled, because clients left."""
        queue = self._scheduler.waiting_queue
        if len(queue) < len(self._waiting):
            scheduled = {request.rid for request in queue}
            for number in sorted(self._waiting):
                request = self._live[number]
                if request.rid not in scheduled and not request.kv.holds_kv:
                    self._end(number, "abort")

    def _end(self, number: int, reason: str) -> None:
        self._waiting.discard(number)
        del self._numbers[self._live.pop(number).rid], self._outputs[number]
        self._put(type="request_finished", request=number, reason=reason)

    def _priority(self, request: Any) -> int:
        """Return a request's priority, where the smallest value comes first."""
        value = int(request.priority or 0)
        return value if self._scheduler.schedule_low_priority_values_first else -value

    def _ids(self, ids: list[int]) -> list[int]:
        return ids if self._with_tokens else [-1] * len(ids)

    def _now(self) -> int:
        return (time.monotonic_ns() - self._start) // 1000

    def _put(self, **event: Any) -> None:
        self.writer.put(event)


class _Writer:
    """Writes lines in a thread of its own."""

    def __init__(self, path: Path) -> None:
        is_packed = path.suffix == ".gz"
        self._file: Any = gzip.GzipFile(path, "wb", LEVEL) if is_packed else path.open("wb")
        self._lines: deque[dict[str, Any]] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="underglass", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, line: dict[str, Any]) -> None:
        """Let a line be written. Raises RuntimeError if too many wait for a slow disk."""
        if len(self._lines) >= QUEUE:
            raise RuntimeError(f"{QUEUE:,} lines wait to be written: the disk is too slow")
        self._lines.append(line)

    def close(self) -> None:
        """Write what is left. Safe to call twice."""
        self._closing.set()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            while not self._closing.wait(FLUSH_SECONDS):
                self._write()
            self._write()
            self._file.close()
        except OSError as error:
            _stop(error)

    def _write(self) -> None:
        """Write what waits, in pieces: while one is packed, the scheduler's thread can run."""
        while self._lines:
            piece = [self._lines.popleft() for _ in range(min(PIECE, len(self._lines)))]
            self._file.write(_ENCODER.encode_lines(piece))
        self._file.flush()
