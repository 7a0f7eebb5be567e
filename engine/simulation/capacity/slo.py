"""The goals of a service: a request counts only if it meets all of them.

    Slo.parse("ttft<1s, itl<50ms")

Source: DistServe (OSDI 2024) calls the rate of the requests that meet their goals the goodput, and
the share of them the attainment. `vllm bench serve --goodput` counts in the same way.
"""

import re

import msgspec

NAMES = ("ttft", "itl", "tpot", "e2e")
_GOAL = re.compile(r"\s*([a-z0-9]+)\s*<=?\s*([0-9.]+)\s*(ms|s)\s*")
_MS = {"ms": 1.0, "s": 1000.0}


class SloError(ValueError):
    """The text of a goal cannot be read. The message says which goals there are."""


class Slo(msgspec.Struct, frozen=True):
    """Limits in ms by name, and the share of the requests that must keep to all of them.

    ttft  the time to the first token, from the scheduled arrival
    itl   the 99th percentile of the times between two of a request's tokens, as on the board
    tpot  their mean
    e2e   the time to the last token, from the scheduled arrival
    """

    limits: dict[str, float] = {}
    share: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SloError(f"share must be more than 0 and at most 1, got {self.share!r}")

    @classmethod
    def parse(cls, text: str, share: float = 0.99) -> "Slo":
        """Return the goals of a text such as "ttft<1s, itl<50ms". Raises SloError."""
        limits: dict[str, float] = {}
        for goal in filter(str.strip, text.split(",")):
            match = _GOAL.fullmatch(goal.lower())
            if not match or match[1] not in NAMES or match[2].count(".") > 1:
                raise SloError(
                    f"slo must be goals such as ttft<1s, itl<50ms with names of {', '.join(NAMES)}, "
                    f"got {goal.strip()!r}"
                )
            if match[1] in limits:
                raise SloError(f"slo must name {match[1]} once, got {text!r}")
            limits[match[1]] = float(match[2]) * _MS[match[3]]
        return cls(limits, share)

    def __str__(self) -> str:
        goals = ", ".join(f"{name}<{limit:g}ms" for name, limit in self.limits.items())
        return f"{goals} for {self.share:.4g} of the requests" if goals else "no goals"


NO_GOALS = Slo()
