"""Lesson 05: a pool of KV blocks, shared by reference counts and copied when written."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import watched
from checks.judging import counted, listed
from checks.pool_stories import Act, Story, cases  # noqa: F401 (the judge takes them from here)
from engine.core.cache.block_pool import BlockPool

ANSWERS = {
    "empty": Answer(
        60,
        {
            0: "Nothing is reserved now. But a block is allocated whole and filled slot by slot.",
            120: "That is the worst case of each request: a new block with one token. Not all at once.",
            390: "So many were empty in the slabs. Here only the last block of each is not full.",
        },
    ),
    "copies": Answer(
        "twice",
        {
            "three times": "Each has to write. But when two have left with a copy, how many tables "
            "still name the block?",
            "never": "The first token of each answer is a different one. It needs a slot.",
            "once": "The first one leaves with a copy. The block still has two holders.",
        },
        fits=lambda copies: copies == 2,
    ),
}
HINTS = (
    "Check before you take: `allocate` must not change anything if it returns None.",
    "Keep a count for each block. A block is free when its count is zero; `writable` needs a copy "
    "only when the count is more than one, and the writer then gives up its hold on the old block.",
)


class Promise(Promises):
    """The promises that the check tests."""

    ALL_OR_NOTHING = "if fewer blocks are free than asked for, the answer is None"
    ALLOCATES = "if enough blocks are free, they are allocated"
    LIST = "allocate(n) returns a list of n blocks"
    NUMBERED = "blocks are numbered from 0"
    ONCE = "a block is allocated once"
    NOT_SHARED = "a block is free once its last holder has released it, and not before"
    NO_LEAK = "free blocks and held blocks are all blocks together"
    PAIR = "the answer is a block, and whether it is a copy"
    ALONE = "the only holder of a block writes into that block"
    NO_ROOM = "if a copy is needed and no block is free, the answer is None"
    COPY_IF_SHARED = "a block is copied only if it has another holder"
    NO_OVERWRITE = "a write never changes the data of another holder"
    SAYS_COPY = "the answer says whether the contents have to be copied"
    OWN_BLOCKS = "each pool has blocks of its own"


MakePool = Callable[[int], Any]  # number of blocks -> a pool
Tables = dict[str, list[int]]  # request -> its blocks


class YourPool(BlockPool):
    """A learner's pool for the engine: it chooses blocks; `free` and `refs` are kept here."""

    def __init__(self, part: MakePool, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self._part = part(num_blocks)

    def allocate(self, count: int) -> list[int]:
        """Return the learner's choice."""
        if count > len(self.free):
            return super().allocate(count)  # raises, as the engine expects
        return self._allocated(self._part.allocate(count))

    def share(self, blocks: Iterable[int]) -> None:
        """Share the blocks one by one."""
        blocks = list(blocks)
        super().share(blocks)
        for block in blocks:
            self._part.share(block)

    def release(self, blocks: list[int]) -> None:
        """Release the blocks one by one, the last first."""
        super().release(blocks)
        for block in reversed(blocks):
            self._part.release(block)

    def writable(self, block: int) -> int:
        """Return the learner's choice; for a copy, `block` loses one reference."""
        own, copied = self._part.writable(block)
        if copied:
            self.refs[block] -= 1
            self._allocated([own])
        return int(own)

    def _allocated(self, blocks: Iterable[int]) -> list[int]:
        chosen = list(blocks)
        for block in chosen:
            self.free.remove(block)
            self.refs[block] = 1
        return chosen


def adapt(part: type | None) -> Callable[[int], BlockPool]:
    """Return a pool factory: the learner's class if it passed, otherwise ours."""
    return (lambda blocks: YourPool(part, blocks)) if part else BlockPool


def attempt(part: type, story: Story) -> None:
    """Play a story and check every answer; at the end, ask for all free blocks."""
    with watched(part):
        play = _Play(part, story)
        for act in story.acts:
            play.act(act)
        play.ask_for_the_rest()
        if len(story.acts) == 5:  # a single pool has kept all promises in all shorter stories
            play.check_a_second_pool(part(story.num_blocks))


class _Play:
    """A learner's pool, and the blocks that each request holds."""

    def __init__(self, part: MakePool, story: Story) -> None:
        self._pool, self._story = part(story.num_blocks), story
        self._tables: Tables = {}

    @property
    def _free(self) -> int:
        return self._story.num_blocks - len(set(chain.from_iterable(self._tables.values())))

    @property
    def _facts(self) -> str:
        """Who holds what, for a message."""
        held = [
            f"{who} held {listed(f'block {block}' for block in table)}"
            for who, table in self._tables.items()
            if table
        ]
        holders = listed(held) if held else "no request held a block"
        free = f"{self._free} of {counted(self._story.num_blocks, 'block')}"
        return f"Before that, {holders}; {free} {'was' if self._free == 1 else 'were'} free."

    def act(self, act: Act) -> None:
        """Play an act and check the pool's answer."""
        table = self._tables.setdefault(act.who, [])
        match act.verb:
            case "take":
                answer, did = self._pool.allocate(act.blocks), f"When {act}, you returned "
                if act.blocks <= self._free:
                    table += self._checked(answer, act.blocks, did)
                elif answer is not None:
                    raise Promise.ALL_OR_NOTHING.broken(f"{did}{answer!r}.", self._facts)
            case "share":
                for block in self._tables[act.of]:
                    self._pool.share(block)
                table += self._tables[act.of]
            case "write":
                table[-1] = self._written(act)
            case _:
                while table:
                    self._pool.release(table.pop())

    def _written(self, act: Act) -> int:
        """Return the block into which the request writes from now on."""
        block = self._tables[act.who][-1]
        shared = any(block in table for who, table in self._tables.items() if who != act.who)
        answer = self._pool.writable(block)
        did = f"When {act}, block {block}, you returned "
        if shared and not self._free:
            if answer is None:
                return block
            raise Promise.NO_ROOM.broken(f"{did}{answer!r}.", self._facts)
        promise = _broken_by(answer, block, shared=shared)
        if promise is not None:
            raise promise.broken(f"{did}{answer!r}.", self._facts)
        own, copied = answer
        if not shared:
            return block
        [own] = self._checked([own], 1, did)
        if not copied:
            raise Promise.SAYS_COPY.broken(f"{did}{answer!r}.", self._facts)
        return own

    def _checked(self, answer: Any, count: int, did: str) -> list[int]:
        """Return the answer if it is `count` different free blocks."""
        did += f"{answer!r}."
        if answer is None:
            raise Promise.ALLOCATES.broken(did, self._facts)
        if not isinstance(answer, list | tuple) or len(answer) != count:
            raise Promise.LIST.broken(did, self._facts)
        for index, block in enumerate(answer):
            if not hasattr(block, "__index__"):
                raise Promise.LIST.broken(did, f"{block!r} is not the number of a block.")
            if block not in range(self._story.num_blocks):
                raise Promise.NUMBERED.broken(did, self._facts)
            if block in answer[:index]:
                raise Promise.ONCE.broken(did, f"Block {block} is in there twice.")
            if any(block in table for table in self._tables.values()):
                raise Promise.NOT_SHARED.broken(
                    did, f"{self._facts} Follow block {block} through the story."
                )
        return list(answer)

    def ask_for_the_rest(self) -> None:
        """Check that Zoe gets all free blocks, and then no more."""
        if free := self._free:
            answer = self._pool.allocate(free)
            if answer is None:
                fewer = range(free - 1, 0, -1)
                had = next((one for one in fewer if self._pool.allocate(one) is not None), 0)
                raise Promise.NO_LEAK.broken(
                    f"When Zoe asks for the rest, {had or 'none'} can be allocated.", self._facts
                )
            did = "When Zoe asks for the rest, you returned "
            self._tables = self._tables | {"Zoe": self._checked(answer, free, did)}
        more = self._pool.allocate(1)
        did = "When Zoe asks for one more and none is free, you returned "
        if isinstance(more, list | tuple) and more:
            self._checked(more, 1, did)  # says whose block it is
        if more is not None:
            raise Promise.ALL_OR_NOTHING.broken(f"{did}{more!r}.", self._facts)

    def check_a_second_pool(self, second: Any) -> None:
        """Check that two pools have nothing in common. Zoe holds the blocks that are in no table."""
        every = self._story.num_blocks
        for block in second.allocate(every) or ():
            second.share(block)
        for block in chain.from_iterable(self._tables.values()):
            self._pool.release(block)
        more, again = second.allocate(1), self._pool.allocate(every)
        if more is not None or again is None:
            raise Promise.OWN_BLOCKS.broken(
                "Then a second pool was made. It allocated all its blocks and shared each of them, "
                "and all blocks of the first pool were released. After that, the second pool "
                f"allocated {more!r}, and the first one {again!r}.",
                "Where are free blocks and holders kept: in the object, or in the class?",
            )


def _broken_by(answer: Any, block: int, *, shared: bool) -> Promise | None:
    """Return the promise that an answer of writable() breaks, whatever is free."""
    if answer is None and not shared:
        return Promise.ALONE
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        return Promise.PAIR
    own, copied = answer
    if isinstance(own, bool) or copied not in (True, False) or not hasattr(own, "__index__"):
        return Promise.PAIR
    if shared:
        return Promise.NO_OVERWRITE if own == block else None
    if copied:
        return Promise.COPY_IF_SHARED
    return None if own == block else Promise.ALONE
