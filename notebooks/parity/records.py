"""Workloads, and what a scheduler decides about them: the record of both engines.

`recorders/fixtures/record_vllm.py` drives vLLM's scheduler through a workload, `replay.py` drives this
project's engine through the same workload. Both return a list of `Step`.

A recording is gzip-compressed JSON Lines. The first line is the header: the engine, its version and
the settings that hold for all workloads. Each further line is `{"workload": ..., "steps": [...]}`.
To keep the file small:

- Token ids are a string where every id is the code of a printable ASCII character.
- A step is `[rows, free, blocks, finished, preempted]`, without empty lists at its end.
- A row is `[request, num_tokens]`, or `[request, num_tokens, start]` if the request does not start
  where its last row ended. `rows` is 0 if the requests of the step before compute one token each.
- `blocks` has a list per row with what was appended to its block table, or is `[]` if nothing was.
"""

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from engine.extensions.kv_groups import Group

DECISIONS_OF_VLLM = Path(__file__).with_name("vllm.jsonl.gz")
STOP = ord(".")  # the stop token of every request


class Ask(msgspec.Struct, omit_defaults=True):
    """A request of a workload. Requests are numbered from 1 in their order of arrival.

    step        the request arrives before this step
    output      the tokens that the invented model says; it ends early if the last one is `STOP`
    max_tokens  at least `len(output)`
    abort       the client aborts before this step; 0: never
    ignore_eos  whether the client says that only `max_tokens` ends the output
    label       SGLang's routing key
    """

    step: int
    prompt: list[int]
    output: list[int]
    max_tokens: int
    priority: int = 0
    abort: int = 0
    ignore_eos: bool = False
    label: str = ""


class Workload(msgspec.Struct, omit_defaults=True):
    """Settings and requests. The field names are those of `EngineConfig`.

    runner_seats    vLLM's max_num_seqs, if max_num_active_seqs (`max_batch_size`) is less; 0: equal
    whole_sequence  vLLM's scheduler_reserve_full_isl
    long_prefill    vLLM's long_prefill_token_threshold; 0: off
    groups          further KV cache groups, which come before that of full attention
    retention       vLLM's prefix_cache_retention_interval, for these
    """

    name: str
    stratum: str
    token_budget: int
    max_batch_size: int
    num_blocks: int
    block_size: int
    requests: list[Ask]
    policy: str = "fcfs"
    prefix_cache: bool = True
    chunked_prefill: bool = True
    async_scheduling: bool = False
    runner_seats: int = 0
    whole_sequence: bool = True
    watermark: float = 0.0
    long_prefill: int = 0
    long_prefill_adaptive: bool = False
    scheduler: str = "vllm"
    schedule_conservativeness: float = 1.0
    groups: list[Group] = []
    retention: int | None = None


class Row(NamedTuple):
    """A request computes `num_tokens` tokens in a step, from position `start` on."""

    request: int
    start: int
    num_tokens: int


class Step(msgspec.Struct):
    """One pass of an engine's loop: schedule a step, then process the tokens of a finished one.

    A pass without any request is not recorded, though it counts for the arrivals.

    free      blocks that could be allocated after scheduling
    tables    the block table of each row's request after scheduling
    finished  requests that ended with the tokens processed here, in order. Under asynchronous
              scheduling those are the tokens of the step before.
    """

    rows: list[Row] = []
    preempted: list[int] = []
    finished: list[int] = []
    free: int = 0
    tables: dict[int, list[int]] = {}

    @property
    def decisions(self) -> dict[str, list[Any]]:
        """What the scheduler decided, in the order in which it decides."""
        return {"preempted": self.preempted, "rows": self.rows, "finished": self.finished}


class Recording(NamedTuple):
    """A workload and the steps that an engine made of it."""

    workload: Workload
    steps: list[Step]


class Arrivals:
    """Says what arrives and what is aborted before each pass. Both engines read the same one."""

    def __init__(self, workload: Workload) -> None:
        self._asks = list(enumerate(workload.requests, start=1))
        self._aborts = sorted((ask.abort, number) for number, ask in self._asks if ask.abort)
        self._now = 0

    def __bool__(self) -> bool:
        return bool(self._asks)

    def next(self, *, idle: bool) -> tuple[list[tuple[int, Ask]], list[int]]:
        """Return the arriving requests and the numbers of aborted ones. Idle time is skipped."""
        self._now += 1
        if idle and self._asks:
            self._now = max(self._now, self._asks[0][1].step)
        arriving = list(itertools.takewhile(lambda pair: pair[1].step <= self._now, self._asks))
        del self._asks[: len(arriving)]
        aborted = [number for step, number in self._aborts if step <= self._now]
        self._aborts = [one for one in self._aborts if one[0] > self._now]
        return arriving, aborted


def read(path: Path) -> Iterator[Recording]:
    """Yield the workloads of a recording with their steps."""
    with gzip.open(path, "rt") as file:
        next(file)
        for line in file:
            fields = json.loads(line)
            for ask in fields["workload"]["requests"]:
                for name in ("prompt", "output"):
                    if isinstance(ask[name], str):
                        ask[name] = list(ask[name].encode())
            workload = msgspec.convert(fields["workload"], Workload)
            yield Recording(workload, _unpack_steps(fields["steps"]))


def _unpack_steps(packed: list[list[Any]]) -> list[Step]:
    steps: list[Step] = []
    ends: dict[int, int] = {}
    tables: dict[int, list[int]] = {}
    before: list[int] = []
    for fields in packed:
        rows, free, blocks, finished, preempted = fields + [[] for _ in range(5 - len(fields))]
        if rows == 0:
            rows = [[request, 1] for request in before]
        step = Step([], preempted, finished, free)
        for request in preempted:
            tables.pop(request, None)
        for request, count, *start in rows:
            step.rows.append(Row(request, start[0] if start else ends[request], count))
            ends[request] = step.rows[-1].start + count
        before = [row.request for row in step.rows]
        for request, new in zip(before, blocks or [[]] * len(before), strict=True):
            tables[request] = tables.get(request, []) + new
        step.tables = {request: tables[request] for request in before}
        steps.append(step)
    return steps
