"""Lesson 17: count the tokens of a request for a scheduler that works one step ahead."""

import random
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from checks.answer import Answer
from checks.broken import Broken, Promises
from checks.guard import watched
from checks.judging import counted, listed, whole
from engine import Engine
from engine.core.async_loop import AsyncLoop
from engine.core.loop import Loop, StepOutput
from engine.core.request import Request
from engine.core.runner import Row, Sampled
from engine.core.scheduling.scheduler import Plan

ANSWERS = {
    "passes": Answer(
        43,
        {
            40: "The tokens and the seats are the same, but a free seat is noticed one step late.",
            38: "It is faster, but that doesn't mean fewer passes: each token still needs one.",
            80: "Then a request would have a row in every second step, but only free seats lag behind.",
        },
    ),
    "nothing": Answer(
        "slower",
        {
            "just as fast": "There is nothing left to hide, but freed seats are still used late.",
            "faster": "Overlap gains the time that the CPU takes, which is zero here.",
        },
        fits=lambda ms_more: ms_more > 0,
    ),
}
HINTS = (
    "`want` is known tokens plus placeholders, minus those that are computed. Two things make it 0: "
    "the request has ended, or the next token would come after the last one.",
    "`scheduled` counts the tokens as computed. If all known tokens and placeholders then are, the row "
    "brings a token, so add a placeholder for it; a row in the middle of a prompt brings none. "
    "`preempted` resets what is computed, and nothing that is known.",
)


class Promise(Promises):
    """The promises that the check tests."""

    NUMBER = "want() returns a whole number, 0 or more"
    ONLY_ASKS = "want() changes nothing"
    OWN_COUNTS = "each request has counts of its own"
    ALL_TOKENS = "each known token is computed once"
    GOES_ON = "a request that goes on has a row in every step"
    EXISTS = "a row computes only tokens that are known, or that the step before computes"
    MAX_TOKENS = "no row is computed for a token after max_tokens"
    ENDED = "a request that has ended wants nothing"
    AGAIN = "after a preemption, all known tokens are computed again"
    TRUE_OR_FALSE = "commit() returns True or False"
    IN_THE_TEXT = "each token up to the end is in the text"
    AFTER_THE_END = "no token after the end is in the text"


@dataclass(frozen=True)
class Story:
    """One request, and what happens to it step by step.

    budgets    the most tokens that each step may compute for it; the last one holds for all that follow
    stop       the number of the output token that is a stop token, from 1; 0 for none
    preempted  steps in whose scheduling the request loses its memory
    """

    prompt: int
    max_tokens: int
    budgets: tuple[int, ...]
    stop: int = 0
    preempted: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = f"A prompt of {counted(self.prompt, 'token')}, max_tokens={self.max_tokens}."
        *first, last = self.budgets
        if first:
            most = listed(f"{one} in step {step}" for step, one in enumerate(first, 1))
            words += f" A step computes at most {most}, and {last} after that."
        elif last < self.prompt:
            words += f" Each step computes at most {counted(last, 'token')} of it."
        if self.stop:
            words += f" Output token {self.stop} is a stop token."
        if self.preempted:
            words += f" It is preempted while step {listed(self.preempted)} is scheduled."
        return words

    @property
    def length(self) -> int:
        """The number of output tokens."""
        return min(self.max_tokens, self.stop or self.max_tokens)


def adapt(part: type | None) -> type[Engine]:
    """Return an engine class that asks the learner's part if it passed."""
    return type("YourEngine", (YourEngine,), {"part": part}) if part else Engine


class YourRequest(Request):
    """A request that wants as many tokens as a learner's part says."""

    __slots__ = ()
    parts: ClassVar[dict[Request, Any]] = {}

    @property
    def num_unscheduled_tokens(self) -> int:
        """See `Request`."""
        return int(self.parts[self].want())


class YourEngine(Engine):
    """An engine that asks a learner's part what each request wants.

    For requests with one sample, and without prefix cache, stop strings, tools and aborts.
    """

    part: ClassVar[type]

    def submit(self, *args: Any, **kwargs: Any) -> Request:
        """See `Engine`."""
        request = super().submit(*args, **kwargs)
        request.__class__ = YourRequest  # it is in the queue already
        YourRequest.parts[request] = self.part(request.prompt_length, request.params.max_tokens)
        return request

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loop.__class__ = YourAsyncLoop if self.config.async_scheduling else YourLoop


class YourLoop(Loop):
    """A loop that tells a learner's part what happens to its request."""

    __slots__ = ()

    def schedule(self) -> Plan:
        """See `Loop`."""
        before = {request: request.preemptions for request in self.requests.values()}
        plan = super().schedule()
        for request, count in before.items():
            if request.preemptions > count:
                YourRequest.parts[request].preempted()
        for row in plan.rows:
            YourRequest.parts[row.request].scheduled(row.count)
        return plan

    def commit(self, plan: Plan, rows: list[Row], sampled: list[list[Sampled]]) -> StepOutput:
        """See `Loop`."""
        for row, samples in zip(rows, sampled, strict=True):
            for one in samples:
                [token] = one.ids
                YourRequest.parts[row.request].commit(token, token in row.request.end_ids)
        return super().commit(plan, rows, sampled)


class YourAsyncLoop(YourLoop, AsyncLoop):
    """The same with asynchronous scheduling."""

    __slots__ = ()


def cases() -> list[Story]:
    """Return all short stories, and some longer ones in random order of events; the shortest first."""
    stories = [
        Story(prompt, most, (budget,), stop, preempted)
        for prompt, most, budget, stop, preempted in product(
            (2, 1, 3), (1, 2, 3), (8, 2, 1), (0, 1, 2), ((), (2,), (3,))
        )
        if stop <= most and (most == 3 or not preempted)
    ]
    chance = random.Random(16)
    for _ in range(400):
        most = chance.randint(1, 12)
        budgets = tuple(chance.choice((0, 1, 2, 8, 8, 8)) for _ in range(chance.randint(0, 9)))
        steps = [step for step in range(2, 16) if chance.random() < 0.12]
        stop = chance.choice((0, 0, chance.randint(1, most)))
        stories.append(Story(chance.randint(1, 9), most, (*budgets, 8), stop, tuple(steps)))
    return sorted(stories, key=_size)


def _size(story: Story) -> tuple[int, ...]:
    events = len(story.preempted) + bool(story.stop) + len(story.budgets)
    return (events, story.length, story.prompt > story.budgets[0], story.max_tokens, story.prompt)


def attempt(part: type, story: Story) -> None:
    """Play a story to its end, and check every answer."""
    with watched(part):
        other = part(story.prompt, story.max_tokens)
        before = _want(other)
        _Play(part, story).to_the_end()
        if (after := _want(other)) != before:
            raise Promise.OWN_COUNTS.broken(
                f"A second request wanted {counted(before, 'token')}. Then the first one ran, and "
                f"the second one wants {after}.",
                "Where are the counts kept: in the object, or in the class?",
            )


def _want(part: Any) -> Any:
    """Return the answer of want(), asked twice."""
    first, second = part.want(), part.want()
    if first != second:
        raise Promise.ONLY_ASKS.broken(
            f"want() returned {first!r}, and asked again at once, {second!r}.",
            "The scheduler may ask as often as it likes. What does want() write to?",
        )
    return first


class _Play:
    """A request and its steps: one is being computed while the next one is scheduled."""

    def __init__(self, part: type, story: Story) -> None:
        self._part = part(story.prompt, story.max_tokens)
        self._story = story
        self._step = 0
        self._text = 0  # output tokens so far
        self._computed = 0  # or being computed
        self._pending = 0  # output tokens that scheduled steps will add
        self._flight = 0  # the step that is being computed and brings a token, or 0
        self._lost = 0  # the step in which it was preempted last, until a row follows

    @property
    def _known(self) -> int:
        return self._story.prompt + self._text

    @property
    def _ended(self) -> bool:
        return self._text == self._story.length

    def to_the_end(self) -> None:
        """Run the steps until the request has ended and none of its rows is left."""
        idle = 0
        while not self._ended or self._flight or idle < 2:
            idle = idle + 1 if self._ended and not self._flight else 0
            self._step += 1
            self._run()

    def _run(self) -> None:
        """Schedule a step, finish the one before, and start the new one."""
        budgets = self._story.budgets
        count = min(self._checked_want(), budgets[min(self._step, len(budgets)) - 1])
        brings = 0
        if self._step in self._story.preempted and not self._ended and self._computed:
            self._part.preempted()
            self._computed = self._pending = 0  # the step in flight still brings its token
            self._lost = self._step
        elif count:
            self._part.scheduled(count)
            self._computed, self._lost = self._computed + count, 0
            if self._computed == self._known + self._pending:
                self._pending, brings = self._pending + 1, self._step
        if self._flight:
            self._commit(self._flight)
        self._flight = brings

    def _checked_want(self) -> int:
        answer = _want(self._part)
        want = whole(answer)
        if want is None or want < 0:
            raise Promise.NUMBER.broken(
                f"want() returned {answer!r}.",
                f"{self._facts()} How many of those tokens are still without a row?"
                if answer in range(-100, 0)
                else "What does each path through want() return?",
            )
        certain = self._text + self._pending >= self._story.max_tokens
        due = 0 if self._ended or certain else self._known + self._pending - self._computed
        if want != due:
            raise self._wrong(want, due)
        return want

    def _wrong(self, want: int, due: int) -> Broken:
        did = f"Before step {self._step}, want() returned {want}."
        facts = self._facts()
        if self._ended:
            return Promise.ENDED.broken(did, f"It has ended with output token {self._text}.")
        if self._text + self._pending >= self._story.max_tokens:
            look = f"{facts} The next one is output token {self._story.max_tokens}, the last."
            return Promise.MAX_TOKENS.broken(did, look)
        if self._lost:
            look = f"In step {self._lost} it lost its memory. {facts}"
            return Broken(did, Promise.EXISTS if want > due else Promise.AGAIN, look)
        if want > due:
            return Promise.EXISTS.broken(did, facts)
        if not want and self._flight:
            look = f"{facts} The device will have nothing to do for it in step {self._step}."
            return Promise.GOES_ON.broken(did, look)
        return Promise.ALL_TOKENS.broken(did, facts)

    def _facts(self) -> str:
        known = f"{counted(self._known, 'token')} {'is' if self._known == 1 else 'are'} known"
        flight = f", and step {self._flight} computes the next one" if self._flight else ""
        rows = f"{self._computed or 'None'} {'has' if self._computed == 1 else 'have'} had a row"
        return f"{known}{flight}. {rows}."

    def _commit(self, step: int) -> None:
        number = self._text + 1
        ends = number == self._story.stop
        ended = self._ended
        kept = self._part.commit(100 + number, ends)
        did = f"Step {step} brought output token {number}. commit() returned {kept!r}."
        if kept not in (True, False):
            raise Promise.TRUE_OR_FALSE.broken(did, "What does each path through commit() return?")
        if ended and kept:
            look = f"Output token {self._text} was the last. This row was computed in vain."
            raise Promise.AFTER_THE_END.broken(did, look)
        if not ended and not kept:
            look = "The request had not ended when the token came."
            if ends:
                look = "It is the stop token. The text ends with it, not before it."
            if self._lost:
                look += " A preemption takes KV away. What happens to text?"
            raise Promise.IN_THE_TEXT.broken(did, look)
        if not ended:
            self._text += 1
            self._pending = max(0, self._pending - 1)
