"""Random traffic from six numbers, for the playground.

The random numbers of a request depend only on the seed and on its index. So changing one
parameter leaves the rest alone: with a higher rate, the same requests come sooner; with more requests,
the earlier ones stay the same. That makes runs comparable. (Simulation calls this technique common
random numbers.)
"""

import math
import random
import sys
from collections.abc import Iterator
from typing import Annotated

import msgspec

from engine.core.declared import setting, wrong_field
from engine.simulation.speakers import NAMES, Speaker, workload_of
from engine.simulation.workload import Workload


class TrafficError(ValueError):
    """A number is out of range. The message names it and the range."""


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that describe the traffic. Raises TrafficError for a number out of range."""

    requests: Annotated[int, setting("Number of requests.", ge=1, range=(1, 60, 1))] = 14
    rate: Annotated[
        float,
        setting(
            "Mean requests per second, at independent times (a Poisson process).",
            ge=sys.float_info.min,
            range=(1, 200, 1),
        ),
    ] = 40.0
    prompt_tokens: Annotated[
        int,
        setting(
            "Mean length of a prompt; each prompt has 50 % to 150 % of it.", ge=1, range=(1, 200, 1)
        ),
    ] = 32
    output_tokens: Annotated[
        int, setting("Mean length of an output, likewise.", ge=1, range=(1, 120, 1))
    ] = 24
    shared: Annotated[
        int,
        setting(
            "Length of the common prefix of all prompts, in percent of the mean prompt.",
            ge=0,
            le=100,
            range=(0, 100, 5),
        ),
    ] = 50
    seed: Annotated[int, setting("Seed of the random numbers.")] = 2

    def __post_init__(self) -> None:
        if wrong := wrong_field(self):
            raise TrafficError(" ".join(wrong))

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
