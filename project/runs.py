"""Run one workload with one engine, and measure it from the log and from what the workload drew."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from checks.broken import Broken
from checks.lesson_18 import YourRouter
from engine.cluster.cluster_log import ClusterLog
from engine.cluster.simulate_cluster import simulate_cluster
from engine.cluster.simulated_roles import Roles
from engine.core.config import ConfigError
from engine.core.log.log import EventLog
from engine.core.part_errors import PartError
from engine.core.scheduling.admission import RequestError
from engine.extensions.prompt_lookup import PromptLookup
from engine.simulation.cost_runner import CostRunner
from engine.simulation.simulate import simulate
from engine.simulation.workload import Arrival, Workload
from project.learner import Mine, MineError, said
from project.parts import SeenClock, config_of, hands_over, parts_of
from project.workloads import Kind
from visualizer import read
from visualizer.reading.why import why

STARVED = 5  # a request whose TTFT is more than this many times the goal has starved


@dataclass(frozen=True)
class Run:
    """What a run measured.

    goodput   output tokens per second of the requests within both goals
    starved   the number of requests that starved or were rejected
    in_time   the number of requests within both goals
    """

    goodput: float
    starved: int
    in_time: int


@dataclass(frozen=True)
class Served:
    """A workload that was served.

    requests  in order; the log calls the first one 1
    times     request -> when each of its tokens reached its client, in ms
    """

    kind: Kind
    requests: Sequence[Arrival]
    log: EventLog | ClusterLog
    times: dict[int, list[float]]

    def ttft_ms(self, request: int) -> float:
        """Return the time from a request's arrival to the first token that its client sees."""
        return self.times[request][0] - self.requests[request - 1].at_ms

    def measure(self) -> Run:
        """Measure the run, which ends with the last token."""
        ttft = {request: self.ttft_ms(request) for request in self.times}
        in_time = [one for one, ms in ttft.items() if ms <= self.kind.ttft_ms and self._flows(one)]
        seconds = max(times[-1] for times in self.times.values()) / 1000
        return Run(
            goodput=round(sum(len(self.times[one]) for one in in_time) / seconds, 2),
            starved=sum(ms > STARVED * self.kind.ttft_ms for ms in ttft.values())
            + self.kind.requests
            - len(ttft),
            in_time=len(in_time),
        )

    def _flows(self, request: int) -> bool:
        times = self.times[request]
        gaps = [after - before for before, after in pairwise(times)]
        return max(gaps, default=0) <= self.kind.gap_ms

    def worst_request(self) -> str:
        """Return what happened to the request that waited longest for its first token, in words."""
        request = max(self.times, key=self.ttft_ms)
        label, waited = self.requests[request - 1].label, self.ttft_ms(request)
        log, number, where = self.log, request, ""
        if isinstance(log, ClusterLog):
            row = [one for one in read(log).decision_rows if one.request == request][-1]
            assert row.its_request is not None
            log, number, where = log.replicas[row.replica], row.its_request, f" on {row.replica}"
        found = read(log).request(number)
        assert found.arrived_step is not None and found.admitted_step is not None
        step = max(found.arrived_step, found.admitted_step - 1)  # the last step of its wait
        reason = re.match(r".*?\.(?=\s|$)", why(log, number, step), re.DOTALL)
        assert reason is not None
        return f"request {request} ({label}) waited {waited:,.0f} ms{where}. {reason[0]}"


def serve(mine: Mine, kind: Kind, seed: int) -> Served:
    """Serve a workload with an engine of these parts.

    Raises MineError if a part of the learner's fails.
    """
    has = mine.parts.keys()
    requests = [one for one in kind.arrivals(seed) if kind.needs.get(one.label, "") in {"", *has}]
    try:
        log = _simulated(mine, kind, Workload(list(requests)))
    except Broken as broken:
        raise MineError(f"{kind.name}, seed {seed}: {said(broken)}") from None
    except PartError as error:
        cause = error.__cause__
        why = said(cause) if isinstance(cause, Broken) else str(cause or error)
        raise MineError(f"{kind.name}, seed {seed}: {why}") from None
    except (ConfigError, RequestError) as error:
        raise MineError(f"{kind.name}, seed {seed}: {error}") from None
    times: dict[int, list[float]] = {}
    for row in read(log).token_rows:
        assert row.time_ms is not None
        times.setdefault(row.request, []).append(row.time_ms)
    if kind.streams and "Outbox" not in has:  # the whole answer comes at its end
        times = {request: [each[-1]] * len(each) for request, each in times.items()}
    return Served(kind, requests, log, times)


def _simulated(mine: Mine, kind: Kind, workload: Workload) -> EventLog | ClusterLog:
    config, runner = config_of(mine, kind), CostRunner(**asdict(kind.cost))
    runner.clock = SeenClock(runner.clock.cpu_us)
    parts = parts_of(mine, config, kind.ttft_ms)
    if kind.drafts and "accept" in mine.parts:
        parts["drafter"] = PromptLookup()
    if kind.replicas == 1:
        return simulate(workload, config, cost=runner, **parts)
    route, roles = mine.guarded("route"), None
    if hands_over(mine, kind):
        assert kind.link is not None
        roles = Roles(prefill=1, decode=kind.replicas - 1, transfer=kind.link)
    return simulate_cluster(
        workload,
        config,
        cost=runner,
        replicas=kind.replicas,
        router="round_robin" if route is None else YourRouter(route),
        roles=roles,
        **parts,
    )
