"""What limited a run: ten logs with known causes, and every number against a plain fold.

`tests/fixtures/regimes.json` has the causes, and the claims that a text may make.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine import EngineConfig, EventLog, Workload, simulate, simulate_cluster
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.sampling_params import SamplingParams
from engine.simulation.cost_runner import Cost
from engine.simulation.latencies import PausedTime
from engine.simulation.workload import Arrival
from tests.engine.test_waterfall import VLLM, recorded
from tests.engine.workloads import named, windowed
from tests.facts import assert_names
from tests.parity.recorded_steps import read_recording
from visualizer import read
from visualizer.reading.regimes.words import _FOR
from visualizer.reading.waterfall.words import in_words
from visualizer.scenario import gallery

TABLES = json.loads((Path(__file__).parents[1] / "fixtures" / "regimes.json").read_text("utf-8"))
PLACES, CLAIMS = TABLES["places"], TABLES["claims"]
COST = Cost(5, 0.05)
Steps = dict[int, dict[str, Any]]


def arrivals(count: int, every: int, first: int, prompt: int, output: int) -> list[Arrival]:
    params, times = SamplingParams(max_tokens=output, ignore_eos=True), range(count)
    return [
        Arrival(at_ms=first + every * n, prompt=[97 + n % 5] * prompt, params=params) for n in times
    ]


@pytest.mark.parametrize("name", TABLES["causes"])
def test_a_known_cause_is_found(name: str) -> None:
    cause = TABLES["causes"][name]
    inputs = [one for group in cause["requests"] for one in arrivals(*group)]
    log = simulate(Workload([*inputs]), EngineConfig(**cause["settings"]), cost=COST)
    check(log)
    regimes, kinds = read(log).regimes, cause["kinds"]
    found = " ".join(one.kind for one in regimes)
    assert found in (kinds, f"{kinds} calm"), "the last requests may find it calm"
    waited = regimes.waited
    assert max(waited, key=lambda one: waited[one], default="") == cause["waits"]
    assert {one.kind for one in regimes.limit} == {*kinds.split()} - {"calm", "idle"}


def test_every_number_is_that_of_the_fold(soak: bool, first_seed: int) -> None:
    limited = 0
    for seed in range(first_seed, first_seed + (10_000 if soak else 75)):
        with named(seed):
            log = recorded(seed)
            limited += check(log)
            if seed % 4 == 0:
                check(windowed(log, 60))
                check(EventLog.from_bytes(b"\n".join([*log.deterministic(), b""])))
    assert limited > 50
    for scenario in gallery().values():
        check(scenario.log)
    check(read_recording(VLLM / "async.jsonl.gz"))


def test_a_step_whose_end_is_lost_hides_no_later_step() -> None:
    whole = read_recording(VLLM / "async.jsonl.gz")
    events = [event for event in whole if getattr(event, "step", 0) != 20 or "t" not in dir(event)]
    assert len(events) == len(whole) - 1
    steps = read(EventLog.from_events(events)).regimes.columns.steps.number
    assert [*steps] == [one for one in read(whole).regimes.columns.steps.number if one != 20]


def test_a_cluster_names_the_replica_at_which_requests_wait_longest() -> None:
    workload = Workload([*arrivals(40, 5, 0, 16, 40)])
    log = simulate_cluster(workload, EngineConfig(max_batch_size=8), cost=COST)
    regimes = read(log).regimes
    waits = {name: sum(read(one).regimes.waited.values()) for name, one in log.replicas.items()}
    worst = max(waits, key=lambda name: waits[name])
    assert_names(regimes.sentence, 2, worst, f"{100 * waits[worst] / sum(waits.values()):.0f} %")
    assert all(str(read(one).regimes) in str(regimes) for one in log.replicas.values())


def folded(log: EventLog) -> Steps:
    """Return what happens in each finished step, read from the fold, the rows and the waterfall."""
    state, ahead, steps, before, paused = State(), Steps(), Steps(), -1, PausedTime()
    waterfall, is_idle, victims = read(log).waterfall, False, dict[int, list[int]]()
    arrived = {row.step: row.arrived for row in read(log).step_rows}
    for event in log:
        is_idle |= isinstance(event, v.RequestArrived) and not state.requests
        state.apply(event)
        if waterfall.unit == "us":
            paused.note(event)
        match event:
            case v.Keyframe():
                ahead = {number: described(state, rows) for number, rows in state.plans.items()}
            case v.StepStarted():
                ahead[event.step], is_idle = NOTHING | {"is_idle": is_idle}, False
            case v.Preempted():
                victims.setdefault(state.step, []).append(event.request)
            case v.StepScheduled():
                step = ahead.setdefault(state.step, NOTHING.copy())
                step.update(described(state, event.rows, event))
            case v.StepFinished(step=number):
                step = ahead.pop(number, NOTHING)
                if any(other < number for other in ahead):
                    continue
                start, end, idle = event.t.get("start", 0), event.t.get("end", 1), 0
                if step["is_idle"] and 0 <= before < start:
                    idle = start - before - paused.between(before, start)
                busy = max(0, end - max(start, before)) if waterfall.unit == "us" else 1
                before = max(before, end)
                steps[number] = step | {"busy": busy, "idle": idle, "again": Counter()}
                steps[number] |= {"victims": victims.get(number, [])}
                steps[number] |= {"arrived": arrived.get(number, 0)}
    for life in (one.life for one in waterfall):
        for number, work in life.work.items():
            if work.again and number > life.forked and number in steps:
                lost = [one.begin for one in life.absences if one.begin <= number]
                cause = lost[-1] if lost and lost[-1] in steps else number
                steps[cause]["again"][life.id] += work.again
    return steps


NOTHING: dict[str, Any] = dict.fromkeys(("seats", "tokens", "prompt", "stalled", "is_idle"), 0)
NOTHING["waits"] = Counter()


def described(state: State, rows: list[v.ScheduledRow], event: Any = None) -> dict[str, Any]:
    skipped, waits = dict(event.skipped) if event else {}, Counter[str]()
    for request in state.waiting:
        reason = skipped.get(request) or (event.blocked.reason if event else "unknown")
        waits["preempted" if state.requests[request].preemptions else reason] += 1
    live = {row.request: row for row in rows if row.request in state.requests}
    prompts = [row.count for r, row in live.items() if row.start < state.requests[r].prompt_length]
    return ({} if event else NOTHING) | {
        "waits": waits,
        "seats": sum(state.requests[request].num_seqs for request in state.running),
        "tokens": sum(row.count for row in live.values()),
        "prompt": sum(prompts),
        "stalled": list(skipped.values()).count("token_budget"),
    }


def facts(steps: Steps, seats: int) -> dict[str, Any]:
    """The numbers of some steps, by the names that the claims use."""
    queued = [step for step in steps.values() if step["waits"].total()]
    number, waited, again = max(1, len(queued)), Counter[str](), Counter[int]()
    for step in steps.values():
        again += step["again"]
        waited.update({cause: n * step["busy"] for cause, n in step["waits"].items()})
    names = ("tokens", "prompt", "stalled", "busy", "idle")
    sums = {name: sum(one[name] for one in steps.values()) for name in names}
    taken = sum(step["seats"] for step in queued) / number
    return sums | {
        "first": min(steps),
        "last": max(steps),
        "steps": len(steps),
        "queued": len(queued),
        "taken": taken,
        "empty": seats - taken,
        "max": seats,
        "waiting": sum(step["waits"].total() for step in queued) / number,
        "victims": sum(len(step["victims"]) for step in steps.values()),
        "prompts": sums["prompt"] / max(1, sums["tokens"]),
        "idling": sums["idle"] / max(1, sums["idle"] + sums["busy"]),
        "waited": waited.total(),
        "causes": +waited,
        "again": again.total(),
        "twice": sorted(again),
        "requests": len(again),
    }


def check_claims(text: str, known: dict[str, Any], unit: Any) -> None:
    """Compare every number of a text with the facts; none may be left."""
    rest = text
    for pattern, names in CLAIMS.items():
        for match in re.finditer(re.sub("<.>", lambda m: PLACES[m[0]], pattern), text, re.I):
            said = [group for group in match.groups() if group]
            for word, name in zip(said, names.split(), strict=False):
                assert agrees(word, known[name], unit), (text, word, known[name])
            rest = rest.replace(match[0], "")
    assert not re.search(r"\d| %", rest), (rest, text)


def agrees(word: str, value: float, unit: Any) -> bool:
    if word in ("all", "99 %", "under 1 %"):
        low, high = {"all": (1, 1), "99 %": (0.985, 1)}.get(word, (0, 0.005))
        return low <= value <= high
    if word.endswith("%"):
        return abs(int(word[:-2]) / 100 - value) <= 0.00501
    if word.endswith(("s", "step")):
        return word == in_words(int(value), unit)
    exact = 0 if isinstance(value, int) else 0.0501 + 0.45 * (value > 9.9)
    return abs(float(word.replace(",", "")) - value) <= exact


def check(log: EventLog) -> int:
    """Compare each regime, its words and the sentence with the fold; return the number of limits."""
    regimes, whole = read(log).regimes, folded(log)
    seats, limit, covered = regimes.columns.settings["max_batch_size"], Steps(), list[int]()
    bursts = dict[str, int]()
    for one in regimes:
        steps = {n: step for n, step in whole.items() if one.first <= n <= one.last}
        covered += steps
        if one.burst is not None:
            begin, end, _ = one.burst
            burst = sum(whole[number]["arrived"] for number in range(begin, end + 1))
            bursts |= {"burst": burst, "begin": begin, "end": end}
        known = facts(steps, seats) | bursts
        limit |= steps if one in regimes.limit else {}
        assert (known["first"], known["last"]) == (one.first, one.last)
        assert (known["causes"], known["twice"]) == (one.waited, sorted(one.twice))
        assert [*one.preemptions] == [(n, r) for n, step in steps.items() for r in step["victims"]]
        for text in (one.words, one.cost):
            check_claims(text, known, regimes.unit)
    assert covered == list(whole)
    assert regimes.worst in (limit or [None])
    if not whole:
        return 0
    known, said = facts(limit or whole, seats) | bursts, regimes.sentence
    everywhere = facts(whole, seats)
    for causes, words in (*_FOR.values(), (("static_batch",), "for the batch to end")):
        if words in said:
            known["share"] = sum(everywhere["causes"][one] for one in causes) / everywhere["waited"]
    if "in these steps" in said:
        known["share"] = known["waited"] / everywhere["waited"]
    if regimes.columns.begins_after:
        part, said = said.split(": ", 1)
        check_claims(part, everywhere, regimes.unit)
    check_claims(said, known, regimes.unit)
    return len(regimes.limit)
