"""The engine on random workloads: all invariants hold, and the log is complete and true.

`make soak` runs 10,000 of them (`--soak`); a failure prints the seed that repeats it.
"""

from dataclasses import replace
from functools import partial

import pytest

from engine import EngineConfig, EventLog
from engine.core.log import vocabulary as v
from tests.engine.invariants import check
from tests.engine.workloads import (
    ONCE_FAILED,
    Workload,
    adapter_workload,
    named,
    random_workload,
    sliding_workload,
    tiered_workload,
)

# The last four are in logs of other engines only.
_OTHERS = (v.RunStarted, v.Keyframe, v.BlocksReported, v.EventsMissing, v.StepReported)
_OTHERS += (v.GroupTableChanged,)
KINDS = [kind for kind in v.Event.__subclasses__() if kind not in _OTHERS]


def check_no_request_starves(workload: Workload, log: EventLog) -> None:
    """Under fcfs the head of the queue is admitted before all requests behind it."""
    if workload.config.policy == "fcfs" and not (workload.aborts or workload.failures):
        arrived = [event.request for event in log.of(v.RequestArrived) if not event.output]
        first_admissions = list(dict.fromkeys(event.request for event in log.of(v.Admitted)))
        # Samples that forked off are admitted only after a preemption; they never queue again.
        assert [id_ for id_ in first_admissions if id_ in arrived] == arrived


def test_no_invariant_breaks_on_random_workloads(soak: bool, first_seed: int) -> None:
    count = 10_000 if soak else 80
    events = 0
    for seed in (*ONCE_FAILED, *range(first_seed, first_seed + count)):
        workload = random_workload(seed, may_be_async=True, may_be_begun=True)
        if seed % 8 == 7:  # several batches are in flight, and none of them fails
            workload = replace(random_workload(seed), failures=set(), draft_failures=set())
            workload.depth = 2 + seed // 8 % 4
        with named(seed):
            log = check(workload)
            check_no_request_starves(workload, log)
            events += len(log)
    print(
        f"\n{count} workloads from seed {first_seed}, {events} events, fold equals snapshot after each"
    )


def test_no_invariant_breaks_with_sglangs_scheduler(soak: bool, first_seed: int) -> None:
    for seed in range(first_seed, first_seed + (2_000 if soak else 16)):
        drawn = random_workload(seed)
        config, size = drawn.config, drawn.config.block_size
        sglang = EngineConfig.like(
            "sglang",
            scheduler=("sglang", "sglang_mixed")[seed % 2],
            token_budget=max(config.token_budget, size, config.max_batch_size + 1),
            max_batch_size=config.max_batch_size,
            max_kv_tokens=config.max_kv_tokens + 3 * size,
            block_size=size,
            policy=("fcfs", "lpm", "priority")[seed // 2 % 3],
            async_scheduling=seed // 4 % 2 > 0,
        )
        with named(seed):
            check(replace(drawn, config=sglang, draft_length=0, draft_model=False))


def test_no_invariant_breaks_with_sliding_layers(soak: bool, first_seed: int) -> None:
    """Their memory is smaller: a page is never read after it was evicted, and they never run out."""
    count, evicted, adopted, sliding = (5_000 if soak else 20), 0, 0, 0
    for seed in range(first_seed, first_seed + count):
        with named(seed):
            log = check(sliding_workload(seed))
        sliding += "num_window_pages" in log.of(v.RunStarted)[0].settings
        evicted += len(log.of(v.WindowPagesEvicted))
        adopted += sum(event.window_pages for event in log.of(v.PrefixAdopted))
    assert min(sliding, evicted, adopted) > 0
    print(f"\n{sliding} of {count} workloads have window pages, {evicted} evictions of pages")


def test_kv_never_crosses_adapters_or_salts(soak: bool, first_seed: int) -> None:
    """A slot's adapter is in use as long as others wait for it, and each read finds its own KV."""
    count, changed, waits, hits = (5_000 if soak else 24), 0, 0, 0
    for seed in range(first_seed, first_seed + count):
        with named(seed):
            log = check(adapter_workload(seed))
        changed += sum(bool(event.evicted) for event in log.of(v.AdapterChanged))
        skipped = [one for event in log.of(v.StepScheduled) for one in event.skipped]
        waits += sum(reason == "adapter_slot" for _, reason in skipped)
        keys = {event.request: event.extra_key for event in log.of(v.RequestArrived)}
        hits += sum(bool(event.blocks and keys.get(event.request)) for event in log.of(v.Admitted))
    assert min(changed, waits, hits) > 0
    print(f"\n{count} workloads: {changed} adapters evicted, {waits} waits for a slot, {hits} hits")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_kind_of_event_is_superfluous(kind: type[v.Event]) -> None:
    """Without one kind of event in the log the fold differs from the engine."""
    apart = {
        v.WindowPagesEvicted: sliding_workload,
        v.BlocksMoved: tiered_workload,
        v.AdapterChanged: adapter_workload,
    }
    make = apart.get(kind, partial(random_workload, may_be_async=True))
    for seed in range(400):
        try:
            check(make(seed), drop=kind)
        except (AssertionError, LookupError, ValueError):
            return
    pytest.fail(f"400 workloads fold to the right state without {kind.__name__}")


def test_two_runs_of_one_workload_give_equal_logs() -> None:
    for seed in range(12):
        first, second = (
            check(random_workload(seed, may_be_async=True, may_be_begun=True)),
            check(random_workload(seed, may_be_async=True, may_be_begun=True)),
        )
        assert first.deterministic() == second.deterministic()
