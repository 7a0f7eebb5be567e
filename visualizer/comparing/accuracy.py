"""Decide how large a difference between the times of two runs must be to be meaningful.

There are four cases. The times of different engines cannot be compared. Two simulated runs with the
same cost of a step have exact times. A replay and its log have times from one cost model, and the model
has an error. The times of two measured runs vary even in the steps before the first decision that
differs, although both runs do the same work there. Their differences in those steps are noise.
"""

import math
from statistics import fmean, pstdev
from typing import NamedTuple

from engine.core.log import EventLog
from engine.core.log import vocabulary as v

FEWEST_STEPS = 8  # steps that both runs must have decided alike; with fewer, the noise is unknown


class Accuracy(NamedTuple):
    """A difference in time is noise if it is at most a share of the time plus some milliseconds.

    share       the share for the time of many steps, or None if it is unknown how much times vary
    step_share  the share for the time of a few steps
    ms          the milliseconds, as {"ttft": ..., "itl": ..., "e2e": ...}, or empty
    words       what the reader has to know about the times, or None if they are exact
    """

    share: float | None
    step_share: float
    ms: dict[str, float]
    words: str | None = None

    def is_noise(self, measure: str, a: float, b: float) -> bool:
        """Return whether two times in ms are too close to tell apart. `measure` is a key of `ms`.

        `share` must be known.
        """
        assert self.share is not None
        share = self.share if measure == "e2e" else self.step_share
        return abs(a - b) <= share * max(abs(a), abs(b)) + self.ms.get(measure, 0.0)


def accuracy(
    a: EventLog, b: EventLog, fork: int | None, names: tuple[str, str], error: dict[str, float]
) -> Accuracy:
    """Return the accuracy of the times of two runs that differ from step `fork` on (None: never).

    `error` has the cost model's mean errors in ms if the times come from a fitted cost model.
    """
    if error:
        return Accuracy(0.0, 0.0, error)
    one, two = (log[0] if log and isinstance(log[0], v.RunStarted) else None for log in (a, b))
    if one and two and one.source.get("engine") != two.source.get("engine"):
        words = "Every difference in time includes the difference of the engines and the machines."
        return Accuracy(None, 0.0, {}, words)
    if one and two and "virtual" in (one.clock, two.clock):
        if (one.clock, one.model) == (two.clock, two.model):
            return _simulated(one, two)
        return Accuracy(None, 0.0, {}, _different_machines((one, two), names))
    return _measured(_durations(a, fork), _durations(b, fork))


def _simulated(one: v.RunStarted, two: v.RunStarted) -> Accuracy:
    """Return the accuracy of two runs with the same cost: exact, unless it was fitted to a log."""
    fit, other = one.t.get("fitted"), two.t.get("fitted")
    if not fit or not other or fit["unix_us"] != other["unix_us"]:
        return Accuracy(0.0, 0.0, {})
    error = fit["held_back"]
    words = (
        f"The times of both runs come from a cost model fitted to a recorded run. {error['text']}."
    )
    if error["p90"] is None:
        return Accuracy(None, 0.0, {}, words)
    return Accuracy(abs(error["bias"]), error["p90"], {}, words)


def _different_machines(runs: tuple[v.RunStarted, v.RunStarted], names: tuple[str, str]) -> str:
    what = "The two runs are simulated with different costs of a step"
    if runs[0].clock != runs[1].clock:
        simulated, measured = names if runs[0].clock == "virtual" else names[::-1]
        what = f"{measured} is measured and {simulated} is simulated"
    return f"{what}, so every difference in time includes the difference of the machines."


def _durations(log: EventLog, fork: int | None) -> dict[tuple[int, bool], float]:
    """Return the duration of each step before `fork` in us, by step and whether it was asynchronous.

    An asynchronous step overlaps with others, so the duration of its forward pass is used.
    """
    found: dict[tuple[int, bool], float] = {}
    for event in log.of(v.StepFinished):
        t = event.t
        if "start" in t and (fork is None or event.step < fork):
            is_async = "launched" in t
            took = t["ready"] - t["launched"] if is_async else t["end"] - t["start"]
            found[event.step, is_async] = took
    return found


def _measured(a: dict[tuple[int, bool], float], b: dict[tuple[int, bool], float]) -> Accuracy:
    """Return the accuracy of measured times: the mean and the spread of equal steps' differences."""
    alike = a.keys() & b.keys()
    if len(alike) < FEWEST_STEPS:
        return Accuracy(
            None,
            0.0,
            {},
            f"The times are measured, and only {len(alike)} steps are alike in both runs, which is too "
            f"few to tell how much the times vary by chance. Run both again before you trust a "
            f"difference.",
        )
    differences = [b[step] - a[step] for step in alike]
    mean = fmean([*(a[step] for step in alike), *(b[step] for step in alike)])
    bias, spread = abs(fmean(differences)), 2 * pstdev(differences)
    share = (bias + spread / math.sqrt(len(alike))) / mean if mean else 0.0
    step_share = (bias + spread) / mean if mean else 0.0
    return Accuracy(
        share,
        step_share,
        {},
        f"The times are measured. The {len(alike)} steps that both runs decided alike differ by "
        f"{share:.1%} in time, and a single step by up to {step_share:.1%}: smaller differences may be "
        f"noise.",
    )
