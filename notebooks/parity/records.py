"""Workloads, and what a scheduler decides about them: the record that both engines write.

`record_vllm.py` drives vLLM's scheduler through a workload, `replay.py` drives this project's engine
through the same workload. Both return a list of `Step`, and `first_difference` compares two such lists.

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
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

DECISIONS_OF_VLLM = Path(__file__).with_name("vllm.jsonl.gz")
STOP = ord(".")  # the stop token of every request
DECISIONS = ("preempted", "rows", "finished")


class Ask(msgspec.Struct, omit_defaults=True):
    """A request of a workload. Requests are numbered from 1 in their order of arrival.

    step        the request arrives before this step
    output      the tokens that the invented model says; it ends early if the last one is `STOP`
    max_tokens  at least `len(output)`
    abort       the client aborts before this step; 0: never
    """

    step: int
    prompt: list[int]
    output: list[int]
    max_tokens: int
    priority: int = 0
    abort: int = 0


class Workload(msgspec.Struct, omit_defaults=True):
    """Settings and requests. The field names are those of `EngineConfig`.

    long_prefill  vLLM's long_prefill_token_threshold; 0: off
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
    long_prefill: int = 0


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


# Comparing


class Difference(NamedTuple):
    """The first decision that differs: where, in what, and what kind of difference it is."""

    step: int
    field: str
    kind: str
    ours: Any
    theirs: Any


def first_difference(ours: list[Step], theirs: list[Step]) -> Difference | None:
    """Return the first difference in `DECISIONS`, or None if all decisions are equal."""
    admitted = set[int]()
    for number, (our, their) in enumerate(zip(ours, theirs, strict=False), start=1):
        for field in DECISIONS:
            one, other = getattr(our, field), getattr(their, field)
            if one != other:
                return Difference(number, field, _kind(our, their, admitted), one, other)
        admitted |= {row.request for row in our.rows}
        admitted -= set(our.preempted)
    if len(ours) != len(theirs):
        return Difference(
            min(len(ours), len(theirs)) + 1, "steps", "length", len(ours), len(theirs)
        )
    return None


def _kind(our: Step, their: Step, running: set[int]) -> str:
    """Classify the first difference by what one side does and the other does not."""
    if our.preempted != their.preempted:
        more = len(our.preempted) - len(their.preempted)
        return "preempts others" if more == 0 else f"preempts {'more' if more > 0 else 'less'}"
    mine, other = ({row.request: row for row in step.rows} for step in (our, their))
    hits = [request for request in mine if request in other and request not in running]
    for request in hits:
        cached = mine[request].start - other[request].start
        if cached:
            return f"finds {'more' if cached > 0 else 'less'}"
    if mine.keys() - other.keys():
        return "schedules more"
    if other.keys() - mine.keys():
        return "schedules less"
    if our.rows != their.rows:
        return "splits differently"
    return "finishes differently"


def shares_equally(ours: list[Step], theirs: list[Step]) -> bool:
    """Return whether the block tables are equal up to the numbers of the blocks."""
    return all(
        _renumbered(one) == _renumbered(other) for one, other in zip(ours, theirs, strict=True)
    )


def _renumbered(step: Step) -> list[list[int]]:
    """Number a step's blocks by their first appearance in it."""
    numbers: dict[int, int] = {}
    return [
        [numbers.setdefault(block, len(numbers)) for block in step.tables[row.request]]
        for row in step.rows
    ]


# Reading and writing


def write(path: Path, header: dict[str, Any], recordings: Iterable[Recording]) -> None:
    """Write a recording. Equal recordings give equal bytes."""
    lines = [header]
    for workload, steps in recordings:
        fields = msgspec.to_builtins(workload)
        for ask in fields["requests"]:
            ask["prompt"], ask["output"] = _pack_ids(ask["prompt"]), _pack_ids(ask["output"])
        lines.append({"workload": fields, "steps": _pack_steps(steps)})
    write_lines(path, lines)


def write_lines(path: Path, lines: Iterable[Any]) -> None:
    """Write compressed JSON Lines, without a time stamp or a file name in them."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as file:
        file.write(text.encode())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed.getvalue())


def read_header(path: Path) -> dict[str, Any]:
    """Return the first line of a recording."""
    with gzip.open(path, "rt") as file:
        return dict(json.loads(next(file)))


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


def _pack_ids(ids: list[int]) -> str | list[int]:
    return bytes(ids).decode() if all(33 <= one <= 126 for one in ids) else ids


def _pack_steps(steps: list[Step]) -> list[list[Any]]:
    packed: list[list[Any]] = []
    ends: dict[int, int] = {}  # request -> end of its last row
    lengths: dict[int, int] = {}  # request -> blocks in its table
    before: list[int] = []
    for step in steps:
        for request in step.preempted:
            lengths.pop(request, None)
        rows: Any = [
            [row.request, row.num_tokens] + [row.start] * (ends.get(row.request) != row.start)
            for row in step.rows
        ]
        requests = [row.request for row in step.rows]
        if requests and rows == [[request, 1] for request in before]:
            rows = 0
        blocks = [step.tables[row][lengths.get(row, 0) :] for row in requests]
        fields = [rows, step.free, blocks if any(blocks) else [], step.finished, step.preempted]
        while fields[-1] == []:
            fields.pop()
        packed.append(fields)
        before = requests
        ends |= {row.request: row.start + row.num_tokens for row in step.rows}
        lengths |= {row: len(step.tables[row]) for row in requests}
    return packed


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
