"""The Perfetto export follows the format's rules and holds exactly what the log says."""

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from engine import Cost, EngineConfig, EventLog, Workload, simulate
from engine.core.log import vocabulary as v
from engine.simulation.scenarios import scenario
from engine.simulation.workload import lognormal, poisson
from tests.engine.workloads import make_engine, play, random_log, random_workload
from visualizer import read, to_perfetto

ENGINE, REQUESTS = 1, 2
HOSTILE = '"}]\u2028</script>\x00😀'
Event = dict[str, Any]
COMMON = {"ph": str, "pid": int, "tid": int, "name": str}
KEYS = {
    "M": COMMON | {"args": dict},
    "X": COMMON | {"ts": int, "dur": int},
    "C": COMMON | {"ts": int, "args": dict},
    "i": COMMON | {"ts": int, "s": str, "args": dict},
    "s": COMMON | {"ts": int, "id": int, "cat": str},
    "f": COMMON | {"ts": int, "id": int, "cat": str, "bp": str},
}


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def parsed(text: str) -> list[Event]:
    trace = json.loads(text, parse_constant=refuse)
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] == "ms"
    events: list[Event] = trace["traceEvents"]
    check_rules(events)
    return events


def check_rules(events: list[Event]) -> None:
    """Check the rules of the trace-event format, for the phases in use."""
    for event in events:
        keys = KEYS[event["ph"]]
        assert set(keys) <= set(event) <= set(keys) | {"args"}, event
        assert all(type(event[key]) is kind for key, kind in keys.items()), event
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0, event
    check_names(events)
    tracks = slices_by_track(events)
    for slices in tracks.values():
        check_nesting(slices)
    check_flows(events, tracks)
    check_counters(events)
    assert all(event["s"] == "t" for event in events if event["ph"] == "i")


def check_names(events: list[Event]) -> None:
    """Every process and thread that is used has one name, and a sort index."""
    for kind in ("thread_name", "thread_sort_index"):
        named = [(e["pid"], e["tid"]) for e in events if e["name"] == kind and e["ph"] == "M"]
        assert len(named) == len(set(named))
        assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xisf"} <= set(named)
    named = [e["pid"] for e in events if e["name"] == "process_name"]
    assert sorted(named) == [ENGINE, REQUESTS]
    for event in events:
        if event["ph"] == "M":
            value = event["args"]["sort_index" if "sort" in event["name"] else "name"]
            assert value or value == 0


def slices_by_track(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    """In the order in which a viewer stacks them: by time; where two begin together, as written."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return {track: sorted(slices, key=lambda e: e["ts"]) for track, slices in tracks.items()}


def check_nesting(slices: list[Event]) -> None:
    """Each slice lies within those that are open where it begins; siblings do not overlap."""
    open_until: list[int] = []
    for event in slices:
        begin, end = event["ts"], event["ts"] + event["dur"]
        while open_until and open_until[-1] <= begin and not open_until[-1] == begin == end:
            open_until.pop()
        assert not open_until or end <= open_until[-1], f"overlaps its neighbour: {event}"
        open_until.append(end)


def check_flows(events: list[Event], tracks: dict[tuple[int, int], list[Event]]) -> None:
    """Each arrow has one start and one end, forward in time, both within a slice of their track."""
    ends: dict[str, dict[int, Event]] = {"s": {}, "f": {}}
    for event in events:
        if event["ph"] in ends:
            assert event["id"] not in ends[event["ph"]], "an id is used twice"
            ends[event["ph"]][event["id"]] = event
            assert enclosing(event, tracks), f"hangs in the air: {event}"
    assert set(ends["s"]) == set(ends["f"])
    for id_, start in ends["s"].items():
        end = ends["f"][id_]
        assert start["ts"] <= end["ts"]
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert end["bp"] == "e"


def enclosing(event: Event, tracks: dict[tuple[int, int], list[Event]]) -> list[Event]:
    """The slices of its track that an event lies in, outermost first."""
    slices = tracks.get((event["pid"], event["tid"]), [])
    return [s for s in slices if s["ts"] <= event["ts"] <= s["ts"] + s["dur"]]


def check_counters(events: list[Event]) -> None:
    """Check that a counter's series keep their names, are whole numbers, and are in order of time."""
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["name"]].append(event)
            assert all(type(value) is int and value >= 0 for value in event["args"].values())
    for values in counters.values():
        assert len({tuple(event["args"]) for event in values}) == 1
        assert all(a["ts"] <= b["ts"] for a, b in pairwise(values))


def check_against(log: EventLog, events: list[Event]) -> Counter[str]:
    """Compare the trace with the log. Returns the count of each kind."""
    steps, rows, skipped = finished_steps(log)
    in_engine = [e for e in events if e["ph"] == "X" and e["pid"] == ENGINE]
    assert [e["name"] for e in in_engine if e["name"].startswith("step ")] == [
        f"step {step}" for step in steps
    ]
    assert sum(e["name"] == "forward pass" for e in in_engine) == len({step for step, _ in rows})

    phases = [(owner, e) for owner, e in with_owner(events) if e is not owner]
    covered = Counter(
        (step, int(owner["name"].split()[0][1:]))
        for owner, event in phases
        if event["name"].split()[0] in ("prefill", "catch-up", "decode")
        for step in steps_of(event)
    )
    assert covered == Counter(rows), "a scheduled row has one slice, and a slice its rows"
    stalls = Counter(
        (step, int(owner["name"].split()[0][1:]), event["name"].removeprefix("stalled: "))
        for owner, event in phases
        if event["name"].startswith("stalled")
        for step in steps_of(event)
    )
    assert stalls == Counter(skipped)

    names = Counter(event["name"].split(":")[0].split()[0] for _, event in phases)
    flows = Counter(event["name"] for event in events if event["ph"] == "s")
    evicted = sum(event["ph"] == "i" for event in events)
    assert (flows["resumed"], flows["forked"]) == resumed_and_forked(log)
    return names + flows + Counter(evicted=evicted, lives=len(with_owner(events)) - len(phases))


def resumed_and_forked(log: EventLog) -> tuple[int, int]:
    """Count requests that computed again after a preemption, and first after a fork."""
    ways: dict[int, set[type]] = defaultdict(set)
    gone_on: Counter[type] = Counter()
    for event in log:
        if isinstance(event, v.Preempted | v.Forked):
            ways[event.request].add(type(event))
        elif isinstance(event, v.StepScheduled):
            rows = [row.request for row in event.rows]
        elif isinstance(event, v.StepStarted | v.Keyframe):
            rows = []
        elif isinstance(event, v.StepFinished):
            for request in rows:
                gone_on.update(ways.pop(request, ()))
    return gone_on[v.Preempted], gone_on[v.Forked]


def finished_steps(log: EventLog) -> tuple[list[int], list[Any], list[Any]]:
    """Return finished steps, rows, and running requests without a row: (step, request, reason)."""
    steps, rows, skipped = [], [], []
    step, planned, stalled, waiting = 0, [], [], set[int]()
    for event in log:
        match event:
            case v.Keyframe():
                step, waiting = event.state.step, set(event.state.waiting)
                alive = {one.id for one in event.state.requests}
                planned = [(step, row.request) for row in event.state.plan if row.request in alive]
                stalled = []
            case v.RequestArrived() | v.Preempted():
                waiting.add(event.request)
            case v.Admitted() | v.RequestFinished():
                waiting.discard(event.request)
            case v.StepStarted():
                step, planned, stalled = event.step, [], []
            case v.StepScheduled():
                planned = [(step, row.request) for row in event.rows]
                stalled = [(step, *skip) for skip in event.skipped if skip[0] not in waiting]
            case v.StepFinished():
                steps.append(step)
                rows += planned
                skipped += stalled
    return steps, rows, skipped


def with_owner(events: list[Event]) -> list[tuple[Event, Event]]:
    """Each slice of the requests' process with the life it lies in; a life is its own."""
    pairs = []
    for (pid, _), slices in slices_by_track(events).items():
        if pid == REQUESTS:
            life = slices[0]
            for event in slices:
                if "finished" in event.get("args", {}):
                    life = event
                pairs.append((life, event))
    return pairs


def steps_of(event: Event) -> range:
    args = event["args"]
    first = args.get("step", args.get("from_step"))
    last = args.get("step", args.get("to_step"))
    if "steps" in args:
        assert args["steps"] == last - first + 1
    return range(first, last + 1)


@pytest.fixture
def seeds(soak, first_seed):
    return range(first_seed, first_seed + (2_000 if soak else 40))


def test_random_workloads_keep_the_rules_and_lose_nothing(seeds):
    seen: Counter[str] = Counter()
    for seed in seeds:
        workload = random_workload(seed)
        for arrival in workload.arrivals[:1]:
            arrival.label = HOSTILE
        engine = make_engine(workload)
        play(engine, workload)
        events = parsed(to_perfetto(engine.log))
        seen["hostile"] += any(HOSTILE in event["name"] for event in events)
        found = check_against(engine.log, events)
        assert found["evicted"] == len(engine.log.of(v.RadixEvicted, v.BlockEvicted))
        assert found["preempted"] == len(engine.log.of(v.Preempted))
        born = len(engine.log.of(v.RequestArrived)) + len(engine.log.of(v.Forked))
        assert found["lives"] == born
        seen += found
    kinds = ("waiting", "prefill", "catch-up", "decode", "stalled", "preempted", "prefix hit")
    assert all(seen[kind] >= 10 for kind in (*kinds, "resumed", "forked", "evicted", "hostile")), (
        seen
    )


def test_a_window_keeps_the_rules_wherever_it_begins(seeds):
    inside = 0
    for seed in seeds:
        log = random_log(seed, EventLog(window=12 + seed % 50))
        check_against(log, parsed(to_perfetto(log)))
        inside += isinstance(log[0], v.Keyframe) and bool(log[0].state.plan)
    assert inside > 3, "no window began inside a step"


@pytest.fixture(scope="module")
def crowd():
    """Run 600 requests, more than there are lanes, with too little memory."""
    workload = Workload.generate(
        600, arrivals=poisson(60), prompt=lognormal(40, 0.6, 120), output=lognormal(20, 0.8, 60),
        groups=4, shared_tokens=48, seed=3,
    )  # fmt: skip
    config = EngineConfig(token_budget=128, max_batch_size=16, max_kv_tokens=1024, block_size=16)
    return simulate(workload, config, cost=Cost(4, 0.05))


def test_with_many_requests_lanes_are_used_again_and_nothing_is_lost(crowd):
    events = parsed(to_perfetto(crowd))
    found = check_against(crowd, events)
    assert found["lives"] == 600
    assert found["preempted"] > 5
    lanes = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 2]
    assert lanes == [f"lane {number}" for number in range(1, len(lanes) + 1)]
    assert len(lanes) < 400, "lanes are not used again"


def test_counters_are_the_frames_numbers(crowd):
    events = parsed(to_perfetto(crowd))
    values: dict[str, list[tuple[int, dict[str, int]]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            values[event["name"]].append((event["ts"], event["args"]))

    def at(name: str, time: int) -> dict[str, int]:
        return [args for ts, args in values[name] if ts <= time][-1]

    for step in read(crowd).steps.iloc[::40].itertuples():
        time = round(step.start_ms * 1000)
        blocks = {"used": step.used_blocks, "cached": step.cached_blocks, "free": step.free_blocks}
        assert at("KV blocks", time) == blocks
        assert at("requests", time) == {"running": step.running, "waiting": step.waiting}
        others = step.catchup_tokens + step.decode_tokens
        assert at("tokens per step", time) == {"prefill": step.prefill_tokens, "decode": others}


def test_an_asynchronous_run_has_a_lane_for_the_scheduler_and_one_for_the_passes():
    story = scenario("continuous_batching")
    config = msgspec.structs.replace(story.config, async_scheduling=True)
    log = simulate(story.workload, config, cost=Cost(10, 0.25, cpu_ms=5))
    events = json.loads(to_perfetto(log))["traceEvents"]
    slices = [one for one in events if one["ph"] == "X" and one["pid"] == 1]
    passes = [one for one in slices if one["name"].startswith("step ")]
    ahead = [one for one in slices if one["name"].startswith("schedule ")]
    assert len(passes) == len(ahead) == 43
    assert {one["tid"] for one in passes}.isdisjoint({one["tid"] for one in ahead})
    for lane in (passes, ahead):
        for before, after in pairwise(lane):
            assert before["ts"] + before["dur"] <= after["ts"]
    for running, scheduled in zip(passes, ahead[1:], strict=False):
        assert running["ts"] <= scheduled["ts"] < running["ts"] + running["dur"]
