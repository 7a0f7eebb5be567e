"""Which settings would have met a goal: found by replays, with their price and their error."""

from visualizer.advice.advise import SHORTER, Refusal, advise, advising
from visualizer.advice.answer import Advice, Advised
from visualizer.advice.goal import Goal, GoalError, goals_of

__all__ = [
    "SHORTER",
    "Advice",
    "Advised",
    "Goal",
    "GoalError",
    "Refusal",
    "advise",
    "advising",
    "goals_of",
]
