"""compare: one planted change in an otherwise equal run is found, where it first decides something."""

import base64
import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.events import EventLog
from engine.events import vocabulary as v
from engine.scheduling.policies import POLICIES
from engine.simulation.what_if import what_if
from tests.engine.workloads import Workload, make_engine, play, random_workload
from tests.visualizer.storytellers import storytellers
from visualizer import compare
from visualizer.differences import first_difference, pair
from visualizer.moments import names_of


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
    # The first whom nobody follows at once: the order of arrival stays.
    for arrival, after in zip(other.arrivals, following, strict=True):
        if after is None or after.step > arrival.step:
            arrival.step += 1
            break
    return run(other)


PLANTS = [
    another_policy,
    another_priority,
    another_eviction,
    another_victim,
    one_block_more,
    one_arrival_later,
]


def decided(log: EventLog) -> Iterator[tuple[int, list[Any]]]:
    """What each step decided, straight from its events: nothing folded, nothing put in order.

    Two runs number nodes alike until they first decide otherwise; blocks they do not.
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
            case v.RadixEvicted():
                events.append(("evicted", event.node, event.needed_by))
            case v.StepScheduled():
                events.append(
                    (
                        "rows",
                        [(row.request, row.start, row.count, row.drafts) for row in event.rows],
                    )
                )
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
def test_one_planted_change_is_found_in_the_step_where_it_first_decides_something(
    plant: Callable[[Workload], EventLog],
) -> None:
    found = 0
    for seed in range(60):
        workload = random_workload(seed)
        a, b = run(workload), plant(workload)
        if requests_of(a) != requests_of(b):
            continue  # more room took somebody in who had been refused
        difference = first_difference(a, b, pair(a, b))
        assert (difference and difference.step) == first_step_that_differs(a, b), seed
        found += difference is not None
    assert found >= 5, "the plants must bear"


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_said_of_the_difference_is_true_of_both_logs(
    plant: Callable[[Workload], EventLog],
) -> None:
    """Who is said to be preempted, admitted or waiting in that step is; in the other run likewise."""
    claims = 0
    for seed in range(40):
        workload = random_workload(seed)
        logs = run(workload), plant(workload)
        difference = first_difference(*logs, pair(*logs))
        if difference is None or None in difference.requests:
            continue
        for log, words, request in zip(
            logs, (difference.a, difference.b), difference.requests, strict=True
        ):
            said = " ".join(word for word in words if isinstance(word, str))
            events = events_in(log, difference.step)
            admitted = {e.request for e in events if isinstance(e, v.Admitted)}
            preempted = {e.request for e in events if isinstance(e, v.Preempted)}
            if re.match(r" ?(it )? ?waits", said):
                assert request not in admitted or request in preempted
                claims += 1
            if len(words) > 1 and words[1] == " " and str(words[2]).startswith("is preempted"):
                assert words[0] in preempted
                claims += 1
            if len(words) > 1 and words[1] == " " and str(words[2]).startswith("is admitted"):
                assert words[0] in admitted
                claims += 1
    assert claims or plant is another_eviction


def events_in(log: EventLog, step: int) -> list[v.Event]:
    events, at = list[v.Event](), 0
    for event in log:
        at = event.step if isinstance(event, v.StepStarted) else at
        if at == step:
            events.append(event)
    return events


@pytest.mark.parametrize("seed", range(10))
def test_equal_runs_have_no_difference(seed: int) -> None:
    workload = random_workload(seed)
    comparison = compare(run(workload), run(workload))
    assert comparison.first_difference is None
    assert comparison.verdict.startswith("No difference")
    assert "no difference" in repr(comparison)
    assert comparison.settings == {}
    assert comparison.inputs == []
    assert comparison.requests["finished_step_change"].dropna().eq(0).all()


@pytest.fixture(scope="module")
def log() -> EventLog:
    return storytellers()


def test_the_difference_is_told_with_both_reasons(log: EventLog) -> None:
    comparison = compare(log, storytellers(max_kv_tokens=328), names=("before", "after"))
    assert comparison.settings == {"max_kv_tokens": (320, 328), "num_blocks": (40, 41)}
    assert comparison.first_difference == (
        "Step 22: in before 2 cached blocks (“You are a ki…: the moon is a lamp.⏎La”) are evicted for "
        "r6: 0 blocks free, the choice of LRU; in after nothing is evicted: r6 decodes one token "
        "(1 free, 2 to evict)."
    )


def test_a_larger_batch_lets_somebody_in(log: EventLog) -> None:
    comparison = compare(log, storytellers(max_batch_size=8))
    assert comparison.first_difference == (
        "Step 17: in A r9 waits: the batch is full (0 of 7 places left); in B r9 is admitted: 24 of "
        "its 58 tokens are cached (3 blocks), 34 computed now."
    )
    assert repr(comparison) == (
        "Comparison(A: 12 requests in 53 steps, B: 12 requests in 53 steps; "
        "first difference in step 17)"
    )


def test_the_log_of_what_if_is_compared_with_its_origin(log: EventLog) -> None:
    comparison = compare(log, what_if(log, token_budget=32))
    assert comparison.settings["token_budget"] == (64, 32)
    assert comparison.step == 1


def test_changes_in_latency_are_those_of_the_logs(log: EventLog) -> None:
    other = storytellers(token_budget=32)
    table = compare(log, other).requests
    assert len(table) == 12
    for id_, row in table.iterrows():
        expected = other.requests["ttft_ms"][id_] - log.requests["ttft_ms"][id_]
        assert row["ttft_ms_change"] == pytest.approx(expected)
    totals = compare(log, other).totals
    assert totals.loc["steps", "a"] == 53
    assert totals.loc["output tokens", "change"] == 0
    assert totals.loc["preemptions", "a"] == len(log.of(v.Preempted))


def test_requests_pair_by_prompt_label_and_order_and_others_are_named() -> None:
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
    assert comparison.unmatched == ([gone.label], [])
    names = names_of(a), names_of(b)
    for id_, row in comparison.requests.iterrows():
        assert names[0][id_] == names[1][row["id_b"]] == row["name"]


def test_what_came_from_outside_is_told_apart_from_decisions() -> None:
    workload = random_workload(8)
    workload.aborts = []
    other = copy.deepcopy(workload)
    other.arrivals[0].priority += 3
    comparison = compare(run(workload), run(other))
    assert len(comparison.inputs) == 1
    assert "priority" in comparison.inputs[0]


def test_windows_are_compared_from_where_both_begin(log: EventLog) -> None:
    start = next(
        i for i, event in enumerate(log) if isinstance(event, v.StepStarted) and event.step == 20
    )
    window = EventLog()
    window.append(log.state(start - 1).keyframe())
    for event in log[start:]:
        window.append(event)
    assert first_difference(log, window, pair(log, window)) is None


def test_a_run_that_goes_on_is_told(log: EventLog) -> None:
    part = EventLog()
    ends = [i for i, event in enumerate(log) if isinstance(event, v.StepStarted)]
    for event in log[: ends[30]]:
        part.append(event)
    difference = first_difference(log, part, pair(log, part))
    assert difference is not None
    assert difference.step == 31
    assert "no such step" in str(difference.b)


def test_the_page_holds_both_logs_and_no_markup_of_theirs(log: EventLog, tmp_path: Path) -> None:
    comparison = compare(log, storytellers(max_batch_size=8), names=("<b>A</b>", "</script>"))
    page = comparison.to_html(tmp_path / "two.html", theme="dark")
    assert (tmp_path / "two.html").read_text("utf-8") == page
    assert page.count("</script>") == page.count("<script") == 3
    assert "<b>A</b>" not in page


def test_two_long_logs_save_no_more_than_one(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = what_if(log, token_budget=48)
    whole = compare(log, other)
    assert whole.a.whole and whole.b.whole
    both = len(whole.a.packed) + len(whole.b.packed)
    for room in (both * 5 // 4, both - 1, both // 2, both // 3):
        monkeypatch.setattr("visualizer.comparison.SAVED_BYTES", room)
        for told in (compare(log, other), compare(other, log)):
            saved = [len(base64.b64decode(view.log)) for view in (told.a, told.b)]
            assert 0 < sum(saved) <= room
            assert (told.a.whole and told.b.whole) == (room > both)
            assert told.a.log and told.b.log
            assert told.a.step == told.b.step == told.step
