"""Lesson 06's exercise: right splits are accepted and run in the engine."""

from dataclasses import replace

import pytest

from checks import check
from checks.lesson_06 import YourSplit
from engine import Cost, EngineConfig, simulate
from engine.core.cache.eviction import LFU, EvictionOrder
from engine.core.cache.radix_tree import RadixNode, RadixTree
from engine.core.log.vocabulary import RadixEvicted, RadixSplit
from engine.simulation.scenarios import scenario
from engine.simulation.workload import Workload, poisson, uniform
from solutions.lesson_06 import split as solution

OWN = RadixTree


def size(one):
    return one.blocks * one.size


def rebuilds_both_ends(node, at, block_size, new_id):
    """Nothing that was there is changed, except what points to it."""
    parent, cut = node.parent, at * block_size
    upper = replace(node, id=new_id, tokens=node.tokens[:cut], blocks=node.blocks[:at], children={})
    lower = replace(node, parent=upper, tokens=node.tokens[cut:], blocks=node.blocks[at:])
    for child in lower.children.values():
        child.parent = lower
    upper.children[tuple(lower.tokens[:block_size])] = lower
    parent.children[tuple(upper.tokens[:block_size])] = upper
    return upper


def moves_block_by_block(node, at, block_size, new_id):
    upper = RadixNode(new_id, node.parent, lock_ref=node.lock_ref, last=node.last)
    for _ in range(at):
        upper.blocks.append(node.blocks.pop(0))
        for _ in range(block_size):
            upper.tokens.append(node.tokens.pop(0))
    around = node.parent.children.items()
    node.parent.children = {key: upper if one is node else one for key, one in around}
    upper.children = {tuple(node.tokens[:block_size]): node}
    node.parent = upper
    return upper


@pytest.mark.parametrize("right", [solution, rebuilds_both_ends, moves_block_by_block])
@pytest.mark.parametrize("name", ["split", "eviction"])
def test_every_right_cut_is_accepted_and_runs_in_the_engine(right, name: str) -> None:
    asked = []

    def watching(node, at, *more):
        asked.append((node.id, at))
        return right(node, at, *more)

    one = scenario(name)
    tree = check.lesson_06(watching)(one.config.block_size)
    asked.clear()  # calls of the check
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), tree=tree)
    tree.check_integrity()
    assert log[0].classes["tree"] == "YourSplit"
    assert asked == [(event.node, event.at) for event in log.of(RadixSplit)]
    # The same decisions as the engine's own, event by event, behind the first that names the classes.
    assert log.deterministic()[1:] == one.run().deterministic()[1:]


class ShortestFirst(EvictionOrder):
    def key(self, node):
        return (len(node.blocks), node.last)


@pytest.mark.parametrize("right", [solution, rebuilds_both_ends])
@pytest.mark.parametrize("order", [LFU, ShortestFirst])
def test_after_a_cut_the_same_is_evicted_as_after_the_engines_own(right, order) -> None:
    """A cut makes the lower part shorter, and both parts were read by the same requests."""
    config = EngineConfig(token_budget=64, max_batch_size=3, max_kv_tokens=40 * 4, block_size=4)
    for seed in range(2):
        people = Workload.generate(
            40,
            arrivals=poisson(60),
            prompt=uniform(4, 40),
            output=uniform(2, 12),
            groups=5,
            shared_tokens=20,
            seed=seed,
        )
        own = simulate(people, config, cost=Cost(10, 0.25), eviction=order())
        tree = YourSplit(right, 4)
        log = simulate(people, config, cost=Cost(10, 0.25), eviction=order(), tree=tree)
        assert len(own.of(RadixSplit)) > 5 and len(own.of(RadixEvicted)) > 20
        assert log.deterministic()[1:] == own.deterministic()[1:]
