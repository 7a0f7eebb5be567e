"""Lesson 05's cases: short stories of three requests that use a pool of KV blocks."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from checks.judging import counted
from engine.core.cache.block_pool import BlockPool

PEOPLE = "ABC"


class Act(NamedTuple):
    """One action of a request. `verb` is take, share, write or leave."""

    who: str
    verb: str
    blocks: int = 0  # to allocate
    of: str = ""  # the request whose blocks are shared

    def __str__(self) -> str:
        match self.verb:
            case "take":
                return f"{self.who} asks for {counted(self.blocks, 'block')}"
            case "share":
                return f"{self.who} shares all blocks of {self.of}"
            case "write":
                return f"{self.who} writes into its last block"
            case _:
                return f"{self.who} leaves"


@dataclass(frozen=True)
class Story:
    """A pool, and the actions on it in order."""

    num_blocks: int
    acts: tuple[Act, ...]

    @property
    def refused(self) -> bool:
        """Whether the last act asks for more blocks than are free."""
        ledger = _Ledger(BlockPool(self.num_blocks))
        for act in self.acts[:-1]:
            ledger.do(act)
        return self.acts[-1].blocks > len(ledger.pool.free)

    def __str__(self) -> str:
        acts = "; then ".join(map(str, self.acts))
        return f"A pool of {counted(self.num_blocks, 'block')}. {acts}."


def cases() -> list[Story]:
    """Every short story of a small pool, and some longer ones; the smallest first."""
    short = [
        Story(blocks, acts)
        for blocks, most in ((1, 4), (2, 4), (3, 3))
        for length in range(1, most + 1)
        for acts in _stories(length, blocks)
    ]
    chance = random.Random(5)
    longer = [_drawn(chance) for _ in range(400)]
    return sorted(chain(short, _of_three_in_one_block(), longer), key=_size)


def _of_three_in_one_block() -> Iterator[Story]:
    """Yield the shortest stories in which a count of three goes down again."""
    three = (Act("A", "take", 1), Act("B", "share", of="A"), Act("C", "share", of="A"))
    for first in _possible(three, 1):
        for second in _possible((*three, first), 1):
            if "take" not in (first.verb, second.verb):
                yield Story(1, (*three, first, second))


def _size(story: Story) -> tuple[int, ...]:
    """Sort by few acts, few blocks, no copies, and then by large pools, in which errors are clearer."""
    asked = sum(act.blocks for act in story.acts)
    writes = sum(act.verb == "write" for act in story.acts)
    return (len(story.acts), asked, writes, -story.num_blocks)


def _stories(length: int, num_blocks: int) -> Iterator[tuple[Act, ...]]:
    if length == 0:
        yield ()
        return
    for before in _stories(length - 1, num_blocks):
        for act in _possible(before, num_blocks):
            yield (*before, act)


def _drawn(chance: random.Random) -> Story:
    num_blocks = chance.randint(3, 7)
    acts: tuple[Act, ...] = ()
    for _ in range(chance.randint(4, 12)):
        acts = (*acts, chance.choice(list(_possible(acts, num_blocks))))
    return Story(num_blocks, acts)


def _possible(acts: tuple[Act, ...], num_blocks: int) -> Iterator[Act]:
    """Yield the possible next acts. Requests arrive in order; only those with blocks write or leave."""
    has = _with_blocks(acts, num_blocks)
    came = sorted({act.who for act in acts})
    for who in PEOPLE[: len(came) + 1]:
        for blocks in range(1, min(num_blocks, 3) + 2):
            yield Act(who, "take", blocks)
        if who in has:
            yield Act(who, "write")
            yield Act(who, "leave")
        else:
            yield from (Act(who, "share", of=other) for other in sorted(has))


def _with_blocks(acts: tuple[Act, ...], num_blocks: int) -> set[str]:
    ledger = _Ledger(BlockPool(num_blocks))
    for act in acts:
        ledger.do(act)
    return {who for who, table in ledger.tables.items() if table}


class _Ledger:
    """The blocks of each request, by the engine's own pool; block numbers do not matter here."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.tables: dict[str, list[int]] = {}

    def do(self, act: Act) -> None:
        table = self.tables.setdefault(act.who, [])
        match act.verb:
            case "take":
                if act.blocks <= len(self.pool.free):
                    table += self.pool.allocate(act.blocks)
            case "share":
                table += self.tables[act.of]
                self.pool.share(table)
            case "write":
                if self.pool.refs[table[-1]] == 1 or self.pool.free:
                    table[-1] = self.pool.writable(table[-1])
            case _:
                self.pool.release(table)
                table.clear()
