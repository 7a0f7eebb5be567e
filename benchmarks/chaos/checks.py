"""What must be true after a chaos run, whatever has failed in it.

answers   each request is answered like without faults, once, or refused with a time to come back
log       it is complete, can be folded, and says that each request was answered at most once
kv        when all is quiet, no replica holds KV or has requests
faults    what has failed works again
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.chaos.rounding import ROUNDING
from benchmarks.chaos.sentences import check_told, told
from benchmarks.chaos.traffic import Answer, Outcome, Question
from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog, ClusterState
from engine.core.log import vocabulary as v
from engine.core.log.log import LogError
from visualizer import read

NODE = Path(sys.executable).with_name("node")


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise. `label` names the request, "" if it is not about one."""

    what: str
    detail: str
    label: str = ""

    def __str__(self) -> str:
        return f"{self.what}{f' ({self.label})' if self.label else ''}: {self.detail}"


def check_answers(
    outcomes: Sequence[Outcome],
    expected: Mapping[Question, Answer],
    *,
    longest_silence: float,
    excused: Callable[[Outcome], bool] = lambda _outcome: False,
    margins: Mapping[str, float] = MappingProxyType({}),
) -> list[Violation]:
    """Return what is wrong with what the clients saw.

    excused  whether the gateway itself was down while the client waited: only this may cut it off
    margins  how near answers were to the expected ones; see `rounding.py`
    """
    found = list[Violation]()
    for one in outcomes:
        if one.ends > 1:
            found.append(Violation("answered twice", f"{one.ends} ends: {one.error}", one.label))
        if one.kind == "hung":
            found.append(
                Violation("hangs", f"no end within {one.ended - one.began:.0f} s", one.label)
            )
        elif one.kind == "cut":
            if not excused(one):
                found.append(Violation("cut off", one.error or "the stream has no end", one.label))
        elif one.kind == "error":
            after = f" after {one.pieces} pieces" if one.pieces else " without output"
            found.append(Violation("failed", f"{one.status} {one.error}{after}", one.label))
        elif one.kind == "refused":
            if one.status == 503 and not excused(one):
                found.append(
                    Violation("refused", f"503 {one.error} beside a ready replica", one.label)
                )
        elif one.answer != expected[one.question]:
            margin = margins.get(one.label, math.inf)
            if margin > ROUNDING:
                detail = f"{one.answer} instead of {expected[one.question]}, margin {margin:g}"
                found.append(Violation("another answer", detail, one.label))
        if one.silence > longest_silence:
            detail = f"{one.silence:.1f} s, at most {longest_silence:g} are allowed"
            found.append(Violation("too long a silence", detail, one.label))
    return found


def check_log(
    files: Sequence[bytes], outcomes: Sequence[Outcome]
) -> tuple[list[ClusterLog], list[Violation]]:
    """Return the cluster logs, and what is wrong with them.

    files     one for each run of the gateway
    outcomes  those of requests that the logs must have
    """
    logs, found = list[ClusterLog](), list[Violation]()
    for data in files:
        try:
            log = ClusterLog.from_bytes(data)
            state = ClusterState()
            for event in log:
                state.add(event)
            for part in log.parts:
                part.log.state()
        except (LogError, LookupError, ValueError, TypeError, AssertionError) as error:
            found.append(Violation("the log cannot be folded", f"{type(error).__name__}: {error}"))
            continue
        logs.append(log)
        found += [*_finished_twice(log), *_attempts(log)]
    if not found:
        found += _missing(logs, outcomes)
    return logs, found


def check_sentences(log: ClusterLog, outcomes: Sequence[Outcome]) -> list[Violation]:
    """Return what `why`, the rows, the tour and the board say of a log that is not so."""
    reading, found = read(log), list[Violation]()
    routed: dict[str, list[c.Routed]] = {}
    for event in log:
        if isinstance(event, c.Routed):
            routed.setdefault(event.label, []).append(event)
    delivered = Counter(row.label for row in reading.token_rows)
    gaps = {part.run.replica for part in log.parts if len(part.run.parts) > 1}
    for one in outcomes:
        its = routed.get(one.label, [])
        why = reading.why(one.label) if its else ""
        for event in its:
            if f"replica {event.replica}" not in why:
                detail = f"`why` does not name replica {event.replica}"
                found.append(Violation("a sentence is missing", detail, one.label))
        is_known = its and not gaps & {event.replica for event in its}
        if one.kind == "complete" and one.question.api == "teaching" and is_known:
            whole = one.question.body["max_tokens"]
            if delivered[one.label] != whole:
                detail = f"{delivered[one.label]} tokens of {whole} are told to be delivered"
                found.append(Violation("a number is wrong", detail, one.label))
    if len(reading.decision_rows) != sum(map(len, routed.values())):
        found.append(Violation("a number is wrong", "there are as many decisions as `routed`"))
    if not str(reading.tour):
        found.append(Violation("a sentence is missing", "the tour is empty"))
    problems = check_told(log, told({"log": log}, str(NODE))["log"])
    found += [Violation("a sentence is not true", str(one)) for one in problems]
    return found


def check_kv(left: Mapping[str, Any]) -> list[Violation]:
    """`left` is what the replicas still held, or None for one that did not answer."""
    return [
        Violation("KV or requests are left", f"replica {id_}: {health}")
        for id_, health in left.items()
    ]


def _missing(logs: Sequence[ClusterLog], outcomes: Sequence[Outcome]) -> list[Violation]:
    """Return the requests that were answered but are not in the logs."""
    placed = set[tuple[int, int]]()  # the gateway's run and the request
    routed: dict[str, set[tuple[int, int]]] = {}
    for run, log in enumerate(logs):
        for event in log:
            if isinstance(event, c.Routed):
                routed.setdefault(event.label, set()).add((run, event.request))
            elif isinstance(event, c.Placed):
                placed.add((run, event.request))
    found = list[Violation]()
    for one in outcomes:
        if one.kind != "complete":
            continue
        numbers = routed.get(one.label, set())
        if len(numbers) != 1:
            detail = f"{len(numbers)} requests of the log have its label"
            found.append(Violation("the log is not complete", detail, one.label))
        elif not numbers <= placed:
            detail = "it was answered, but no `placed` says where"
            found.append(Violation("the log is not complete", detail, one.label))
    return found


def _finished_twice(log: ClusterLog) -> list[Violation]:
    """Return the requests that two replicas have finished, although no hop failed in between.

    A prefill replica finishes its part, too: a request for one token, whose KV then moves.
    """
    where: dict[tuple[str, int], int] = {}  # replica and number there -> request
    failed, roles = set[tuple[int, str]](), dict[str, str]()
    labels, finished = dict[int, str](), dict[int, set[str]]()
    for event in log:
        match event:
            case c.ReplicaJoined():
                roles[event.replica] = event.role
                for key in [key for key in where if key[0] == event.replica]:
                    del where[key]  # a new run counts from 1
            case c.Routed():
                labels[event.request] = event.label
            case c.Placed():
                where[event.replica, event.its_request] = event.request
            case c.HopFailed():
                failed.add((event.request, event.replica))
            case c.Of(event=v.RequestFinished() as end) if end.reason in ("stop", "length"):
                request = where.get((event.replica, end.request))
                if request is not None and roles.get(event.replica) != "prefill":
                    finished.setdefault(request, set()).add(event.replica)
    return [
        Violation(
            "finished twice", f"by replicas {', '.join(sorted(ends))}", labels.get(request, "")
        )
        for request, ends in finished.items()
        if len({one for one in ends if (request, one) not in failed}) > 1
    ]


def _attempts(log: ClusterLog) -> list[Violation]:
    """Return the requests that were routed again without a reason in the log."""
    failed, left = set[int](), set[str]()
    last: dict[int, c.Routed] = {}
    found = list[Violation]()
    for event in log:
        match event:
            case c.HopFailed():
                failed.add(event.request)
            case c.ReplicaLeft():
                left.add(event.replica)
            case c.Routed() if event.attempt > 1:
                before = last.get(event.request)
                if event.request not in failed and (before is None or before.replica not in left):
                    detail = f"attempt {event.attempt} at replica {event.replica}"
                    found.append(Violation("routed again without a reason", detail, event.label))
        if isinstance(event, c.Routed):
            last[event.request] = event
    return found
