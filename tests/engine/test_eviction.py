"""Eviction orders, and that the engine's evictions follow them."""

from types import SimpleNamespace

import pytest

from engine import ConfigError, Cost, EngineConfig, EventLog, simulate, what_if
from engine.core.cache.eviction import LFU, EvictionOrder
from engine.core.cache.radix_tree import ROOT, RadixTree
from engine.simulation.speakers import Speaker, workload_of
from tests.facts import raises_naming
from visualizer import read

COST = Cost(10, 0.25)
# A is asked three times at first, then only others: twelve blocks hold three documents of 24 tokens.
DOCUMENTS = {"A": "letter", "B": "clock", "C": "garden", "D": "winter"}
POPULAR_ONCE = workload_of(
    Speaker(f"{name}{i}", 1 + 3 * i, common=DOCUMENTS[name], shared=24, own=3, output=3)
    for i, name in enumerate("AAABCDABCD")
)


def run(setting: str = "lru", **parts) -> EventLog:
    config = EngineConfig(token_budget=64, max_kv_tokens=12 * 8, block_size=8, eviction=setting)
    return simulate(POPULAR_ONCE, config, cost=COST, **parts)


def found(log: EventLog) -> list[int]:
    """Cached tokens of each request, in the order of POPULAR_ONCE."""
    return read(log).requests.cached_tokens.tolist()


@pytest.mark.parametrize(
    ("eviction", "name", "hits"),
    [
        # D evicts A, the least recently used; A evicts B, and so on: each finds nothing.
        ("lru", "LRU", [0, 24, 24, 0, 0, 0, 0, 0, 0, 0]),
        # D evicts B, which was read once as C was, and longer ago. A stays for good.
        ("lfu", "LFU", [0, 24, 24, 0, 0, 0, 24, 0, 0, 0]),
    ],
)
def test_the_setting_decides_what_is_found_again(eviction: str, name: str, hits: list[int]) -> None:
    log = run(eviction)
    assert log[0].classes["eviction"] == name
    assert log[0].settings["eviction"] == eviction
    assert found(log) == hits


class NeverA(EvictionOrder):
    """Evict documents that begin like A last."""

    def key(self, node) -> tuple[float, ...]:
        return (node.tokens[:8] == POPULAR_ONCE.inputs[0].prompt[:8], node.last)


def test_a_tree_of_ones_own_keeps_to_the_setting() -> None:
    tree = RadixTree(8)
    assert found(run("lfu", tree=tree))[6] == 24
    assert isinstance(tree.eviction, LFU)


def test_what_if_replays_with_another_order_and_asks_for_ones_own() -> None:
    lru, lfu, own = run(), run("lfu"), run(eviction=NeverA())
    assert own[0].classes["eviction"] == "NeverA"
    assert found(own)[6] == 24
    other = what_if(lru, cost=COST, eviction="lfu")
    assert other.deterministic()[1:] == lfu.deterministic()[1:]
    with raises_naming(ConfigError, "eviction", "NeverA"):
        what_if(own, cost=COST)
    again = what_if(own, cost=COST, eviction=NeverA())
    assert again.deterministic()[1:] == own.deterministic()[1:]


class Ageing(EvictionOrder):
    """A key that grows with events elsewhere in the tree."""

    level = 0

    def key(self, node) -> tuple[float, ...]:
        return (self.level if node.tokens[0] < 3 else 1, node.last)


def test_a_key_that_has_grown_since_it_was_asked_is_asked_again() -> None:
    order = Ageing()
    tree = RadixTree(1, order)
    young, old = (tree.insert(tree.root, [token], [token]) for token in (2, 7))
    owner = SimpleNamespace(last_node=ROOT)
    for leaf in (young, old, tree.root):
        tree.move_lock(owner, leaf)
    assert tree.next_victim() is young
    order.level = 2
    assert tree.next_victim() is old
