"""Which settings would have met a goal: found by replays, with their price and their error."""

from visualizer.advice.advise import Refusal, advise
from visualizer.advice.answer import Advice, Advised
from visualizer.advice.goal import Goal, GoalError, goals_of

__all__ = ["Advice", "Advised", "Goal", "GoalError", "Refusal", "advise", "goals_of"]
