"""Lesson 08: how many tokens may a step compute, so that nobody waits too long for a word?"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.broken import Broken
from checks.guard import call
from checks.judging import counted, judge

PickBudget = Callable[[float, float, int, float], int | None]


@dataclass(frozen=True)
class Goal:
    """A machine, how many people it talks to, and how long each of them may wait for a token."""

    base_ms: float
    per_token_ms: float
    decodes: int
    itl_goal_ms: float

    def step_ms(self, tokens: int) -> float:
        """What a step with so many tokens takes."""
        return self.base_ms + self.per_token_ms * tokens

    def __str__(self) -> str:
        one = self.decodes == 1
        decode = "decodes, one token a step" if one else "decode, one token a step each"
        return (
            f"A step takes {self.base_ms:g} ms, and {self.per_token_ms:g} ms more for each of its "
            f"tokens. {counted(self.decodes, 'request')} {decode}. No step may take longer than "
            f"{self.itl_goal_ms:g} ms."
        )


def check(pick_budget: PickBudget) -> PickBudget:
    """Say how it does, and hand back a function that does it: the learner's, or ours."""
    verdict = judge(pick_budget, cases(), attempt)
    print(verdict)
    return pick_budget if verdict.passed else _largest


def _largest(base_ms: float, per_token_ms: float, decodes: int, itl_goal_ms: float) -> int | None:
    """Ask for one token more until the goal is broken. (Exact for the quarters used here.)"""
    budget = 0
    while base_ms + per_token_ms * (budget + 1) <= itl_goal_ms:
        budget += 1
    return budget if budget > decodes else None


def cases() -> list[Goal]:
    """Goals that are met exactly, and that are not; with room to spare, tight, and out of reach.

    All times are quarters of a millisecond, which floating-point numbers hold exactly: a formula and
    a search agree.
    """
    machines = product((0.0, 5.0, 10.0, 20.0), (0.25, 0.5, 1.0, 2.5))
    crowds = product((1, 2, 4, 5, 40), (1.0, 6.0, 11.0, 11.25, 12.5, 15.0, 22.0, 30.0, 50.25))
    pairs = product(machines, crowds)
    return sorted((Goal(*machine, *crowd) for machine, crowd in pairs), key=_size)


def _size(goal: Goal) -> tuple[float, ...]:
    """Few requests; goals that can be met, and barely, before those that cannot."""
    room = (goal.itl_goal_ms - goal.base_ms) / goal.per_token_ms
    return (goal.decodes, room < goal.decodes + 1, abs(room), -goal.base_ms)


def attempt(pick_budget: PickBudget, goal: Goal) -> None:
    """Hold an answer against the promises: within the goal, room for a prompt, none larger."""
    answer = call(pick_budget, goal.base_ms, goal.per_token_ms, goal.decodes, goal.itl_goal_ms)
    smallest = goal.decodes + 1
    if answer is None:
        _check_out_of_reach(goal, smallest)
        return
    budget = _whole(answer)
    did = f"You returned {budget}."
    full = goal.step_ms(budget)
    if full > goal.itl_goal_ms:
        look = f"A step with {counted(budget, 'token')} takes {full:g} ms"
        if goal.per_token_ms * budget <= goal.itl_goal_ms and goal.base_ms:
            look += f", of which {goal.base_ms:g} ms pass before the first token"
        if goal.step_ms(smallest) > goal.itl_goal_ms:
            look += f". And with fewer than {counted(smallest, 'token')} a prompt gets nothing"
        raise Broken(did, "no step takes longer than the goal", look + ".")
    if budget < smallest:
        look = (
            f"Those who decode take {counted(goal.decodes, 'token')} of it in every step. What is "
            "left for somebody who is still reading?"
        )
        if goal.step_ms(smallest) > goal.itl_goal_ms:
            look = (
                f"One would need {counted(smallest, 'token')}, and {goal.step_ms(smallest):g} ms. "
                "This goal cannot be met. What does the docstring say about that?"
            )
        raise Broken(did, "a prompt gets at least one token a step", look)
    if goal.step_ms(budget + 1) <= goal.itl_goal_ms:
        raise Broken(
            did,
            "it is the largest budget that meets the goal",
            f"A full step takes {full:g} ms, and with one token more {goal.step_ms(budget + 1):g} ms. "
            "The budget is for all tokens of a step, whosever they are.",
        )


def _check_out_of_reach(goal: Goal, smallest: int) -> None:
    if goal.step_ms(smallest) <= goal.itl_goal_ms:
        raise Broken(
            "You returned None.",
            "None is only for goals that cannot be met",
            f"A step with {counted(smallest, 'token')}, one of them of a prompt, takes "
            f"{goal.step_ms(smallest):g} ms.",
        )


def _whole(answer: Any) -> int:
    """The answer as a number of tokens; 80.0 is close, but the engine takes no part of a token."""
    if isinstance(answer, bool) or not hasattr(answer, "__index__"):
        raise Broken(
            f"You returned {answer!r}.",
            "the answer is a whole number of tokens, or None",
            "The engine takes 80 for a budget; it does not take 80.0, nor '80'.",
        )
    return int(answer)
