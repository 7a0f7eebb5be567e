"""compare() finds a planted change in an otherwise equal run, at the first decision it affects."""

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine import Cost, EngineConfig, EventLog, simulate, what_if
from engine.core.log import vocabulary as v
from engine.core.scheduling.policies import POLICIES
from engine.simulation.workload import Workload as SimulatedWorkload
from tests.engine.simulation.pinned import slower
from tests.engine.test_kv_transfer import PREFIX, compute, make, pages
from tests.engine.workloads import Workload, make_engine, play, random_workload
from tests.facts import assert_names
from tests.visualizer.storytellers import storytellers
from visualizer import compare, read
from visualizer.comparing.differences import decisions, differing_steps, first_difference, pair
from visualizer.reading.story import Story, names_of, plain
from visualizer.reading.summary import summary
from visualizer.sources import read_source

COST = Cost(10, 0.25)


def run(workload: Workload, **parts: Any) -> EventLog:
    engine = make_engine(copy.deepcopy(workload), **parts)
    play(engine, copy.deepcopy(workload))
    return engine.log


def changed(workload: Workload, **settings: Any) -> Workload:
    other = copy.deepcopy(workload)
    other.config = msgspec.structs.replace(other.config, **settings)
    return other


# Each plants one change and returns the other run.


def another_policy(workload: Workload) -> EventLog:
    policy = "sjf" if workload.config.policy != "sjf" else "priority"
    return run(changed(workload, policy=policy))


def another_priority(workload: Workload) -> EventLog:
    other = copy.deepcopy(workload)
    other.arrivals[len(other.arrivals) // 2].priority -= 5
    return run(other)


def another_eviction(workload: Workload) -> EventLog:
    if workload.config.prefix_cache == "hash":
        return run(workload)  # it has one order, so nothing is planted
    return run(changed(workload, eviction="lru" if workload.config.eviction == "lfu" else "lfu"))


def another_victim(workload: Workload) -> EventLog:
    class FirstComeFirstGone(POLICIES[workload.config.policy]):  # type: ignore[misc]
        def victim(self, running: Any, *_: Any) -> Any:
            return running[0]

    return run(workload, policy=FirstComeFirstGone())


def one_block_more(workload: Workload) -> EventLog:
    config = workload.config
    return run(changed(workload, max_kv_tokens=config.max_kv_tokens + config.block_size))


def one_arrival_later(workload: Workload) -> EventLog:
    other = copy.deepcopy(workload)
    other.arrivals.sort(key=lambda arrival: arrival.step)
    following = [*other.arrivals[1:], None]
    # The first arrival with none after it in the same step, so that the order of arrival stays.
    for arrival, after in zip(other.arrivals, following, strict=True):
        if after is None or after.step > arrival.step:
            arrival.step += 1
            break
    return run(other)


PLANTS = [another_policy, another_priority, another_eviction]
PLANTS += [another_victim, one_block_more, one_arrival_later]


def decided(log: EventLog) -> Iterator[tuple[int, list[Any]]]:
    """Return what each step decided, directly from its events: not folded, not sorted.

    Up to the first difference, two runs number nodes alike, but not blocks.
    """
    step, events = 0, list[Any]()
    for event in log:
        match event:
            case v.StepStarted():
                if step:
                    yield step, events
                step, events = event.step, []
            case v.Admitted():
                events.append(("admitted", event.request, len(event.blocks)))
            case v.Preempted():
                events.append(("preempted", event.request, event.needed_by))
            case v.RadixEvicted() | v.BlockEvicted():
                events.append(("evicted", event.node, event.needed_by))
            case v.StepScheduled():
                rows = [(row.request, row.start, row.count, row.drafts) for row in event.rows]
                events.append(("rows", rows))
            case v.StepFinished():
                events.append(("tokens", [(row.request, row.ids) for row in event.tokens]))
            case v.RequestFinished() if event.reason != "abort":
                events.append(("finished", event.request, event.reason))
    if step:
        yield step, events


def first_step_that_differs(a: EventLog, b: EventLog) -> int | None:
    one, two = dict(decided(a)), dict(decided(b))
    steps = sorted({*one, *two})
    return next((step for step in steps if one.get(step) != two.get(step)), None)


def requests_of(log: EventLog) -> list[tuple[int, list[int]]]:
    return [(event.request, event.prompt) for event in log.of(v.RequestArrived)]


@pytest.mark.parametrize("plant", PLANTS)
def test_one_planted_change_is_found_in_the_step_where_it_first_decides_something(plant, soak):
    found = 0
    for seed in range(500 if soak else 40):
        workload = random_workload(seed)
        workload.moves.clear()  # what an engine adopts depends on its room, and is no decision
        a, b = run(workload), plant(workload)
        if requests_of(a) != requests_of(b):
            continue  # with more memory, a request was accepted that had been rejected
        difference = first_difference(a, b, pair(a, b))
        assert (difference and difference.step) == first_step_that_differs(a, b), seed
        found += difference is not None
        steps = differing_steps(a, b, pair(a, b))
        assert steps == sorted(set(steps))
        if difference and None not in difference.requests:
            assert steps[0] == difference.step, seed
    assert found >= 3, "the plants must bear"


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_said_of_the_difference_is_true_of_both_logs(plant, soak):
    """Check that requests named as preempted, admitted or waiting in that step are so, in both runs."""
    claims = 0
    for seed in range(500 if soak else 25):
        workload = random_workload(seed)
        logs = run(workload), plant(workload)
        difference = first_difference(*logs, pair(*logs))
        if difference is None or None in difference.requests:
            continue
        for log, words, request in zip(
            logs, (difference.a, difference.b), difference.requests, strict=True
        ):
            subject = request if words[0] == "it " else words[0]
            if difference.kind not in _DECISIONS or not isinstance(subject, int):
                continue
            story = Story(log, difference.step)
            events = events_in(log, difference.step)
            admitted = {e.request: e for e in events if isinstance(e, v.Admitted)}
            preempted = {e.request: e for e in events if isinstance(e, v.Preempted)}
            if subject in preempted:
                fate = story.preempted(preempted[subject])
            elif subject in admitted and difference.kind != "scheduled":
                fate = story.admitted(admitted[subject])
            elif subject in story.after.waiting:
                fate = story.waits(subject)
            else:
                continue
            assert plain(fate, {}) in plain(words, {})
            claims += 1
    assert claims or plant is another_eviction


_DECISIONS = ("preempted", "evicted", "admitted", "scheduled")


def events_in(log: EventLog, step: int) -> list[v.Event]:
    events, at = list[v.Event](), 0
    for event in log:
        at = event.step if isinstance(event, v.StepStarted) else at
        if at == step:
            events.append(event)
    return events


@pytest.mark.parametrize("seed", range(5))
def test_equal_runs_have_no_difference(seed):
    workload = random_workload(seed)
    comparison = compare(run(workload), run(workload))
    assert comparison.first_difference is None
    assert comparison.step is None
    assert_names(repr(comparison), *comparison.names)
    assert comparison.settings == {}
    assert comparison.inputs == []
    assert comparison.requests["finished_step_change"].dropna().eq(0).all()


def test_the_difference_comes_with_both_reasons(log):
    comparison = compare(log, storytellers(max_kv_tokens=328), names=("before", "after"))
    assert comparison.settings == {"max_kv_tokens": (320, 328), "num_blocks": (40, 41)}
    other = storytellers(max_kv_tokens=328)
    difference = first_difference(log, other, pair(log, other))
    assert (difference.step, difference.kind, difference.requests) == (22, "evicted", (6, 6))
    assert_names(comparison.first_difference, 22, "before", "after", "r6", "LRU", "none", 1, 2)


def measured(log: EventLog) -> EventLog:
    """Return the log with varying step times; arrivals lie inside steps."""
    rng = random.Random(13)
    other = slower(log, lambda *_: rng.randint(0, 30_000))
    other[0].t["unix_us"] = 1_000_000
    for event in other.of(v.RequestArrived):
        event.t["at"] = max(0, event.t["at"] - rng.randint(0, 4000))
    return other


@pytest.mark.parametrize("swapped", [False, True])
def test_a_replay_with_nothing_changed_has_no_difference_in_any_time(log, swapped):
    logs = [measured(log), what_if(measured(log))]
    comparison = compare(*reversed(logs)) if swapped else compare(*logs)
    assert comparison.verdict.startswith("No difference")
    assert comparison.settings == {}
    assert comparison.totals.change.tolist() == [0] * len(comparison.totals)
    changes = comparison.requests.filter(like="_change")
    assert changes.dropna().eq(0).all(axis=None)


def test_the_models_error_is_stated_and_kept_out_of_the_effect(log):
    origin = measured(log)
    before = origin.to_bytes()
    same, other = what_if(origin), what_if(origin, token_budget=32)
    comparison = compare(origin, EventLog.from_bytes(other.to_bytes()))
    assert comparison.settings == {"token_budget": (64, 32)}
    effect = read(other).requests.ttft_ms - read(same).requests.ttft_ms
    assert comparison.requests.ttft_ms_change.tolist() == pytest.approx(effect.tolist())
    error = (read(same).requests.ttft_ms - read(origin).requests.ttft_ms).abs().mean()
    assert error > 1
    assert f"{error:.3g} ms in TTFT" in comparison.facts["note"]
    assert f"{error:.3g} ms in TTFT" in comparison.to_html()
    assert origin.to_bytes() == before, "the log itself keeps its times"


def test_parts_of_the_radix_tree_are_no_change_of_their_own():
    workload = random_workload(3)
    radix, hashed = (changed(workload, prefix_cache=cache) for cache in ("radix", "hash"))
    assert compare(run(radix), run(hashed)).settings == {"prefix_cache": ("radix", "hash")}


def asynchronous(log: EventLog) -> EventLog:
    """Return a run of the log's requests with asynchronous scheduling, on a machine with a busy CPU."""
    workload, settings = SimulatedWorkload.from_log(log), log[0].settings
    known = {name: settings[name] for name in EngineConfig.__struct_fields__ if name in settings}
    config = EngineConfig(**known | {"async_scheduling": True})
    return simulate(workload, config, cost=Cost(10, 0.25, cpu_ms=2))


def noisy(log: EventLog, seed: int, percent: int = 4) -> EventLog:
    """Return the log as if it had been measured: each step takes up to `percent` longer."""
    rng = random.Random(seed)
    first, *rest = slower(log, lambda _, took: took * rng.randint(0, percent) // 100)
    return EventLog.from_events([msgspec.structs.replace(first, clock="monotonic"), *rest])


def test_runs_that_part_early_or_ran_on_different_machines_have_no_better_times(log):
    early = compare(noisy(log, 1), noisy(storytellers(token_budget=32), 2))
    machines = compare(noisy(log, 1), storytellers(max_kv_tokens=400))
    for comparison in (early, machines):
        assert comparison.facts["end_noise"]["share"] is None
        assert comparison.note
        rows = [row for row in comparison.facts["totals"] if "ms" in row[0] and row[1] != row[2]]
        assert {row[-1] for row in rows} == {"unknown"}, "which is another word than noise"
    # A count is exact on any machine.
    assert {name: better for name, *_, better in machines.facts["totals"]}["preemptions"] == "b"
    # Simulated runs are exact, so the better value is named.
    comparison = compare(log, storytellers(max_kv_tokens=400))
    assert comparison.note is None
    for name, a, b, *_, better in comparison.facts["totals"]:
        if name in ("TTFT p50, ms", "ITL p99, ms", "busy time, ms", "preemptions") and a != b:
            assert better == ("a" if a < b else "b")
        if name in ("throughput, tokens/s", "tokens found in the cache") and a != b:
            assert better == ("a" if a > b else "b")
        assert better == "" or name not in ("steps", "output tokens")


def held(log: EventLog, step: int, us: int) -> EventLog:
    """Return the log of the same run, whose engine was paused for `us` before a step."""
    late, now, other = 0, 0, EventLog()
    for event in copy.deepcopy(list(log)):
        if isinstance(event, v.StepStarted) and event.step == step:
            late = us
            for pause in (v.EnginePaused({"at": now}), v.EngineResumed({"at": now + us})):
                other.append(pause)
        t = getattr(event, "t", {})
        for name in t.keys() & {"at", "start", "scheduled", "end"}:
            t[name] += late
        now = t.get("end", now)
        other.append(event)
    return other


def test_a_pause_is_shown_and_not_counted(log):
    paused = held(log, 20, 12_800_000)
    comparison = compare(log, paused)
    change = comparison.totals.change
    assert change.pop("paused or idle, ms") == pytest.approx(12_800)
    assert change.abs().max() == pytest.approx(0)
    assert comparison.requests.filter(like="_change").abs().max(axis=None) == pytest.approx(0)
    [own, steps] = [summary(one).split("\nsteps")[1].splitlines()[0] for one in (log, paused)]
    assert_names(steps, "12.8 s", *own.replace(":", "").split())


def test_adopted_tokens_are_counted_in_runs_that_have_them():
    plain, moved = make(), make()
    moved.kv_transfer.adopt(PREFIX, pages(PREFIX))
    for engine in (plain, moved):
        compute(engine, [*PREFIX, 97])
    totals = compare(plain.log, moved.log).totals
    name = "tokens adopted from other replicas"
    assert tuple(totals.loc[name, ["a", "b"]]) == (0, len(PREFIX))
    assert name not in compare(plain.log, plain.log).totals.index


def test_only_a_replay_of_this_very_log_is_timed_with_it(log):
    origin, other = measured(log), measured(log)
    other[0].t["unix_us"] = 2_000_000
    for a, b in [(other, what_if(origin)), (origin, other), (origin, what_if(origin, cost=COST))]:
        comparison = compare(a, b)
        assert (comparison.facts["note"] is None) == (b is other), "else the machines differ"
        mean = read(a).requests.ttft_ms.mean(), read(b).requests.ttft_ms.mean()
        assert tuple(comparison.totals.loc["mean TTFT, ms", ["a", "b"]]) == pytest.approx(mean)


def test_requests_pair_by_prompt_label_and_order_and_others_are_named():
    workload = random_workload(3)
    for number, arrival in enumerate(workload.arrivals):
        arrival.prompt, arrival.label = [97 + number, 98], f"client {number}"
        arrival.params = msgspec.structs.replace(arrival.params, n=1)
    workload.aborts = []
    a = run(workload)
    other = copy.deepcopy(workload)
    gone = other.arrivals.pop(0)
    b = run(other)
    comparison = compare(a, b)
    names = names_of(a), names_of(b)
    [alone], none = comparison.page_facts()["unmatched"]
    assert names[0][alone] == gone.label
    assert none == []
    for id_, row in comparison.requests.iterrows():
        assert names[0][id_] == names[1][row["id_b"]] == row["name"]


def test_inputs_are_kept_apart_from_decisions():
    workload = random_workload(8)
    workload.aborts = []
    other = copy.deepcopy(workload)
    other.arrivals[0].priority += 3
    comparison = compare(run(workload), run(other))
    assert len(comparison.inputs) == 1
    assert_names(comparison.inputs[0], "priority")


def test_an_asynchronous_run_differs_from_a_synchronous_one_where_it_decides_otherwise(log):
    """The tokens of a step are logged after the next one has started, which is no difference."""
    other = asynchronous(log)
    pairs = pair(log, other)
    decided = [dict(decisions(run, ids)) for run, ids in ((log, pairs), (other, pairs))]
    for made in decided:
        assert list(made) == sorted(made)
    difference = first_difference(log, other, pairs)
    # Step 2 is scheduled before step 1 is in the tree, so its third request finds nothing there.
    assert (difference.step, difference.kind, difference.requests) == (2, "admitted", (3, 3))
    assert first_difference(other, other, pair(other, other)) is None


def test_a_run_that_goes_on_is_a_difference(log):
    ends = [i for i, event in enumerate(log) if isinstance(event, v.StepStarted)]
    part = EventLog.from_events(log[: ends[30]])
    difference = first_difference(log, part, pair(log, part))
    assert (difference.step, difference.requests) == (31, (None, None))
    decided = next(made for step, made in decisions(log, pair(log, log)) if step == 31)
    assert_names(plain(difference.a, {}), len(decided))


def test_the_page_holds_both_logs_and_no_markup_of_theirs(log, tmp_path):
    comparison = compare(log, storytellers(max_batch_size=8), names=("<b>A</b>", "</script>"))
    page = comparison.to_html(tmp_path / "two.html", theme="dark")
    assert (tmp_path / "two.html").read_text("utf-8") == page
    assert page.count("</script>") == page.count("<script") == 3
    assert "<b>A</b>" not in page


def test_without_decisions_there_is_nothing_to_compare():
    folder = Path(__file__).parents[1] / "fixtures" / "vllm"
    pair = (folder / "vllm_calm.jsonl.gz", folder / "vllm_calm.kv_events.jsonl.gz")
    found = compare(*map(read_source, pair))
    assert found.verdict.startswith("No decision can be compared")
    assert "no difference" not in repr(found)
