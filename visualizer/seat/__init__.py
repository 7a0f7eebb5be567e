"""The scheduler's seat: decide a step of a log otherwise, and let the real scheduler go on.

from visualizer.seat import Seat, Victim, take

print(take(log, 20, Victim(1)))
"""

from engine.simulation.choice import (
    Budget,
    Choice,
    ChoiceError,
    Evict,
    First,
    Later,
    Settings,
    Victim,
)
from visualizer.seat.decisions import Candidate, Decision
from visualizer.seat.seat import Seat, Taken, take

__all__ = [
    "Budget",
    "Candidate",
    "Choice",
    "ChoiceError",
    "Decision",
    "Evict",
    "First",
    "Later",
    "Seat",
    "Settings",
    "Taken",
    "Victim",
    "take",
]
