"""Damaged files of every kind: each is read, or rejected in one line.

`pytest tests/visualizer/test_mutations.py --soak` tries 10,000 files of each kind; --seed N others.
"""

import gzip
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from engine.core.log import EventLog, LogError
from tests.visualizer.clusters import three_replicas
from tests.visualizer.storytellers import crowd
from visualizer.sources import READERS, read_source

FIXTURES = Path(__file__).parents[1] / "fixtures"
MOST_LINES = 60  # enough for each kind of line, and quick
NUMBERS = tuple(b"-1 0 1e400 999999999999999999999 1000000000000 0.5 null []".split())
TEXTS = (b'""', b'"\\ud800"', b"{}", b'"a\\u0000b"', b"true", b"[[[[]]]]")


def _lines(data: bytes) -> bytes:
    whole = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    return b"".join(whole.splitlines(keepends=True)[:MOST_LINES])


# By reader: a file that it reads.
SAMPLES: dict[str, Callable[[], bytes]] = {
    "underglass": lambda: crowd(3).to_bytes(),
    "underglass-cluster": lambda: three_replicas().to_bytes(),
    "vllm-recorder": lambda: (FIXTURES / "vllm/vllm_tight.jsonl.gz").read_bytes(),
    "kv-events": lambda: (FIXTURES / "vllm_kv_events.jsonl").read_bytes(),
    "sglang-metrics": lambda: (FIXTURES / "sglang_forward_pass.jsonl.gz").read_bytes(),
    "mooncake": lambda: (FIXTURES / "mooncake/conversation_trace.jsonl").read_bytes(),
}


def mutated(data: bytes, random: random.Random) -> bytes:
    """The file with one to four changes of its bytes, values or lines; one in ten is packed."""
    for _ in range(random.randint(1, 4)):
        data = random.choice(CHANGES)(data, random) or data
    if random.random() < 0.1:
        packed = gzip.compress(data, 1, mtime=0)
        return flipped(packed, random) if random.random() < 0.5 else packed
    return data


def flipped(data: bytes, random: random.Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def cut(data: bytes, random: random.Random) -> bytes:
    begin, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return random.choice((data[:begin], data[:begin] + data[end:], data[begin:]))


def lines_moved(data: bytes, random: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    here, there = random.randrange(len(lines)), random.randrange(len(lines))
    if random.random() < 0.4:
        lines.insert(there, lines[here])
    elif random.random() < 0.5:
        del lines[here]
    else:
        lines[here], lines[there] = lines[there], lines[here]
    return b"".join(lines)


def replaced(data: bytes, random: random.Random, kinds: bytes, values: tuple[bytes, ...]) -> bytes:
    """One value of JSON in the place of another, that of any number or text."""
    starts = [i for i, (a, b) in enumerate(pairwise(data)) if a in b":,[" and b in kinds]
    if not starts:
        return data
    begin = random.choice(starts) + 1
    end = next((i for i in range(begin, len(data)) if data[i] in b",]}\n"), len(data))
    return data[:begin] + random.choice(values) + data[end:]


def number(data: bytes, random: random.Random) -> bytes:
    return replaced(data, random, b"-0123456789", NUMBERS)


def text(data: bytes, random: random.Random) -> bytes:
    return replaced(data, random, b'" {[tfn', NUMBERS + TEXTS)


CHANGES = (flipped, cut, lines_moved, number, number, number, text, text)


def test_there_is_a_sample_for_each_reader():
    assert set(SAMPLES) == {reader.name for reader in READERS}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_damaged_file_is_read_or_rejected_in_one_line(name, first_seed, soak):
    sample = _lines(SAMPLES[name]())
    assert len(read_source(sample))
    rejected = 0
    for seed in range(first_seed, first_seed + (10_000 if soak else 40)):
        data = mutated(sample, random.Random(seed))
        try:
            log = read_source(data, last=2000)
            if isinstance(log, EventLog):
                log.state()
        except LogError as error:
            rejected += 1
            assert "\n" not in str(error) and len(str(error)) < 1500, seed
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    assert rejected, "some of the changes are noticed"
