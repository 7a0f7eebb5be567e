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
    if silent := [request for request in answer if request not in right]:
        raise Promise.ONLY_WITH_TOKENS.broken(
            f"Your dictionary has {listed(names.get(one, repr(one)) for one in silent)}.",
            _why_not_in_it(silent[0], names),
        )
    if missing := [request for request in right if request not in answer]:
        raise Promise.ALL_WITH_TOKENS.broken(
            f"{listed(names[one] for one in missing)} is missing.",
            _where_it_is(log, missing[0], names, right[missing[0]]),
        )
    for request, step in right.items():
        if not isinstance(answer[request], Integral):
            raise Promise.STEP_NUMBERS.broken(
                f"For {names[request]} you returned {answer[request]!r}.",
                "The log has whole numbers.",
            )
        if answer[request] != step:
            raise Promise.FIRST_STEP.broken(
                f"You returned step {answer[request]} for {names[request]}.",
                _where_to_look(log, request, names[request], answer[request], step),
            )


def _why_not_in_it(key: Any, names: dict[int, str]) -> str:
    if key not in names:
        return "The keys are request numbers, from 1. What is this key?"
    return f"Does any step of this log have a token of {names[key]}?"


def _where_it_is(log: EventLog, request: int, names: dict[int, str], step: int) -> str:
    """Return a hint about the step of a missing request's first token."""
    rows = [token.request for token in read(log).token_rows if token.step == step]
    look = f"Its first token is in step {step}. "
    if len(rows) == 1:
        return look + "Which event says so, and does yours get that far?"
    look += (
        f"That step has tokens of {listed(names[one] for one in rows)}: does yours read all rows?"
    )
    if names[request].startswith("sample"):
        look += " Two samples of a prompt are two requests."
    return look


def _where_to_look(log: EventLog, request: int, name: str, said: Any, step: int) -> str:
    """Return a hint about what happened in the returned step."""
    row = read(log).request(request)
    arrived, admitted = row.arrived_step, row.admitted_step
    steps = read(log).step_rows
    if not 0 < said <= len(steps):
        return (
            f"There is no step {said}: the log has {counted(len(steps), 'step')}, from step 1 "
            "on. Is yours a step's number, or a count of something else?"
        )
    if said == admitted:
        return (
            f"{name} is admitted in step {said} and gets its first token in step {step}. What happens "
            "in between?"
        )
    if said < step and any(one.step == said for one in steps):
        return f"Step {said} has no token of {name}. What does it have?"
    if arrived is not None and said in (step - arrived, step - arrived + 1):
        return "Return the step's number, not the length of the wait."
    if any(token.request == request and token.step == said for token in read(log).token_rows):
        return f"Step {said} has a token of {name}, but not its first one."
    return f"Go through the log up to {name}'s first token. Which step has it?"


def _names(log: EventLog) -> dict[int, str]:
    """ "Ada (request 1)", "sample 1 of Ada (request 2)"."""
    names = {}
    for event in log.of(v.RequestArrived):
        for sample in range(event.n):
            whose = event.label if sample == 0 else f"sample {sample} of {event.label}"
            names[event.request + sample] = f"{whose} (request {event.request + sample})"
    return names
