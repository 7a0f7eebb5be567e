"""What steps take, by kind of step: a price, and what steps of that kind took beside it.

The prices of `fit.py` explain all steps together, with one number per step. Two things are missing.
A kind of step may differ from its price, because nine prices do not describe everything; and steps
that do the same work differ among themselves, which the 99th percentile is made of. One idea covers
both: a simulated step *draws* what a recorded step of its kind took beside its price,

    step = price + residual * sqrt(price),    residual = (measured - price) / sqrt(price)

because the variance of a step's time is proportional to its duration (see `fit.py`). The mean of
the draws corrects the kind, their spread gives the tail. Draws are seeded.

Because residuals correct what the prices get wrong inside the recorded sizes, the prices need not be
exact there. They have to be right *outside*, where a changed setting leads: so a simple explanation,
a base and the prices of a token and a row, is preferred to nine prices that fit equally well
(`PRIOR`). Of a log with at most 32 tokens a step, nine free prices said that more cost nothing.

On a GPU, a few tokens more cost nothing indeed: while a layer's weights are read, the arithmetic of
so many tokens is hidden, and a price per token counts only beyond them. How many are hidden is the
`HIDDEN` with which prices fit best, and 0 where that makes no difference, as on a CPU. Without it, a
recording with whole prompts in its steps said that 256 tokens take half as long again as they do.
If tokens have hardly a price in any recorded step, the recording does not know how many are hidden:
at least those of its largest step, and `ROOM` times as many are assumed.

A kind is a form (decode, prefill or mixed; with drafts or a grammar) and a band of tokens, 1, 2 to
3, 4 to 7 and so on. A kind with few steps borrows: a draw comes from the kind itself with
probability n / (n + 10), otherwise from its form, and from all steps likewise. So a kind with three
steps is mostly its form, and one with a thousand is itself (partial pooling).

The first steps of an engine compile, allocate and fill caches. A leading run of steps that take
three times their price is *cold*: no draw comes from them, and `cold_until` says when they end.

How far can it be trusted? `HeldBackTimes` times the recorded schedule with prices and residuals from
other parts of the log, and says how far the speed of the machine drifted within the log.

Source: bootstrapping residuals is in Davison and Hinkley, "Bootstrap Methods and their Application"
(1997), section 6.2; for partial pooling see Gelman and Hill, "Data Analysis Using Regression and
Multilevel Models" (2006), chapter 12. Hidden arithmetic is the roofline of Williams et al. (2009,
doi:10.1145/1498765.1498785). Vidur (arXiv:2405.05438) predicts the mean of each operator.
"""

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import sqrt
from statistics import fmean, median, pvariance

from engine.core.log.log import EventLog
from engine.core.log.vocabulary import RequestArrived, ScheduledRow, StepFinished, StepStarted
from engine.core.runner import Row
from engine.simulation.cost_runner import US_PER_MS, Cost, CostRunner, Work
from engine.simulation.fit import (
    FEWEST_STEPS,
    FOLDS,
    HELD_BACK_BLOCKS,
    INTERRUPTED,
    LEAST_MS,
    HeldBack,
    Steps,
    clocks_of,
    fitted,
    steps_of,
)
from engine.simulation.quantile import quantile

Kind = tuple[str, int]  # form and band; 0 stands for all bands, "" for all forms
POOLED = 10  # steps that a kind needs to count as much as what it borrows from
COLD_STEPS = 10  # at most so many first steps are cold
DRIFT_BLOCKS = 10
DRAWS = 8
PRIOR = 0.3  # see `fitted`
LEAST_SHARE = 0.5  # of its price: no step is faster
HIDDEN = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # tokens
LEAST_BETTER = 0.02  # residuals have to shrink by so much for hidden tokens
ROOM = 1.6  # predicts the mean of steps with 2 to 4 times the tokens, if 1 to 4 is equally likely
FLAT = 0.1  # tokens have hardly a price if they make up less of it


def kind_of(rows: Sequence[Row] | Sequence[ScheduledRow], *, masked: bool) -> Kind:
    """Return the kind of a step. `masked`: a grammar masks the tokens of a row."""
    decodes = sum(row.count - len(row.drafts) == 1 for row in rows)
    form = "decode" if decodes == len(rows) else "mixed" if decodes else "prefill"
    form += " with drafts" * any(row.drafts for row in rows) + " with a grammar" * masked
    return form, _tokens(rows).bit_length()


class Residuals:
    """What recorded steps took beside their prices, by kind."""

    def __init__(
        self, kinds: Sequence[Kind], prices: Sequence[float], times: Sequence[float]
    ) -> None:
        self._of: defaultdict[Kind, list[float]] = defaultdict(list)
        for kind, price, took in zip(kinds, prices, times, strict=True):
            residual = (took - price) / sqrt(price)
            for one in (kind, (kind[0], 0), ("", 0)):
                self._of[one].append(residual)

    def draw(self, kind: Kind, price: float, rng: random.Random) -> float:
        """Return the time of a step of this kind and price, in ms."""
        for one in (kind, (kind[0], 0)):
            known = self._of.get(one, ())
            if rng.random() * (len(known) + POOLED) < len(known):
                break
        else:
            known = self._of["", 0]
        return max(price + rng.choice(known) * sqrt(price), LEAST_SHARE * price)


@dataclass(frozen=True, slots=True)
class KindError:
    """How well held-back steps of a kind are predicted: relative errors of mean, p50 and p99."""

    kind: Kind
    steps: int
    mean_ms: float
    mean: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class HeldBackTimes:
    """The recorded schedule with times that were predicted without the steps themselves.

    steps   the error of each step, and `predicted_at`
    drift   how much the machine's speed differed between tenths of the log: a standard deviation,
            relative
    kinds   the errors by kind, the most frequent first
    """

    steps: HeldBack
    drift: float
    kinds: list[KindError]


class StepTimes:
    """The prices and residuals of the steps of a log, or of several of equal machines.

    prior       how much a simple explanation is preferred; 0: not at all
    cold_until  by log: when the cold steps ended, in us; 0 if none was
    hidden      how many tokens of a step cost nothing; see above
    most_tokens of a step
    flat_ms     the price of a step with so many, if tokens have hardly a part in it; else 0
    """

    def __init__(self, *logs: EventLog, prior: float = PRIOR) -> None:
        """Raise ValueError for logs without a finished step."""
        steps = steps_of(*logs)
        self.hidden = _hidden_tokens(steps)
        steps = _beyond(steps, self.hidden)
        found = fitted(steps, prior)
        cold = _cold(steps, _prices(steps, found.cost))
        self.cold_until = [0.0] * len(logs)
        for one in sorted(cold):
            self.cold_until[steps.logs[one]] = steps.starts[one] + steps.times[one] * US_PER_MS
        if cold:
            steps = steps.only(one for one in range(len(steps.work)) if one not in cold)
            found = fitted(steps, prior)
        self._steps, self._kinds = steps, _kinds(steps)
        self.cost = found.cost
        tokens = [_tokens(one.rows) for one in steps.plans]
        self.most_tokens, own = max(tokens), max(one.tokens for one in steps.work)
        pairs = zip(tokens, _prices(steps, found.cost), strict=True)
        largest_ms = fmean(price for count, price in pairs if count == self.most_tokens)
        is_flat = found.cost.per_token_ms * own < FLAT * largest_ms
        self.flat_ms = largest_ms if is_flat else 0.0
        self.residuals = Residuals(self._kinds, _prices(steps, found.cost), steps.times)
        self.arrival_ms = arrival_delay(*logs) / US_PER_MS

    def runner(self, seed: int = 0, speed: float = 1.0, room: float = ROOM) -> "MeasuredRunner":
        """Return a machine with these times. `speed`: 1.1 is ten percent faster.

        room  if tokens have hardly a price: so many times the tokens of the largest recorded step take
              as long as that step, and more take longer in proportion
        """
        return MeasuredRunner(self, seed, speed, room)

    def held_back(self, seed: int = 0) -> HeldBackTimes | None:
        """Return how well the times are predicted; None with fewer than 20 steps."""
        steps, kinds, rng = self._steps, self._kinds, random.Random(seed)
        number = len(steps.work)
        if number < FEWEST_STEPS:
            return None
        block = -(-number // HELD_BACK_BLOCKS)
        folds = [step // block % FOLDS for step in range(number)]
        means, drawn = [0.0] * number, [0.0] * number
        for fold in range(FOLDS):
            inside = [step for step in range(number) if folds[step] != fold]
            others = steps.only(inside)
            cost = fitted(others, PRIOR).cost
            residuals = Residuals(
                [kinds[step] for step in inside], _prices(others, cost), others.times
            )
            prices = _prices(steps, cost)
            for step in range(number):
                if folds[step] == fold:
                    draws = [residuals.draw(kinds[step], prices[step], rng) for _ in range(DRAWS)]
                    drawn[step], means[step] = draws[0], fmean(draws)
        errors = [abs(one / took - 1) for one, took in zip(means, steps.times, strict=True)]
        total = sum(steps.times)
        held = HeldBack(
            steps=number,
            median=median(errors),
            p90=quantile(errors, 0.9),
            bias=sum(means) / total - 1,
            clocks=clocks_of(steps, drawn),
        )
        return HeldBackTimes(
            held, _drift(steps.times, means, drawn), _by_kind(kinds, steps.times, drawn)
        )


class MeasuredRunner(CostRunner):
    """A simulated machine whose steps take what recorded steps of their kind took."""

    def __init__(self, times: StepTimes, seed: int, speed: float, room: float) -> None:
        super().__init__(**asdict(times.cost))
        self._residuals, self._rng, self._speed = times.residuals, random.Random(seed), speed
        self._hidden, self._flat_ms = times.hidden, times.flat_ms
        self._room = times.most_tokens * room

    def step_ms(self, rows: Sequence[Row], *, woken: bool) -> float:
        """See `CostRunner.step_ms`."""
        masked = any(row.request.constraint is not None for row in rows)
        work = _without_hidden(Work.of(rows, woken=woken), self._hidden)
        price = max(self.cost.of(work), LEAST_MS)
        if (beyond := _tokens(rows) / self._room) > 1:
            price = max(price, self._flat_ms * beyond)
        kind = kind_of(rows, masked=masked)
        return self._residuals.draw(kind, price, self._rng) / self._speed


def _kinds(steps: Steps) -> list[Kind]:
    pairs = zip(steps.plans, steps.masked, strict=True)
    return [kind_of(plan.rows, masked=masked) for plan, masked in pairs]


def _tokens(rows: Sequence[Row] | Sequence[ScheduledRow]) -> int:
    return sum(row.count for row in rows)


def _without_hidden(work: Work, hidden: int) -> Work:
    return work._replace(tokens=max(0, work.tokens - hidden))


def _beyond(steps: Steps, hidden: int) -> Steps:
    """Return the steps with the tokens beyond so many."""
    return replace(steps, work=[_without_hidden(one, hidden) for one in steps.work])


def _hidden_tokens(steps: Steps) -> int:
    """Return with how many hidden tokens prices fit best."""
    left = {
        hidden: sum(map(abs, fitted(_beyond(steps, hidden)).residuals_ms))
        for hidden in (0, *HIDDEN)
    }
    best = min(left, key=left.__getitem__)
    return best if left[best] < (1 - LEAST_BETTER) * left[0] else 0


def _prices(steps: Steps, cost: Cost) -> list[float]:
    return [max(cost.of(work), LEAST_MS) for work in steps.work]


def _cold(steps: Steps, prices: Sequence[float]) -> set[int]:
    """Return which steps are cold: the first ones of a log, up to the last that took too long."""
    cold = set[int]()
    for log in set(steps.logs):
        begin = steps.logs.index(log)
        first = range(begin, min(begin + COLD_STEPS, begin + steps.logs.count(log)))
        late = [one for one in first if steps.times[one] > INTERRUPTED * prices[one]]
        cold |= {*range(begin, late[-1] + 1)} if late else set()
    return cold


def _drift(times: Sequence[float], means: Sequence[float], drawn: Sequence[float]) -> float:
    """Return the standard deviation of the speed between tenths, less that of a steady machine."""
    size = -(-len(times) // DRIFT_BLOCKS)
    tenths = [slice(at, at + size) for at in range(0, len(times), size)]
    measured, steady = (
        pvariance([sum(one[tenth]) / sum(means[tenth]) for tenth in tenths])
        for one in (times, drawn)
    )
    return sqrt(max(0.0, measured - steady))


def _by_kind(
    kinds: Sequence[Kind], times: Sequence[float], drawn: Sequence[float]
) -> list[KindError]:
    pairs: defaultdict[Kind, list[tuple[float, float]]] = defaultdict(list)
    for kind, took, one in zip(kinds, times, drawn, strict=True):
        pairs[kind].append((took, one))
    errors = []
    for kind, both in sorted(pairs.items(), key=lambda item: -len(item[1])):
        measured, predicted = [pair[0] for pair in both], [pair[1] for pair in both]
        mean = fmean(measured)
        p50, p99 = (quantile(predicted, at) / quantile(measured, at) - 1 for at in (0.5, 0.99))
        errors.append(KindError(kind, len(both), mean, fmean(predicted) / mean - 1, p50, p99))
    return errors


def arrival_delay(*logs: EventLog) -> float:
    """Return how long a request takes from its arrival to the scheduler, in us.

    A log says when a request arrived (at vLLM's API server, for example) and which step was the first
    that could see it. The delay is at least the time to the start of the step before, which did not
    see it, and at most that to the start of this one. The result lies within most of these bounds.
    """
    bounds = [bound for log in logs for bound in _arrival_bounds(log)]
    best, within, delay = 0, 0, 0.0
    for (at_us, change), (until, _) in pairwise(sorted(bounds, key=lambda one: (one[0], -one[1]))):
        within += change
        if within > best:
            best, delay = within, (at_us + until) / 2
    return delay


def _arrival_bounds(log: EventLog) -> Iterator[tuple[float, int]]:
    """Yield each request's least delay with 1, and its longest one with -1."""
    starts = {one.step: one.t["start"] for one in log.of(StepFinished) if "start" in one.t}
    steps, step = sorted(starts), 0
    for event in log:
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, RequestArrived) and "at" in event.t:
            at = bisect_right(steps, step)
            if at < len(steps):
                before = starts[steps[at - 1]] if at else 0.0
                yield max(0.0, before - event.t["at"]), 1
                yield max(0.0, starts[steps[at]] - event.t["at"]), -1
