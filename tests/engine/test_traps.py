"""Defects that users of real engines reported, each as a regression test."""

import threading

import pytest

from engine.cache.block_pool import BlockPool
from engine.cache.radix_tree import RadixTree
from engine.config import ConfigError, EngineConfig
from engine.engine import Engine
from engine.events import vocabulary as v
from engine.output.calculator import evaluate
from engine.part_errors import PolicyError
from engine.scheduling.admission import RequestError
from engine.scheduling.policies import POLICIES, Fcfs
from engine.scheduling.request import Request
from engine.scheduling.sampling_params import SamplingError, SamplingParams
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.storyboard import Speaker, simulate
from tests.engine.workloads import (
    Arrival,
    Workload,
    make_engine,
    next_token,
    play,
    random_workload,
)
from tests.facts import assert_names, raises_naming

TEXT = list(range(97, 123))


def engine_with(**settings) -> Engine:
    config = EngineConfig(**{"token_budget": 64, "max_kv_tokens": 256, "block_size": 4} | settings)
    return Engine(
        CheckingRunner(lambda tokens, seed: 97 + hash((tuple(tokens), seed)) % 26), config
    )


def finish(engine: Engine, *requests: Request) -> None:
    while any(request.finish_reason is None for request in requests):
        engine.step()


def say(engine: Engine, prompt: list[int], **params) -> Request:
    return engine.submit(prompt, SamplingParams(**{"max_tokens": 4, "ignore_eos": True} | params))


def chunks(engine: Engine, request: Request) -> list[tuple[int, int]]:
    rows = [row for event in engine.log.of(v.StepScheduled) for row in event.rows]
    return [(row.start, row.count) for row in rows if row.request == request.id]


@pytest.mark.parametrize("length", [4, 8, 16])
def test_a_prompt_that_is_cached_whole_still_computes_its_last_block(length: int) -> None:
    engine = engine_with()
    finish(engine, say(engine, TEXT[:length]))
    again = say(engine, TEXT[:length])
    finish(engine, again)
    assert chunks(engine, again)[0] == (length - 4, 4)


def test_a_resumed_request_counts_its_hit_anew() -> None:
    """Its blocks may have been evicted since: the count from its first admission is stale."""
    for seed in range(600):
        workload = random_workload(seed)
        engine = make_engine(workload)
        play(engine, workload)
        resumed = [e for e in engine.log.of(v.Admitted) if e.resumed and e.blocks]
        for event in resumed:
            at = next(i for i, e in enumerate(engine.log) if e is event)
            before = engine.log.state(engine.log.next_seq - len(engine.log) + at - 1)
            cached = {block for node in before.nodes.values() for block in node.blocks}
            assert set(event.blocks) <= cached
        if resumed:
            return
    pytest.fail("no workload resumed onto a hit")


def test_two_requests_of_one_batch_with_one_prefix_end_up_sharing_it() -> None:
    engine = engine_with(max_batch_size=2)
    first, second = say(engine, TEXT[:9]), say(engine, TEXT[:9])
    engine.step()
    assert first.block_table[:2] == second.block_table[:2]
    finish(engine, first, second)
    assert first.output_ids == second.output_ids


def test_a_duplicate_is_remapped_before_its_blocks_are_freed() -> None:
    engine = engine_with(max_batch_size=2)
    first, second = say(engine, TEXT[:9]), say(engine, TEXT[:9])
    engine.step()
    [joined] = engine.log.of(v.RadixJoined)
    assert joined.request == second.id
    assert joined.blocks == first.block_table[:2]
    assert [engine.pool.refs[block] for block in joined.blocks] == [3, 3]  # two tables, one tree
    finish(engine, first, second)


def test_splitting_a_locked_node_keeps_its_lock() -> None:
    engine = engine_with(max_kv_tokens=1024)
    reader = say(engine, TEXT[:17], max_tokens=30)
    engine.step()
    other = say(engine, [*TEXT[:8], 98, 98, 98])
    engine.step()
    [split] = engine.log.of(v.RadixSplit)
    upper, lower = engine.tree.nodes[split.upper], engine.tree.nodes[split.node]
    assert (upper.lock_ref, lower.lock_ref) == (2, 1)
    finish(engine, reader, other)
    assert (upper.lock_ref, lower.lock_ref) == (0, 0)


def test_a_partial_match_refreshes_what_it_used_and_nothing_else() -> None:
    engine = engine_with()
    finish(engine, say(engine, TEXT[:16], max_tokens=1))
    finish(engine, say(engine, [*TEXT[:8], 98, 98], max_tokens=1))
    [split] = engine.log.of(v.RadixSplit)
    assert engine.tree.nodes[split.upper].last > engine.tree.nodes[split.node].last


def test_looking_up_a_match_touches_nothing() -> None:
    engine = engine_with()
    finish(engine, say(engine, TEXT[:16]))
    before = engine.snapshot()
    engine.tree.match(TEXT[:6], 1)
    assert engine.snapshot() == before


def test_a_client_gone_in_the_middle_of_a_chunk_gives_everything_back() -> None:
    engine = engine_with(token_budget=5)
    request = say(engine, TEXT[:16])
    engine.step()
    assert request.num_computed_tokens == 5
    assert engine.abort(request.id)
    engine.clear_prefix_cache()
    assert len(engine.pool.free) == engine.config.num_blocks
    assert not engine.has_work()


def test_nothing_is_decoded_after_an_abort_and_a_second_one_is_harmless() -> None:
    engine = engine_with()
    request, other = say(engine, TEXT[:4], max_tokens=20), say(engine, TEXT[4:9], max_tokens=3)
    engine.step()
    assert engine.abort(request.id)
    assert not engine.abort(request.id)
    gained = len(request.output_ids)
    finish(engine, other)
    assert len(request.output_ids) == gained
    assert [e.reason for e in engine.log.of(v.RequestFinished)] == ["abort", "length"]


def test_the_calculator_answers_off_the_main_thread() -> None:
    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.append(evaluate("17+25")))
    thread.start()
    thread.join()
    assert answers == ["42"]


def test_samples_of_one_prompt_draw_their_first_token_for_themselves() -> None:
    engine = engine_with()
    request = say(engine, TEXT[:6], n=8, temperature=1.0, max_tokens=1)
    output = engine.step()
    assert len(output.finished) == 8
    assert len({tuple(sample.output_ids) for sample in output.finished}) > 1
    assert request in output.finished


def test_release_may_be_repeated() -> None:
    engine = engine_with()
    request = say(engine, TEXT[:9])
    engine.step()
    engine.cache.free(request)
    before = list(engine.pool.free)
    engine.cache.free(request)
    assert engine.pool.free == before


def test_a_short_last_chunk_of_a_prompt_is_prefill() -> None:
    engine = engine_with(token_budget=8)
    request = say(engine, TEXT[:9], max_tokens=3)
    finish(engine, request)
    assert chunks(engine, request) == [(0, 8), (8, 1), (9, 1), (10, 1)]
    assert engine.log.steps.prefill_tokens.tolist() == [8, 1, 0, 0]


class VictimFirst(Fcfs):
    """Preempt the oldest request, which may already be scheduled in this step."""

    def victim(self, running, needed_by):
        return running[0] if running[0] is not needed_by else running[-1]


def test_an_earlier_victim_is_refunded_and_no_request_is_skipped() -> None:
    speakers = [Speaker(f"r{i}", 1, "", 0, 7, 12) for i in range(4)]
    config = EngineConfig(token_budget=32, max_kv_tokens=11 * 4, block_size=4)
    engine, _ = simulate(config, speakers, policy=VictimFirst())
    preempted = engine.log.of(v.Preempted)
    assert any(event.refunded == 1 for event in preempted)
    for event in engine.log.of(v.StepScheduled):
        assert event.rows
        assert not event.skipped  # the budget is ample: every running request gets a row


def test_memory_needs_are_counted_anew_after_each_victim() -> None:
    """The same samples, over and over, in a memory too small for them: no livelock."""
    params = SamplingParams(max_tokens=9, n=3, temperature=1.0, ignore_eos=True)
    config = EngineConfig(token_budget=8, max_batch_size=3, max_kv_tokens=6 * 3, block_size=3)
    workload = Workload(config, [Arrival(1, TEXT[:7], params)])
    requests = play(make_engine(workload), workload)
    assert [len(request.output_ids) for request in requests] == [9, 9, 9]


def test_a_victim_that_does_not_run_is_rejected() -> None:
    class Confused(Fcfs):
        def victim(self, running, needed_by):
            return Request(99, [1], [""], SamplingParams())

    speakers = [Speaker(f"r{i}", 1, "", 0, 7, 12) for i in range(4)]
    config = EngineConfig(token_budget=32, max_kv_tokens=11 * 4, block_size=4)
    with raises_naming(PolicyError, "Confused.victim", 99):
        simulate(config, speakers, policy=Confused())


@pytest.mark.parametrize(
    ("settings", "prompt", "params", "field"),
    [
        ({}, [], {}, "prompt"),
        ({}, [97] * 300, {}, "prompt"),
        ({}, [97] * 250, {"max_tokens": 30}, "max_tokens"),
        ({}, [97, 10_000], {}, "prompt"),
        ({}, [-1], {}, "prompt"),
        ({"preemption": False}, [97] * 9, {"n": 4, "max_tokens": 64}, "n"),
        ({"chunked_prefill": False, "token_budget": 8}, [97] * 9, {}, "prompt"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused_by_name(
    settings, prompt, params, field
) -> None:
    engine = engine_with(**settings)
    with pytest.raises(RequestError) as caught:
        say(engine, prompt, **params)
    assert caught.value.field == field
    assert_names(caught.value, field)
    assert not engine.has_work()
    assert len(engine.log) == 1


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"block_size": 0}, ["block_size", 1, 0]),
        ({"token_budget": 2.5}, ["token_budget", 2.5]),
        ({"max_batch_size": True}, ["max_batch_size", True]),
        ({"max_kv_tokens": 8}, ["max_kv_tokens", 8]),
        ({"batching": "lazy"}, ["batching", "continuous", "static", "lazy"]),
        ({"prefix_cache": 1}, ["prefix_cache", "radix", "hash", "off", 1]),
        ({"prefix_cache": "tree"}, ["prefix_cache", "radix", "hash", "off", "tree"]),
        ({"admission": "all"}, ["admission", "whole", "first_chunk", "all"]),
        ({"prefix_cache": "hash", "eviction": "lfu"}, ["eviction", "lru", "lfu", "hash"]),
    ],
)
def test_a_wrong_setting_is_refused_by_name(settings, facts) -> None:
    with raises_naming(ConfigError, *facts):
        EngineConfig(**settings)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with raises_naming(ConfigError, "policy", *POLICIES, "lifo"):
        engine_with(policy="lifo")


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"n": 0}, "n"),
        ({"seed": "x"}, "seed"),
        ({"ignore_eos": 1}, "ignore_eos"),
    ],
)
def test_a_wrong_sampling_parameter_is_refused_by_name(params, field) -> None:
    with pytest.raises(SamplingError) as caught:
        SamplingParams(**params)
    assert caught.value.field == field


def test_a_failed_forward_pass_ends_its_requests_and_nothing_else() -> None:
    workload = Workload(
        EngineConfig(token_budget=4, max_batch_size=1, max_kv_tokens=64, block_size=4),
        [Arrival(1, TEXT[:6], SamplingParams(max_tokens=3, ignore_eos=True)) for _ in range(2)],
        failures={2},
    )
    engine = make_engine(workload)
    broken, served = play(engine, workload)
    assert (broken.finish_reason, served.finish_reason) == ("error", "length")
    assert_names(broken.error, "RuntimeError")
    engine.clear_prefix_cache()
    assert len(engine.pool.free) == engine.config.num_blocks


def test_the_pool_refuses_what_would_corrupt_it() -> None:
    pool = BlockPool(2)
    [block] = pool.allocate(1)
    with raises_naming(ValueError, 2, 1):
        pool.allocate(2)
    pool.release([block])
    with raises_naming(ValueError, block):
        pool.release([block])
    with raises_naming(ValueError, block):
        pool.share([block])


def test_leaves_are_found_however_often_they_were_locked() -> None:
    """The heap of leaves keeps stale entries; it must neither grow without bound nor lose a leaf."""
    tree = RadixTree(block_size=1)
    leaf = tree.insert(tree.root, [5], [0])
    for _ in range(1000):
        tree.move_lock(tree.root, leaf)
        tree.move_lock(leaf, tree.root)
    assert len(tree._leaves) < 100
    assert tree.next_victim() is leaf


def test_complete_serves_prompts_in_order_and_refuses_while_paused() -> None:
    engine = engine_with()
    done = engine.complete(["abc", "de"], SamplingParams(max_tokens=3, n=2), progress=False)
    assert [completion.request_id for completion in done] == [1, 2, 3, 4]
    assert done[0].token_ids == done[1].token_ids  # greedy
    engine.pause()
    with raises_naming(RuntimeError, "resume"):
        engine.complete(["abc"], progress=False)


def test_an_interrupted_forward_pass_ends_its_step_and_the_engine_goes_on() -> None:
    class Interrupted(CheckingRunner):
        presses = 1

        def run(self, rows, copies):
            done = super().run(rows, copies)
            if len(rows) > 1 and self.presses:
                self.presses -= 1
                raise KeyboardInterrupt
            return done

    prompts, params = [[97, 98, 99], [97, 99], [98]], SamplingParams(max_tokens=9, n=2)
    config = EngineConfig(block_size=4)
    whole = Engine(Interrupted(next_token), config)
    whole.runner.presses = 0
    expected = [one.token_ids for one in whole.complete(prompts, params, progress=False)]

    engine = Engine(Interrupted(next_token), config)
    requests = [engine.submit(prompt, params) for prompt in prompts]
    with pytest.raises(KeyboardInterrupt):
        while engine.has_work():
            engine.step()
    assert engine.log.state().core() == engine.snapshot()
    seen = dict(engine.requests)
    while engine.has_work():
        engine.step()
        seen |= engine.requests
    samples = [seen[first.id + sample] for first in requests for sample in range(2)]
    assert [request.output_ids for request in samples] == expected


@pytest.mark.parametrize("after", ["copies", "forward pass"])
def test_an_interrupt_repeats_no_copy_whose_source_has_been_overwritten(after: str) -> None:
    """The source may be the block that another request of the same step was given to write into."""

    class Interrupted(CheckingRunner):
        copied = interrupted = False

        def run(self, rows, copies):
            done = super().run(rows, copies)
            self.copied = self.copied or bool(copies)
            if self.copied and not self.interrupted and (rows or after == "copies"):
                self.interrupted = True
                raise KeyboardInterrupt
            return done

    runner = Interrupted(lambda tokens, seed: 97 + len(tokens) % 5 + seed)
    engine = Engine(runner, EngineConfig(max_kv_tokens=20, block_size=4, max_batch_size=4))
    copying = say(engine, TEXT[:6], max_tokens=2, n=2, temperature=1.0)
    overwriting = say(engine, TEXT[6:14], max_tokens=2)
    with pytest.raises(KeyboardInterrupt):
        finish(engine, copying)
    [copied], [_, taken] = engine.log.of(v.BlockCopied), allocated(engine, overwriting)
    assert copied.source in taken.blocks
    finish(engine, overwriting)
    assert (copying.error, overwriting.error) == ("", "")
    assert copying.output_ids == [97 + 6 % 5 + copying.seed, 97 + 7 % 5 + copying.seed]


def allocated(engine: Engine, request: Request) -> list[v.BlocksAllocated]:
    return [event for event in engine.log.of(v.BlocksAllocated) if event.request == request.id]
