"""Traffic drawn from six numbers, for playing with.

Everybody's luck is drawn from the seed and their own place in line, and from nothing else. So a change
of one number changes that and leaves the rest: with a higher rate the same people ask the same, only
sooner; with more requests those who were there before stay as they were. Two runs can be compared.
(Simulation calls this common random numbers.)
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from engine.simulation.speakers import NAMES, Speaker, workload_of
from engine.simulation.workload import Workload


class TrafficError(ValueError):
    """A number is out of range. The message names it."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Who comes, how often, and with how much. Raises TrafficError for a number out of range.

    requests        how many
    rate            requests per second on average, at independent times (a Poisson process)
    prompt_tokens   of a prompt on average; each has between half as many and half as many again
    output_tokens   of an answer, likewise
    shared          percent of the average prompt with which all prompts begin
    seed            another one, other luck
    """

    requests: int = 14
    rate: float = 40.0
    prompt_tokens: int = 32
    output_tokens: int = 24
    shared: int = 50
    seed: int = 2

    def __post_init__(self) -> None:
        for name in ("requests", "rate", "prompt_tokens", "output_tokens"):
            if not getattr(self, name) > 0:
                raise TrafficError(f"{name} must be more than 0, got {getattr(self, name)!r}")
        if not 0 <= self.shared <= 100:
            raise TrafficError(f"shared must be 0 to 100 percent, got {self.shared!r}")

    @property
    def workload(self) -> Workload:
        """The requests, in order of arrival."""
        return workload_of(self._speakers())

    def _speakers(self) -> Iterator[Speaker]:
        common = round(self.prompt_tokens * self.shared / 100)
        at_ms = 0.0
        for place in range(self.requests):
            luck = random.Random(f"{self.seed} {place}")
            gap, prompt, output, urgency = (luck.random() for _ in range(4))
            length = max(1, round(self.prompt_tokens * (0.5 + prompt)))
            shared = min(common, length - 1)
            yield Speaker(
                _name(place),
                at_ms=at_ms,
                shared=shared,
                own=length - shared,
                output=max(1, round(self.output_tokens * (0.5 + output))),
                priority=int(3 * urgency),
            )
            at_ms += -math.log(1 - gap) * 1000 / self.rate


def _name(place: int) -> str:
    round_, index = divmod(place, len(NAMES))
    return NAMES[index] if not round_ else f"{NAMES[index]} {round_ + 1}"
