"""One chaos run: the plan that a seed draws, the run, and its report."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.checks import (
    Violation,
    check_answers,
    check_kv,
    check_log,
    check_sentences,
)
from benchmarks.chaos.cluster import GATEWAY, REPLICAS, ROLES, Cluster
from benchmarks.chaos.faults import FULL_GATEWAY_DISK, Fault, Struck, draw, inject
from benchmarks.chaos.rounding import Judge, known
from benchmarks.chaos.traffic import Answer, Outcome, Question, send
from engine import EventLog
from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog
from server.gateway.failures import Deadlines
from server.load.client import ask

# How long a client may see nothing: the longest deadline that a fault of seconds can reach, and some
# time because other processes want the cores, too.
LONGEST_SILENCE = Deadlines().queue + Deadlines().silent + 10.0
# Requests that arrive just before a fault, so that it strikes streams.
_BURST, _BURST_SECONDS = 10, 0.6


@dataclass(frozen=True)
class Plan:
    """What happens in a run. `times` are the arrivals, in seconds, of the questions `asked`."""

    seed: int
    roles: bool
    faults: list[Fault]
    times: list[float]
    asked: list[int]

    def __str__(self) -> str:
        roles = "prefill and decode apart" if self.roles else "all replicas alike"
        lines = [f"seed {self.seed}: {len(self.times)} requests, {roles}", *map(str, self.faults)]
        return "\n  ".join(lines)


@dataclass(frozen=True)
class Wanted:
    """The answers of a server without faults, and its log."""

    answers: Mapping[Question, Answer]
    log: EventLog
    judge: Judge = field(default_factory=Judge)

    def margins(self, outcomes: Sequence[Outcome]) -> dict[str, float]:
        """Return how near the other token was, for each complete answer that is another one."""
        requests = known(self.log)
        return {
            one.label: self.judge.of_texts(requests[one.question.label], one.answer.texts)
            for one in outcomes
            if one.kind == "complete" and one.answer and one.answer != self.answers[one.question]
        }


@dataclass(frozen=True)
class Row:
    """A line of the report; `longest_silence` is in seconds."""

    seed: int
    roles: bool
    faults: int
    requests: int
    completed: int
    continued: int
    retried: int
    refused: int
    errors: int
    cut: int
    different: int
    ejected: int
    longest_silence: float
    recomputed_tokens: int
    violations: int


@dataclass(frozen=True)
class FailedHop:
    """A request whose hop failed: how long the gateway had waited for it, and what its client saw."""

    hop: str
    noticed: str
    remedy: str
    waited_s: float
    client: str
    silence_s: float


def table(hops: Sequence[FailedHop]) -> list[dict[str, Any]]:
    """Return a row for each way in which a hop failed, with the longest times and the clients' ends."""
    groups: dict[tuple[str, str, str], list[FailedHop]] = {}
    for one in hops:
        groups.setdefault((one.hop, one.noticed, one.remedy), []).append(one)
    return [
        {
            "hop": hop,
            "noticed": noticed,
            "remedy": remedy,
            "requests": len(its),
            "longest_wait_s": max(one.waited_s for one in its),
            "longest_silence_s": max(one.silence_s for one in its),
            "clients": dict(Counter(one.client for one in its)),
        }
        for (hop, noticed, remedy), its in sorted(groups.items())
    ]


def plan(  # noqa: PLR0917
    seed: int,
    seconds: float,
    rate: float,
    faults: int,
    names: Sequence[str],
    pool: int,
) -> Plan:
    """Draw a run from its seed: `rate` requests per second, and a burst just before each fault."""
    dice = random.Random(seed)
    struck = draw(dice, faults, seconds, names, spared=dice.randrange(REPLICAS))
    times, at = list[float](), 0.0
    while (at := at + dice.expovariate(rate)) < seconds:
        times.append(at)
    for fault in struck:
        times += [max(0.0, fault.at - dice.uniform(0, _BURST_SECONDS)) for _ in range(_BURST)]
    return Plan(
        seed=seed,
        roles=seed % 2 == 1,
        faults=struck,
        times=sorted(times),
        asked=[dice.randrange(pool) for _ in times],
    )


async def run(
    cluster: Cluster,
    what: Plan,
    pool: Sequence[Question],
    wanted: Wanted,
    directory: Path,
) -> tuple[Row, list[FailedHop]]:
    """Run a plan on a cluster whose servers run, and leave them running.

    The cluster logs are written into `directory`, and what explains a violation.
    """
    print(what, flush=True)
    directory.mkdir()
    roles = ROLES if what.roles else ()
    await cluster.start_gateway(*roles, "--trace-file", str(directory / "cluster.jsonl"))
    try:
        began = time.perf_counter()
        asked = [pool[one] for one in what.asked]
        outcomes, struck = await asyncio.gather(
            send(cluster.url, what.times, asked, began), inject(cluster, what.faults, began)
        )
        problems = await _all_serve(cluster)
        left = await cluster.until_freed()
        output = cluster.output()
        files = list[bytes]()
        if any(one.name == FULL_GATEWAY_DISK for one in what.faults):
            files = [await cluster.trace()]
            problems += await _says_that_the_disk_is_full(cluster)
    finally:
        await cluster.stop_gateway()
    down = [(one.at, one.works) for one in struck if one.fault.target == GATEWAY]

    def excused(one: Outcome) -> bool:
        return any(one.began <= end and one.ended >= begin for begin, end in down)

    margins = wanted.margins(outcomes)
    for label, margin in margins.items():
        print(f"  {label} has another answer, where two tokens were {margin:g} apart")
    files = files or [path.read_bytes() for path in sorted(directory.glob("cluster*.jsonl"))]
    logs, wrong = check_log(files, [one for one in outcomes if not excused(one)])
    violations = [
        *check_answers(
            outcomes,
            wanted.answers,
            longest_silence=LONGEST_SILENCE,
            excused=excused,
            margins=margins,
        ),
        *wrong,
        *check_kv(left),
        *_not_healed(struck),
        *problems,
    ]
    for log in logs:
        violations += check_sentences(log, [one for one in outcomes if not excused(one)])
    if violations:
        _explain(directory, what, struck, outcomes, violations, logs, output)
    return _row(what, outcomes, logs, violations, len(margins)), _failed_hops(logs, outcomes)


async def _all_serve(cluster: Cluster) -> list[Violation]:
    try:
        await cluster.until_status("ok")
    except TimeoutError as error:
        return [Violation("does not work again", str(error))]
    return []


async def _says_that_the_disk_is_full(cluster: Cluster) -> list[Violation]:
    told = (await ask(cluster.url, "/ready")).json()
    if told["trace_error"]:
        return []
    return [Violation("a sentence is missing", "/ready does not say that the disk was full")]


def _not_healed(struck: Sequence[Struck]) -> list[Violation]:
    return [
        Violation("does not work again", f"{one.fault}: {one.error}") for one in struck if one.error
    ]


def _row(
    what: Plan,
    outcomes: Sequence[Outcome],
    logs: Sequence[ClusterLog],
    violations: Sequence[Violation],
    different: int,
) -> Row:
    events = [one for log in logs for one in log if not isinstance(one, c.Of)]
    routed = [one for one in events if isinstance(one, c.Routed)]
    again = [one for one in routed if one.attempt > 1]
    kinds = [one.kind for one in outcomes]
    return Row(
        seed=what.seed,
        roles=what.roles,
        faults=len(what.faults),
        requests=len(outcomes),
        completed=kinds.count("complete"),
        continued=len({one.request for one in again if one.output}),
        retried=len({one.request for one in again if not one.output}),
        refused=kinds.count("refused"),
        errors=kinds.count("error"),
        cut=kinds.count("cut"),
        different=different,
        ejected=sum(isinstance(one, c.ReplicaEjected) for one in events),
        longest_silence=round(max((one.silence for one in outcomes), default=0.0), 1),
        recomputed_tokens=sum(
            one.prompt + one.output - one.hits.get(one.replica, 0) for one in again
        ),
        violations=len(violations),
    )


def _failed_hops(logs: Sequence[ClusterLog], outcomes: Sequence[Outcome]) -> list[FailedHop]:
    by_label = {one.label: one for one in outcomes}
    found = list[FailedHop]()
    for log in logs:
        labels = {one.request: one.label for one in log if isinstance(one, c.Routed)}
        for one in log:
            if isinstance(one, c.HopFailed) and (its := by_label.get(labels.get(one.request, ""))):
                waited = round(one.t.get("us", 0) / 1e6, 2)
                seen = its.kind, round(its.silence, 2)
                found.append(FailedHop(one.hop, one.noticed, one.remedy, waited, *seen))
    return found


def _explain(  # noqa: PLR0917
    directory: Path,
    what: Plan,
    struck: Sequence[Struck],
    outcomes: Sequence[Outcome],
    violations: Sequence[Violation],
    logs: Sequence[ClusterLog],
    output: str,
) -> None:
    """Print the violations with their requests' stories, and write the rest into `directory`."""
    (directory / "output.txt").write_text(output)
    (directory / "plan.txt").write_text(f"{what}\n\n" + "\n".join(map(str, struck)))
    for one in struck:
        print(f"  {one.fault}: at {one.at:.1f} s, healed {one.healed:.1f}, works {one.works:.1f}")
    by_label = {one.label: one for one in outcomes}
    for violation in violations:
        print(f"VIOLATION {violation}"[:1000])
        if outcome := by_label.get(violation.label):
            (directory / f"{violation.label}.http").write_bytes(outcome.raw)
            lines = [
                _seen(outcome),
                *(line for log in logs for line in story(log, violation.label)),
            ]
            print("\n".join(f"    {line}" for line in lines))
    print(f"The logs are in {directory}", flush=True)


def _seen(one: Outcome) -> str:
    told: dict[str, Any] = asdict(one)
    for name in ("raw", "answer", "question"):
        del told[name]
    return f"{one.question.path} {one.question.content[-200:]}\n    {told}"


def story(log: ClusterLog, label: str) -> list[str]:
    """Return the lines of a cluster log about a request, without those of the replicas."""
    numbers = {one.request for one in log if isinstance(one, c.Routed) and one.label == label}
    return [
        str(one)[:300]
        for one in log
        if not isinstance(one, c.Of) and getattr(one, "request", None) in numbers
    ]
