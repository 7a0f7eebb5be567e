"""Lesson 05: a pool of KV blocks, shared by reference counts and copied when written."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from checks.answer import Answer
from checks.broken import Broken, Promises
from checks.decided import decided
from checks.guard import watched
from checks.judging import counted, listed
from checks.pool_stories import Act, Story, cases  # noqa: F401 (the judge takes them from here)
from engine.core.cache.block_pool import BlockPool
from engine.core.config import EngineConfig
from engine.core.log import EventLog
from engine.simulation.choice import Settings
from engine.simulation.cost_runner import Cost
from engine.simulation.simulate import simulate
from engine.simulation.speakers import NAMES, Speaker, workload_of


def _paged() -> EventLog:
    """Return the lesson's run with blocks of 16 slots."""
    prompts, answers = [20, 27, 33, 18, 25, 30, 22, 37], [8, 40, 12, 20, 16, 32, 10, 24]
    people = workload_of(
        Speaker(name, own=prompt, output=answer, max_tokens=128 - prompt)
        for name, prompt, answer in zip(NAMES, prompts, answers, strict=False)
    )
    config = EngineConfig(token_budget=256, max_kv_tokens=512, prefix_cache=False, block_size=16)
    return simulate(people, config, cost=Cost(10, 0.25))


ANSWERS = {
    "taken": decided(
        _paged,
        1,
        {
            "none": Settings(),
            "8 blocks": Settings(blocks=-8),
            "16 blocks": Settings(blocks=-16),
            "20 blocks": Settings(blocks=-20),
        },
    ),
    "copies": Answer(
        "twice",
        {
            "three times": "Each answer has to write, but once two of them have left with a copy, "
            "how many tables still name the block?",
            "never": "The answers begin with different tokens, and each of those needs a slot.",
            "once": "The first answer leaves with a copy, but then the block still has two holders.",
        },
        fits=lambda copies: copies == 2,
    ),
}
HINTS = (
    "Check before you take, because `allocate` must not change anything if it returns None.",
    "Keep a count for each block, which is free when its count is zero. `writable` needs a copy only "
    "when the count is more than one, and then the writer gives up its hold on the old block.",
)


class Promise(Promises):
    """The promises that the check tests."""

    ALL_OR_NOTHING = "if fewer blocks are free than asked for, the answer is None"
    ALLOCATES = "if enough blocks are free, they are allocated"
    LIST = "allocate(n) returns a list of n blocks"
    EMPTY = "allocate(0) returns an empty list, even if no block is free"
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
ALL_OR_NOTHING = (
    Promise.ALL_OR_NOTHING,
    "What would a request do with a part of what it needs? Only None says that nothing was allocated.",
)


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
        pool = part(story.num_blocks)
        tables: dict[str, list[int]] = {}
        for act in story.acts:
            _play(pool, act, tables, story)
        _check_the_rest(pool, tables, story)
        if len(story.acts) == 5:  # a single pool has kept all promises in all shorter stories
            _check_a_second_pool(pool, part(story.num_blocks), tables, story)


def _holders(block: int, tables: Tables) -> list[str]:
    return [who for who, table in tables.items() if block in table]


def _free(tables: Tables, story: Story) -> int:
    return story.num_blocks - len(set(chain.from_iterable(tables.values())))


def _play(pool: Any, act: Act, tables: Tables, story: Story) -> None:
    table = tables.setdefault(act.who, [])
    match act.verb:
        case "take":
            free = _free(tables, story)
            answer = pool.allocate(act.blocks)
            if act.blocks <= free:
                table += _checked(answer, act.blocks, f"When {act}", tables, story)
            elif answer is not None:
                raise Broken(
                    f"{act}. {_are(free)} free, and you returned {answer!r}.", *ALL_OR_NOTHING
                )
        case "share":
            for block in tables[act.of]:
                pool.share(block)
            table += tables[act.of]
        case "write":
            table[-1] = _written(pool, act, tables, story)
        case _:
            while table:
                pool.release(table.pop())


def _written(pool: Any, act: Act, tables: Tables, story: Story) -> int:
    """Return the block into which the request writes from now on."""
    block, free = tables[act.who][-1], _free(tables, story)
    others = [who for who in _holders(block, tables) if who != act.who]
    answer = pool.writable(block)
    did = f"{act}, block {block}. You returned {answer!r}."
    if others and not free:
        if answer is None:
            return block
        raise Promise.NO_ROOM.broken(
            did, f"{listed(others)} {_reads(others)} block {block}, too, and no block is free."
        )
    if answer is None and not others:
        raise Promise.ALONE.broken(
            did, f"Which requests held block {block} before, and which hold it now?"
        )
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        raise Promise.PAIR.broken(did, f"{_are(free)} free, and {_held(block, others)}.")
    own, copied = answer
    if isinstance(own, bool) or copied not in (True, False):
        raise Promise.PAIR.broken(did, "Which of the two comes first?")
    if not hasattr(own, "__index__"):
        raise Promise.PAIR.broken(
            did, f"{own!r} is not the number of a block. What does allocate(1) return?"
        )
    if not others and copied:
        raise Promise.COPY_IF_SHARED.broken(did, f"Block {block} has no other holder. Why copy it?")
    if not others:
        if own != block:
            raise Promise.ALONE.broken(did, f"What {act.who} wrote before is in block {block}.")
        return block
    if own == block:
        raise Promise.NO_OVERWRITE.broken(
            did, f"{listed(others)} {_reads(others)} block {block}, too."
        )
    [own] = _checked([own], 1, f"When {act}", tables, story)
    if not copied:
        raise Promise.SAYS_COPY.broken(
            did, f"What {act.who} wrote before is in block {block}, and block {own} is another one."
        )
    return own


def _checked(answer: Any, count: int, when: str, tables: Tables, story: Story) -> list[int]:
    """Return the answer if it is `count` different free blocks."""
    free = _free(tables, story)
    if answer is None:
        raise Promise.ALLOCATES.broken(f"{when}, you returned None.", f"{_are(free)} free.")
    if not isinstance(answer, list | tuple) or len(answer) != count:
        raise Promise.LIST.broken(
            f"{when}, you returned {answer!r}.",
            f"{counted(count, 'block')} requested, {free} free.",
        )
    for index, block in enumerate(answer):
        if not hasattr(block, "__index__"):
            raise Promise.LIST.broken(
                f"{when}, you returned {answer!r}.", f"{block!r} is not the number of a block."
            )
        if block not in range(story.num_blocks):
            raise Promise.NUMBERED.broken(
                f"{when}, you allocated {block!r}.",
                f"A pool of {counted(story.num_blocks, 'block')} has "
                f"{listed(range(story.num_blocks))}.",
            )
        if block in answer[:index]:
            raise Promise.ONCE.broken(
                f"{when}, you allocated {answer!r}.", f"Block {block} is in there twice."
            )
        if holders := _holders(block, tables):
            raise Promise.NOT_SHARED.broken(
                f"{when}, you allocated block {block}. {listed(holders)} still "
                f"{'holds' if len(holders) == 1 else 'hold'} it.",
                _last_seen(block, story, holders),
            )
    return list(answer)


def _last_seen(block: int, story: Story, holders: list[str]) -> str:
    match story.acts[-1]:
        case Act(who, "leave"):
            return f"{who} released block {block}. How many holders had it before that?"
        case Act(who, "write"):
            return f"{who} has a copy now and released block {block}. Did all other holders?"
    return f"Follow block {block} through the story. Which requests released it? Did {holders[0]}?"


def _check_the_rest(pool: Any, tables: Tables, story: Story) -> None:
    """Check that Zoe gets none, then all free blocks, and then no more."""
    free, nothing = _free(tables, story), pool.allocate(0)
    if not isinstance(nothing, list | tuple) or nothing:
        raise Promise.EMPTY.broken(
            f"When Zoe asks for 0 blocks, you returned {nothing!r}.",
            f"{_are(free)} free. What is a list of 0 blocks?",
        )
    if free:
        answer = pool.allocate(free)
        if answer is None:
            fewer = range(free - 1, 0, -1)
            had = next((one for one in fewer if pool.allocate(one) is not None), 0)
            raise Promise.NO_LEAK.broken(
                f"In the end {_holdings(tables)}, so {counted(free, 'block')} should be free. "
                f"{had or 'None'} can be allocated.",
                _leak(free - had, tables, story),
            )
        rest = _checked(answer, free, "When Zoe asks for the rest", tables, story)
        tables = tables | {"Zoe": rest}
    more = pool.allocate(1)
    if more is not None and (not isinstance(more, list | tuple) or not more):
        raise Broken(
            f"When Zoe asks for one more and none is free, you returned {more!r}.", *ALL_OR_NOTHING
        )
    if more is not None:
        _checked(more, 1, "When Zoe asks for one more and none is free", tables, story)


def _check_a_second_pool(pool: Any, second: Any, tables: Tables, story: Story) -> None:
    """Check that two pools have nothing in common. Zoe holds the blocks that are in no table."""
    for block in second.allocate(story.num_blocks) or ():
        second.share(block)
    held = list(chain.from_iterable(tables.values()))
    for block in (*held, *(set(range(story.num_blocks)) - set(held))):
        pool.release(block)
    more, again = second.allocate(1), pool.allocate(story.num_blocks)
    if more is not None or again is None:
        raise Promise.OWN_BLOCKS.broken(
            "Then a second pool was made. It allocated all its blocks and shared each of them, and "
            "all blocks of the first pool were released. "
            + (
                "After that, the first pool could not allocate them again."
                if more is None
                else f"After that, the second pool allocated {more!r}."
            ),
            "Where are free blocks and holders kept: in the object, or in the class?",
        )


def _leak(lost: int, tables: Tables, story: Story) -> str:
    leaked = f"{lost} leaked."
    match story.acts[-1]:
        case Act(who, "take", blocks) if story.refused:
            return f"{who} asked for {blocks}, {_are(_free(tables, story))} free: {leaked}"
        case Act(who, "write"):
            return f"{leaked} {who} wrote. Which blocks did {who} hold before and after?"
        case Act(who, "leave"):
            return f"{leaked} {who} has left. Which requests held {who}'s blocks before and now?"
    return f"{lost} cannot be allocated although it has no holder. Where do you keep free blocks?"


def _holdings(tables: Tables) -> str:
    held = [
        f"{who} holds {listed(f'block {block}' for block in table)}"
        for who, table in tables.items()
        if table
    ]
    return listed(held) if held else "no request holds a block"


def _are(free: int) -> str:
    return f"{counted(free, 'block')} {'was' if free == 1 else 'were'}"


def _held(block: int, others: list[str]) -> str:
    return (
        f"{listed(others)} {_reads(others)} block {block}, too"
        if others
        else f"block {block} has no other holder"
    )


def _reads(who: list[str]) -> str:
    return "reads" if len(who) == 1 else "read"
