"""A runner without a model that checks every read of KV memory.

Instead of KV, each slot holds a hash of its prefix: all tokens up to and including its own.
Before it "reads" a row's context, it compares every slot with the expected hash. If a scheduler,
pool or prefix cache allocates a block too early, copies one too late, shares a block between different
tokens or finds a block that was never computed, the check fails in that step and names the position.

KV is read only where it was written: `forget` empties the slots of newly allocated blocks, so that what
an earlier owner left there cannot hide a mistake.

The next token is a function of the earlier tokens and the sample's seed, so a run's output can be
compared with a plain loop over that function.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.runner import Row, Sampled
from engine.scheduling.request import Request, TokenScore
from engine.simulation.cost_runner import accept_drafts

NextToken = Callable[[Sequence[int], int], int]  # (tokens so far, seed) -> next token


class WrongKVError(AssertionError):
    """A request is about to read the KV of another prefix."""


class CheckingRunner:
    """Stores the prefix of every slot and checks it on every read."""

    max_context: int | None = None

    def __init__(self, next_token: NextToken) -> None:
        self.next_token = next_token
        self._block_size = 0
        self._slots: list[list[int | None]] = []
        self._forgotten: set[int] = set()  # blocks to empty

    def describe(self) -> dict[str, Any]:
        """Describe the runner, which has no parameters."""
        return {"name": "checking runner", "parameters": 0}

    def reserve(self, num_blocks: int, block_size: int) -> None:
        """Allocate empty slots."""
        self._block_size = block_size
        self._slots = [[None] * block_size for _ in range(num_blocks)]

    def forget(self, blocks: Sequence[int]) -> None:
        """Empty the slots of newly allocated blocks: what they hold is garbage.

        That happens before the next rows are written. Block copies come first, because the source of
        a copy may have been released and allocated again in the same step.
        """
        self._forgotten.update(blocks)

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        """Copy, write every row, read every row. Raises WrongKVError on the first wrong slot."""
        if len({destination for _, destination in copies}) < len(copies):
            raise WrongKVError("two copies have the same destination block")
        for source, destination in copies:
            self._slots[destination] = list(self._slots[source])
            self._forgotten.discard(destination)
        if rows:
            for block in self._forgotten:
                self._slots[block] = [None] * self._block_size
            self._forgotten.clear()
        for row in rows:
            self._write(row)
        for row in rows:
            self._check(row)
            row.scores = [TokenScore(0.0, [])] * row.scored
        return [[self._sample(row, sample) for sample in row.samples] for row in rows]

    def _write(self, row: Row) -> None:
        prefixes = _prefix_hashes(self._tokens(row))
        for position in range(row.start, row.start + row.count):
            block = row.request.block_table[position // self._block_size]
            self._slots[block][position % self._block_size] = prefixes[position]

    def _check(self, row: Row) -> None:
        for position, expected in enumerate(_prefix_hashes(self._tokens(row))):
            block = row.request.block_table[position // self._block_size]
            found = self._slots[block][position % self._block_size]
            if found != expected:
                what = (
                    "nothing was written" if found is None else "KV of another prefix was written"
                )
                raise WrongKVError(
                    f"request {row.request.id} reads wrong KV at position {position}: {what} in "
                    f"that slot of block {block}"
                )

    def _tokens(self, row: Row) -> list[int]:
        known = row.start + row.count - len(row.drafts)
        return row.request.tokens[:known] + row.drafts

    def _sample(self, row: Row, sample: int) -> Sampled:
        tokens, seed = row.request.tokens, seed_of(row.request, sample)
        return accept_drafts(row, lambda ids: self.next_token([*tokens, *ids], seed))


def seed_of(request: Request, sample: int) -> int:
    """Return the seed for `next_token`: 0 for greedy sampling, else the sample's own."""
    return 0 if request.params.temperature == 0 else request.seed + sample


def _prefix_hashes(tokens: Sequence[int]) -> list[int]:
    """Return for each position a hash of all tokens up to and including it."""
    hashes, value = [], 0
    for token in tokens:
        value = hash((value, token))
        hashes.append(value)
    return hashes
