"""Lesson 00: in which step does each request get its first token?"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from checks.answer import Answer
from checks.beginning import until
from checks.broken import Promises
from checks.guard import watched
from checks.judging import counted, listed
from engine import Cost, EngineConfig, simulate
from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.simulation.speakers import NAMES, Speaker, workload_of
from visualizer import read

ANSWERS = {
    "eva": Answer(
        10,
        {
            9: "Bo's answer has 8 tokens, and eight steps are over. But his first one came "
            "in step 2.",
            11: "Ada was the first to get a token, and her answer has 10. But Bo began one "
            "step later and ends before her.",
            13: "Dev's answer is the shortest. But the machine was reading his long prompt "
            "until step 7.",
        },
    )
}
HINTS = (
    "Go through the log once and keep the number of the current step. Which event carries tokens?",
    "A request gets tokens in many steps. What does your dictionary have already when the "
    "second one comes?",
)


class Promise(Promises):
    """The promises that the check tests."""

    IS_DICT = "the answer is a dictionary from request to step"
    ONLY_WITH_TOKENS = "only requests that got a token are in it"
    ALL_WITH_TOKENS = "every request that got a token is in it"
    STEP_NUMBERS = "the values are step numbers"
    FIRST_STEP = "each request has the step of its first token"


FirstTokenSteps = Callable[[EventLog], dict[int, int]]


@dataclass(frozen=True)
class Run:
    """People, and the number of steps that the log has."""

    people: tuple[Speaker, ...]
    steps: int

    @property
    def log(self) -> EventLog:
        """The beginning of the log; some requests have no token in it yet."""
        config = EngineConfig(token_budget=8, max_batch_size=2, max_kv_tokens=512)
        return until(simulate(workload_of(self.people), config, cost=Cost(10, 0.25)), self.steps)

    def __str__(self) -> str:
        people = [
            f"{one.name} arrives in step {one.step} with {counted(one.own, 'prompt token')}"
            + (f" and {one.n} samples" if one.n > 1 else "")
            for one in self.people
        ]
        rules = "8 tokens a step, 2 seats"
        return f"A log of {counted(self.steps, 'step')} ({rules}): {'; '.join(people)}."


def adapt(first_token_steps: FirstTokenSteps | None) -> FirstTokenSteps:
    """Return the learner's function if it passed, otherwise ours."""
    return first_token_steps or truth


def truth(log: EventLog) -> dict[int, int]:
    """Return the right answer, from the rows of tokens."""
    first: dict[int, int] = {}
    for token in read(log).token_rows:
        first.setdefault(token.request, token.step)
    return first


def cases() -> list[Run]:
    """Return short logs of few people, the smallest first."""
    chance = random.Random(0)
    runs = []
    for count in (1, 1, 1, 2, 2, 2, 3, 3) * 6:
        steps = [1, *sorted(chance.randint(1, 4) for _ in range(count - 1))]
        people = tuple(
            Speaker(name, step, own=chance.choice((3, 20, 30)), output=chance.randint(1, 4), n=n)
            for name, step in zip(NAMES, steps, strict=False)
            for n in [chance.choice((1, 1, 1, 2))]
        )
        runs.append(Run(people, chance.randint(1, 9)))
    return sorted(runs, key=_size)


def _size(run: Run) -> tuple[int, ...]:
    people = run.people
    return (len(people), sum(one.n for one in people), run.steps, sum(one.own for one in people))


def attempt(first_token_steps: FirstTokenSteps, run: Run) -> None:
    """Check that exactly the requests with tokens are there, each with the right step."""
    log = run.log
    with watched(first_token_steps):
        answer = first_token_steps(log)
    if not isinstance(answer, dict):
        raise Promise.IS_DICT.broken(
            f"You returned {answer!r}.",
            "What does first_token_steps() return? For a log without tokens it is an empty "
            "dictionary.",
        )
    right, names = truth(log), _names(log)
    for request in [*answer, *(request for request in right if request not in answer)]:
        said, step = answer.get(request), right.get(request)
        name, look = names.get(request, repr(request)), _story(log, request, names)
        if step is None:
            raise Promise.ONLY_WITH_TOKENS.broken(f"Your dictionary has {name}.", look)
        if request not in answer:
            raise Promise.ALL_WITH_TOKENS.broken(f"{name} is missing.", look)
        if said != step:
            is_step = isinstance(said, Integral)
            promise = Promise.FIRST_STEP if is_step else Promise.STEP_NUMBERS
            raise promise.broken(f"You returned step {said!r} for {name}.", look)


def _story(log: EventLog, request: Any, names: dict[int, str]) -> str:
    """Say what the log has about a request, step by step."""
    reading = read(log)
    steps = counted(len(reading.step_rows), "step")
    if request not in names:
        return f"The keys are request numbers, from 1: {listed(names.values())}. What is this key?"
    row = next((one for one in reading.request_rows if one.request == request), None)
    if row is None:
        return f"The log has {steps}. Does any of them have a token of {names[request]}?"
    own = sorted({token.step for token in reading.token_rows if token.request == request})
    others = {token.request for token in reading.token_rows if token.step in own} - {request}
    look = (
        f"The log has {steps}, from step 1 on. {names[request]} arrives in step {row.arrived_step}, is "
        f"admitted in step {row.admitted_step or 'none'} and has tokens in step {listed(own)}"
    )
    return (
        f"{look}, beside {listed(names[one] for one in sorted(others))}." if others else f"{look}."
    )


def _names(log: EventLog) -> dict[int, str]:
    """ "Ada (request 1)", "sample 1 of Ada (request 2)"."""
    names = {}
    for event in log.of(v.RequestArrived):
        for sample in range(event.n):
            whose = event.label if sample == 0 else f"sample {sample} of {event.label}"
            names[event.request + sample] = f"{whose} (request {event.request + sample})"
    return names
