"""The check of lesson 02: a learner's attention in the engine, and the texts that it is tried on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from checks.guard import watched
from checks.judging import counted
from checks.lesson_02 import Promise
from engine.core.compute.kv_cache import KVCache
from engine.core.compute.model import Batch, ModelConfig

Array = NDArray[np.float64]
LearnersAttend = Callable[..., Any]

SIZE = 8  # of a query, a key, a value; no text is longer, so that a value can encode its position


@dataclass(frozen=True)
class Text:
    """A text in chunks, and spare cache slots that hold garbage."""

    chunks: tuple[int, ...]
    spare: int

    @property
    def ends(self) -> list[tuple[int, int]]:
        """(first position, position after the last) of each chunk."""
        borders = [sum(self.chunks[:i]) for i in range(len(self.chunks) + 1)]
        return list(pairwise(borders))

    def __str__(self) -> str:
        total = sum(self.chunks)
        slots = counted(total + self.spare, "slot")
        if len(self.chunks) == 1:
            return f"{counted(total, 'token')} at once, and a cache of {slots}."
        parts = ", then ".join(map(str, self.chunks))
        return f"{counted(total, 'token')} in chunks: {parts}. A cache of {slots}."


class YourAttention:
    """A learner's attention, called row by row and head by head.

    The learner sees a request's slots in order, as if they were contiguous. Sliding windows are not
    supported.
    """

    attend: LearnersAttend

    def __init__(self, config: ModelConfig, kv_cache: KVCache, batch: Batch) -> None:
        self._config, self._kv_cache, self._batch = config, kv_cache, batch
        size = kv_cache.block_size
        self._rows: list[tuple[slice, int, Tensor]] = []
        for group in batch.groups:
            rows = zip(group.seq_lens, group.block_tables, strict=True)
            for i, (seq_len, table) in enumerate(rows):
                first = group.tokens.start + i * group.query_len
                slots = (torch.tensor(table)[:, None] * size + torch.arange(size)).flatten()
                tokens = slice(first, first + group.query_len)
                self._rows.append((tokens, seq_len - group.query_len, slots))

    def __call__(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """As `PagedAttention` does."""
        config, cache = self._config, self._kv_cache.by_slot[layer]
        output = queries.new_empty(len(queries), config.num_heads, config.head_dim)
        for tokens, start, slots in self._rows:
            kv = cache[slots].numpy()
            new = keys_values[tokens].numpy()
            for head in range(config.num_heads):
                key = head // (config.num_heads // config.num_kv_heads)
                value = config.num_kv_heads + key
                query = queries[tokens, head].numpy()
                given = (query, new[:, key], new[:, value], kv[:, key], kv[:, value])
                mixed = self.attend(*given, start=start)
                output[tokens, head] = torch.from_numpy(np.asarray(mixed, dtype=np.float32))
            written = slice(start, start + len(new))
            cache[slots[written]] = torch.from_numpy(kv[written])
        return output.flatten(1)


def cases() -> list[Text]:
    """Return every way to cut a short text, the smallest first."""
    found = [
        Text(chunks, spare)
        for total in range(1, SIZE + 1)
        for chunks in _cuts(total)
        for spare in (0, 3)
    ]
    return sorted(found, key=lambda text: (sum(text.chunks), len(text.chunks), text.spare))


def _cuts(total: int) -> Iterator[tuple[int, ...]]:
    yield (total,)
    for first in range(1, total):
        for rest in _cuts(total - first):
            yield (first, *rest)


def attempt(attend: LearnersAttend, text: Text) -> None:
    """Try values that encode their positions, which shows what each token sees; then random ones."""
    total = sum(text.chunks)
    chance = np.random.default_rng(total)
    queries, keys = chance.normal(size=(2, total, SIZE))
    _play(attend, text, queries, keys, np.eye(total, SIZE), named=True)
    _play(attend, text, queries, keys, chance.normal(size=(total, SIZE)), named=False)


def whole(queries: Array, keys: Array, values: Array) -> Array:
    """Compute attention over a whole text at once, the reference for every chunk."""
    scores = queries @ keys.T / np.sqrt(queries.shape[1])
    scores[np.triu_indices(len(scores), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    mixed: Array = weights / weights.sum(axis=1, keepdims=True) @ values
    return mixed


def _play(
    attend: LearnersAttend, text: Text, queries: Array, keys: Array, values: Array, *, named: bool
) -> None:
    slots = sum(text.chunks) + text.spare
    caches = [np.full((slots, SIZE), np.nan) for _ in range(2)]
    expected = whole(queries, keys, values)
    for start, end in text.ends:
        new = [given[start:end].copy() for given in (queries, keys, values)]
        before = [array.copy() for array in chain(new, caches)]
        with watched(attend):
            output = attend(*new, *caches, start=start)
        _check_arguments(before[:3], new)
        _check_caches(before[3:], caches, new[1:], start, end)
        _check_output(output, expected[start:end], start, end, named=named)


def _chunk(start: int, end: int) -> str:
    if end - start == 1:
        return f"Token {start}"
    return f"Tokens {start} to {end - 1}"


def _check_arguments(before: list[Array], after: list[Array]) -> None:
    for name, was, now in zip(("q", "k_new", "v_new"), before, after, strict=True):
        if not np.array_equal(was, now):
            raise Promise.UNCHANGED.broken(f"You changed {name}.", "The caller still uses it.")


def _check_caches(
    before: list[Array], caches: list[Array], new: list[Array], start: int, end: int
) -> None:
    for name, kind, was, now, given in zip(
        ("k_cache", "v_cache"), ("key", "value"), before, caches, new, strict=True
    ):
        for position in range(len(now)):
            is_new = start <= position < end
            if is_new and np.array_equal(now[position], given[position - start]):
                continue
            if not is_new and np.array_equal(was[position], now[position], equal_nan=True):
                continue
            did = f"{_chunk(start, end)} came, with start = {start}. "
            if position < start:
                raise Promise.WRITTEN_ONCE.broken(
                    did + f"Position {position} of {name} was written twice.",
                    f"{counted(start, 'slot')} {'was' if start == 1 else 'were'} filled before. "
                    f"Where does the first new {kind} go?",
                )
            if is_new and np.isnan(now[position]).any():
                raise Promise.KEPT.broken(
                    did + f"Position {position} of {name} still holds nan.",
                    f"A later token will read the {kind} of token {position}. An empty slot holds "
                    "nan, and nan plus anything is nan.",
                )
            if is_new:
                raise Promise.KEPT.broken(
                    did + f"Position {position} of {name} does not hold its {kind}.",
                    f"Which row of {kind[0]}_new belongs to token {position}?",
                )
            raise Promise.WRITTEN_ONCE.broken(
                did + f"You wrote into position {position} of {name}.",
                f"Token {position} has not come yet.",
            )


def _check_output(output: Any, expected: Array, start: int, end: int, *, named: bool) -> None:
    count = end - start
    if not isinstance(output, np.ndarray) or output.shape != (count, SIZE):
        got = (
            f"an array of shape {output.shape}" if isinstance(output, np.ndarray) else repr(output)
        )
        raise Promise.ARRAY.broken(
            f"{_chunk(start, end)} came, and you returned {got}.",
            f"Here that is a numpy array of shape ({count}, {SIZE}).",
        )
    did = f"{_chunk(start, end)} came, with start = {start}. "
    for position in range(start, end):
        row, right = output[position - start], expected[position - start]
        if np.isnan(row).any():
            raise Promise.CAUSAL.broken(
                did + f"Token {position} read nan.",
                "Unwritten slots hold nan, and an average of nothing is nan as well. "
                f"Token {position} may see slots 0 to {position}; which did it read?",
            )
        if named:
            _check_weights(row, right, position, end, did)
        if not np.allclose(row, right, atol=1e-5):
            raise Promise.AS_A_WHOLE.broken(
                did + f"Token {position} read {_short(row)}.",
                f"That gives {_short(right)}. It saw the right tokens. Which values does it mix?",
            )


def _check_weights(row: Array, right: Array, position: int, end: int, did: str) -> None:
    """Check the weights: entry p of a row is the weight of position p. There are `end` positions."""
    seen = [int(p) for p in np.flatnonzero(np.abs(row) > 1e-9)]
    if any(p >= end for p in seen):
        raise Promise.AS_A_WHOLE.broken(
            did + f"Token {position} read {_short(row)}.",
            f"Then it is {_short(right)}. No average of the values gives yours. What do you mix?",
        )
    should = list(range(position + 1))
    if later := [p for p in seen if p > position]:
        raise Promise.CAUSAL.broken(
            did + f"Token {position} saw position {later[0]}.",
            f"Position {later[0]} comes later. Within a chunk, which tokens may a token see?",
        )
    if seen != should:
        hint = "It did not see itself." if position not in seen else f"It saw {seen}."
        raise Promise.CAUSAL.broken(
            did
            + f"Token {position} saw {counted(len(seen), 'position')}, should see {len(should)}.",
            hint,
        )
    if row.min() < 0:
        raise Promise.WEIGHTS.broken(
            did + f"A weight of token {position} is {row.min():.3f}.",
            "A weight is a power of e, divided by a sum: it is above 0. Which line does that?",
        )
    if abs(row.sum() - 1) > 1e-5:
        raise Promise.WEIGHTS.broken(
            did + f"The weights of token {position} add up to {row.sum():.3f}.",
            "Divide by the sum of what, and along which axis?",
        )
    if not np.allclose(row, right, atol=1e-5):
        raise Promise.AS_A_WHOLE.broken(
            did + f"The weights of token {position} are {_short(row)}.",
            f"Then they are {_short(right)}. How are scores made of queries and keys?",
        )


def _short(row: Array) -> str:
    numbers = [f"{number:.2f}" for number in row[:4]]
    return f"[{', '.join(numbers)}, ...]"
