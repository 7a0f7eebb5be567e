"""Mooncake's request traces as workloads: when requests came, how long they were, what they shared.

    workload = workload_from_mooncake("conversation_trace.jsonl", max_requests=500, shrink=32)
    log = simulate(workload, EngineConfig.like("vllm", token_budget=512), cost=Cost(20, 0.5))

A line is `{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}`. There is no
text: an id stands for 512 tokens and all tokens before them, and equal ids may share KV. Each id
becomes a block of invented tokens.

The prompts have 12,000 tokens on average, too many for a laptop. `shrink` divides every length, so that
what is shared stays the same share of a prompt.

Source: Mooncake (FAST 2025); its repository describes the format in the README of FAST25-release.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from engine.core.sampling_params import SamplingParams
from engine.simulation.workload import Arrival, Input, Workload

BLOCK = 512  # tokens that a hash id stands for
MAX_LENGTH = 2_000_000  # tokens of a prompt or an output
_FIRST = 1_000  # the first invented token; outputs are letters, which are below
_GZIP = b"\x1f\x8b"


class MooncakeError(ValueError):
    """A line is not a request of a Mooncake trace. The message names the field and the value."""


class MooncakeRequest(msgspec.Struct, frozen=True):
    """One line. Raises MooncakeError for values that do not fit together.

    timestamp  ms since the trace began
    hash_ids   one per block of 512 prompt tokens; the last block may be shorter
    """

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]

    def __post_init__(self) -> None:
        if not 0 <= self.timestamp < float("inf"):
            raise MooncakeError(f"timestamp must be 0 or more milliseconds, got {self.timestamp:g}")
        for name in ("input_length", "output_length"):
            if not 1 <= (value := getattr(self, name)) <= MAX_LENGTH:
                raise MooncakeError(f"{name} must be 1 to {MAX_LENGTH} tokens, got {value}")
        blocks = -(-self.input_length // BLOCK)
        if len(self.hash_ids) != blocks:
            raise MooncakeError(
                f"hash_ids must have {blocks} ids for {self.input_length} tokens, one per {BLOCK}, "
                f"got {len(self.hash_ids)}"
            )
        for id_ in self.hash_ids:
            if not 0 <= id_ < 1 << 40:
                raise MooncakeError(f"hash_ids must be from 0 to {(1 << 40) - 1}, got {id_}")


_decoder = msgspec.json.Decoder(MooncakeRequest)


def parse(line: bytes) -> MooncakeRequest:
    """Return the request of a line. Raises MooncakeError for anything else."""
    try:
        return _decoder.decode(line)
    except MooncakeError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cause = error.__cause__
        raise MooncakeError(str(cause if isinstance(cause, MooncakeError) else error)) from error


def workload_from_mooncake(
    trace: str | Path | Iterable[bytes | MooncakeRequest],
    *,
    max_requests: int | None = None,
    speed: float = 1.0,
    shrink: int = 1,
) -> Workload:
    """Return a trace's requests as a workload that arrives at their times.

    trace         a file (.jsonl or .jsonl.gz), which is read as a stream, or its lines
    max_requests  how many to read, from the first on; None: all
    speed         2 lets them arrive twice as fast
    shrink        divides all lengths: a power of 2 up to 512. With 32, a hash id stands for 16 tokens

    Raises MooncakeError for a wrong line, with its number, and ValueError for a wrong argument.
    """
    if not 0 < speed < float("inf"):
        raise ValueError(f"speed must be more than 0, got {speed!r}")
    if not isinstance(shrink, int) or shrink < 1 or BLOCK % shrink:
        raise ValueError(f"shrink must be a power of 2 from 1 to {BLOCK}, got {shrink!r}")
    if max_requests is not None and max_requests < 1:
        raise ValueError(f"max_requests must be at least 1 or None, got {max_requests!r}")
    lines = lines_of(trace) if isinstance(trace, str | Path) else trace
    inputs, last, numbers = list[Input](), 0.0, dict[int, int]()
    for number, line in enumerate(islice(lines, max_requests), start=1):
        try:
            request = line if isinstance(line, MooncakeRequest) else parse(line)
        except MooncakeError as error:
            raise MooncakeError(f"line {number}: {error}") from error
        if request.timestamp < last:
            raise MooncakeError(
                f"line {number}: timestamp must not be before that of the line above, {last:g}, "
                f"got {request.timestamp:g}"
            )
        last = request.timestamp
        inputs.append(_arrival(request, speed, shrink, numbers))
    if not inputs:
        raise MooncakeError("the trace has no request")
    vocabulary = _FIRST + len(numbers) * (BLOCK // shrink)
    return Workload(inputs, {"name": "invented tokens", "vocab_size": vocabulary, "eos_ids": [0]})


def _arrival(
    request: MooncakeRequest, speed: float, shrink: int, numbers: dict[int, int]
) -> Arrival:
    """Return a request with invented tokens. `numbers` numbers the hash ids in order of appearance."""
    size = BLOCK // shrink
    *full, last = request.hash_ids
    rest = request.input_length - len(full) * BLOCK
    prompt = list[int]()
    for id_, count in [*((id_, size) for id_ in full), (last, -(-rest // shrink))]:
        first = _FIRST + numbers.setdefault(id_, len(numbers)) * size
        prompt += range(first, first + count)
    output = -(-request.output_length // shrink)
    return Arrival(
        at_ms=request.timestamp / speed,
        prompt=prompt,
        params=SamplingParams(max_tokens=output),
        texts=[""] * len(prompt),
    )


def lines_of(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a file, which may be gzipped. Raises MooncakeError for a damaged one."""
    with Path(path).open("rb") as file:
        packed = file.peek(2)[:2] == _GZIP
        try:
            for line in gzip.GzipFile(fileobj=file) if packed else file:
                if line.strip():
                    yield line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise MooncakeError(f"{path} is a damaged gzip file: {error}") from error
