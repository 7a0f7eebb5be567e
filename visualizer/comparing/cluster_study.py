"""What if, on a cluster's log: the recorded run, its replay, and replays with other replicas.

    print(study_cluster(log, [ClusterChange(replicas=3), ClusterChange(router="round_robin")]))

All requests of the log come again at the recorded times, with the same answers, to simulated replicas.
Steps take what those of all replicas took, by kind (`step_times.py`), and a request's way from the
router to the scheduler is the recorded one. The replay without a change says how far a number can be
trusted: what it gets wrong, a changed one gets wrong, too. A replica that was gone in the
recorded run is gone in the replays at the same times.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, linear_regression
from typing import Any

from engine.cluster import ROUTERS, router_named
from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog
from engine.cluster.cluster_part import ClusterPart
from engine.cluster.recorded_faults import recorded_faults
from engine.cluster.recorded_workload import RecordedWorkload, recorded_workload
from engine.cluster.router import option_names
from engine.cluster.simulate_cluster import simulate_cluster
from engine.cluster.simulated_roles import Roles
from engine.cluster.transfer import TransferCosts
from engine.core.config import ConfigError, EngineConfig
from engine.core.log import vocabulary as v
from engine.core.scheduling.admission import RequestError
from engine.simulation.cost_runner import US_PER_MS, Cost, CostRunner, Work
from engine.simulation.fit import HeldBack
from engine.simulation.measures import FEWEST_FOR_P99
from engine.simulation.quantile import quantile
from engine.simulation.rerun import recorded_cost
from engine.simulation.step_times import StepTimes
from engine.simulation.study import in_columns
from engine.simulation.what_if import changed_config, error_record
from engine.simulation.workload import Adopt, Arrival, Hold, Input
from visualizer.reading.messages import count
from visualizer.reading.rows.decisions import DecisionRow, decision_rows

Machines = Callable[[int], CostRunner]
LAG_MS = 5.0  # how long an event takes to the router; to a real gateway, a few milliseconds


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """What is different in a replay. None and {} leave it as it was recorded.

    roles     how many replicas prefill and how many decode, instead of `replicas`
    settings  fields of EngineConfig
    """

    replicas: int | None = None
    router: str | None = None
    roles: tuple[int, int] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [f"replicas={self.replicas}"] * (self.replicas is not None)
        words += [f"router={self.router}"] * (self.router is not None)
        if self.roles is not None:
            words.append("roles=prefill={},decode={}".format(*self.roles))
        words += [f"{name}={value}" for name, value in self.settings.items()]
        return " ".join(words) or "unchanged"


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of all runs; None where a run has no value."""

    name: str
    recorded: float | None
    replayed: float | None
    changed: list[float | None]


@dataclass(frozen=True, slots=True)
class ClusterStudy:
    """The runs, and what their numbers are worth.

    changed  the changes in words
    first    the run with the first of them; of the others, only the measures are kept
    error    the cost model's error on held-back steps; None: too few steps
    notes    what the replay leaves out, a sentence each
    """

    recorded: ClusterLog
    replayed: ClusterLog
    changed: list[str]
    first: ClusterLog | None
    error: HeldBack | None
    notes: list[str]
    rows: list[Row]

    def table(self) -> list[list[str]]:
        """Return the table as texts: the heads, then a line for each measure."""
        heads = ["", "recorded", "replayed", *self.changed]
        return [heads, *(_line(row) for row in self.rows)]

    def statements(self) -> list[str]:
        """Return what the numbers are worth: a sentence for each thing to know."""
        return [
            f"{error_record(self.error)['text']}.",
            "~: the change is not larger than what the unchanged replay is off by.",
            *self.notes,
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the logs as JSON values."""
        return {
            "held_back": error_record(self.error),
            "notes": self.notes,
            "measures": [
                {
                    "name": row.name,
                    "recorded": row.recorded,
                    "replayed": row.replayed,
                    "changed": dict(zip(self.changed, row.changed, strict=True)),
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        return "\n".join([*in_columns(self.table()), "", *self.statements()])


def study_cluster(log: ClusterLog, changes: Sequence[ClusterChange]) -> ClusterStudy:
    """Replay the requests of a cluster's log unchanged, and with each change.

    Raises ValueError for a log without token ids, and ConfigError for a router, a setting or roles that
    do not exist, and if a request of the log would be rejected.
    """
    replay = ClusterReplay(log)
    replayed = replay.run(ClusterChange())
    first, runs = None, [_measures(one) for one in (log, replayed)]
    for change in changes:
        run = replay.run(change)
        runs.append(_measures(run))
        first = first or run
        gc.collect()  # an engine and its requests refer to each other
    names = dict.fromkeys(name for run in runs for name in run)
    return ClusterStudy(
        recorded=log,
        replayed=replayed,
        changed=[str(change) for change in changes],
        first=first,
        error=held.steps if (held := replay.times.held_back()) else None,
        notes=_notes(log, replay.recorded, has_roles=any(change.roles for change in changes)),
        rows=[
            Row(name, recorded, again, others)
            for name in names
            for recorded, again, *others in [[run.get(name) for run in runs]]
        ],
    )


class ClusterReplay:
    """What is known of the recorded machines.

    started   the settings of the first replica, which are those of all
    replicas  how many were present at the same time
    router    its name
    roles     how many replicas prefill and how many decode; None: they have no roles
    times     what steps take
    recorded  the requests
    """

    def __init__(self, log: ClusterLog) -> None:
        """Raise ValueError for a log without token ids."""
        self._log = log
        self.logs = [part.log for part in log.parts]
        started = self.logs[0][0]
        self.times = StepTimes(*self.logs)
        own = recorded_cost(self.logs[0])  # of a simulation
        self._cost: Cost | Machines = self.times.runner if own is None else own
        self.recorded = recorded_workload(log, self.times.arrival_ms if own is None else 0.0)
        assert isinstance(started, v.RunStarted | v.Keyframe), "a replica's log begins with one"
        self.started = started.state if isinstance(started, v.Keyframe) else started
        joined = {one.replica: one for one in log if isinstance(one, c.ReplicaJoined)}
        roles = [one.role for one in joined.values()]
        self.replicas = _most_at_once(log)
        self.router = next(one for one in log if isinstance(one, c.ClusterStarted)).router
        self.roles = (roles.count("prefill"), roles.count("decode")) if any(roles) else None

    def run(self, change: ClusterChange, machines: Machines | None = None) -> ClusterLog:
        """Return the log of a replay. Raises ConfigError.

        machines  makes the machine of the replica with a number; None: as fast as the recorded ones
        """
        config = changed_config(self.started, dict(change.settings))
        sizes = change.roles or (self.roles if change.replicas is None else None)
        replicas = change.replicas or self.replicas
        places = {"": range(sum(sizes) if sizes else replicas)}
        if sizes is not None and sizes == self.roles:
            prefill = range(sizes[0])
            places = {"prefill": prefill, "decode": range(sizes[0], sum(sizes))}
        try:
            return simulate_cluster(
                self.recorded.workload,
                config,
                cost=machines or self._cost,
                replicas=replicas,
                router=self._router(change.router),
                lag_ms=LAG_MS,
                begun=begun_with(self.recorded.begun, places),
                after=self._log if isinstance(self._log, ClusterPart) else None,
                roles=Roles(*sizes, self._transfer(config)) if sizes else None,
                faults=recorded_faults(self._log, places),
            )
        except RequestError as error:
            raise ConfigError(
                f"with these settings a request of the log is rejected: {error}"
            ) from error

    def _router(self, name: str | None) -> Any:
        """Return the router of this name, or the recorded one. Raises ConfigError if there is none."""
        started = next(one for one in self._log if isinstance(one, c.ClusterStarted))
        # An earlier version may have had other options.
        kind = ROUTERS.get(started.router)
        names = option_names(kind) if kind is not None and not name else ()
        options = {one: started.options[one] for one in names if one in started.options}
        try:
            return router_named(name or started.router, **options)
        except ValueError as error:
            raise ConfigError(f"{error}; choose one with --router") from error

    def _transfer(self, config: EngineConfig) -> TransferCosts:
        """Return the price of a move, which is that of the recorded ones.

        Without any, a cluster with roles goes on without moves, and one without roles moves for free.
        """
        moves = [one for one in self._log if isinstance(one, c.Moved) and "us" in one.t]
        blocks, took = [one.blocks for one in moves], [one.t["us"] / US_PER_MS for one in moves]
        block_ms, fixed_ms = 0.0, fmean(took) if took else (inf if self.roles else 0.0)
        if len(set(blocks)) > 1:
            block_ms, fixed_ms = linear_regression(blocks, took)
        chunk = Work.of([v.ScheduledRow(0, 0, config.token_budget)])
        token_ms = self.times.cost.of(chunk) / config.token_budget
        return TransferCosts(max(0.0, fixed_ms), max(0.0, block_ms), token_ms)


def begun_with(
    begun: Mapping[str, list[Input]], places: Mapping[str, range]
) -> dict[str, list[Input]]:
    """Return what each simulated replica begins with, of what the recorded ones had.

    A replica that no recorded one stands for has the cache of one of them. Requests of a recorded
    replica that is not simulated are routed again. With roles, all begin with caches alone.
    """
    numbers = [str(number) for some in places.values() for number in some]
    some = [*begun.values()]
    replicas = {name: begun.get(name, []) for name in numbers} if some else {}
    caches: list[list[Input]] = [
        [one for one in its if isinstance(one, Adopt | Hold)] for its in some
    ]
    for number, (name, its) in enumerate(replicas.items()):
        if not its or len(places) > 1 or "" not in places:
            replicas[name] = caches[number % len(caches)]
    others = [one for name, its in begun.items() if name not in replicas for one in its]
    routed: list[Input] = [one for one in others if isinstance(one, Arrival)]
    return replicas | ({"": routed} if routed and "" in places else {})


def _most_at_once(log: ClusterLog) -> int:
    """Return how many replicas were present at the same time, at most."""
    present, most = set[str](), 0
    for event in log:
        if isinstance(event, c.ReplicaJoined):
            present.add(event.replica)
        elif isinstance(event, c.ReplicaLeft):
            present.discard(event.replica)
        most = max(most, len(present))
    return most


def _measures(log: ClusterLog) -> dict[str, float | None]:
    """Return the measures of a run by name, without requests from before a part, if it is one."""
    rows = [row for row in decision_rows(log) if row.request > 0]
    firsts: dict[int, float] = {}
    for row in rows:
        if row.ttft_ms is not None:
            firsts.setdefault(row.request, row.ttft_ms)
    ttft = list(firsts.values())
    tail = ("TTFT p99, ms", 0.99) if len(ttft) >= FEWEST_FOR_P99 else ("TTFT max, ms", 1.0)
    measures: dict[str, float | None] = {
        "requests": len({row.request for row in rows}),
        "TTFT p50, ms": quantile(ttft, 0.5) if ttft else None,
        tail[0]: quantile(ttft, tail[1]) if ttft else None,
        "prompt tokens found, %": _found(rows),
    }
    if continued := len({row.request for row in rows if row.output_tokens}):
        measures["requests continued"] = continued
    for replica in dict.fromkeys(one.replica for one in log if isinstance(one, c.ReplicaJoined)):
        its = [row for row in rows if row.replica == replica]
        measures[f"replica {replica}: requests"] = len(its)
        measures[f"replica {replica}: found, %"] = _found(its)
    return measures


def _found(rows: Sequence[DecisionRow]) -> float | None:
    judged = [row for row in rows if row.prompt_tokens and row.cached_tokens is not None]
    asked = sum(row.prompt_tokens + row.output_tokens for row in judged)
    return 100 * sum(row.cached_tokens or 0 for row in judged) / asked if asked else None


def _notes(log: ClusterLog, work: RecordedWorkload, *, has_roles: bool) -> list[str]:
    notes = [
        "Recorded: arrivals, prompts, answers, settings, and how long a request was on its way to its "
        "replica. Simulated: all decisions and the times of steps. A client that waits for an answer "
        "before it asks again does not come earlier or later in a replay."
    ]
    if work.absent:
        them = count(work.absent, "request")
        notes.append(f"Left out: {them} of which no replica's log has the prompt.")
    if work.cut:
        notes.append(
            f"{count(work.cut, 'request')} did not end in the log, or ended early: the replays end "
            "there, too."
        )
    with_roles = any(isinstance(one, c.ReplicaJoined) and one.role for one in log)
    if (has_roles or with_roles) and not any(isinstance(one, c.Moved) for one in log):
        what = "no KV is moved" if with_roles else "moves take no time"
        notes.append(f"The log has no move of KV, so {what} in the replays.")
    if isinstance(log, ClusterPart):
        its = count(
            sum(isinstance(one, Arrival) for some in work.begun.values() for one in some), "request"
        )
        notes.append(
            f"This is the end of a long log. It begins with the caches and {its} of that moment, "
            "which are in no number."
        )
    left = [one for one in log if isinstance(one, c.ReplicaLeft)]
    if left:
        times = "once" if len(left) == 1 else f"{len(left)} times"
        notes.append(
            f"A replica left {times} while the log was recorded. In the replays it is gone, too, from "
            "its first failure until it was back, and its requests go on at others."
        )
    return notes


def _line(row: Row) -> list[str]:
    off = _relative(row.replayed, row.recorded)
    cells = [row.name, _figure(row.recorded), _figure(row.replayed) + _change(off, None)]
    for value in row.changed:
        cells.append(_figure(value) + _change(_relative(value, row.replayed), off))
    return cells


def _relative(value: float | None, base: float | None) -> float | None:
    return value / base - 1 if value is not None and base else None


def _change(change: float | None, off: float | None) -> str:
    if not change:
        return ""
    is_within = off is not None and abs(change) <= abs(off)
    return f" ({'~' * is_within}{change:+.0%})"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
