"""Defects that users of real engines reported, each as a regression test."""

from types import SimpleNamespace

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.core.cache.block_pool import BlockPool
from engine.core.cache.radix_tree import ROOT, RadixTree
from engine.core.log import vocabulary as v
from engine.core.request import Request
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.workloads import finish, next_token
from tests.facts import raises_naming

TEXT = list(range(97, 123))


def engine_with(**settings) -> Engine:
    config = EngineConfig(**{"token_budget": 64, "max_kv_tokens": 256, "block_size": 4} | settings)
    return Engine(
        CheckingRunner(lambda tokens, seed: 97 + hash((tuple(tokens), seed)) % 26), config
    )


def say(engine: Engine, prompt: list[int], **params) -> Request:
    return engine.submit(prompt, SamplingParams(**{"max_tokens": 4, "ignore_eos": True} | params))


def test_release_may_be_repeated() -> None:
    engine = engine_with()
    request = say(engine, TEXT[:9])
    engine.step()
    engine.cache.free(request)
    before = list(engine.pool.free)
    engine.cache.free(request)
    assert engine.pool.free == before


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
    owner = SimpleNamespace(last_node=ROOT)
    for _ in range(1000):
        tree.move_lock(owner, leaf)
        tree.move_lock(owner, tree.root)
    assert len(tree._leaves) < 100
    assert tree.next_victim() is leaf


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
        finish(engine)
    assert engine.log.state().core() == engine.snapshot()
    seen = finish(engine)
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
        finish(engine)
    [copied] = engine.log.of(v.BlockCopied)
    allocated = engine.log.of(v.BlocksAllocated)
    [_, taken] = [event for event in allocated if event.request == overwriting.id]
    assert copied.source in taken.blocks
    finish(engine)
    assert (copying.error, overwriting.error) == ("", "")
    assert copying.output_ids == [97 + 6 % 5 + copying.seed, 97 + 7 % 5 + copying.seed]
