"""Random traffic from six numbers, for the playground.

The random numbers of a request depend only on the seed and on its index. So changing one
parameter leaves the rest alone: with a higher rate, the same requests come sooner; with more requests,
the earlier ones stay the same. That makes runs comparable. (Simulation calls this technique common
random numbers.)
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from engine.simulation.speakers import NAMES, Speaker, workload_of
from engine.simulation.workload import Workload


class TrafficError(ValueError):
    """A number is out of range. The message names it and the range."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The numbers that describe the traffic. Raises TrafficError for a number out of range.

    requests        the number of requests
    rate            mean requests per second, at independent times (a Poisson process)
    prompt_tokens   mean length of a prompt; each prompt has 50 % to 150 % of it
    output_tokens   mean length of an answer, likewise
    shared          length of the common prefix of all prompts, in percent of the mean prompt
    seed            the seed of the random numbers
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
        for index in range(self.requests):
            rng = random.Random(f"{self.seed} {index}")
            gap, prompt, output, urgency = (rng.random() for _ in range(4))
            length = max(1, round(self.prompt_tokens * (0.5 + prompt)))
            shared = min(common, length - 1)
            yield Speaker(
                _name(index),
                at_ms=at_ms,
                shared=shared,
                own=length - shared,
                output=max(1, round(self.output_tokens * (0.5 + output))),
                priority=int(3 * urgency),
            )
            at_ms += -math.log(1 - gap) * 1000 / self.rate


def _name(number: int) -> str:
    round_, index = divmod(number, len(NAMES))
    return NAMES[index] if not round_ else f"{NAMES[index]} {round_ + 1}"
