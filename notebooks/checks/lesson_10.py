"""Lesson 10: how many tokens may a step compute, so that no token comes too late?"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from checks.answer import Answer
from checks.broken import Promises
from checks.decided import decided
from checks.guard import call
from checks.judging import counted, whole
from engine.simulation.choice import Budget

ANSWERS = {
    "allowed": decided(
        "chunk_budget",
        8,
        {"100 tokens": Budget(104), "200 tokens": Budget(204), "all 400 tokens": Budget(512)},
    ),
    "behind": Answer(
        7,
        {
            2: "The chats came first before, but now Eva's request is running while Ada's waits.",
            3: "Eva's gets one step, then there is room for others? No: it comes first in each step.",
            8: "That is after Eva's last chunk, which is so small that it leaves room beside it.",
        },
    ),
}
HINTS = (
    "A step always costs base_ms, so subtract that from the goal first: the rest pays for tokens.",
    "There are two more conditions: at least one prompt token must fit beside the decodes, and a "
    "budget is a whole number of tokens.",
)


class Promise(Promises):
    """The promises that the check tests."""

    WHOLE = "the answer is a whole number of tokens, or None"
    WITHIN_GOAL = "no step takes longer than the goal"
    ROOM_FOR_PROMPT = "a prompt gets at least one token per step"
    LARGEST = "the answer is the largest budget that meets the goal"
    NONE_IF_IMPOSSIBLE = "None is only for goals that cannot be met"


PickBudget = Callable[[float, float, int, float], int | None]


@dataclass(frozen=True)
class Goal:
    """A machine, its number of decoding requests, and their goal for the time between tokens."""

    base_ms: float
    per_token_ms: float
    decodes: int
    itl_goal_ms: float

    def step_ms(self, tokens: int) -> float:
        """Return the duration of a step with so many tokens."""
        return self.base_ms + self.per_token_ms * tokens

    def __str__(self) -> str:
        one = self.decodes == 1
        decode = "decodes, one token a step" if one else "decode, one token a step each"
        return (
            f"A step takes {self.base_ms:g} ms, and {self.per_token_ms:g} ms more for each of its "
            f"tokens. {counted(self.decodes, 'request')} {decode}. No step may take longer than "
            f"{self.itl_goal_ms:g} ms."
        )


def adapt(pick_budget: PickBudget | None) -> PickBudget:
    """Return the learner's function if it passed, otherwise ours."""
    return pick_budget or _largest


def _largest(base_ms: float, per_token_ms: float, decodes: int, itl_goal_ms: float) -> int | None:
    """Return the right budget by search. (Exact for the quarters used here.)"""
    budget = 0
    while base_ms + per_token_ms * (budget + 1) <= itl_goal_ms:
        budget += 1
    return budget if budget > decodes else None


def cases() -> list[Goal]:
    """Return goals that a budget meets exactly or not, tight ones and impossible ones.

    All times are quarters of a millisecond, which floating-point numbers hold exactly: a formula and
    a search agree.
    """
    machines = product((0.0, 5.0, 10.0, 20.0), (0.25, 1.0, 2.5))
    crowds = product((1, 2, 4, 40), (1.0, 11.0, 11.25, 12.5, 22.0, 30.0, 50.25))
    pairs = product(machines, crowds)
    goals = [Goal(*machine, *crowd) for machine, crowd in pairs]
    # A budget like those of real servers.
    return sorted([*goals, Goal(5.0, 0.03125, 40, 261.0)], key=_size)


def _size(goal: Goal) -> tuple[float, ...]:
    """Sort by few requests, then tight goals before impossible ones."""
    room = (goal.itl_goal_ms - goal.base_ms) / goal.per_token_ms
    return (goal.decodes, room < goal.decodes + 1, abs(room), -goal.base_ms)


def attempt(pick_budget: PickBudget, goal: Goal) -> None:
    """Check that the budget meets the goal, has room for a prompt, and is the largest."""
    answer = call(pick_budget, goal.base_ms, goal.per_token_ms, goal.decodes, goal.itl_goal_ms)
    smallest = goal.decodes + 1
    if answer is None:
        _check_out_of_reach(goal, smallest)
        return
    if (budget := whole(answer)) is None:
        raise Promise.WHOLE.broken(
            f"You returned {answer!r}.", "The engine takes the budget 80, but not 80.0 or '80'."
        )
    did = f"You returned {budget}."
    full = goal.step_ms(budget)
    if full > goal.itl_goal_ms:
        look = f"A step with {counted(budget, 'token')} takes {full:g} ms"
        if goal.per_token_ms * budget <= goal.itl_goal_ms and goal.base_ms:
            look += f", of which {goal.base_ms:g} ms are the base cost"
        if goal.step_ms(smallest) > goal.itl_goal_ms:
            look += f". With fewer than {counted(smallest, 'token')} a prompt gets nothing"
        raise Promise.WITHIN_GOAL.broken(did, look + ".")
    if budget < smallest:
        look = (
            f"The decoding requests take {counted(goal.decodes, 'token')} of it in every step. What is "
            "left for a prompt?"
        )
        if goal.step_ms(smallest) > goal.itl_goal_ms:
            look = (
                f"With a prompt token a step has {smallest} tokens: {goal.step_ms(smallest):g} ms. "
                "This goal cannot be met. What does the docstring say for that case?"
            )
        raise Promise.ROOM_FOR_PROMPT.broken(did, look)
    if goal.step_ms(budget + 1) <= goal.itl_goal_ms:
        raise Promise.LARGEST.broken(
            did,
            f"A full step takes {full:g} ms, and with one token more {goal.step_ms(budget + 1):g} ms. "
            "The budget covers all tokens of a step, of all requests.",
        )


def _check_out_of_reach(goal: Goal, smallest: int) -> None:
    if goal.step_ms(smallest) <= goal.itl_goal_ms:
        raise Promise.NONE_IF_IMPOSSIBLE.broken(
            "You returned None.",
            f"A step with {counted(smallest, 'token')}, one of them of a prompt, takes "
            f"{goal.step_ms(smallest):g} ms.",
        )
