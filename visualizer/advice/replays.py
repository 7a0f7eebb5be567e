"""Replays of recorded arrivals with other settings, each kept: of an engine's log, and of a cluster's.

Beside an engine's settings there are two of a cluster: `replicas` and `router`. More replicas for an
engine's log are machines that are as fast as the recorded one, behind the default router. And there is
`draft_length`: shorter drafts of a row than those of an engine's log (`recorded_drafts.py`).
"""

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from itertools import accumulate
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.routed_parts import cluster_samples, routed_parts
from engine.cluster.simulate_cluster import simulate_cluster
from engine.core.config import ConfigError
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.core.scheduling.admission import RequestError
from engine.simulation.cost_runner import Cost, CostRunner
from engine.simulation.log_part import LogPart, started_of, unended_requests
from engine.simulation.measures import Samples, samples
from engine.simulation.recorded_drafts import with_length
from engine.simulation.replayable import replayable
from engine.simulation.rerun import recorded_cost
from engine.simulation.simulate import simulate
from engine.simulation.step_times import ROOM, HeldBackTimes, StepTimes
from engine.simulation.what_if import changed_config, check_parts
from engine.simulation.workload import Arrival, Workload
from visualizer.advice.measured import MeasuredClusterLog, MeasuredLog
from visualizer.comparing.cluster_study import LAG_MS, ClusterChange, ClusterReplay

Changes = tuple[tuple[str, Any], ...]
CLUSTER_SETTINGS = ("replicas", "router")
OTHER_SETTINGS = (*CLUSTER_SETTINGS, "draft_length")  # no fields of EngineConfig


class Replays(ABC):
    """Replays of a log's arrivals.

    logs      of each engine
    started   its settings
    times     what steps take
    exact     the prices that the log names, if a replay with them is equal to it; else None
    recorded  the log's own samples
    replicas  how many engines there were
    router    how one was chosen; "" for a single engine
    draft_length  the most drafts of a row; 0 for none, and of a cluster
    without   the log's requests whose times do not count: those that arrived while the engine was cold,
              and those that had not ended when the log did, unless it is a part of a longer one
    """

    logs: list[EventLog]
    started: v.RunStarted | v.KeyframeState
    times: StepTimes
    exact: Cost | None = None
    recorded: Samples
    replicas: int = 1
    router: str = ""
    draft_length: int = 0

    def __init__(self, on_replay: Callable[[int], object]) -> None:
        self.config = changed_config(self.started, {})
        self._free, self._on_replay = StepTimes(*self.logs, prior=0.0), on_replay
        self._kept: dict[tuple[Changes, float, int, bool, float], Samples | None] = {}

    @property
    def number(self) -> int:
        """How many replays there were."""
        return len(self._kept)

    def before(self, changes: Changes) -> dict[str, Any]:
        """Return the recorded values of settings."""
        names = [name for name, _ in changes]
        return {one: getattr(self if one in OTHER_SETTINGS else self.config, one) for one in names}

    def run(
        self,
        changes: Changes,
        speed: float = 1.0,
        seed: int = 0,
        *,
        is_free: bool = False,
        room: float = ROOM,
    ) -> Samples | None:
        """Return a replay's measures; None for settings that cannot serve the log's requests.

        is_free  with the prices that fit best, instead of the simple ones
        room     see `StepTimes.runner`
        """
        how = (1.0, 0, False, ROOM) if self.exact else (speed, seed, is_free, room)
        key = changes, *how
        if key not in self._kept:
            times = self._free if is_free else self.times

            def machine(replica: int) -> CostRunner:
                if self.exact:
                    return CostRunner(**asdict(self.exact))
                return times.runner(seed + 100 * replica, speed, room)

            try:
                self._kept[key] = self._replayed(dict(changes), machine)
            except (ConfigError, RequestError):
                self._kept[key] = None
            gc.collect()  # an engine and its requests refer to each other
            self._on_replay(len(self._kept))
        return self._kept[key]

    @abstractmethod
    def scheduled(self, held: HeldBackTimes) -> Samples:
        """Return the samples of the recorded schedule with predicted times."""

    @abstractmethod
    def _replayed(self, changes: dict[str, Any], machine: Callable[[int], CostRunner]) -> Samples:
        """Return the samples of a replay."""


class EngineReplays(Replays):
    """Replays of an engine's log."""

    def __init__(self, log: EventLog, on_replay: Callable[[int], object]) -> None:
        """Raise ValueError for a log that cannot be replayed."""
        if (started := started_of(log)) is None:
            raise ValueError(
                "the log does not begin with run_started: its first arrivals are missing"
            )
        self.logs, self.started, self.times = [log], started, StepTimes(log)
        super().__init__(on_replay)
        check_parts(started, self.config, {}, {})
        self._workload = Workload.from_log(replayable(log), "time")
        if self._workload.drafting is not None:
            self.draft_length = self._workload.drafting.most
        self._window = log.window if isinstance(log, LogPart) else None
        if own := None if started.source else recorded_cost(log):
            again = MeasuredLog((), self._window)
            simulate(self._workload, self.config, cost=own, log=again)
            self.exact = own if again.end() == samples(log, window=self._window) else None
        earlier = self._window.earlier if self._window else ()
        for one in self._workload.inputs:
            if isinstance(one, Arrival) and self.exact is None and one.request not in earlier:
                one.way_ms = self.times.arrival_ms
        arrived = sorted(log.each(v.RequestArrived), key=lambda one: one.t.get("at", 0))
        self._own = _cold(arrived, 0 if self.exact else self.times.cold_until[0])
        self._without = self._own
        if self._window is None:  # its replays number requests in order of arrival
            self._own |= unended_requests(log)
            firsts = accumulate((one.n for one in arrived), initial=1)
            numbers = {one.request: at for one, at in zip(arrived, firsts, strict=False)}
            self._without = {numbers[one] for one in self._own if one in numbers}
        self.recorded = samples(log, without=self._own, window=self._window)

    def scheduled(self, held: HeldBackTimes) -> Samples:
        """See `Replays`."""
        at = held.steps.predicted_at
        return samples(self.logs[0], at, without=self._own, window=self._window)

    def _replayed(self, changes: dict[str, Any], machine: Callable[[int], CostRunner]) -> Samples:
        replicas, length = changes.pop("replicas", 1), changes.pop("draft_length", None)
        drafting = with_length(self._workload.drafting, length)
        workload = replace(self._workload, drafting=drafting)
        config = changed_config(self.started, changes)
        if replicas == 1:
            log = MeasuredLog(self._without, self._window)
            simulate(workload, config, cost=machine(0), log=log)
            return log.end()
        logs = MeasuredClusterLog(self._without, self._window)
        simulate_cluster(workload, config, cost=machine, replicas=replicas, lag_ms=LAG_MS, log=logs)
        return logs.end()


class ClusterReplays(Replays):
    """Replays of a cluster's log. A replica that was gone is gone in the replays, too."""

    def __init__(self, log: ClusterLog, on_replay: Callable[[int], object]) -> None:
        """Raise ValueError for a log that cannot be replayed, or whose replicas have roles."""
        self._replay, self._parts = ClusterReplay(log), routed_parts(log)
        if self._replay.roles is not None:
            raise ValueError(
                "the replicas of the log have roles: compare their numbers with what-if --roles"
            )
        self.logs = [part.log for part in self._parts]
        self.started, self.times = self._replay.started, self._replay.times
        self.replicas, self.router = self._replay.replicas, self._replay.router
        super().__init__(on_replay)
        self._own = set[int]()
        for part, until in zip(self._parts, self.times.cold_until, strict=True):
            cold = _cold(list(part.log.each(v.RequestArrived)), until)
            self._own |= part.unended | {part.numbers[one] for one in cold if one in part.numbers}
        numbers = self._replay.recorded.numbers
        self._without = {replayed for replayed, its in numbers.items() if its in self._own}
        self.recorded = cluster_samples(self._parts, self._own)

    def scheduled(self, held: HeldBackTimes) -> Samples:
        """See `Replays`."""
        at = held.steps.predicted_at
        return cluster_samples(self._parts, self._own, lambda part, us: at(us, part))

    def _replayed(self, changes: dict[str, Any], machine: Callable[[int], CostRunner]) -> Samples:
        replicas, router = (changes.pop(name, None) for name in CLUSTER_SETTINGS)
        replay = self._replay.run(ClusterChange(replicas, router, settings=changes), machine)
        return cluster_samples(routed_parts(replay), self._without)


def _cold(arrived: Collection[v.RequestArrived], until: float) -> set[int]:
    """Return the requests that arrived while an engine was cold.

    If many did, the first steps are what the run is about, and there is none.
    """
    cold = {one.request for one in arrived if one.t.get("at", 0) < until}
    return cold if len(cold) <= len(arrived) / 10 else set()
