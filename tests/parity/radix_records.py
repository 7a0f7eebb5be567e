"""Histories of a prefix cache: operations and their results, and the generator that draws them.

`record_sglang.py` draws histories while SGLang's `RadixCache` answers, `radix_replay.py` asks this
project's cache the same questions. Operations, in the order of a request's life:

    match       a request arrives: how many of its tokens are cached? The match gets locked.
    checkpoint  its first `up_to` tokens are computed and become findable; the lock moves along
    release     all of its tokens are computed and findable, and the lock ends
    drop        only the lock ends, as it does when a request is retracted
    evict       make room for `tokens` tokens: which edges are evicted, in order?

An evicted edge is named by content, because block numbers differ: the tokens from the root to its
end, and how many of those are its own.

A recording is compressed JSON Lines: a header, then a history per line, `{"page": ..., "requests":
[[prompt, output], ...], "operations": [...]}`. An operation is `["match", request, cached]`,
`["checkpoint", request, up_to]`, `["release", request]`, `["drop", request]` or
`["evict", tokens, victims]`, where a victim `[request, start, end]` is the edge with tokens `start`
to `end - 1` of that request.
"""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

SETTINGS = {  # name -> (requests overlap, checkpoints within a prompt)
    "one at a time": (False, 0),
    "one at a time, chunked": (False, 2),
    "overlapping": (True, 0),
    "overlapping, chunked": (True, 2),
    "overlapping, dropped": (True, 2),  # and some requests end without their last checkpoint
}
PAGE_SIZES = (1, 2, 4, 16)


class Edge(NamedTuple):
    """An evicted edge: the tokens from the root to its end, and how many are on the edge."""

    path: list[int]
    length: int


class History(msgspec.Struct):
    """What was asked of a cache, and what it answered. Requests are numbered from 0."""

    setting: str
    seed: int
    page: int
    requests: list[tuple[str, str]]  # prompt and output, a letter per token
    operations: list[list[Any]] = []

    def tokens(self, request: int) -> list[int]:
        """Return all tokens of a request, output included."""
        return list("".join(self.requests[request]).encode())


class PrefixCache(Protocol):
    """A cache that can be asked. The caller passes a request's number and its tokens."""

    def match(self, request: int, prompt: list[int]) -> int:
        """Lock the cached prefix and return its length in tokens."""

    def checkpoint(self, request: int, tokens: list[int]) -> None:
        """Make the full pages of `tokens` findable and lock them."""

    def release(self, request: int) -> None:
        """End the lock."""

    def drop(self, request: int) -> None:
        """End the lock of a request that ends early."""

    def evict(self, tokens: int) -> list[Edge]:
        """Evict edges until `tokens` tokens are free, or none is unlocked. Return them in order."""


def draw(setting: str, seed: int, page: int) -> Iterator[tuple[History, list[Any]]]:
    """Draw a history, one operation at a time.

    Yields (history so far, operation); the caller performs the operation and appends it with its
    result to `history.operations`. What comes next depends on the result of a match.
    """
    rng = random.Random(f"{setting} {seed}")
    overlap, checkpoints = SETTINGS[setting]
    history = History(setting, seed, page, [], [])

    def text(shortest: int, longest: int) -> str:
        return "".join(rng.choice("ab") for _ in range(rng.randint(shortest, longest)))

    stems = [text(1, 6 * page) for _ in range(3)]
    live: list[int] = []
    for _ in range(rng.randint(5, 40)):
        choice = rng.random()
        if choice < 0.2:
            yield history, ["evict", page * rng.randint(1, 6)]
            continue
        if choice < 0.6 or not live:
            stem, number = rng.choice(stems), len(history.requests)
            prompt = stem[: rng.randint(1, len(stem))] + text(1, 5 * page)
            history.requests.append((prompt, text(0, 3 * page)))
            live.append(number)
            yield history, ["match", number]
            if overlap:
                continue
        request = live.pop(rng.randrange(len(live)))
        (cached,) = (one[2] for one in history.operations if one[:2] == ["match", request])
        length = len(history.requests[request][0])
        cuts = sorted(rng.randint(cached, length) for _ in range(checkpoints))
        dropped = setting.endswith("dropped") and rng.random() < 0.4
        last = [] if dropped and rng.random() < 0.5 else [length]
        for cut in [*cuts, *last]:
            yield history, ["checkpoint", request, cut]
        yield history, ["drop" if dropped else "release", request]


def ask(cache: PrefixCache, history: History, operation: list[Any]) -> int | list[Edge] | None:
    """Perform an operation. Return the cached tokens of a match, or the victims of an eviction."""
    match operation[:3]:
        case ["match", request, *_]:
            return cache.match(request, list(history.requests[request][0].encode()))
        case ["checkpoint", request, up_to]:
            cache.checkpoint(request, history.tokens(request)[:up_to])
        case ["release", request]:
            cache.checkpoint(request, history.tokens(request))
            cache.release(request)
        case ["drop", request]:
            cache.drop(request)
        case ["evict", tokens, *_]:
            return cache.evict(tokens)
        case _:
            raise ValueError(f"unknown operation: {operation}")
    return None


def first_difference(cache: PrefixCache, history: History) -> list[Any] | None:
    """Replay a history. Return the first operation with another result, wherever edges are cut."""
    for operation in history.operations:
        answer = ask(cache, history, operation)
        if operation[0] == "match" and answer != operation[2]:
            return operation
        if operation[0] == "evict":
            theirs = [
                Edge(history.tokens(request)[:end], end - start)
                for request, start, end in operation[2]
            ]
            if _evicted(answer) != _evicted(theirs):
                return operation
    return None


def _evicted(edges: list[Edge]) -> list[tuple[int, ...]]:
    """Return the evicted tokens, the tail of an edge first. A token is named by all up to it."""
    return [
        tuple(edge.path[:end])
        for edge in edges
        for end in range(len(edge.path), len(edge.path) - edge.length, -1)
    ]


def read(path: Path) -> Iterator[History]:
    """Yield the histories of a recording."""
    with gzip.open(path, "rt") as file:
        next(file)
        for line in file:
            yield msgspec.convert(json.loads(line), History)
