"""Recorded production traces as workloads: when requests came and how long they were.

    trace = read_trace("azure_code")          # a part of a trace that comes with Underglass
    trace = read_trace("BurstGPT_1.csv")      # a file that you have downloaded, whole
    trace = trace_of(log, "monday")           # the requests of a log

A trace has no text, so prompts are invented tokens. Where it has hash ids, prompts share what their
ids share; in the others each prompt is different, and no request finds anything of another one cached.

    format        arrivals, lengths   shared prefixes     tenants   source
    Mooncake      recorded            512 tokens per id   -         FAST 2025, Apache 2.0
    Qwen-Bailian  recorded            16 tokens per id    -         ATC 2025, Apache 2.0
    Azure         recorded            unknown             -         ISCA 2024, HPCA 2025, CC BY 4.0
    BurstGPT      recorded            unknown             -         KDD 2025, CC BY 4.0
    your own      recorded            unknown             yes       CSV: at_s, prompt_tokens, ...

None of them says which `max_tokens` a client set. The default is `MAX_TOKENS`, because clients rarely
know how long an answer becomes. With `max_tokens=None` it is the length of the answer, so a policy
that reads it knows the future.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log.log import EventLog
from engine.core.sampling_params import SamplingParams
from engine.simulation.mooncake import BLOCK, MAX_LENGTH, MooncakeError, lines_of, parse
from engine.simulation.replayable import replayable
from engine.simulation.workload import Answer, Arrival, Input, Workload

FOLDER = Path(__file__).parent / "recorded_traces"
MAX_TOKENS = 2048  # of an answer, where a trace does not say what the client asked for
_SMALL_BLOCK = 16  # tokens of a Qwen-Bailian hash id
_FIRST = 1_000  # the first invented token; outputs are letters, which are below
_NO_IDS: list[int] = []  # one for all requests of a trace without hash ids
_FILLER = 999  # the rest of a prompt whose first token makes it different from the others


class BuiltIn(NamedTuple):
    """A part of a trace that comes with Underglass; README.md beside the file names its source."""

    file: str
    shrink: int = 1


BUILT_IN = {
    "azure_code": BuiltIn("azure_code.csv.gz"),
    "azure_conv": BuiltIn("azure_conv.csv.gz"),
    "mooncake": BuiltIn("mooncake.jsonl.gz", shrink=8),
}


class TraceError(ValueError):
    """A file is not a trace, or a line of it is not a request. The message names line and field."""


class UnknownTraceError(TraceError):
    """The first line is of no known format, so the file may be something else, such as a log."""


class TracedRequest(NamedTuple):
    """One request. `block` is the number of tokens that a hash id stands for."""

    at_ms: float
    prompt_tokens: int
    output_tokens: int
    hash_ids: list[int]
    block: int
    tenant: str


@dataclass(frozen=True)
class Trace:
    """The requests of a trace in order of arrival.

    failed  how many had no prompt or no answer and are left out
    """

    name: str
    requests: list[TracedRequest]
    failed: int = 0

    def workload(
        self, start: int = 0, count: int | None = None, *, max_tokens: int | None = MAX_TOKENS
    ) -> Workload:
        """Return `count` requests from `start` on. `max_tokens` is at least the answer's length."""
        numbers: dict[int, int] = {}
        stop = None if count is None else start + count
        inputs = [_arrival(one, numbers, max_tokens) for one in self.requests[start:stop]]
        blocks = max((one.block for one in self.requests), default=0)
        size = _FIRST + len(inputs) + len(numbers) * blocks
        described = {
            "name": "invented tokens",
            "vocab_size": size,
            "eos_ids": [*ByteTokenizer().eos_ids],
        }
        return Workload(list[Input](inputs), described)


def read_trace(name: str | Path, *, shrink: int = 1, max_requests: int | None = None) -> Trace:
    """Read a trace by its name in `BUILT_IN`, or a file (.csv or .jsonl, which may be gzipped).

    shrink  divides all lengths: with 32, a hash id of Mooncake stands for 16 tokens

    Raises TraceError for a wrong line, with its number, and OSError for a file that cannot be read.
    """
    built_in = BUILT_IN.get(str(name))
    path = FOLDER / built_in.file if built_in else Path(name)
    shrink *= built_in.shrink if built_in else 1
    if shrink < 1 or shrink & (shrink - 1) or shrink > BLOCK:
        raise TraceError(f"shrink must be a power of 2 from 1 to {BLOCK}, got {shrink}")
    failed, requests = 0, list[TracedRequest]()
    last = 0.0
    for number, one in islice(_requests(path), max_requests):
        if one.at_ms < last:
            raise TraceError(f"{path}, line {number}: it must not arrive before the line above")
        last = one.at_ms
        if one.output_tokens == 0 or one.prompt_tokens == 0:  # 8 % of BurstGPT have neither
            failed += 1
            continue
        for field in ("prompt_tokens", "output_tokens"):
            if not 1 <= (value := getattr(one, field)) <= MAX_LENGTH:
                raise TraceError(
                    f"{path}, line {number}: {field} must be 1 to {MAX_LENGTH}, got {value}"
                )
        shrunk = (
            one
            if shrink == 1
            else one._replace(
                prompt_tokens=-(-one.prompt_tokens // shrink),
                output_tokens=-(-one.output_tokens // shrink),
                block=max(1, one.block // shrink),
            )
        )
        requests.append(shrunk)
    if not requests:
        raise TraceError(f"{path} has no request")
    return Trace(Path(name).name.split(".")[0], requests, failed)


def trace_of(log: EventLog, name: str) -> Trace:
    """Return the requests of a log, one for each prompt; labels are tenants.

    Raises ValueError for a log whose beginning was dropped, or that does not know arrivals.
    """
    inputs = Workload.from_log(replayable(log), "time").inputs
    requests = [
        TracedRequest(one.at_ms, len(one.prompt), answer.length, one.keyed_prompt, 1, one.label)
        for one in inputs
        if isinstance(one, Arrival) and (answer := one.answers.get(0))
    ]
    if not requests:
        raise TraceError(f"{name} has no request with an answer")
    return Trace(name, requests)


def _arrival(one: TracedRequest, numbers: dict[int, int], max_tokens: int | None) -> Arrival:
    prompt = list[int]()
    for id_ in one.hash_ids:
        first = _FIRST + numbers.setdefault(id_, len(numbers)) * one.block
        prompt += range(first, first + one.block)
    if not one.hash_ids:
        own = _FIRST + numbers.setdefault(-1 - len(numbers), len(numbers))
        prompt = [own] + [_FILLER] * (one.prompt_tokens - 1)
    del prompt[one.prompt_tokens :]
    output = one.output_tokens
    return Arrival(
        at_ms=one.at_ms,
        prompt=prompt,
        params=SamplingParams(max_tokens=max(output, max_tokens or 0)),
        label=one.tenant,
        texts=[""] * len(prompt),
        answers={0: Answer(output)},
    )


class _Qwen(msgspec.Struct):
    """A line of a Qwen-Bailian trace; its README on GitHub describes the fields."""

    chat_id: int
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


class _Columns(NamedTuple):
    """The columns of a CSV format: the time, the lengths, and the tenant if it has one."""

    at: str
    prompt: str
    output: str
    tenant: str = ""


_CSV = (
    _Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),  # Azure
    _Columns("Timestamp", "Request tokens", "Response tokens"),  # BurstGPT
    _Columns("at_s", "prompt_tokens", "output_tokens", "tenant"),
)


def _requests(path: Path) -> Iterator[tuple[int, TracedRequest]]:
    """Yield the requests of a file with their line numbers."""
    try:
        lines = (line.decode("utf-8-sig") for line in lines_of(path))
        first = next(lines, "")
        if first.lstrip().startswith("{"):
            yield from _from_json(path, chain([first], lines))
        else:
            yield from _from_csv(path, first, lines)
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} must be text in UTF-8, plain or gzipped") from error
    except MooncakeError as error:
        raise TraceError(f"{path}: {error}") from error


def _from_json(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, TracedRequest]]:
    for number, line in enumerate(lines, start=1):
        if number == 1 and '"input_length"' not in line:
            raise UnknownTraceError(f"{path} must be a Mooncake or Qwen-Bailian trace")
        try:
            if '"chat_id"' in line:
                qwen = msgspec.json.decode(line, type=_Qwen)
                found = TracedRequest(
                    qwen.timestamp * 1000, qwen.input_length, qwen.output_length, qwen.hash_ids,
                    _SMALL_BLOCK, "",
                )  # fmt: skip
            else:
                one = parse(line.encode())
                found = TracedRequest(
                    one.timestamp, one.input_length, one.output_length, one.hash_ids, BLOCK, ""
                )
        except (MooncakeError, msgspec.DecodeError) as error:
            raise TraceError(f"{path}, line {number}: {error}") from error
        yield number, found


def _from_csv(path: Path, head: str, lines: Iterable[str]) -> Iterator[tuple[int, TracedRequest]]:
    names = next(csv.reader([head]), [])
    known = next((one for one in _CSV if {*one[:3]} <= {*names}), None)
    if known is None:
        formats = "; ".join(", ".join(one[:3]) for one in _CSV)
        raise UnknownTraceError(
            f"{path} must be JSON Lines of Mooncake or Qwen-Bailian, or a CSV file with the columns "
            f"{formats}; its first line is {head.strip()[:80]!r}"
        )
    begin = None
    for number, row in enumerate(csv.DictReader(lines, names), start=2):
        try:
            at_s = _seconds(row[known.at])
            begin = at_s if begin is None else begin
            found = TracedRequest(
                (at_s - begin) * 1000, int(row[known.prompt]), int(row[known.output]), _NO_IDS, 1,
                row.get(known.tenant) or "",
            )  # fmt: skip
        except (TypeError, ValueError) as error:
            raise TraceError(f"{path}, line {number}: {error}, got {[*row.values()]}") from error
        yield number, found


def _seconds(text: str) -> float:
    """Return a time, which is a number of seconds or a date."""
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()  # Azure's times are UTC
