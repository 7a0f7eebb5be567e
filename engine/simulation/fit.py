"""Fit the prices of a step to the log of a real run.

A log records each step's work and duration; nine prices must explain all steps together. Plain least
squares would be wrong for three reasons:

1. A step does not end with its forward pass. Tokens are appended, blocks are inserted into the tree,
   requests are submitted, and only then does the next step start. So a step's time lasts until the
   start of the next one, even if the machine did something else for long. If the engine was idle or
   paused in between, the usual gap between two steps counts instead.
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

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import hypot, isclose, sqrt
from operator import mul
from statistics import fmean, median

from engine.core.log.log import EventLog
from engine.core.log.vocabulary import (
    EnginePaused,
    EngineResumed,
    EventsMissing,
    Forked,
    Keyframe,
    RequestArrived,
    RequestFinished,
    StepFinished,
    StepScheduled,
    StepStarted,
)
from engine.simulation.cost_runner import US_PER_MS, Cost, Work
from engine.simulation.least_squares import non_negative_least_squares
from engine.simulation.log_part import started_of
from engine.simulation.quantile import quantile

INTERRUPTED = 3.0  # times the expected duration
ROUNDS = 20
LEAST_MS = 1 / US_PER_MS  # the clock's resolution

_Floats = list[float]


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
        return sqrt(fmean(residual * residual for residual in self.residuals_ms))

    def __str__(self) -> str:
        return (
            f"{self.cost}; over {len(self.residuals_ms)} steps of {self.mean_ms:.3g} ms the residual "
            f"is {self.rms_ms:.3g} ms (root mean square)"
        )


def fit(*logs: EventLog) -> Fit:
    """Return the cost that explains a log's steps best, with prices of 0 or more.

    Several logs must be of the same machine: their steps are explained together.

    Where two quantities always change together (tokens and rows in a run of decodes alone), only the
    sum of their prices is determined. Raises ValueError for a log without a finished step.
    """
    return fitted(steps_of(*logs))


def fitted(steps: "Steps", prior: float = 0.0) -> Fit:
    """Return the cost that explains some steps best. Raises ValueError without a step.

    prior  how much a simple explanation is preferred, by a base, a token and a row; see
           `_least_squares`
    """
    if not steps.work:
        raise ValueError("the log has no finished step to fit a cost to")
    quantities = _columns(steps.work)
    prices = _regress(quantities, steps.times, prior)
    priced = _priced(quantities, prices)
    residuals = [took - one for took, one in zip(steps.times, priced, strict=True)]
    return Fit(Cost(*prices), residuals, fmean(steps.times))


@dataclass(frozen=True, slots=True)
class Steps:
    """Measured steps: the plan and the work of each, its time in ms until the next, its start in us.

    masked  whether a grammar masked a token of the step
    logs    the number of the log that the step is from
    """

    plans: list[StepScheduled] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    times: _Floats = field(default_factory=list)
    starts: _Floats = field(default_factory=list)
    masked: list[bool] = field(default_factory=list)
    logs: list[int] = field(default_factory=list)

    def only(self, chosen: Iterable[int]) -> "Steps":
        """Return some of the steps, by index."""
        at = list(chosen)
        return Steps(
            [self.plans[one] for one in at],
            [self.work[one] for one in at],
            [self.times[one] for one in at],
            [self.starts[one] for one in at],
            [self.masked[one] for one in at],
            [self.logs[one] for one in at],
        )


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
    clocks  by log: [measured times, predicted times] in us at which each step began and ended, for
            `predicted_at`
    """

    steps: int
    median: float
    p90: float
    bias: float
    clocks: list[tuple[_Floats, _Floats]]

    def predicted_at(self, us: float, log: int = 0) -> float:
        """Return when a logged instant would have been if each step had taken its predicted time."""
        measured, predicted = self.clocks[log]
        at = min(max(bisect_right(measured, us), 1), len(measured) - 1)
        begin, end = measured[at - 1 : at + 1]
        share = min(max((us - begin) / (end - begin), 0.0), 1.0) if end > begin else 1.0
        return predicted[at - 1] + share * (predicted[at] - predicted[at - 1])

    def __str__(self) -> str:
        return (
            f"Held-back error: {self.median:.1%} of a step's time (median), {self.p90:.1%} (p90); "
            f"{self.bias:+.1%} of the total, over {self.steps} steps that were predicted by prices "
            f"fitted without them"
        )


def held_back(*logs: EventLog) -> HeldBack | None:
    """Return the error of a log's steps that were held back; None with fewer than 20 steps.

    Which steps count as interrupted, and their weights, come from all steps; only the prices do not.
    """
    steps = steps_of(*logs)
    work, times = steps.work, steps.times
    if len(work) < FEWEST_STEPS:
        return None
    quantities = _columns(work)
    expected = _expected(quantities, _regress(quantities, times))
    weights = _weights(times, expected)
    block = -(-len(work) // HELD_BACK_BLOCKS)
    folds = [step // block % FOLDS for step in range(len(work))]
    predicted = [0.0] * len(work)
    for fold in range(FOLDS):
        others = [
            0.0 if own == fold else weight for own, weight in zip(folds, weights, strict=True)
        ]
        prices = _least_squares(quantities, times, others)
        for step, expected_ms in enumerate(_expected(quantities, prices)):
            if folds[step] == fold:
                predicted[step] = expected_ms
    errors = [
        abs(one - took) / max(took, LEAST_MS) for one, took in zip(predicted, times, strict=True)
    ]
    return HeldBack(
        steps=len(work),
        median=median(errors),
        p90=quantile(errors, 0.9),
        bias=sum(predicted) / whole - 1 if (whole := sum(times)) else 0.0,
        clocks=clocks_of(steps, predicted),
    )


def clocks_of(steps: Steps, predicted: _Floats) -> list[tuple[_Floats, _Floats]]:
    """Return measured and predicted instants in us, by log. Idle time between steps stays as it was.

    predicted  the steps' durations in ms
    """
    clocks = [([0.0], [0.0]) for _ in range(max(steps.logs) + 1)]
    for at, start, took, one in zip(steps.logs, steps.starts, steps.times, predicted, strict=True):
        measured, expected = clocks[at]
        idle = max(0.0, start - measured[-1])
        measured.append(measured[-1] + idle)
        expected.append(expected[-1] + idle)
        measured.append(max(measured[-1], start + took * US_PER_MS))
        expected.append(expected[-1] + one * US_PER_MS)
    return clocks


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
            yield plans.pop(event.step, None), event


def steps_of(*logs: EventLog) -> Steps:
    """Return the measured steps of all logs, one log after the other."""
    steps = Steps()
    for at, log in enumerate(logs):
        _add_steps(log, steps)
        steps.logs.extend([at] * (len(steps.work) - len(steps.logs)))
    return steps


def _add_steps(log: EventLog, steps: Steps) -> None:
    plans, work, starts, ends = list[StepScheduled](), list[Work](), list[int](), list[int]()
    is_async, idle, is_busy = _is_async(log), _after_idle(log), list[bool]()
    for plan, finished in finished_steps(log):
        if plan is not None and "end" in finished.t:
            plans.append(plan)
            work.append(Work.of(plan.rows))
            is_busy.append(finished.step not in idle)
            steps.masked.append(any(row.allowed for row in finished.tokens))
            # An asynchronous step overlaps with others; its forward pass does not. Where the log does
            # not say when it was launched, it was after the one before had ended.
            began = finished.t["start"]
            earliest = ends[-1] if is_async and ends else began
            starts.append(finished.t.get("launched", max(began, earliest)))
            ends.append(finished.t.get("ready", finished.t["end"]))
    inside = [(end - start) / US_PER_MS for start, end in zip(starts, ends, strict=True)]
    between = [(start - end) / US_PER_MS for start, end in zip(starts[1:], ends, strict=False)]
    for step, gap in enumerate(between, start=1):
        if gap > inside[step - 1] and not is_busy[step]:
            work[step] = work[step]._replace(woken=1)
    busy_gaps = [gap for gap, busy in zip(between, is_busy[1:], strict=True) if busy]
    usual = median(busy_gaps) if busy_gaps else 0.0
    gaps = [gap if busy else usual for gap, busy in zip(between, is_busy[1:], strict=True)]
    steps.plans.extend(plans)
    steps.work.extend(work)
    steps.times.extend(own + gap for own, gap in zip(inside, [*gaps, usual], strict=False))
    steps.starts.extend(map(float, starts))


def _after_idle(log: EventLog) -> set[int]:
    """Return the steps before which the engine had no request, or was paused, or events are missing."""
    live, idle, is_idle, step = set[int](), set[int](), False, 0
    for event in log:
        match event:
            case Keyframe():
                live = {one.id for one in event.state.requests}
            case RequestArrived():
                is_idle |= not live
                live.add(event.request)
            case Forked():
                live.add(event.request)
            case RequestFinished():
                live.discard(event.request)
            case EnginePaused() | EngineResumed() | EventsMissing():
                is_idle = True
            case StepStarted():
                step = event.step
            case StepScheduled() if event.rows and is_idle:
                idle.add(step)
                is_idle = False
    return idle


def _is_async(log: EventLog) -> bool:
    started = started_of(log)
    return started is not None and bool(started.settings.get("async_scheduling"))


def _columns(work: Sequence[Work]) -> list[_Floats]:
    """Return the quantities as columns: a 1 for each step, then the fields of Work."""
    return [[1.0] * len(work), *(list(map(float, column)) for column in zip(*work, strict=True))]


def _priced(quantities: list[_Floats], prices: _Floats) -> _Floats:
    """Return what each step costs."""
    return [sum(map(mul, step, prices)) for step in zip(*quantities, strict=True)]


def _expected(quantities: list[_Floats], prices: _Floats) -> _Floats:
    """Return what each step costs, at least the clock's resolution."""
    return [max(cost, LEAST_MS) for cost in _priced(quantities, prices)]


def _weights(times: _Floats, expected: _Floats) -> _Floats:
    """Return the weight of each step; 0 for an interrupted one."""
    return [
        1 / sqrt(one) if took <= INTERRUPTED * one else 0.0
        for took, one in zip(times, expected, strict=True)
    ]


def _regress(quantities: list[_Floats], times: _Floats, prior: float = 0.0) -> _Floats:
    """Return prices for steps whose variance is proportional to their expected duration."""
    # The first round has no expected durations. Dividing by the measured ones keeps long steps, which
    # may have been interrupted, from dominating.
    weights = [1 / max(took, LEAST_MS) for took in times]
    prices = [0.0] * len(quantities)
    for _ in range(ROUNDS):
        before = prices
        prices = _least_squares(quantities, times, weights, prior)
        if all(isclose(*both, rel_tol=1e-6) for both in zip(prices, before, strict=True)):
            break
        weights = _weights(times, _expected(quantities, prices))
    return prices


def _least_squares(
    quantities: list[_Floats], times: _Floats, weights: _Floats, prior: float = 0.0
) -> _Floats:
    """Return the prices of 0 or more that explain the weighted steps best.

    With a `prior`, all but the first prices have their own squares added, as if this share of the steps
    had said that they are 0 (ridge regression).
    """
    weighted = [list(map(mul, column, weights)) for column in quantities]
    target = list(map(mul, times, weights))
    if prior:
        for one in range(_SIMPLE, len(weighted)):
            size = sqrt(prior) * hypot(*weighted[one])
            for at, column in enumerate(weighted):
                column.append(size if at == one else 0.0)
            target.append(0.0)
    return non_negative_least_squares(weighted, target)


_SIMPLE = 3  # the base, and the prices of a token and of a row
