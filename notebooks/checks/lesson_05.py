"""Lesson 05: a pool of KV blocks, shared by reference counts and copied when written."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from checks.broken import Broken
from checks.guard import watched
from checks.judging import counted, judge, listed
from checks.pool_stories import Act, Story, cases
from engine.cache.block_pool import BlockPool

ALONE = "who holds a block alone writes into that block"
MakePool = Callable[[int], Any]  # number of blocks -> a pool
Tables = dict[str, list[int]]  # who holds what
ALL_OR_NOTHING = (
    "all or nothing: who asks for more than there is gets None",
    "What would somebody do with a part of what they need?",
)


class YourPool(BlockPool):
    """What a learner wrote, as the engine asks for it: it says which block, the rest is booked here."""

    def __init__(self, part: MakePool, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self._part = part(num_blocks)

    def allocate(self, count: int) -> list[int]:
        """The learner's choice."""
        if count > len(self.free):
            return super().allocate(count)  # which refuses, as the engine expects it
        return self._handed_out(self._part.allocate(count))

    def share(self, blocks: Iterable[int]) -> None:
        """One by one."""
        blocks = list(blocks)
        super().share(blocks)
        for block in blocks:
            self._part.share(block)

    def release(self, blocks: list[int]) -> None:
        """One by one, the last first."""
        super().release(blocks)
        for block in reversed(blocks):
            self._part.release(block)

    def writable(self, block: int) -> int:
        """The learner's choice, and for a copy one reference less."""
        own, copied = self._part.writable(block)
        if copied:
            self.refs[block] -= 1
            self._handed_out([own])
        return int(own)

    def _handed_out(self, blocks: Iterable[int]) -> list[int]:
        chosen = list(blocks)
        for block in chosen:
            self.free.remove(block)
            self.refs[block] = 1
        return chosen


def check(part: type) -> Callable[[int], BlockPool]:
    """Say how a pool does, and give something that makes pools: of the learner's kind, or ours."""
    verdict = judge(part, cases(), attempt)
    print(verdict)
    return (lambda blocks: YourPool(part, blocks)) if verdict.passed else BlockPool


def attempt(part: type, story: Story) -> None:
    """Play a story, and hold every answer against who holds what; at the end, ask for all the rest."""
    with watched(part):
        pool = part(story.num_blocks)
        tables: dict[str, list[int]] = {}
        for act in story.acts:
            _play(pool, act, tables, story)
        _check_the_rest(pool, tables, story)


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
    """Where somebody may write from now on."""
    block, free = tables[act.who][-1], _free(tables, story)
    others = [who for who in _holders(block, tables) if who != act.who]
    answer = pool.writable(block)
    did = f"{act}, block {block}. You returned {answer!r}."
    if others and not free:
        if answer is None:
            return block
        raise Broken(
            did,
            "None if a copy is needed and no block is free",
            f"{listed(others)} {_reads(others)} block {block}, too, and no block is free.",
        )
    if answer is None and not others:
        raise Broken(did, ALONE, f"Who held block {block} before, and who holds it now?")
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        raise Broken(
            did,
            "the answer is a block, and whether it is a copy",
            f"{_are(free)} free, and {_held(block, others)}.",
        )
    own, copied = answer
    if isinstance(own, bool) or copied not in (True, False):
        raise Broken(
            did,
            "the answer is a block, and whether it is a copy",
            "Which of the two comes first?",
        )
    if not others and copied:
        raise Broken(
            did,
            "a block is copied only if somebody else holds it",
            f"Nobody else holds block {block}. What is the copy for?",
        )
    if not others:
        if own != block:
            raise Broken(did, ALONE, f"What {act.who} wrote before is in block {block}.")
        return block
    if own == block:
        raise Broken(
            did,
            "nobody's data changes under them",
            f"{listed(others)} {_reads(others)} block {block}, too.",
        )
    [own] = _checked([own], 1, f"When {act}", tables, story)
    if not copied:
        raise Broken(
            did,
            "the answer says whether contents have to be copied",
            f"What {act.who} wrote before is in block {block}, and block {own} is another one.",
        )
    return own


def _checked(answer: Any, count: int, when: str, tables: Tables, story: Story) -> list[int]:
    """`count` blocks that exist, each once, and held by nobody."""
    free = _free(tables, story)
    if answer is None:
        raise Broken(
            f"{when}, you returned None.",
            "who asks for no more than is free gets it",
            f"{_are(free)} free.",
        )
    if not isinstance(answer, list | tuple) or len(answer) != count:
        raise Broken(
            f"{when}, you returned {answer!r}.",
            "who asks for n blocks gets a list of n blocks",
            f"{counted(count, 'block')} asked for, {free} free.",
        )
    for place, block in enumerate(answer):
        if block not in range(story.num_blocks):
            raise Broken(
                f"{when}, you handed out {block!r}.",
                "the blocks are the numbers from 0 on",
                f"A pool of {counted(story.num_blocks, 'block')} has "
                f"{listed(range(story.num_blocks))}.",
            )
        if block in answer[:place]:
            raise Broken(
                f"{when}, you handed out {answer!r}.",
                "a block is handed out once",
                f"Block {block} is in there twice.",
            )
        if holders := _holders(block, tables):
            raise Broken(
                f"{when}, you handed out block {block}. {listed(holders)} still "
                f"{'holds' if len(holders) == 1 else 'hold'} it.",
                "a block is free when the last of its holders has let go, and not before",
                _last_seen(block, story, holders),
            )
    return list(answer)


def _last_seen(block: int, story: Story, holders: list[str]) -> str:
    match story.acts[-1]:
        case Act(who, "leave"):
            return f"{who} left and let go of block {block}. How many held it before that?"
        case Act(who, "write"):
            return f"{who} has a copy now, and let go of block {block}. Did everybody?"
    return f"Follow block {block} through the story. Who has let go of it, and did {holders[0]}?"


def _check_the_rest(pool: Any, tables: Tables, story: Story) -> None:
    """Zoe can have whatever nobody holds, and then nothing more."""
    free = _free(tables, story)
    if free:
        answer = pool.allocate(free)
        if answer is None:
            fewer = range(free - 1, 0, -1)
            had = next((one for one in fewer if pool.allocate(one) is not None), 0)
            raise Broken(
                f"In the end {_told(tables)}, so {counted(free, 'block')} should be free. "
                f"{had or 'None'} can be had.",
                "free blocks and held blocks together are all blocks",
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


def _leak(lost: int, tables: Tables, story: Story) -> str:
    leaked = f"{lost} leaked."
    match story.acts[-1]:
        case Act(who, "take", blocks) if story.refused:
            return f"{who} asked for {blocks}, you had {_free(tables, story)}: {leaked}"
        case Act(who, "write"):
            return (
                f"{leaked} {who} was about to write. Which blocks did {who} hold before, and after?"
            )
        case Act(who, "leave"):
            return f"{leaked} {who} has left. Who ever held what {who} held, and who does now?"
    return f"{lost} cannot be had although nobody holds it. Where do blocks wait?"


def _told(tables: Tables) -> str:
    held = [
        f"{who} holds {listed(f'block {block}' for block in table)}"
        for who, table in tables.items()
        if table
    ]
    return listed(held) if held else "nobody holds a block"


def _are(free: int) -> str:
    return f"{counted(free, 'block')} {'was' if free == 1 else 'were'}"


def _held(block: int, others: list[str]) -> str:
    return (
        f"{listed(others)} {_reads(others)} block {block}, too"
        if others
        else f"nobody else holds block {block}"
    )


def _reads(who: list[str]) -> str:
    return "reads" if len(who) == 1 else "read"
