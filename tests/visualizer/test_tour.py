"""Tours: every number, name and claim of every sentence against a plain fold of the log."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from engine import ClusterLog, EventLog
from engine.cluster import events as c
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.simulation.facts import Fact
from engine.simulation.what_if import what_if
from tests.engine.test_regimes import folded
from tests.engine.test_waterfall import VLLM, recorded
from tests.engine.workloads import named, windowed
from tests.parity.recorded_steps import read_recording
from tests.visualizer import clusters
from tests.visualizer.foreign import foreign
from visualizer import read
from visualizer.comparing.compared_runs import ComparedRuns
from visualizer.reading.busy_time import busy_us
from visualizer.reading.tour import Scene
from visualizer.reading.tour.claims import Claim
from visualizer.reading.tour.material import WAITS
from visualizer.reading.waterfall.words import in_words
from visualizer.scenario import gallery

# By kind of scene, the claim of which no other place of the log has more.
MOST = {"preemption": "tokens again", "eviction": "evicted blocks", "hit": "found tokens"}
MOST |= {"drafts": "accepted", "largest": "tokens", "wait": "wait", "paused": "paused"}
SAID = "no other block is evicted|that is the whole budget|and no other request takes longer"
SAID += "|it has not resumed when the log ends|all|it|no request waits"
Facts = dict[str, Any]  # by what a claim says


class Fold:
    """What a log says, folded once more: at each place, the value of each claim that is true there."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.steps, self.state = log, folded(log), State()
        self.rows = {row.request: row for row in read(log).request_rows}
        self.places: dict[tuple[str, Any, Any], Facts] = defaultdict(dict)  # kind, request, step
        self.starts: dict[int, int] = {}
        self.ran: list[tuple[int, int]] = []  # when steps did, each instant once
        self.waits: dict[int, list[str]] = defaultdict(list)  # the head's reason in each step
        self.lost: dict[int, Facts] = {}  # the last preemption of each request
        self.held = 0
        for event in log:
            self._before(event)
            self.state.apply(event)
            self._after(event)
        self._whole()
        self._requests()

    def add(self, kind: str, request: Any, at: Any, **facts: Any) -> Facts:
        place = self.places[kind, request, at]
        place |= {name.replace("_", " "): value for name, value in facts.items()}
        return place

    def _before(self, event: Any) -> None:
        state, step = self.state, self.state.step
        match event:
            case v.Preempted(request=one, needed_by=by):
                rows = [row for rows in state.plans.values() for row in rows if row.request == one]
                ends = [row.start + row.count - len(row.drafts) for row in rows]
                had = max([state.requests[one].num_computed_tokens, *ends])
                self.lost[one] = self.add("preemption", one, step, victim=one, preempted=step)
                self.add("preemption", one, step, needed_by=by, free_blocks=len(state.free))
                self.add("preemption", one, step, computed_tokens=had, tokens_again=0)
            case v.RadixEvicted(reason="room") | v.BlockEvicted(reason="room"):
                by, blocks = event.needed_by, len(state.evicted_blocks(event))
                facts = self.add("eviction", by, step, evicted=step, evicted_for=by)
                facts.setdefault("free blocks", len(state.free))
                facts["evicted blocks"] = facts.get("evicted blocks", 0) + blocks
            case v.BlockCopied(source=source, request=one):
                users = sum(source in other.block_table for other in state.requests.values())
                if not self.places["copy", one, step]:
                    self.add("copy", one, step, writer=one, copied=step, sharers=users)
                    self.add("copy", one, step, source=source, copy=event.block)
            case v.StepFinished(step=number):
                self.starts[number] = start = event.t.get("start", 0)
                self.ran.append(
                    (max([start, *(end for _, end in self.ran)]), event.t.get("end", 0))
                )
                plan = {row.request: len(row.drafts) for row in state.plans.get(number, [])}
                for gain in event.tokens:
                    one, gained, drafts = gain.request, len(gain.ids), plan.get(gain.request)
                    if drafts:
                        self.add("drafts", one, number, drafted=one, gained=gained, drafts=drafts)
                        self.add("drafts", one, number, drafts_in=number, accepted=gain.accepted)
                if event.draft_error:
                    self.add("draft", "draft", number, fault=number, message=event.draft_error)
            case v.RequestFinished(request=one, reason=why):
                ended = self.places[why, why, step].get("ended", 0) + 1
                facts = self.add(why, why, step, fault=step, ended=ended, more_ended=ended - 1)
                facts["message"] = facts.get("message") or event.message
                if ended == 1:
                    self.add(why, why, step, ended_first=one, output=self.rows[one].output_tokens)
            case v.EventsMissing(count=count):
                before = self.places["missing", "missing", step].get("missing", 0)
                self.add("missing", "missing", step, fault=step, missing=before + count)

    def _after(self, event: v.Event) -> None:
        state, step = self.state, self.state.step
        match event:
            case v.Keyframe():
                for number, plan in state.plans.items():
                    live = sum(row.request in state.requests for row in plan)
                    self.add("queue", None, number, rows=live)
            case v.Admitted(request=one, blocks=blocks, resumed=resumed):
                found = len(blocks) * state.block_size
                if resumed and (lost := self.lost.get(one)):
                    lost |= {"found tokens": found, "steps away": step - lost["preempted"]}
                elif not resumed:
                    prompt = state.requests[one].prompt_length
                    tables = {r: {*state.requests[r].block_table} for r in state.running}
                    users = [r for r, table in tables.items() if r != one and table & {*blocks}]
                    self.add("hit", one, step, hit=one, admitted=step, found_tokens=found)
                    self.add("hit", one, step, prompt=prompt, prompt_left=prompt - found)
                    moved, source = state.adopted_prefix(event.node)
                    self.add("hit", one, step, adopted=moved, source=source)
                    self.add("hit", one, step, sharer=[*users, -1][0], more_sharers=len(users) - 1)
            case v.StepScheduled(blocked=head, rows=rows):
                for one in state.waiting:
                    if not state.requests[one].preemptions:
                        self.waits[one].append(head.reason if head else "")
                for row in rows:
                    if "steps away" in (lost := self.lost.get(row.request, {})):
                        end = min(row.start + row.count - len(row.drafts), lost["computed tokens"])
                        lost["tokens again"] += max(0, end - row.start)
                facts = self.add("queue", None, step, rows=len(rows), scheduled=True)
                if head is not None:
                    facts |= {"head": head.request, "reason": head.reason, "need": head.need}
                    facts["have"] = max(0, head.have)
            case v.EnginePaused() | v.EngineResumed():
                at = event.t.get("at", 0)
                if isinstance(event, v.EngineResumed):
                    self.add("paused", "paused", step, fault=step, paused=at - self.held)
                self.held = at

    def all(self, kind: str) -> list[Facts]:
        return [facts for (one, *_), facts in self.places.items() if one == kind]

    def _whole(self) -> None:
        """Add what is known of each step, and of the run as a whole."""
        seats, waited, state = self.state.settings["max_batch_size"], Counter[str](), self.state
        for number, step in self.steps.items():
            tokens, waiting, busy = step["tokens"], step["waits"].total(), step["busy"]
            here = self.add("queue", None, number, tokens=tokens, waiting=waiting, step=number)
            self.add("queue", None, number, seats=seats, empty_seats=seats - step["seats"])
            rows, prompt = here.get("rows"), step["prompt"]
            self.add("largest", None, number, tokens=tokens, rows=rows, busy=busy, budget=tokens)
            self.add("largest", None, number, largest_step=number, prompt_tokens=prompt)
            waited.update({cause: n * busy for cause, n in step["waits"].items()})
            if "scheduled" not in here:
                self.add("failed", "failed", number, fault=number)
        groups = {words: sum(waited[one] for one in causes) for words, causes in WAITS.items()}
        whole, roots = waited.total(), sum(row.root == row.request for row in self.rows.values())
        if isinstance(self.log[0], v.Keyframe):  # its samples are told as requests
            roots += sum(one.root != one.id for one in self.log[0].state.requests)
        before, most = getattr(self.log[0], "state", State()).step, max(groups.values())
        facts = self.add("run", None, None, requests=roots, steps=len(self.steps))
        facts |= {"busy time": sum(step["busy"] for step in self.steps.values())}
        facts |= {"last step before the log": before, "waiting time": whole}
        facts |= {"waits for": max(groups, key=lambda one: groups[one])}
        facts["waiting share"] = most / max(1, whole)
        sums = [sum(f[one] for f in self.all("drafts")) for one in ("drafts", "accepted")]
        self.add("drafts", None, None, all_drafts=sums[0], all_accepted=sums[1])
        evicted = sum(facts["evicted blocks"] for facts in self.all("eviction"))
        self.add("eviction", None, None, all_evicted=evicted)
        running, waiting, following = len(state.running), len(state.waiting), [*state.waiting, -1]
        self.add("end", None, None, running_at_the_end=running, waiting_at_the_end=waiting)
        self.add("end", None, None, last_step=max(self.steps, default=0), next=following[0])
        self.add("end", None, None, cached_blocks_at_the_end=state.evictable)

    def _requests(self) -> None:
        """Add what is known of each request."""
        timed = all("end" in event.t for event in self.log.of(v.StepFinished))
        last = max((event.t.get("end", 0) for event in self.log.of(v.StepFinished)), default=0)
        rows = [row for row in self.rows.values() if row.root == row.request and row.arrived_step]
        ends = [r for r in rows if r.finish_reason in ("stop", "length") and r.output_tokens]
        longest = max((row.e2e_ms or 0 for row in ends), default=0)
        for row in rows:
            one, reasons = row.request, self.waits[row.request]
            counts = {words: sum(r in WAITS[words] for r in reasons) for words in [*WAITS][:4]}
            most = max(counts, key=lambda words: counts[words])
            facts = self.add("wait", one, None, longest_wait=one, admitted=row.admitted_step)
            facts |= {"waits for": most, "steps waited": len(reasons), "total": us(row.e2e_ms)}
            facts["steps waited for it"] = counts[most]
            if row.admitted_step or not row.finish_reason:
                begin = us(row.arrived_ms) or 0
                until = self.starts.get(row.admitted_step or -1, last)
                facts["wait"] = self.busy(begin, until) if timed else len(reasons)
            total = us(row.e2e_ms) if row.e2e_ms == longest else None
            self.add("life", one, None, longest=one, prompt=row.prompt_tokens, total=total)
            self.add("life", one, None, first_token=row.first_token_step, longest_of=len(ends))
            self.add("life", one, None, finished=row.finished_step, output=row.output_tokens)
        for row in self.rows.values():
            self.add("end", row.request, None, last_to_end=row.request, finished=row.finished_step)
        for (kind, request, step), facts in self.places.items():
            if kind == "preemption" and (away := facts.get("steps away")):
                begin, end = (self.starts.get(at, 0) for at in (step, step + away))
                facts["time away"] = self.busy(begin, end)
            elif kind == "preemption":
                facts["not resumed"] = int(request in self.state.waiting)

    def busy(self, begin: int, end: int) -> int:
        return sum(max(0, min(end, till) - max(begin, start)) for start, till in self.ran)

    def value(self, scene: Scene, claim: Claim) -> Any:
        """What the log says of a claim."""
        if "first" in claim.at:
            first, last = (int(claim.at[end]) for end in ("first", "last"))
            costs = {n: s["waits"].total() * s["busy"] for n, s in self.steps.items()}
            inside = sum(cost for number, cost in costs.items() if first <= number <= last)
            return inside / sum(costs.values())
        if claim.what in ("first step", "last step") and scene.kind == "run":
            return claim.value if claim.value in self.steps else "no step"
        place = scene.kind, claim.at.get("kind", claim.at.get("request")), claim.at.get("step")
        value = self.places[place].get(claim.what, "unknown")
        if MOST.get(scene.kind) == claim.what:
            assert value == max(facts.get(claim.what, 0) for facts in self.all(scene.kind))
        return value


def us(ms: float | None) -> int | None:
    return None if ms is None else round(1000 * ms)


def check_words(scenes: Iterable[Scene], names: Mapping[int, str], unit: Any = "us") -> None:
    """Compare each claim's text with its value; there is no number outside of claims."""
    for scene in scenes:
        bars = [*(one.words for one in scene.brackets), *(one.words for one in scene.bars)]
        for words in [*scene.sentences, *bars]:
            assert not any(re.search(r"\d", part) for part in words if isinstance(part, str))
        for claim in scene.claims:
            number, text = re.sub(r"\D", "", claim.text), claim.text.lower()
            if claim.request is not None:
                name = names[claim.request].lower()
                assert text in (name, f"request {name}") and claim.value == claim.request
            elif isinstance(claim.value, float):
                shown = {"all": 1, "under": 0}.get(text.split()[0], int(number or 0) / 100)
                high = 0.01 if shown == 0.99 else 0.0051  # only all of it is all
                assert -0.0051 <= claim.value - shown <= high, claim
                assert (claim.value == 1) == (text == "all") and text != "100 %", claim
            elif re.search(" time|time |^(wait|total|busy|paused|e2e)$", claim.what):
                assert text in (in_words(int(claim.value), unit).lower(), "no request waits")
            elif isinstance(claim.value, int) and number:
                assert int(number) == claim.value
            elif isinstance(claim.value, int):
                assert text in SAID.split("|") or (text[:2] == "no" and not claim.value), claim


def check(
    log: EventLog, scenes: Iterable[Scene] | None = None, names: Mapping[int, str] | None = None
) -> Counter[str]:
    """Compare the scenes of a log with it; return how many there are of each kind, and claims."""
    fold, regimes = Fold(log), read(log).regimes
    told = list(read(log).tour if scenes is None else scenes)
    check_words(told, names or regimes.names, regimes.unit)
    for scene in told:
        assert scene.step is None or scene.step in {*range(1, fold.state.step + 1)}
        for claim in scene.claims:
            value = fold.value(scene, claim)
            assert value == claim.value, (scene.kind, scene.text, claim, value)
    assert len(told) <= 9
    sentences = Counter(sentences=sum(len(one.sentences) for one in told))
    return sentences + Counter(one.kind for one in told)


def test_every_claim_is_true(soak: bool, first_seed: int) -> None:
    told = Counter[str]()
    for seed in range(first_seed, first_seed + (10_000 if soak else 100)):
        with named(seed):
            log = recorded(seed)
            told += check(log)
            if seed % 4 == 0:
                told += check(windowed(log, 60))
                told += check(EventLog.from_events(list(log)[: 1 + 2 * len(log) // 3]))
                told += check(EventLog.from_bytes(b"\n".join([*log.deterministic(), b""])))
    for scenario in gallery().values():
        told += check(scenario.log)
    for name in ("async", "drafts"):
        told += check(read_recording(VLLM / f"{name}.jsonl.gz"))
    assert min(told[kind] for kind in (*MOST, "queue", "copy", "life", "error", "abort")) > 10


@pytest.mark.parametrize("name", ["three_replicas", "one_dies", "prefill_and_decode"])
def test_a_cluster_tells_its_decisions(name: str) -> None:
    log: ClusterLog = getattr(clusters, name)()
    events, rows = list(log), read(log).decision_rows
    routed = [event for event in events if isinstance(event, c.Routed)]
    moves = [event for event in events if isinstance(event, c.Moved)]
    left = [event for event in events if isinstance(event, c.ReplicaLeft)]
    lost = {event.request for event in events if isinstance(event, c.RequestLost)}
    saved = {event.request for event in routed if event.output}
    for scene in read(log).tour:
        if scene.replica:
            check(log.replicas[scene.replica], [scene])
            continue
        check_words([scene], {event.request: event.label for event in routed})
        for claim in scene.claims:
            at, index = str(claim.at.get("replica", "")), int(claim.at.get("decision", 0))
            one, pair = routed[index], (claim.at.get("source"), claim.at.get("target"))
            later = events[events.index(left[0]) if claim.at.get("after") else 0 :]
            gets = Counter(event.replica for event in later if isinstance(event, c.Routed))
            most = max(one.hits, key=lambda its: one.hits[its], default="")
            joined = sum(isinstance(event, c.ReplicaJoined) for event in events)
            twice = {event.request for event in routed if event.attempt > 1}
            facts: Facts = {"decisions": len(routed), "replicas": joined, "routed": gets[at]}
            facts |= {"busiest": gets.most_common(1)[0][0], "again": len(twice)}
            facts["continued"] = len({event.request for event in routed if event.output})
            facts |= {"routed request": one.request, "chosen": one.replica, "reason": one.reason}
            facts |= {"hit": one.hits.get(at, 0), "load": one.loads.get(at, 0)}
            facts |= {"prompt": one.prompt, "cached": rows[index].cached_tokens}
            facts |= {"most cached": most, "lost": len(lost), "continued": len(saved)}
            facts["moved in all"] = sum(e.tokens for e in moves if (e.source, e.target) == pair)
            for gone in left[:1]:
                facts |= {"left": gone.replica, "why": gone.why}
            for move in moves[int(claim.at.get("move", 0)) :][:1]:
                facts |= {"moved request": move.request, "moved blocks": move.blocks}
                facts |= {"source": move.source, "target": move.target, "moved tokens": move.tokens}
                facts["move time"] = move.t["us"]
            assert facts[claim.what] == claim.value, (scene.text, claim)


def test_a_comparison_tells_what_differs() -> None:
    thirty, thrash = gallery()["thirty"].log, gallery()["thrash"].log
    pairs = [(thirty, what_if(thirty, max_batch_size=4)), (thirty, thrash), (thirty, thirty)]
    for one_log, other in [*pairs, (recorded(2), recorded(6))]:
        compared = ComparedRuns(one_log, other, ("eight", "four"))
        rows = [{row.request: row for row in read(log).request_rows} for log in compared.logs]
        ends = {a.request: (a.e2e_ms, b.e2e_ms) for a, b in compared.paired_rows}
        changes = {r: abs(b - a) for r, (a, b) in ends.items() if a is not None and b is not None}
        most = max(changes, key=changes.__getitem__, default=-1)
        for scene in compared.tour:
            if scene.kind not in ("totals", "fork", "changed"):
                check(compared.logs[scene.run], [scene], compared.names_of(scene.run))
                continue
            check_words([scene], compared.names_of(0))
            for claim in scene.claims:
                run, one = int(claim.at["run"]), int(claim.at.get("request", -1))
                facts: Facts = {"fork": compared.step, "name": compared.names[run]}
                facts |= {"busy time": busy_us(compared.logs[run])[0], "most changed": most}
                facts |= {"e2e": us(rows[run][one].e2e_ms) if one in rows[run] else None}
                facts |= {"difference": "", "better": compared.better_busy}
                assert claim.value == facts[claim.what], (scene.text, claim)


def test_what_is_unknown_is_not_said_and_what_is_inferred_is_marked() -> None:
    log = gallery()["vllm_tight"].log
    kinds = {one.kind for one in read(log).tour}
    facts: list[Fact] = ["preemptions", "evictions", "queue"]
    for fact in facts:
        told = {one.kind for one in read(foreign(log, unknown=[fact])).tour}
        assert fact.removesuffix("s") in kinds - told
    [run, *_] = read(foreign(log, unknown=["arrivals"])).tour
    assert "request" not in run.text.partition(".")[0]
    inferred = read(foreign(log, inferred=["preemption_causes"])).tour
    [scene] = [one for one in inferred if one.kind == "preemption"]
    assert scene.text.startswith("◑") and "◑" not in str(read(gallery()["thirty"].log).tour)


def test_a_short_run_has_few_scenes_and_an_empty_one_none() -> None:
    assert [len(read(log).tour) for log in (EventLog(), gallery()["hit"].log)] == [0, 5]
    assert len(read(windowed(gallery()["hit"].log, 3)).tour) < 5
