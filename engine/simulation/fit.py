"""Fit the prices of a step to the log of a real run.

A log records each step's work and duration; nine prices must explain all steps together. Plain least
squares would be wrong for three reasons:

1. A step does not end with its forward pass. Tokens are appended, blocks are inserted into the tree,
   requests are submitted, and only then does the next step start. So a step's time lasts until the
   start of the next one. If the engine was idle or paused in between, the usual gap between two steps
   counts instead.
2. Interruptions strike per millisecond, not per step, so the variance of a step's time is
   proportional to its duration. With such weights, short decode steps count as they should, and the
   fitted steps take exactly as long in total as the measured ones (a Poisson regression, solved by
   reweighting).
3. Some interruptions are not part of serving. Steps that took more than three times the expected
   duration are left out, so a single outlier cannot spoil the fit.

How far can the prices be trusted? `held_back` predicts each step with prices that were fitted
without it. Neighbouring steps are nearly equal, so a step is held back together with its neighbours:
the log is cut into 50 blocks of consecutive steps, and every fifth block is held back at a time.
Holding back single steps would only test whether the model can repeat the step before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from engine.events.log import EventLog
from engine.events.vocabulary import RunStarted, StepFinished, StepScheduled, StepStarted
from engine.simulation.cost_runner import US_PER_MS, Cost, Work

INTERRUPTED = 3.0  # times the expected duration
ROUNDS = 20
LEAST_MS = 1 / US_PER_MS  # the clock's resolution

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost, and how well it fits the measured steps.

    residuals_ms  measured minus predicted duration of each step
    mean_ms       mean measured duration, to compare the residuals with
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
    """Return the cost that explains a log's steps best, with prices of 0 or more.

    Where two quantities always change together (tokens and rows in a run of decodes alone), only the
    sum of their prices is determined. Raises ValueError for a log without a finished step.
    """
    work, times, _ = _steps(log)
    if not work:
        raise ValueError("the log has no finished step to fit a cost to")
    quantities = np.array([(1, *one) for one in work], dtype=np.float64)
    prices = _regress(quantities, times)
    residuals = times - quantities @ prices
    return Fit(Cost(*map(float, prices)), residuals.tolist(), float(times.mean()))


FOLDS = 5
HELD_BACK_BLOCKS = 50
FEWEST_STEPS = 20  # to hold any back


@dataclass(frozen=True, slots=True)
class HeldBack:
    """The error of steps that were predicted by prices fitted without them.

    steps   how many
    median  of the relative error of a step's duration
    p90     its 90th percentile
    bias    relative error of the time of all steps together
    clock   [measured times, predicted times] in us at which each step began and ended, for
            `predicted_at`
    """

    steps: int
    median: float
    p90: float
    bias: float
    clock: _Floats

    def predicted_at(self, us: float) -> float:
        """Return when a logged instant would have been if each step had taken its predicted time."""
        return float(np.interp(us, *self.clock))

    def __str__(self) -> str:
        return (
            f"Held-back error: {self.median:.1%} of a step's time (median), {self.p90:.1%} (p90); "
            f"{self.bias:+.1%} of the total, over {self.steps} steps that were predicted by prices "
            f"fitted without them"
        )


def held_back(log: EventLog) -> HeldBack | None:
    """Return the error of a log's steps that were held back; None with fewer than 20 steps.

    Which steps count as interrupted, and their weights, come from all steps; only the prices do not.
    """
    work, times, starts = _steps(log)
    if len(work) < FEWEST_STEPS:
        return None
    quantities = np.array([(1, *one) for one in work], dtype=np.float64)
    expected = np.maximum(quantities @ _regress(quantities, times), LEAST_MS)
    weights = np.where(times <= INTERRUPTED * expected, 1 / np.sqrt(expected), 0)
    block = -(-len(work) // HELD_BACK_BLOCKS)
    folds = np.arange(len(work)) // block % FOLDS
    predicted = np.zeros(len(work))
    for fold in range(FOLDS):
        held, used = folds == fold, folds != fold
        weighted = quantities[used] * weights[used, None]
        prices = _least_squares(weighted, times[used] * weights[used])
        predicted[held] = np.maximum(quantities[held] @ prices, LEAST_MS)
    errors = np.abs(predicted - times) / np.maximum(times, LEAST_MS)
    return HeldBack(
        steps=len(work),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        bias=float(predicted.sum() / times.sum() - 1),
        clock=_clock(starts, times * US_PER_MS, predicted * US_PER_MS),
    )


def _clock(starts: _Floats, took: _Floats, predicted: _Floats) -> _Floats:
    """Return measured and predicted times in us. Idle time between two steps stays as it was."""
    ends = np.maximum.accumulate(starts + took)
    idle = np.maximum(0, starts - np.append(0, ends[:-1]))
    predicted_starts = np.cumsum(idle + np.append(0, predicted[:-1]))
    measured = np.column_stack((np.append(0, ends[:-1]) + idle, ends))
    return np.array(
        [
            np.append(0, measured.ravel()),
            np.append(0, np.column_stack((predicted_starts, predicted_starts + predicted)).ravel()),
        ]
    )


def finished_steps(log: EventLog) -> Iterator[tuple[StepScheduled | None, StepFinished]]:
    """Yield each step_finished with the step's plan, or None if it had no forward pass."""
    plans: dict[int, StepScheduled] = {}
    step = 0
    for event in log:
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, StepScheduled) and event.rows:
            plans[step] = event
        elif isinstance(event, StepFinished):
            yield plans.pop(event.step or step, None), event


def _steps(log: EventLog) -> tuple[list[Work], _Floats, _Floats]:
    """Return each step's work, its time in ms until the next step, and when it began in us."""
    work, starts, ends = list[Work](), list[int](), list[int]()
    is_async = _is_async(log)
    for plan, finished in finished_steps(log):
        if plan is not None and "end" in finished.t:
            work.append(Work.of(plan.rows))
            # An asynchronous step overlaps with others; its forward pass does not. Where the log does
            # not say when it was launched, it was after the one before had ended.
            began = finished.t["start"]
            earliest = ends[-1] if is_async and ends else began
            starts.append(finished.t.get("launched", max(began, earliest)))
            ends.append(finished.t.get("ready", finished.t["end"]))
    inside = np.subtract(ends, starts) / US_PER_MS
    between = np.subtract(starts[1:], ends[:-1]) / US_PER_MS
    busy = between <= inside[:-1]  # a longer gap is idle time
    for step in np.flatnonzero(~busy) + 1:
        work[step] = work[step]._replace(woken=1)
    usual = float(np.median(between[busy])) if busy.any() else 0.0
    times = inside + np.append(np.where(busy, between, usual), usual)
    return work, times, np.array(starts, dtype=np.float64)


def _is_async(log: EventLog) -> bool:
    started = log[0] if len(log) else None
    return isinstance(started, RunStarted) and bool(started.settings.get("async_scheduling"))


def _regress(quantities: _Floats, times: _Floats) -> _Floats:
    """Return prices for steps whose variance is proportional to their expected duration."""
    # The first round has no expected durations. Dividing by the measured ones keeps long steps, which
    # may have been interrupted, from dominating.
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
    """Solve non-negative least squares by trying all 512 subsets of the columns.

    The best non-negative solution is the ordinary least squares solution of the columns that it uses. A
    QR decomposition first reduces thousands of equations to ten without changing these solutions.
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
