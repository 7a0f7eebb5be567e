"""Check every sentence that the board says about a cluster log, and every seat it draws.

The board's own code makes the sentences, under Node.js. Here each of them is taken apart again, and
every number in it is recomputed from the events. A clause of an unknown form is an error, too, so that
none goes unchecked.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog, Part
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from visualizer.logs import StepIndex
from visualizer.reading.durations import duration
from visualizer.reading.rows.decisions import DecisionRow, decision_rows

SCRIPT = Path(__file__).parents[2] / "visualizer/frontend/test/cluster/rows.js"
_US_PER_MS = 1000
_CLOCK_ERROR = 5000  # us by which a replica's time may be off

_T, _N, _R = r"[\d.,]+ m?s", r"[\d,.]*\d", r"[\w-]+"
_LENGTH = r"(?P<prompt>\d+)(?: \+ (?P<output>\d+))? (?:prompt )?tokens"
_COSTS = (
    rf"(?:: (?P<score>{_N}),(?: and (?P<next>{_N})|(?P<equal> as)) at replica (?P<rival>{_R})"
    r"(?P<chance>, by chance)?)?"
)
_KNOWN = (
    r"(?:(?P<no_prefix>no replica is expected to have its prefix)"
    r"|(?P<no_tokens>its prompt's tokens are unknown))"
)
_CLAUSES = tuple(
    re.compile(clause)
    for clause in (
        rf" ?At (?P<sent>{_T}) the router sends .+?(?P<again> again)? to replica (?P<to>{_R})(?=[,:.])",
        rf", the only (?P<alone>one) it could choose(?:, where it expects to find (?P<hit>\d+) of its"
        rf" {_LENGTH})?\.",
        rf", because it expects to find (?P<hit>\d+) of its {_LENGTH} there\.",
        rf", because a request on its way there should compute (?P<hit>\d+) of its {_LENGTH}\.",
        rf": replica (?P<longer>{_R}) may have (?P<longest>\d+) of its {_LENGTH}, not (?P<hit>\d+),"
        rf" but costs more{_COSTS}\.",
        rf", because prefix and work together cost least there{_COSTS}\.",
        rf", because (?:{_KNOWN} and )?it costs least there{_COSTS}\.",
        rf", because (?:{_KNOWN} and )?it has the fewest requests, (?P<fewest>\d+)\.",
        rf", because (?:{_KNOWN} and )?no replica has fewer requests than (?P<as_few>\d+)\.",
        rf", because it has the fewer requests of two that were drawn, (?P<load>\d+);"
        rf" replica (?P<drawn>{_R}) has (?P<more>\d+)\.",
        r", the first of two that were drawn, with (?P<load>\d+) requests? each\.",
        r", because no cached prefix is long enough and it has the most room for a new one\.",
        r", because the loads differ so much that prefixes do not count\.",
        r", at random\.|, because it is next in turn\.|, because its session belongs there\.",
        r" It finds (?P<all>all) of them\.",
        r" It finds (?P<found>\d+) of its tokens in the cache\.",
        r" It finds (?P<found>\d+), more than predicted\.",
        r" It finds (?:only (?P<found>\d+)|(?P<nothing>none))(?:\.|: replica (?P<to>{R}) evicted that"
        r" prefix (?P<evicted>{T}) (?P<when>earlier|later)\.)".replace("{R}", _R).replace(
            "{T}", _T
        ),
        rf" (?!At \d).+? waits (?P<wait>{_T}) (?P<cause>for a seat|for free blocks|for the token budget"
        r"|in the queue)(?:; seats: (?P<free>[^.]+))?\.",
        rf" (?!At \d).+? is admitted (?P<admitted>{_T}) later, by the first step after its arrival\.",
        r" It has (?P<waiting>not) been admitted yet\.",
        rf" ?At (?P<failed>{_T}) (?:replica (?P<where>{_R})|no replica) (?P<verb>[a-z ]+?)"
        rf"(?: of (?P<after>{_T}))?; .+?"
        r" (?:had (?P<had>\d+) tokens?|waited for (?P<hop>[a-zA-Z ]+))\.",
        rf" Replica (?P<to>{_R}) has (?P<found>\d+) of the {_LENGTH} in its cache and computes"
        rf" (?P<computed>\d+) again(?:; the next token comes (?P<pause>{_T}) after the last one)?\.",
        rf" Replica (?P<to>{_R}) (?P<whole>computes) the {_LENGTH} again"
        rf"(?:; the next token comes (?P<pause>{_T}) after the last one)?\.",
        rf" It goes on after (?P<output>\d+) tokens?"
        rf"(?:; the next token comes (?P<pause>{_T}) after the last one)?\.",
        rf" (?P<blocks>\d+) blocks? come from replica (?P<source>{_R})(?:, and it finds (?P<found>\d+)"
        r" tokens)?\.",
        rf" Its first (?P<moved>\d+) tokens, (?P<blocks>\d+) blocks?, move to replica (?P<target>{_R})"
        rf"(?: in {_T})?\.",
        r" Its client got an (?P<lost>error)\.",
    )
)
_CAUSES = {
    "for a seat": "batch_full",
    "for free blocks": "no_free_blocks",
    "for the token budget": "token_budget",
}


class Problem(NamedTuple):
    """A sentence that the log contradicts, or that this module does not know."""

    sentence: str
    what: str

    def __str__(self) -> str:
        return f"{self.what} in: {self.sentence}"


def told(logs: Mapping[str, ClusterLog], node: str = "node") -> dict[str, Any]:
    """Return what the board says about each log."""
    with tempfile.TemporaryDirectory() as folder:
        for name, log in logs.items():
            log.save(Path(folder) / f"{name}.jsonl")
        done = subprocess.run([node, str(SCRIPT), folder], capture_output=True, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def check_told(log: ClusterLog, said: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong in what the board says about a log."""
    cluster = _Cluster(log)
    for decision, sentence in zip(cluster.decisions, said["sentences"], strict=True):
        yield from decision.problems(sentence)
    for at, replicas in said["moments"]:
        for replica, words in replicas.items():
            expected = cluster.seats(replica, at)
            if expected != {name: words[name] for name in expected}:
                yield Problem(f"replica {replica} at {at} us: {words}", f"not {expected}")


def _ms(us: float) -> str:
    return duration(us / _US_PER_MS)


def _number(value: float) -> str:
    return f"{float(f'{value:.4g}'):,.3f}".rstrip("0").rstrip(".")


class _Steps:
    """The steps of a part of a replica's log, in cluster time."""

    def __init__(self, part: Part) -> None:
        self.log, offset = part.log, part.run.offset
        self.settings: dict[str, Any] = {}
        self.times: dict[int, tuple[int, int]] = {}
        self.taken: dict[int, tuple[int, int]] = {}  # while the step runs, and after it
        self.waiting: dict[int, int] = {}
        self.blocked: dict[int, str] = {}
        self.admitted: dict[int, int] = {}  # request -> step
        self.tokens: dict[int, list[int]] = {}  # request -> the time of each token
        self.arrived: dict[int, int] = {}  # request -> the place of its arrival among the events
        self.scheduled: list[tuple[int, int]] = []  # the place of each scheduling, and its step
        self.evictions: list[int] = []
        ends = {end: step for step, end in StepIndex(self.log).ends.items()}
        state, step, seated = State(), 0, 0
        samples = dict[int, int]()  # request -> the seats that it takes; others take one
        for place, event in enumerate(self.log, 1):
            state.apply(event)
            match event:
                case v.StepStarted():
                    step = event.step
                case v.Admitted() if not event.resumed:
                    self.admitted.setdefault(event.request, step)
                case v.RequestArrived():
                    self.arrived[event.request] = place
                    samples[event.request] = event.n
                case v.Forked():
                    samples[event.parent] -= 1
                case v.StepScheduled():
                    seated = sum(samples.get(one, 1) for one in state.running)
                    self.scheduled.append((place, step))
                    if event.blocked:
                        self.blocked[step] = event.blocked.reason
                case v.BlockEvicted() | v.RadixEvicted():
                    self.evictions.append(step)
                case v.StepFinished() if "end" in event.t:
                    span = event.t["start"] + offset, event.t["end"] + offset
                    self.times[event.step] = span
                    for gain in event.tokens:
                        self.tokens.setdefault(gain.request, []).extend([span[1]] * len(gain.texts))
            if place in ends:
                self.taken[ends[place]] = seated, len(state.running)
                self.waiting[ends[place]] = len(state.waiting)
        for step in ends.values() - self.times.keys():  # not finished, or only about to begin
            self.times[step] = (max((end for _, end in self.times.values()), default=0),) * 2
        self.settings, self.open = state.settings, set(state.requests)

    def at(self, at: int) -> int | None:
        """The last step that had begun."""
        return max((one for one, (begin, _) in self.times.items() if begin <= at), default=None)


class _Cluster:
    def __init__(self, log: ClusterLog) -> None:
        self.events: list[Any] = [event for event in log if not isinstance(event, c.Of)]
        self.parts: dict[
            str, list[tuple[int, int, _Steps]]
        ] = {}  # when it began, its run, its steps
        for part in log.parts:
            self.parts.setdefault(part.run.replica, []).append(self._part(part))
        routed = [event for event in self.events if isinstance(event, c.Routed)]
        rows = decision_rows(log)
        self.decisions = [_Decision(self, *both) for both in zip(routed, rows, strict=True)]

    def _part(self, part: Part) -> tuple[int, int, _Steps]:
        begun = self.parts.get(part.run.replica, [])
        steps = _Steps(part)
        first = min((begin for begin, _ in steps.times.values()), default=0)
        is_first = not any(run == part.run.number for _, run, _ in begun)
        joined = part.run.joined[0 if is_first else -1].t["at"] if part.run.joined else first
        return joined, part.run.number, steps

    def is_there(self, replica: str, at: int) -> tuple[bool, bool]:
        """Whether a replica is present at a time, and whether it is ejected."""
        there = ejected = False
        for event in self.events:
            if getattr(event, "replica", None) != replica or event.t["at"] > at:
                continue
            match event:
                case c.ReplicaJoined():
                    there = True
                case c.ReplicaLeft():
                    there = ejected = False
                case c.ReplicaEjected():
                    ejected = True
                case c.ReplicaReturned(half_open=False):
                    ejected = False
        return there, ejected

    def has_engine(self, replica: str, at: int, steps: _Steps) -> bool:
        """Whether no error has told the end of an engine, whose log lacks the request's end."""
        placed = dict[int, int]()
        for event in self.events:
            if getattr(event, "replica", None) != replica or event.t["at"] > at:
                continue
            if isinstance(event, c.Placed):
                placed[event.request] = event.its_request
            if isinstance(event, c.HopFailed) and event.noticed == "error":
                last = max((end for _, end in steps.times.values()), default=0)
                if placed.get(event.request) in steps.open and last < event.t["at"] + _CLOCK_ERROR:
                    return False
        return True

    def seats(self, replica: str, at: int) -> dict[str, int]:
        """The seats that the board may offer at a time, and the queue that it may show."""
        there, ejected = self.is_there(replica, at)
        begun = [steps for began, _, steps in self.parts.get(replica, []) if began <= at]
        if not there or not begun:
            return {"all": 0, "taken": 0, "queue": 0}
        steps, step = begun[-1], begun[-1].at(at)
        queue = 0 if step is None else steps.waiting[step]
        if not self.has_engine(replica, at, steps):
            return {"all": 0, "taken": 0, "queue": 0}
        if ejected:
            return {"all": 0, "taken": 0, "queue": queue}
        seats = steps.settings["max_batch_size"]
        taken = 0 if step is None else steps.taken[step][at >= steps.times[step][1]]
        return {"all": seats, "taken": taken, "queue": queue}


class _Decision:
    def __init__(self, cluster: _Cluster, routed: c.Routed, row: DecisionRow) -> None:
        self._cluster, self._event, self._row = cluster, routed, row
        self._at = routed.t["at"]

    def problems(self, sentence: str) -> Iterator[Problem]:
        """Yield what is wrong in the decision's sentence."""
        place, claimed = 0, set[str]()
        while place < len(sentence):
            found = next((one for form in _CLAUSES if (one := form.match(sentence, place))), None)
            if found is None:
                yield Problem(sentence, f"unknown words {sentence[place:]!r}")
                return
            claims = {name: said for name, said in found.groupdict().items() if said is not None}
            for name, said in claims.items():
                try:
                    is_true = bool(getattr(self, f"_{name}")(said, claims))
                except (LookupError, StopIteration, ValueError, TypeError) as error:
                    yield Problem(sentence, f"{name} {said!r} cannot be checked: {error!r}")
                    continue
                if not is_true:
                    yield Problem(sentence, f"{name} {said!r} is wrong")
            claimed |= claims.keys()
            place = found.end()
        for name, is_due in self._due.items():
            if is_due != (name in claimed):
                yield Problem(sentence, f"{name} is {'not' if is_due else 'wrongly'} told")

    # What the log says, by the name of a claim

    @cached_property
    def _steps(self) -> _Steps:
        replica, run = self._event.replica, self._row.its_run
        parts = [steps for _, number, steps in self._cluster.parts[replica] if number == run]
        its = self._row.its_request
        return next((steps for steps in parts if its in steps.admitted), parts[-1])

    @property
    def _admission(self) -> int:
        return self._steps.admitted[self._row.its_request or 0]

    @property
    def _due(self) -> dict[str, bool]:
        """What the sentence must tell, and must not tell otherwise."""
        return {
            "again": self._event.attempt > 1,
            "lost": self._row.lost,
            "alone": len(self._event.loads) == 1 and self._event.reason != "pinned",
            "computed": self._event.output > 0 and bool(self._row.cached_tokens),
        }

    def _others(self, of: Mapping[str, float]) -> dict[str, float]:
        """What the other replicas have that could be chosen."""
        ids = self._event.loads or self._event.hits
        return {one: of[one] for one in ids if one in of and one != self._event.replica}

    def _sent(self, said: str, _: object) -> bool:
        return said == _ms(self._at)

    def _again(self, _said: str, _: object) -> bool:
        return True  # `_due` checks it, and the loss of a request

    _lost = _where = _when = _again

    def _alone(self, _said: str, _: object) -> bool:
        return list(self._event.loads) == [self._event.replica]

    def _to(self, said: str, _: object) -> bool:
        return said == self._event.replica

    def _hit(self, said: str, _: object) -> bool:
        return int(said) == self._event.hits.get(self._event.replica, 0)

    def _prompt(self, said: str, _: object) -> bool:
        return int(said) == self._event.prompt

    def _output(self, said: str, _: object) -> bool:
        return int(said) == self._event.output

    def _longer(self, said: str, claims: Mapping[str, str]) -> bool:
        return self._others(self._event.hits)[said] == int(claims["longest"])

    def _longest(self, said: str, _: object) -> bool:
        return int(said) == max(self._others(self._event.hits).values()) > self._hits_here

    @property
    def _hits_here(self) -> int:
        return self._event.hits.get(self._event.replica, 0)

    def _score(self, said: str, _: object) -> bool:
        own = self._event.scores[self._event.replica]
        return said == _number(own) and own <= min(self._event.scores.values())

    def _next(self, said: str, claims: Mapping[str, str]) -> bool:
        others = self._others(self._event.scores)
        is_next = others[claims["rival"]] == min(others.values())
        return is_next and said == _number(others[claims["rival"]])

    def _equal(self, _said: str, claims: Mapping[str, str]) -> bool:
        scores = self._event.scores
        return scores[claims["rival"]] == scores[self._event.replica]

    def _rival(self, said: str, _: object) -> bool:
        return said in self._others(self._event.scores)

    def _chance(self, _said: str, _: object) -> bool:
        own = self._event.ties[self._event.replica]
        best = [one for one in self._event.ties.values() if list(one)[:-1] == list(own)[:-1]]
        return "draw" in own and len(best) > 1

    def _no_prefix(self, _said: str, _: object) -> bool:
        return bool(self._event.hits) and not any(self._others(self._event.hits).values())

    def _no_tokens(self, _said: str, _: object) -> bool:
        return not self._event.prompt

    def _load(self, said: str, _: object) -> bool:
        return int(said) == self._event.loads[self._event.replica]

    def _fewest(self, said: str, claims: Mapping[str, str]) -> bool:
        others = self._others(self._event.loads).values()
        return self._load(said, claims) and all(one > int(said) for one in others)

    def _as_few(self, said: str, claims: Mapping[str, str]) -> bool:
        return self._load(said, claims) and int(said) == min(self._event.loads.values())

    def _drawn(self, said: str, claims: Mapping[str, str]) -> bool:
        loads = self._event.loads
        return said in self._event.scores and loads[said] == int(claims["more"])

    def _more(self, said: str, claims: Mapping[str, str]) -> bool:
        return int(said) > int(claims["load"])

    def _all(self, _said: str, _: object) -> bool:
        return self._row.cached_tokens == self._hits_here > 0

    def _found(self, said: str, _: object) -> bool:
        return int(said) == self._row.cached_tokens

    def _nothing(self, _said: str, _: object) -> bool:
        return self._row.cached_tokens == 0 < self._hits_here

    def _evicted(self, said: str, claims: Mapping[str, str]) -> bool:
        sign = -1 if claims["when"] == "earlier" else 1
        begins = {self._steps.times[step][0] for step in self._steps.evictions}
        return said in {_ms(sign * (begin - self._at)) for begin in begins}

    def _wait(self, said: str, _: object) -> bool:
        return said == _ms(self._steps.times[self._admission][0] - self._at)

    def _admitted(self, said: str, _: object) -> bool:
        return self._wait(said, {}) and not self._was_seen

    @property
    def _was_seen(self) -> bool:
        """Whether a step before its admission could have admitted it."""
        arrived = self._steps.arrived[self._row.its_request or 0]
        first = next(step for place, step in self._steps.scheduled if place > arrived)
        return first < self._admission

    def _cause(self, said: str, _: object) -> bool:
        reason = self._steps.blocked.get(self._admission - 1, "")
        return self._was_seen and (_CAUSES.get(said, "") == reason or said == "in the queue")

    def _free(self, said: str, _: object) -> bool:
        claims = re.findall(r"(\d+) free on replica ([\w-]+)", said)
        seats = {replica: self._cluster.seats(replica, self._at) for _, replica in claims}
        could = self._event.loads or seats
        return all(
            one in could and int(free) == seats[one]["all"] - seats[one]["taken"]
            for free, one in claims
        )

    def _waiting(self, _said: str, _: object) -> bool:
        return self._row.its_request not in self._steps.admitted and not self._row.lost

    def _failure(self, claims: Mapping[str, str]) -> c.HopFailed:
        """Return the failure that a sentence tells; two at the same time may differ in their hop."""
        found = [
            event
            for event in self._cluster.events
            if isinstance(event, c.HopFailed)
            and event.request == self._event.request
            and _ms(event.t["at"]) == claims["failed"]
            and event.replica == claims.get("where", "")
        ]
        told = (event for event in found if _HOPS[event.hop] == claims.get("hop"))
        return next(told, found[0])

    def _failed(self, _said: str, claims: Mapping[str, str]) -> bool:
        return self._failure(claims) is not None

    def _verb(self, said: str, claims: Mapping[str, str]) -> bool:
        failure = self._failure(claims)
        if not failure.replica:
            return said == "accepted requests"
        if failure.hop == "stream" and failure.noticed == "error":
            return said == "broke off with an error"
        return said == _VERBS[failure.noticed]

    def _after(self, said: str, claims: Mapping[str, str]) -> bool:
        return said == _ms(int(self._failure(claims).t["us"]))

    def _had(self, said: str, claims: Mapping[str, str]) -> bool:
        at = int(self._failure(claims).t["at"])
        if at <= self._at:
            return int(said) == self._event.output
        tokens = self._steps.tokens[self._row.its_request or 0]
        return int(said) == self._event.output + sum(one <= at for one in tokens)

    def _hop(self, said: str, claims: Mapping[str, str]) -> bool:
        return said == _HOPS[self._failure(claims).hop]

    def _computed(self, said: str, _: object) -> bool:
        length = self._event.prompt + self._event.output
        return int(said) == length - (self._row.cached_tokens or 0)

    def _whole(self, _said: str, _: object) -> bool:
        return self._row.cached_tokens == 0

    def _pause(self, said: str, _: object) -> bool:
        before = [
            one
            for one in self._cluster.decisions
            if one._event.request == self._event.request
            and one._at < self._at
            and one._row.its_request
        ][-1]
        tokens = before._steps.tokens.get(before._row.its_request or 0, [])
        last = tokens[self._event.output - before._event.output - 1]
        return said == _ms(self._steps.tokens[self._row.its_request or 0][0] - last)

    def _moves(self, source: str = "", target: str = "") -> list[c.Moved]:
        return [
            one
            for one in self._cluster.events
            if isinstance(one, c.Moved)
            and one.request == self._event.request
            and source in ("", one.source)
            and target in ("", one.target)
        ]

    def _blocks(self, said: str, claims: Mapping[str, str]) -> bool:
        moves = self._moves(claims.get("source", ""), claims.get("target", ""))
        return int(said) in {one.blocks for one in moves}

    def _source(self, said: str, _: object) -> bool:
        return bool(self._moves(said, self._event.replica))

    def _moved(self, said: str, claims: Mapping[str, str]) -> bool:
        return int(said) in {one.tokens for one in self._moves("", claims["target"])}

    def _target(self, said: str, _: object) -> bool:
        return bool(self._moves(self._event.replica, said))


_VERBS = {
    "unreachable": "could not be reached",
    "closed": "broke the connection",
    "refused": "accepted no requests",
    "error": "answered with an error",
    "silent": "fell silent",
    "late": "missed a deadline",
}
_HOPS = {
    "render": "the ids of its prompt",
    "queue": "a place in a queue",
    "prefill": "its prompt computed",
    "export": "its KV",
    "adopt": "its KV taken over",
    "first_token": "its first token",
    "stream": "its next token",
}
