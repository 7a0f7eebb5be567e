"""What does a step cost on this machine? The prices, from the log of a real run.

A log says of each step what it had to do and how long it took; nine prices are to explain all steps
at once. Three things make the textbook's least squares answer a wrong question:

1. A step is not over with its forward pass. Tokens are appended, blocks go into the tree, requests
   are taken in, and only then comes the next step. So a step's time is that to the start of the next
   one, unless the engine idled or somebody held it: then what usually lies between two steps is added.
2. Interruptions come per millisecond, not per step: a step twice as long varies, squared, twice as
   much. Weighted by that, short decode steps count as they should, and what the fitted steps take in
   total is exactly what the measured ones took (it is a Poisson regression, solved by reweighting).
3. Some interruptions are no part of serving. A step that took over three times what the others let
   expect is left out, so that a single long one spoils nothing.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from engine.events.log import EventLog
from engine.events.vocabulary import StepFinished, StepScheduled
from engine.simulation.cost_runner import US_PER_MS, Cost, Work

INTERRUPTED = 3.0  # times what was to be expected
ROUNDS = 20
LEAST_MS = 1 / US_PER_MS  # what the clock can tell

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost, and how well it tells what was measured.

    residuals_ms  measured minus predicted, one per step of the log
    mean_ms       the mean measured step, to hold the residuals against
    """

    cost: Cost
    residuals_ms: list[float]
    mean_ms: float

    @property
    def rms_ms(self) -> float:
        """Root mean square of the residuals, in milliseconds."""
        return float(np.sqrt(np.mean(np.square(self.residuals_ms))))

    def __str__(self) -> str:
        return (
            f"{self.cost}; over {len(self.residuals_ms)} steps of {self.mean_ms:.3g} ms the residual "
            f"is {self.rms_ms:.3g} ms (root mean square)"
        )


def fit(log: EventLog) -> Fit:
    """The cost that explains a log's steps best, no price below zero.

    Where two quantities always move together (in a run of decodes alone, tokens and rows), the log
    cannot tell their prices apart; the sum of both is what counts then. Raises ValueError for a log
    without a finished step.
    """
    work, times = _steps(log)
    if not work:
        raise ValueError("the log has no finished step: there is nothing to fit a cost to")
    quantities = np.array([(1, *one) for one in work], dtype=np.float64)
    prices = _regress(quantities, times)
    residuals = times - quantities @ prices
    return Fit(Cost(*map(float, prices)), residuals.tolist(), float(times.mean()))


def _steps(log: EventLog) -> tuple[list[Work], _Floats]:
    """What each step had to do, and its time in milliseconds up to the next step."""
    work, starts, ends = list[Work](), list[int](), list[int]()
    plan: StepScheduled | None = None
    for event in log:
        if isinstance(event, StepScheduled):
            plan = event
        elif isinstance(event, StepFinished) and plan is not None:
            work.append(Work.of(plan.rows))
            starts.append(event.t["start"])
            ends.append(event.t["end"])
            plan = None
    inside = np.subtract(ends, starts) / US_PER_MS
    between = np.subtract(starts[1:], ends[:-1]) / US_PER_MS
    busy = between <= inside[:-1]  # a longer pause was not the engine's
    for step in np.flatnonzero(~busy) + 1:
        work[step] = work[step]._replace(woken=1)
    usual = float(np.median(between[busy])) if busy.any() else 0.0
    return work, inside + np.append(np.where(busy, between, usual), usual)


def _regress(quantities: _Floats, times: _Floats) -> _Floats:
    """Prices for steps whose variance is in proportion to what they are expected to take."""
    # The first round knows no expectation. Dividing by the times themselves keeps long steps, which
    # may be interrupted ones, from having a say.
    weights = 1 / np.maximum(times, LEAST_MS)
    usual = np.full(len(times), fill_value=True)
    prices = np.zeros(quantities.shape[1])
    for _ in range(ROUNDS):
        before = prices
        weighted = quantities[usual] * weights[usual, None]
        prices = _least_squares(weighted, times[usual] * weights[usual])
        if np.allclose(prices, before, rtol=1e-6, atol=0):
            break
        expected = np.maximum(quantities @ prices, LEAST_MS)
        weights, usual = 1 / np.sqrt(expected), times <= INTERRUPTED * expected
    return prices


def _least_squares(quantities: _Floats, measured: _Floats) -> _Floats:
    """Non-negative least squares by trying every subset of the columns; there are 512.

    The best non-negative solution is an ordinary least squares solution over the columns it uses. An
    orthogonal transformation (QR) first makes thousands of equations ten without changing any of
    these solutions.
    """
    columns = quantities.shape[1]
    _, triangle = np.linalg.qr(np.column_stack((quantities, measured)))
    left, right = triangle[:, :columns], triangle[:, columns]
    best, least = np.zeros(columns), float(right @ right)
    for size in range(1, columns + 1):
        for chosen in combinations(range(columns), size):
            part = left[:, chosen]
            prices = np.linalg.lstsq(part, right, rcond=None)[0]
            error = float(np.square(right - part @ prices).sum())
            if (prices >= 0).all() and error < least:
                best, least = np.zeros(columns), error
                best[list(chosen)] = prices
    return best
