"""A runner without a model that checks every read of KV memory.

Instead of KV, each slot holds a hash of its prefix: all tokens up to and including its own, and what
else the KV depends on, such as an adapter.
Before it "reads" a row's context, it compares every slot with the expected hash. If a scheduler,
pool or prefix cache allocates a block too early, copies one too late, shares a block between different
tokens or finds a block that was never computed, the check fails in that step and names the position.

With a `window`, each block also has the window memory of sliding layers in its window page. There, only
the slots in the window of a row's tokens are compared. Reading or writing a block without a page fails.

KV is read only where it was written: `forget` empties the slots of newly allocated blocks, so that what
an earlier owner left there cannot hide a mistake.

The next token is a function of the earlier tokens and the sample's seed, so a run's output can be
compared with a plain loop over that function.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from engine.core.request import Request, TokenScore
from engine.core.runner import KVFormat, Row, Sampled
from engine.simulation.cost_runner import accept_drafts
from engine.simulation.simulated_adapters import SimulatedAdapters

_Slots = list[int | None]
NextToken = Callable[[Sequence[int], int], int]  # (tokens so far, seed) -> next token


class WrongKVError(AssertionError):
    """A request is about to read the KV of another prefix."""


class CheckingRunner:
    """Stores the prefix of every slot and checks it on every read.

    window  as if the model had sliding layers with a window of so many tokens
    """

    max_context: int | None = None
    expert_loads: Sequence[Sequence[int]] = ()

    def __init__(self, next_token: NextToken, *, window: int | None = None) -> None:
        self.next_token = next_token
        self.window = window
        self.kv_dtype = "auto"
        self._block_size = 0
        self._slots: list[_Slots] = []
        self._pages: list[_Slots] = []  # of sliding layers
        self._page_of: list[int] = []  # by block; -1 for none
        self._forgotten: set[int] = set()  # blocks to empty
        self.adapters = SimulatedAdapters()

    def describe(self) -> dict[str, Any]:
        """Describe the runner, which has no parameters."""
        return {"name": "checking runner", "parameters": 0}

    def reserve(
        self, num_blocks: int, block_size: int, num_window_pages: int | None = None
    ) -> None:
        """Allocate empty slots."""
        self._block_size = block_size
        self._slots = [[None] * block_size for _ in range(num_blocks)]
        self._pages = [[None] * block_size for _ in range(num_window_pages or 0)]
        self._page_of = [-1] * num_blocks

    def map_window_pages(self, pages: Sequence[tuple[int, int]]) -> None:
        """Note which block has which page."""
        for block, page in pages:
            self._page_of[block] = page

    def kv_format(self) -> KVFormat:
        """Return the format of a page: one hash per slot, and once more for sliding layers."""
        values = self._block_size * (2 if self._pages else 1)
        return KVFormat("checking runner", "int64", (values,), 8 * values)

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """Return the hashes in blocks, 0 for those in a window page that a block lacks.

        Raises WrongKVError for a slot that was never written.
        """
        hashes = list[int | None]()
        for block in blocks:
            hashes += self._slots[block]
            if self._pages:
                page = self._page_of[block]
                hashes += [0] * self._block_size if page < 0 else self._pages[page]
        if None in hashes or not self._forgotten.isdisjoint(blocks):
            raise WrongKVError(f"a page of {list(blocks)} is read, but not all of it was written")
        return array("q", (one for one in hashes if one is not None)).tobytes()

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        """Write hashes to blocks and to the window pages of those that have one."""
        hashes, size = array("q", bytes(pages)).tolist(), self._block_size
        step = size * (2 if self._pages else 1)
        for index, block in enumerate(blocks):
            begin = index * step
            self._slots[block] = [*hashes[begin : begin + size]]
            if self._pages and (page := self._page_of[block]) >= 0:
                self._pages[page] = [*hashes[begin + size : begin + step]]
        self._forgotten.difference_update(blocks)

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
            if self._pages:
                self._pages[self._page(destination)] = list(self._pages[self._page(source)])
            self._forgotten.discard(destination)
        if rows:
            for block in self._forgotten:
                self._slots[block] = [None] * self._block_size
                if self._pages and (page := self._page_of[block]) >= 0:
                    self._pages[page] = [None] * self._block_size
            self._forgotten.clear()
        if self.adapters.slots:
            self.adapters.used_by(rows)
        for row in rows:
            self._write(row)
        for row in rows:
            self._check(row)
            row.scores = [TokenScore(0.0, [])] * row.scored
        return [[self._sample(row, sample) for sample in row.samples] for row in rows]

    def _write(self, row: Row) -> None:
        prefixes = prefix_hashes(self._tokens(row), row.request.extra_key)
        for position in range(row.start, row.start + row.count):
            block = row.request.block_table[position // self._block_size]
            self._slots[block][position % self._block_size] = prefixes[position]
            if self._pages:
                page = self._pages[self._page(block)]
                page[position % self._block_size] = prefixes[position]

    def _check(self, row: Row) -> None:
        prefixes = prefix_hashes(self._tokens(row), row.request.extra_key)
        for position, expected in enumerate(prefixes):
            block = row.request.block_table[position // self._block_size]
            found = self._slots[block][position % self._block_size]
            self._compare(row, position, expected, found, f"block {block}")
        if self._pages and self.window is not None:
            for position in range(max(row.start - self.window + 1, 0), len(prefixes)):
                block = row.request.block_table[position // self._block_size]
                found = self._pages[self._page(block)][position % self._block_size]
                where = f"the window page of block {block}"
                self._compare(row, position, prefixes[position], found, where)

    def _page(self, block: int) -> int:
        if self._page_of[block] < 0:
            raise WrongKVError(f"block {block} is read or written and has no window page")
        return self._page_of[block]

    def _compare(
        self, row: Row, position: int, expected: int, found: int | None, where: str
    ) -> None:
        if found != expected:
            what = "nothing was written" if found is None else "KV of another prefix was written"
            raise WrongKVError(
                f"request {row.request.id} reads wrong KV at position {position}: {what} in "
                f"that slot of {where}"
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


def prefix_hashes(tokens: Sequence[int], extra_key: tuple[str, ...] = ()) -> list[int]:
    """Return for each position a hash of all tokens up to and including it, and of the adapter."""
    hashes, value = [], hash(extra_key) if extra_key else 0
    for token in tokens:
        value = hash((value, token))
        hashes.append(value)
    return hashes
