"""Record what SGLang's scheduler decides, as a log that Underglass draws.

    UNDERGLASS_RECORD=run.jsonl.gz python -m sglang.launch_server --model-path MODEL

SGLang loads this file as a plugin (entry point `sglang.srt.plugins`). README.md describes the variables
and what is not recorded. Three parts, top down:

- `register` hooks four methods of SGLang's `Scheduler`. The hooks decide nothing, and an error in them
  ends the recording, never the engine.
- `Recorder` turns their calls into the events of Underglass. It reads numbers that are in the CPU's
  memory already, so it never waits for the GPU.
- `_Writer` compresses and writes in a thread of its own, twice a second.
"""

import atexit
import gzip
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LOG = logging.getLogger("sglang.underglass")
QUEUE = 10_000  # lines that may wait to be written
FLUSH_SECONDS = 0.5  # what a crash may lose
RECORDED = (
    "settings arrivals step_times scheduled_tokens admissions queue preemptions finish_reasons"
)
OTHERS = (
    "enable_overlap",
    "enable_priority_scheduling",
    "enable_hierarchical_cache",
    "enable_lora",
)


class _Recording:
    """The recorder of this process, in which there is one scheduler, or None."""

    recorder: "Recorder | None" = None


def register() -> None:
    """Hook SGLang's scheduler, if `UNDERGLASS_RECORD` names a file."""
    if not os.environ.get("UNDERGLASS_RECORD"):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    scheduler = "sglang.srt.managers.scheduler.Scheduler."
    for method, hook, kind in (
        ("__init__", _created, HookType.AFTER),
        ("_add_request_to_queue", _queued, HookType.AFTER),
        ("get_next_batch_to_run", _scheduling, HookType.AROUND),
        ("process_batch_result", _processing, HookType.AROUND),
    ):
        HookRegistry.register(scheduler + method, hook, kind)


def _created(_result: None, scheduler: Any, *_args: Any, **_kwargs: Any) -> None:
    try:
        from sglang.srt.runtime_context import get_parallel

        if get_parallel().attn_tp_rank == 0:  # the other ranks decide the same
            _Recording.recorder = Recorder(scheduler)
    except Exception as error:
        _stop(error)


def _queued(_result: None, _scheduler: Any, request: Any, is_retracted: bool = False) -> None:
    _note("queued", request, is_retracted)


def _scheduling(original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    _note("step_begins")
    plan = original(scheduler, *args, **kwargs)
    _note("step_scheduled", plan.batch_to_run)
    return plan


def _processing(
    original: Callable[..., Any], scheduler: Any, batch: Any, *args: Any, **kwargs: Any
) -> Any:
    _note("step_ends")
    result = original(scheduler, batch, *args, **kwargs)
    _note("step_ended")
    return result


def _note(what: str, *args: Any) -> None:
    if _Recording.recorder is not None:
        try:
            getattr(_Recording.recorder, what)(*args)
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
        others = {name: True for name in OTHERS if getattr(scheduler, name, None)}
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

    def _settings(self) -> dict[str, Any]:
        """Return SGLang's settings, under the names that Underglass has for them."""
        from sglang.srt.runtime_context import get_schedule

        one, page = self._scheduler, self._scheduler.page_size
        chunk = one.chunked_prefill_size
        pages = one.max_total_num_tokens // page
        return {
            "token_budget": chunk or one.max_prefill_tokens,
            "scheduler": "sglang_mixed" if one.is_mixed_chunk else "sglang",
            "schedule_conservativeness": get_schedule().schedule_conservativeness,
            "max_batch_size": one.max_running_requests,
            "max_kv_tokens": pages * page,
            "num_blocks": pages,
            "block_size": page,
            "policy": one.schedule_policy,
            "chunked_prefill": chunk is not None,
            "prefix_cache": "off" if one.tree_cache.disable else "radix",
        }

    # Called by the hooks

    def queued(self, request: Any, is_retracted: bool) -> None:
        """A request joined the queue, for the first time or because it was retracted."""
        if is_retracted:
            self._retracted.append(self._numbers[request.rid])
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
            priority=request.priority or 0,
            sampling={},
            t={"at": self._now()},
        )

    def step_begins(self) -> None:
        """The scheduler begins to plan a batch."""
        self._began = self._now()
        self._retracted.clear()

    def step_scheduled(self, batch: Any) -> None:
        """The scheduler has planned a batch, or found nothing to do."""
        self._find_aborted()
        if not batch or not batch.reqs:
            return
        self._step += 1
        self._put(type="step_started", step=self._step)
        requests = [self._numbers[request.rid] for request in batch.reqs]
        for number in self._retracted:
            self._waiting.add(number)
            self._put(type="preempted", request=number, needed_by=-1, refunded=0)
        is_extend = batch.forward_mode.is_extend()
        decoding = {id(request) for request in batch.decoding_reqs or ()}
        rows = []
        for number, request in zip(requests, batch.reqs, strict=True):
            if number in self._waiting:
                self._waiting.discard(number)
                resumed = request.retraction_count > 0
                self._put(
                    type="admitted", request=number, node=0, blocks=[], resumed=resumed, key=[]
                )
            count = request.extend_len if is_extend and id(request) not in decoding else 1
            rows.append([number, request.kv.kv_committed_len - count, count, []])
        idle = self._live.keys() - self._waiting - set(requests)
        skipped = [[number, "prefill_batch"] for number in sorted(idle)] if is_extend else []
        self._put(type="step_scheduled", rows=rows, skipped=skipped)
        self._in_flight.append((self._step, self._began, self._now(), requests))

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

    def _ids(self, ids: list[int]) -> list[int]:
        return ids if self._with_tokens else [-1] * len(ids)

    def _now(self) -> int:
        return (time.monotonic_ns() - self._start) // 1000

    def _put(self, **event: Any) -> None:
        self.writer.put(event)


class _Writer:
    """Writes lines in a thread of its own."""

    def __init__(self, path: Path) -> None:
        opened = gzip.open if path.suffix == ".gz" else open
        self._file: Any = opened(path, "wt", encoding="utf-8")
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
        while self._lines:
            self._file.write(json.dumps(self._lines.popleft(), separators=(",", ":")) + "\n")
        self._file.flush()
