"""`advise(log, goals_of("p99 ttft < 1s"))`: which other settings would have met a goal.

The search is a coordinate search, not a grid. What requests waited for says which setting comes first
(`moves.py`); values of one setting are tried further and further out, as long as they help; and the
best change is the base for a second one only if no single change is enough. Each try is a replay of the
recorded arrivals by the real scheduler, with step times that were fitted by kind (`step_times.py`).

How far can a prediction be trusted? Three answers, all measured on this recording:

1. *Held back*: the goal's measure from the recorded schedule, with each step's time predicted
   from other parts of the log.
2. *Replayed unchanged*: the recorded arrivals and settings. A queue near saturation multiplies
   small errors, so the replay runs on a slower, an equal and a faster machine, as far apart as the
   speed drifted within the recording; what they leave unexplained is an error of the replay.
3. *Range*: each advice is replayed on the same three machines, with other draws, and with other
   prices: where a setting leads to steps that the recording never had, explanations that fit it
   equally well disagree. If tokens had no price so far, more of them may cost nothing, or as much
   as if the arithmetic of the others had just been hidden.

Where the first, the second or the drift of the speed is more than LIMIT, no advice is given. The log
of a simulated machine names its prices; if an unchanged replay with them is equal to the log, all
replays are exact and have none of these errors.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.measures import Samples
from visualizer.advice.answer import TOLD, Advice, Advised, Errors, Predicted, in_words
from visualizer.advice.goal import Goal
from visualizer.advice.moves import HARDWARE, Line, how, lines
from visualizer.advice.replays import Changes, ClusterReplays, EngineReplays, Replays
from visualizer.advice.window import STEPS, window_of
from visualizer.indexed.part import MOST_OF_CLUSTER, replayed_cluster
from visualizer.reading.regimes.regimes import regimes_of

LIMIT = 0.3  # the largest error of the goal's measure with which advice is given
MOST = 3  # advices
SHORTER = Goal("e2e", "mean")  # the goal of a reader who names none
REPLAYS = 30
LEAST_GAIN = 0.02  # a line of values goes on while each is better by so much
MARGIN = 0.1  # a prediction that meets its goal by so much is preferred
LEAST_DRIFT = 0.02
ROOMS = (1.0, 4.0)  # see `StepTimes.runner`
SEEDS = (0, 1, 2)

# What a change may cost.
SIDES = (
    Goal("ttft", "p50"),
    Goal("ttft", "p99"),
    Goal("itl", "p50"),
    Goal("itl", "p99"),
    Goal("e2e", "p50"),
    Goal("throughput"),
)
MEASURED = (
    *(Goal(measure, share) for measure in ("ttft", "itl") for share in ("p50", "p90", "p99")),
    Goal("throughput"),
)


class Refusal(ValueError):
    """No advice: one sentence that says which error, how large, and what to record instead."""


def advise(
    log: EventLog | ClusterLog,
    goals: Sequence[Goal],
    *,
    settings: Sequence[str] = (),
    replays: int = REPLAYS,
    steps: int = STEPS,
    on_replay: Callable[[int], object] = lambda _: None,
) -> Advised:
    """Return which changed settings would have met the goals.

    settings   which may be changed; all by default
    replays    at most so many for the search; each advice takes up to seven more for its range
    steps      of a longer log of an engine, only a window of so many is replayed; of a cluster's, the
               end
    on_replay  called after each replay, with their number

    Raises Refusal where times are predicted too badly, ValueError for a log that cannot be replayed.
    """
    *_, advised = advising(
        log, goals, settings=settings, replays=replays, steps=steps, on_replay=on_replay
    )
    assert isinstance(advised, Advised)
    return advised


def advising(
    log: EventLog | ClusterLog,
    goals: Sequence[Goal],
    *,
    settings: Sequence[str] = (),
    replays: int = REPLAYS,
    steps: int = STEPS,
    on_replay: Callable[[int], object] = lambda _: None,
) -> Iterator[str | Advised]:
    """Yield each change of the search in words, after its replay, and then what `advise` returns.

    A reader who has seen enough stops iterating.
    """
    runs: Replays
    if isinstance(log, ClusterLog):
        end = replayed_cluster(log)
        note, runs = "", ClusterReplays(end, on_replay)
        if end is not log:
            note = f"Only the last {MOST_OF_CLUSTER:,} of {len(log):,} events were replayed."
    else:
        part, note = window_of(log, goals[0], steps)
        runs = EngineReplays(part, on_replay)
    if (length := runs.draft_length) and (not settings or "draft_length" in settings):
        longer = f"What drafts of more than {length} tokens would have guessed is unknown."
        note = f"{note} {longer}".strip()
    recorded = runs.recorded
    values = [goal.value(recorded) for goal in goals]
    if None in values:
        name = goals[values.index(None)].name
        raise ValueError(f"no request of the log has a {name}")
    met = all(
        goal.ratio(value) <= 1 for goal, value in zip(goals, values, strict=True) if goal.limit
    )
    known: dict[str, Any] = {"recorded": values, "requests": len(recorded.ttft), "note": note}
    if met and all(goal.limit for goal in goals):
        yield Advised(goals=list(goals), met=True, **known)
        return
    worst = max(goals, key=lambda one: one.ratio(one.value(recorded)))
    errors = _errors(runs, worst)
    searched = _Search(runs, goals, replays)
    waited = Counter[str]()
    for one in runs.logs:
        waited.update(regimes_of(one).waited)
    for changes in searched.search(list(lines(runs, waited, goals)), settings):
        yield in_words(dict(changes), runs.before(changes))
    advice = [searched.advice(one, errors) for one in searched.best()]
    yield Advised(
        goals=list(goals),
        met=False,
        advice=sorted(filter(None, advice), key=lambda one: (not one.surely, not one.meets)),
        errors=errors,
        replays=runs.number,
        **known,
    )


def _errors(runs: Replays, goal: Goal) -> Errors:
    """Return the errors of all measures. Raises Refusal if those of a goal's measure are too large."""
    was, held = goal.value(runs.recorded), None if runs.exact else runs.times.held_back()
    assert was is not None
    if runs.exact is None and held is None:
        raise Refusal(
            "No advice: the log has fewer than 20 steps, so the error of its step times is unknown; "
            "record at least a few hundred."
        )
    scheduled = runs.scheduled(held) if held else runs.recorded
    predicted = goal.value(scheduled)
    error = predicted / was - 1 if predicted else float("inf")
    drift = max(held.drift, LEAST_DRIFT) if held else 0.0
    again = [runs.run((), speed) for speed in (1 - drift, 1.0, 1 + drift)]
    found = [one for one in (goal.value(run) for run in again if run) if one is not None]
    if not found:
        raise ValueError("the log's own settings cannot serve its requests in a replay")
    low, high = min(found), max(found)
    left = (was - high if was > high else min(was - low, 0.0)) / was
    for size, words in (
        (
            error,
            f"{goal.name} is off by {{}} if the recorded steps are timed by other parts of the log",
        ),
        (left, f"a replay without a change leaves {{}} of {goal.name} unexplained"),
        (drift, "the machine's speed varied by {} within the log"),
    ):
        if abs(size) > LIMIT:
            raise Refusal(
                f"No advice: {words.format(f'{abs(size):.0%}')}, and at most {LIMIT:.0%} is trusted; "
                "record a longer run on a machine that does nothing else."
            )
    measures: dict[str, tuple[float, float]] = {}
    for one in MEASURED:
        values = [one.value(run) for run in (runs.recorded, scheduled, runs.run(())) if run]
        if all(values):
            first, *others = [value or 0.0 for value in values]
            measures[one.name] = others[0] / first - 1, others[-1] / first - 1
    return Errors(error, left, drift, measures, held.kinds if held else [])


class _Search:
    """The coordinate search."""

    def __init__(self, runs: Replays, goals: Sequence[Goal], most: int) -> None:
        self._runs, self._goals, self._most = runs, goals, most
        self._recorded = runs.recorded
        unchanged = runs.run(())
        assert unchanged is not None
        self._base = unchanged
        self._scores: dict[Changes, float] = {(): self._ratio(unchanged)}

    def _ratio(self, run: Samples | None) -> float:
        """How a run compares with the goals, or without limits with the recorded run."""
        if run is None:
            return float("inf")
        return max(
            goal.ratio(goal.value(run))
            if goal.limit
            else goal.ratio(goal.value(run)) / goal.ratio(goal.value(self._recorded))
            for goal in self._goals
        )

    def search(self, found: list[Line], allowed: Sequence[str]) -> Iterator[Changes]:
        """Try the lines; if no change is enough, try them again beside the best one. Yield each try."""
        found = [line for line in found if not allowed or line[0] in allowed]
        yield from self._along(found, ())
        best = self.best()
        if best and self._scores[best[0]] > 1 - MARGIN:
            yield from self._along(found, best[0])

    def _along(self, found: list[Line], base: Changes) -> Iterator[Changes]:
        for name, line in found:
            if any(name == one for one, _ in base):
                continue
            last = self._scores[base]
            for value in line:
                if self._runs.number >= self._most:
                    return
                if name in HARDWARE and self._is_met:
                    break
                changes = (*base, (name, value))
                score = self._ratio(self._runs.run(changes))
                if changes not in self._scores:
                    yield changes
                self._scores[changes] = score
                if score > last * (1 - LEAST_GAIN):
                    break
                last = score

    @property
    def _is_met(self) -> bool:
        """Whether a change meets the goals by the margin."""
        limits = any(goal.limit for goal in self._goals)
        return limits and min(self._scores.values()) <= 1 - MARGIN

    def best(self) -> list[Changes]:
        """Return the best change of each set of settings, without sets that add nothing to another."""
        found: dict[tuple[str, ...], Changes] = {}
        for changes in sorted(self._scores, key=self._rank):
            parts = [(), *(one for one in found.values() if {*one} < {*changes})]
            limit = min(self._scores[one] for one in parts) * (1 - LEAST_GAIN)
            if changes and self._scores[changes] < limit:
                found.setdefault(tuple(sorted(name for name, _ in changes)), changes)
        best = list(found.values())[:MOST]
        limits = any(goal.limit for goal in self._goals)
        if best and limits and self._scores[best[0]] <= 1:
            best = [one for one in best if self._scores[one] <= 1]
        return best

    def _rank(self, changes: Changes) -> tuple[Any, ...]:
        """Order changes: those that meet the goals first, free, not extrapolated, harmless, small."""
        score, run = self._scores[changes], self._runs.run(changes)
        level = 0 if score <= 1 - MARGIN else 1 if score <= 1 else 2
        needs = any(name in HARDWARE for name, _ in changes)
        harm = self._harm(run) if run else float("inf")
        if level == 2:
            return level, needs, score * (1 + harm), len(changes)
        extrapolates = run is not None and bool(_unseen(self._recorded, run))
        order = level, needs, extrapolates, len(changes), round(harm, 1), round(score, 1)
        return *order, str(changes)

    def _harm(self, run: Samples) -> float:
        """How much worse other measures get, added up."""
        harm = 0.0
        for side in SIDES:
            if all(side.name != goal.name for goal in self._goals):
                was, now = side.ratio(side.value(self._base)), side.ratio(side.value(run))
                harm += max(0.0, min(now / was - 1, 2.0) - TOLD) if was else 0.0
        return harm

    def advice(self, changes: Changes, errors: Errors) -> Advice | None:
        """Return an advice with its ranges; None if its mean is no better than what was recorded."""
        seeds = SEEDS[:1] if self._runs.exact else SEEDS
        central = [run for run in (self._runs.run(changes, seed=one) for one in seeds) if run]
        speeds, error = (1 - errors.drift, 1 + errors.drift), abs(errors.held_back)
        others = [self._runs.run(changes, one) for one in speeds]
        if self._runs.times.flat_ms and central[0].most_tokens > self._recorded.most_tokens:
            others += [self._runs.run(changes, room=one) for one in ROOMS]
        others.append(self._runs.run(changes, is_free=True, room=ROOMS[1]))
        runs = [*central, *filter(None, others)]

        def predicted(goal: Goal) -> Predicted:
            values = [goal.value(run) or 0.0 for run in runs]
            mean = fmean(values[: len(central)])
            low = min(*values, mean * (1 - error))
            high = max(*values, mean * (1 + error))
            return Predicted(goal.name, goal.value(self._recorded), mean, low, high, goal.limit)

        goals, config = [predicted(goal) for goal in self._goals], self._runs.config
        ratios = [
            (goal.ratio(one.recorded), goal.ratio(one.predicted))
            for goal, one in zip(self._goals, goals, strict=True)
        ]
        if max(now for _, now in ratios) > (1 - LEAST_GAIN) * max(was for was, _ in ratios):
            return None
        engines = ("",) if self._runs.router else _engines(self._runs.started)
        names = [goal.name for goal in self._goals]
        return Advice(
            changes=dict(changes),
            before=self._runs.before(changes),
            goals=goals,
            others=[predicted(side) for side in SIDES if side.name not in names],
            steps=(self._recorded.steps, fmean(run.steps for run in central)),
            preemptions=(self._recorded.preemptions, fmean(run.preemptions for run in central)),
            how={engine: how(dict(changes), engine, config.block_size) for engine in engines},
            unseen=_unseen(self._recorded, central[0]),
        )


def _unseen(recorded: Samples, predicted: Samples) -> str:
    """Say which steps of a prediction are more than twice as large as any recorded one."""
    pairs = (
        ("rows", recorded.most_rows, predicted.most_rows),
        ("tokens", recorded.most_tokens, predicted.most_tokens),
    )
    larger = [f"{now:,} {name} ({was:,} recorded)" for name, was, now in pairs if now > 2 * was]
    return f"extrapolated: its largest step has {' and '.join(larger)}" if larger else ""


def _engines(started: v.RunStarted | v.KeyframeState) -> Sequence[str]:
    """The engines of which a log's reader wants to know the flags."""
    name = str(started.source.get("engine", "")).lower()
    return next(([one] for one in ("vllm", "sglang") if one in name), ("", "vllm", "sglang"))
