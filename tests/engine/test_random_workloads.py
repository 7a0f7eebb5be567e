"""The engine on random workloads: all invariants hold, and the log is complete and true.

`make soak` runs 10,000 of them (`--soak`); a failure prints the seed that repeats it.
"""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import EngineConfig, EventLog, SamplingParams
from engine.core.log import vocabulary as v
from tests.engine.invariants import check
from tests.engine.workloads import ONCE_FAILED, Arrival, Workload, random_workload, sliding_workload

# The last three are in logs of other engines only.
_OTHERS = (v.RunStarted, v.Keyframe, v.BlocksReported, v.EventsMissing, v.StepReported)
KINDS = [kind for kind in v.Event.__subclasses__() if kind not in _OTHERS]


def check_no_request_starves(workload: Workload, log: EventLog) -> None:
    """Under fcfs the head of the queue is admitted before all requests behind it."""
    if workload.config.policy == "fcfs" and not (workload.aborts or workload.failures):
        arrived = [event.request for event in log.of(v.RequestArrived)]
        first_admissions = list(dict.fromkeys(event.request for event in log.of(v.Admitted)))
        # Samples that forked off are admitted only after a preemption; they never queue again.
        assert [id_ for id_ in first_admissions if id_ in arrived] == arrived


def test_no_invariant_breaks_on_random_workloads(soak: bool, first_seed: int) -> None:
    count = 10_000 if soak else 250
    events = 0
    for seed in (*ONCE_FAILED, *range(first_seed, first_seed + count)):
        workload = random_workload(seed, may_be_async=True)
        try:
            log = check(workload)
            check_no_request_starves(workload, log)
            events += len(log)
        except Exception as error:
            raise AssertionError(
                f"workload of seed {seed} fails; repeat with --seed {seed}"
            ) from error
    print(
        f"\n{count} workloads from seed {first_seed}, {events} events, fold equals snapshot after each"
    )


def test_no_invariant_breaks_with_sliding_layers(soak: bool, first_seed: int) -> None:
    """Their memory is smaller: a page is never read after it was evicted, and they never run out."""
    count, evicted, adopted, sliding = (5_000 if soak else 80), 0, 0, 0
    for seed in range(first_seed, first_seed + count):
        try:
            log = check(sliding_workload(seed))
        except Exception as error:
            raise AssertionError(f"workload of seed {seed} fails; --seed {seed}") from error
        sliding += "num_window_pages" in log.of(v.RunStarted)[0].settings
        evicted += len(log.of(v.WindowPagesEvicted))
        adopted += sum(event.window_pages for event in log.of(v.PrefixAdopted))
    assert min(sliding, evicted, adopted) > 0
    print(f"\n{sliding} of {count} workloads have window pages, {evicted} evictions of pages")


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Small cases that hypothesis can shrink to the shortest failing one."""
    size = draw(st.integers(1, 4))
    blocks = draw(st.integers(3, 12))
    cache = draw(st.sampled_from(["radix", "hash", "off"]))
    asynchronous = draw(st.booleans())
    config = EngineConfig(
        token_budget=draw(st.integers(1, 12)),
        max_batch_size=draw(st.integers(1, 4)),
        max_kv_tokens=size * blocks,
        block_size=size,
        policy=draw(st.sampled_from(["fcfs", "priority", "sjf", "lpm", "fair"])),
        eviction=draw(st.sampled_from(["lru", "lfu"])) if cache != "hash" else "lru",
        batching=draw(st.sampled_from(["continuous", "static"])),
        chunked_prefill=draw(st.booleans()),
        prefix_cache=cache,
        preemption=draw(st.booleans()),
        admission=draw(st.sampled_from(["first_chunk", "whole"])),
        async_scheduling=asynchronous,
    )
    token = st.sampled_from([97, 98])
    arrival = st.builds(
        Arrival,
        step=st.integers(1, 8),
        prompt=st.lists(token, min_size=1, max_size=12),
        params=st.builds(
            SamplingParams,
            max_tokens=st.integers(1, 10),
            n=st.integers(1, 3),
            temperature=st.sampled_from([0.0, 1.0]),
        ),
        priority=st.integers(0, 3),
        label=st.sampled_from(["", "a", "b"]),
    )
    aborts = st.lists(st.tuples(st.integers(1, 10), st.integers(0, 5)), max_size=2)
    return Workload(
        config,
        draw(st.lists(arrival, min_size=1, max_size=5)),
        draw(aborts),
        draw(st.sets(st.integers(1, 8), max_size=1)),
        0 if asynchronous else draw(st.sampled_from([0, 3])),
        draw(st.booleans()),
    )


@settings(max_examples=80, deadline=None)
@given(workloads())
def test_no_invariant_breaks_on_small_cases(workload: Workload) -> None:
    check(workload)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_kind_of_event_is_superfluous(kind: type[v.Event]) -> None:
    """Without one kind of event in the log the fold differs from the engine."""
    windowed = kind is v.WindowPagesEvicted
    make = sliding_workload if windowed else partial(random_workload, may_be_async=True)
    for seed in range(400):
        try:
            check(make(seed), drop=kind)
        except (AssertionError, LookupError, ValueError):
            return
    pytest.fail(f"400 workloads fold to the right state without {kind.__name__}")


def test_two_runs_of_one_workload_give_equal_logs() -> None:
    for seed in range(20):
        first, second = (
            check(random_workload(seed, may_be_async=True)),
            check(random_workload(seed, may_be_async=True)),
        )
        assert first.deterministic() == second.deterministic()
