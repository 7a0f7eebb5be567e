"""Lesson 06's exercise: wrong cuts are refused helpfully, right ones run in the engine."""

from dataclasses import replace

import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_06 import YourSplit, attempt, cases
from engine import Cost, EngineConfig, simulate
from engine.cache.eviction import LFU, EvictionOrder
from engine.cache.radix_tree import RadixNode, RadixTree
from engine.events.vocabulary import RadixEvicted, RadixSplit
from engine.simulation.scenarios import scenario
from engine.simulation.workload import Workload, poisson, uniform
from solutions.lesson_06 import split as solution


def verdict(split) -> Verdict:
    return judge(split, cases(), attempt)


def cut_as_asked(node, at, tokens, block_size, new_id):
    """Right, except for what a wrong solution changes afterwards or passes in."""
    parent = node.parent
    upper = RadixNode(
        new_id,
        parent,
        node.tokens[:tokens],
        node.blocks[:at],
        lock_ref=node.lock_ref,
        last=node.last,
    )
    parent.children[tuple(node.tokens[:block_size])] = upper
    node.tokens, node.blocks, node.parent = node.tokens[tokens:], node.blocks[at:], upper
    upper.children[tuple(node.tokens[:block_size])] = node
    return upper


# Wrong


def nobody_protects_it(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.lock_ref = 0
    return upper


def parent_leads_past_it(node, at, block_size, new_id):
    parent, key = node.parent, tuple(node.tokens[:block_size])
    upper = solution(node, at, block_size, new_id)
    parent.children[key] = node
    return upper


def cuts_tokens_like_blocks(node, at, block_size, new_id):
    return cut_as_asked(node, at, at, block_size, new_id)


def lower_keeps_its_parent(node, at, block_size, new_id):
    parent = node.parent
    upper = solution(node, at, block_size, new_id)
    node.parent = parent
    return upper


def forgets_what_is_below(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.children = {}
    return upper


def found_by_all_its_tokens(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.children = {tuple(node.tokens): node}
    return upper


def lower_keeps_everything(node, at, block_size, new_id):
    tokens, blocks = node.tokens, node.blocks
    upper = solution(node, at, block_size, new_id)
    node.tokens, node.blocks = tokens, blocks
    return upper


def the_new_one_is_below(node, at, block_size, new_id):
    solution(node, at, block_size, new_id)
    return node


def new_ones_come_fresh(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.last = 0
    return upper


def takes_the_children_along(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.children |= node.children
    return upper


def one_block_more(node, at, block_size, new_id):
    return solution(node, at + 1, block_size, new_id)


def rebuilds_and_forgets_the_children(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    [(key, old)] = upper.children.items()
    upper.children[key] = replace(old)
    return upper


def a_ring(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.parent.parent = upper
    upper.children[(-1,)] = upper
    return upper


def returns_nothing_after_work(node, at, block_size, new_id):
    solution(node, at, block_size, new_id)


def returns_both(node, at, block_size, new_id):
    return solution(node, at, block_size, new_id), node


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            nobody_protects_it,
            [
                "Node 7 below the root, with the tokens [10, 11] in the blocks [20, 21]: 1 token a "
                "block. 1 request reads through it. Cut it after 1 block.",
                "The upper node has lock 0.",
                "One request reads through the new node as well. Who protects it?",
            ],
        ),
        (
            parent_leads_past_it,
            [
                "Asked for the block [10], the root leads to node 7.",
                "The root now reaches the tail without its head.",
            ],
        ),
        (
            cuts_tokens_like_blocks,
            [
                "2 tokens a block",
                "The upper node has 1 block and 1 token",
                "How many tokens are in 1 block of 2?",
            ],
        ),
        (lower_keeps_its_parent, ["The parent of node 7 is the root.", "miss the new node"]),
        (forgets_what_is_below, ["Below the upper node is nobody.", "who wants all 2 blocks"]),
        (found_by_all_its_tokens, ["finds its child under", "the tokens of its first block"]),
        (lower_keeps_everything, ["the rest of the edge, each block once", "What is left?"]),
        (the_new_one_is_below, ["You returned node 7", "know it by that id"]),
        (new_ones_come_fresh, ["The upper node was last used at 0.", "cutting is not using"]),
        (takes_the_children_along, ["the rest of the edge, and nothing else"]),
        (one_block_more, ["The upper node has 2 blocks", "1 block, from 20 on."]),
        (rebuilds_and_forgets_the_children, ["who still points to the old one?"]),
        (a_ring, ["Promise broken"]),
        (returns_both, ["You returned something of type tuple.", "the new upper node"]),
        (returns_nothing_after_work, ["You returned None.", "the new upper node"]),
    ],
)
def test_a_wrong_cut_is_refused_with_the_case_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


# Right


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
    key = tuple(node.tokens[:block_size])
    for _ in range(at):
        upper.blocks.append(node.blocks.pop(0))
        for _ in range(block_size):
            upper.tokens.append(node.tokens.pop(0))
    upper.parent.children[key] = upper
    upper.children = {tuple(node.tokens[:block_size]): node}
    node.parent = upper
    return upper


@pytest.mark.parametrize("right", [solution, rebuilds_both_ends, moves_block_by_block])
@pytest.mark.parametrize("name", ["split", "thirty", "preemption", "eviction"])
def test_every_right_cut_is_accepted_and_runs_in_the_engine(right, name: str, capsys) -> None:
    tree_of = check.lesson_06(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    one = scenario(name)
    tree = tree_of(one.config.block_size)
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), tree=tree)
    tree.check_integrity()
    assert log[0].classes["tree"] == "YourSplit"
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
    for seed in range(5):
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


def test_the_engine_cuts_as_the_learner_says(capsys) -> None:
    asked = []

    def watching(node, at, block_size, new_id):
        asked.append((node.id, at))
        return solution(node, at, block_size, new_id)

    one = scenario("split")
    tree = check.lesson_06(watching)(8)
    asked.clear()  # what the check asked
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), tree=tree)
    assert asked == [(event.node, event.at) for event in log.of(RadixSplit)] == [(1, 3)]


def stub(node, at, block_size, new_id):
    """Cut the edge."""
    ...


def later(node, at, block_size, new_id):
    raise NotImplementedError


@pytest.mark.parametrize("untouched", [stub, later])
def test_an_untouched_stub_is_not_written_yet_and_the_engine_runs_its_own(
    untouched, capsys
) -> None:
    tree_of = check.lesson_06(untouched)
    assert "not written yet" in capsys.readouterr().out
    assert type(tree_of(8)) is RadixTree


def test_cases_come_smallest_first() -> None:
    tokens = [cut.blocks * cut.size for cut in cases()]
    assert tokens == sorted(tokens)
