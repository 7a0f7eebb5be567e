"""Lesson 11: why is the head of the queue not admitted? Answered from what vLLM's scheduler knows."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from checks.answer import Answer
from checks.broken import Broken, Promises
from checks.guard import call
from checks.judging import counted
from engine import Cost, EngineConfig, simulate
from engine.core.log import EventLog, State
from engine.core.log import vocabulary as v
from engine.simulation.speakers import COMMON, NAMES, Speaker, workload_of
from visualizer.reading.why.shortfall import CachedPrefix

ANSWERS = {
    "equal": Answer(
        215,
        {
            5: "It is a small engine, but its scheduler was written after vLLM's, line by line.",
            120: "The rules do differ where memory is short, but in many workloads it never is.",
            300: "Two rules differ, so as soon as memory is short, they decide differently.",
        },
    ),
    "time": Answer(
        "none of it",
        {
            "all but one block": "Only one line changed, but all blocks behind it depend on that line.",
            "all that follows the time": "The text is equal, but its keys and values depend on the "
            "time that comes before it.",
            "about half": "The time is at the beginning, so nothing in front of it could be cached.",
        },
        fits=lambda cached: cached == 0,
    ),
}
HINTS = (
    "There are four reasons, and each is one comparison. Ask in the order of the list, and return the "
    "first that holds.",
    "For the memory, count the blocks that all its tokens need, minus those that it reuses. Then "
    "compare them with the free blocks, of which those that it reuses won't be free any more.",
)
REASONS = ("after_preemption", "batch_full", "token_budget", "whole_sequence")
CASES = {  # (reason, whether nothing waits) -> how many: 500. Memory needs the most thought
    ("whole_sequence", False): 150,
    (None, False): 150,
    ("token_budget", False): 60,
    ("batch_full", False): 60,
    ("after_preemption", False): 60,
    (None, True): 20,
}


class Promise(Promises):
    """The promises that the check tests."""

    REASON = f"the answer is {', '.join(REASONS)} or None"
    NOTHING_WAITS = "if nothing waits, there is no reason"
    AFTER_PREEMPTION = "a step that preempts admits no request"
    SEATS = "a request is admitted only if a seat is free"
    BUDGET = "a request is admitted only if it can compute at least one token"
    WHOLE = "a request is admitted only if all its tokens fit into the free blocks"
    REUSED = "a request reuses its cached blocks, and needs no others for them"
    TAKEN = "a free block that the request reuses is not free any more"
    ADMITTED = "a request is admitted if nothing prevents it"
    FIRST = "of several reasons, the first in the list is the one in the log"


class Head(NamedTuple):
    """The request at the head of the queue.

    tokens          all that it has to compute and to find in the cache
    cached_blocks   the blocks at its beginning that are cached
    evictable       how many of these no request uses; they are among the free blocks
    """

    tokens: int
    cached_blocks: int
    evictable: int
    block_size: int


class Step(NamedTuple):
    """What the scheduler knows when it looks at the head of the queue.

    preempted    whether a request was preempted in this step
    running      requests that have a seat
    budget_left  tokens that this step may still compute
    free_blocks  blocks that can be allocated: never used, or cached and used by no request
    head         None if nothing waits
    """

    preempted: bool
    running: int
    max_num_seqs: int
    budget_left: int
    free_blocks: int
    head: Head | None


Reason = Callable[[Step], str | None]


@dataclass(frozen=True)
class Moment:
    """A look at the head of the queue, and what the log has about it: a reason, or None.

    number  of the step; request  the head's id, or None
    """

    number: int
    request: int | None
    step: Step
    logged: str | None

    def __str__(self) -> str:
        step, head = self.step, self.step.head
        if head is None:
            return "Nothing waits."
        cached = f"{counted(head.cached_blocks, 'block')} of it cached"
        if not head.cached_blocks:
            cached = "nothing of it cached"
        elif head.evictable:
            cached += f" ({head.evictable} evictable)"
        before = "A request has been preempted. " if step.preempted else ""
        return (
            f"{before}The head of the queue has {counted(head.tokens, 'token')}, {cached}. Left: "
            f"{counted(step.max_num_seqs - step.running, 'seat')}, "
            f"{counted(step.budget_left, 'token')} and {counted(step.free_blocks, 'free block')} of "
            f"{head.block_size} slots."
        )


def adapt(reason: Reason | None) -> Reason:
    """Return a reason: the learner's, or our engine's until that passes."""
    return reason or _first_that_holds


def _first_that_holds(step: Step) -> str | None:
    return next((one for one in REASONS if step.head and _is_true(one, step, step.head)), None)


# Moments of a log


def moments(log: EventLog) -> list[Moment]:
    """Return every look at the head of the queue: one for each admission, and the last of each step.

    Everything comes from the folded log, so the log of another engine will do, if it knows its tokens,
    its tables and its prefix cache.
    """
    state, found = State(), list[Moment]()
    plans = _plans(log)
    number, preempted = 0, False
    for event in log:
        match event:
            case v.StepStarted():
                number, preempted = event.step, False
            case v.Preempted():
                preempted = True
            case v.Admitted() if number in plans:
                before = _tokens_before(event.request, plans[number])
                step = _step(state, preempted, before, event.request)
                found.append(Moment(number, event.request, step, None))
            case v.StepScheduled(rows=rows, blocked=blocked):
                head = blocked.request if blocked else None
                step = _step(state, preempted, sum(row.count for row in rows), head)
                found.append(Moment(number, head, step, blocked.reason if blocked else None))
        state.apply(event)
    return found


def _plans(log: EventLog) -> dict[int, list[v.ScheduledRow]]:
    """Return step -> its rows. An admission comes before the event that has them."""
    plans, number = dict[int, list[v.ScheduledRow]](), 0
    for event in log:
        if isinstance(event, v.StepStarted):
            number = event.step
        elif isinstance(event, v.StepScheduled):
            plans[number] = event.rows
    return plans


def _tokens_before(request: int, rows: list[v.ScheduledRow]) -> int:
    """Return how many tokens a step had handed out when it came to a request."""
    ids = [row.request for row in rows]
    return sum(row.count for row in rows[: ids.index(request)])


def _step(state: State, preempted: bool, handed_out: int, request: int | None) -> Step:
    settings, head = state.settings, None
    if request is not None:
        waiting = state.requests[request]
        found = CachedPrefix(state, waiting)
        head = Head(len(waiting.tokens), found.blocks, found.unlocked, state.block_size)
    return Step(
        preempted=preempted,
        running=len(state.running),
        max_num_seqs=settings["max_batch_size"],
        budget_left=settings["token_budget"] - handed_out,
        free_blocks=len(state.free) + state.evictable,
        head=head,
    )


# The cases


@cache
def cases() -> list[Moment]:
    """Return moments of our own engine with vLLM's rules, small ones first."""
    kinds: dict[tuple[str | None, bool], list[Moment]] = {}
    for moment in _crowded():
        kinds.setdefault((moment.logged, moment.step.head is None), []).append(moment)
    chance = random.Random(14)
    chosen = [one for kind, count in CASES.items() for one in chance.sample(kinds[kind], count)]
    return sorted(chosen, key=_size)


def _crowded() -> Iterator[Moment]:
    """Yield different moments of several runs in which everything is short at times."""
    seen = set[Step]()
    for seed in range(16):
        chance = random.Random(seed)
        settings = EngineConfig.like(
            "vllm",
            policy=chance.choice(("fcfs", "priority")),
            token_budget=chance.choice((16, 24, 32)),
            max_batch_size=chance.choice((3, 4, 6)),
            max_kv_tokens=8 * chance.choice((12, 16, 20)),
            block_size=8,
        )
        log = simulate(workload_of(_people(chance)), settings, cost=Cost(10, 0.25))
        for moment in moments(log):
            if moment.step not in seen:
                seen.add(moment.step)
                yield moment


def _people(chance: random.Random) -> Iterator[Speaker]:
    """Yield people of whom many begin alike, and some of them long after the others."""
    step = 1
    for name in NAMES:
        step += chance.choice((0, 0, 1, 2, 12))
        yield Speaker(
            name,
            step,
            shared=chance.choice((0, 8, 16, 30)),
            common=chance.choice(list(COMMON)[1:3]),
            own=chance.randint(4, 30),
            output=chance.randint(2, 24),
            priority=chance.randint(0, 2),
        )


def _size(moment: Moment) -> tuple[int, ...]:
    """Sort by what a reader has to think of: few reasons at once, little cached, few tokens."""
    step, head = moment.step, moment.step.head
    if head is None:
        return (0, step.running)
    true = sum(_is_true(one, step, head) for one in REASONS)
    return (max(1, true), head.evictable, head.cached_blocks, head.tokens, step.running)


# The check


def attempt(reason: Reason, moment: Moment) -> None:
    """Compare the answer with the log. Raises Broken with the comparison that went wrong."""
    said = call(reason, moment.step)
    if said == moment.logged and (said is None or isinstance(said, str)):
        return
    if said is not None and said not in REASONS:
        raise Promise.REASON.broken(
            f"You returned {said!r}."[:200],
            "Spell it as the log does. None means: nothing waits, or the head is admitted.",
        )
    did = f"You returned {said!r}; the log has {moment.logged!r}."
    raise Broken(did, *_diagnosis(said, moment))


def _diagnosis(said: str | None, moment: Moment) -> tuple[Promise, str]:
    """Return the promise that a wrong answer breaks, and where to look."""
    head = moment.step.head
    if head is None:
        return Promise.NOTHING_WAITS, "step.head is None here."
    if moment.logged is None:
        return _too_strict(said, moment.step, head)
    if said is not None and _is_true(said, moment.step, head):
        return (
            Promise.FIRST,
            f"Both are true. The scheduler came to {moment.logged} first, and looked no further.",
        )
    return _too_lax(moment.logged, moment.step, head)


def _is_true(said: str, step: Step, head: Head) -> bool:
    """Return whether a reason holds, though another one may come before it."""
    return {
        "after_preemption": step.preempted,
        "batch_full": step.running >= step.max_num_seqs,
        "token_budget": step.budget_left == 0,
        "whole_sequence": _needed(head) > step.free_blocks - head.evictable,
    }.get(said, False)


def _needed(head: Head) -> int:
    return -(-head.tokens // head.block_size) - head.cached_blocks


def _too_strict(said: str | None, step: Step, head: Head) -> tuple[Promise, str]:
    all_blocks = counted(_needed(head) + head.cached_blocks, "block")
    if said == "whole_sequence" and head.cached_blocks:
        return (
            Promise.REUSED,
            f"Its {head.tokens} tokens fill {all_blocks}. In the cache: {head.cached_blocks} of them. "
            f"Free: {counted(step.free_blocks, 'block')}.",
        )
    left = f"{counted(step.max_num_seqs - step.running, 'seat')}, "
    left += f"{counted(step.budget_left, 'token')} and {counted(step.free_blocks, 'free block')}"
    return (
        Promise.ADMITTED,
        f"It needs a seat, at least one token and {counted(_needed(head), 'block')}. Left in this "
        f"step: {left}.",
    )


def _too_lax(logged: str, step: Step, head: Head) -> tuple[Promise, str]:
    match logged:
        case "after_preemption":
            return (
                Promise.AFTER_PREEMPTION,
                f"Left: {counted(step.max_num_seqs - step.running, 'seat')}, "
                f"{counted(step.budget_left, 'token')} and "
                f"{counted(step.free_blocks, 'free block')}. Yet none came. What else happened in "
                "this step?",
            )
        case "batch_full":
            return Promise.SEATS, f"{step.running} requests run, on {step.max_num_seqs} seats."
        case "token_budget":
            return Promise.BUDGET, "The running requests have used up the step's tokens."
    need, free = _needed(head), step.free_blocks
    if head.evictable and need <= free:
        return (
            Promise.TAKEN,
            f"It needs {counted(need, 'block')} beside the {head.cached_blocks} in the cache. Free: "
            f"{free}. But {head.evictable} of these it reuses.",
        )
    look = f"It needs {counted(need, 'block')}. Left: {free - head.evictable}."
    chunk = min(head.tokens - head.cached_blocks * head.block_size, step.budget_left)
    if -(-chunk // head.block_size) <= free - head.evictable:
        look += f" This step's chunk, {counted(chunk, 'token')}, would fit. Where does the rest go?"
    return Promise.WHOLE, look
