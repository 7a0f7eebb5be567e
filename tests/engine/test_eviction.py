"""Eviction orders, and that the engine's evictions follow them."""

import pytest

from engine import ConfigError, Cost, Engine, EngineConfig, what_if
from engine.core.cache.eviction import LFU, EvictionOrder
from engine.core.cache.radix_tree import RadixTree
from tests.engine.invariants import CheckingLog
from tests.engine.storyboard import Speaker, prompt_of, simulate
from tests.facts import raises_naming
from visualizer import read

# A is asked three times at first, then only others: twelve blocks hold three documents of 24 tokens.
POPULAR_ONCE = [
    Speaker(f"{document}{i}", 1 + 3 * i, document, 24, 3, 3)
    for i, document in enumerate("AAABCDABCD")
]


def run(**parts) -> Engine:
    eviction = parts.pop("setting", "lru")
    config = EngineConfig(token_budget=64, max_kv_tokens=12 * 8, block_size=8, eviction=eviction)
    log = CheckingLog()
    engine, _ = simulate(config, POPULAR_ONCE, log=log, **parts)
    return engine


def found(engine: Engine) -> list[int]:
    """Cached tokens of each request, in the order of POPULAR_ONCE."""
    return read(engine.log).requests.cached_tokens.tolist()


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
    engine = run(setting=eviction)
    assert engine.log[0].classes["eviction"] == name
    assert engine.log[0].settings["eviction"] == eviction
    assert found(engine) == hits


class NeverA(EvictionOrder):
    """Evict documents that begin like A last."""

    def key(self, node) -> tuple[float, ...]:
        return (node.tokens[:8] == prompt_of(Speaker("", 1, "A", 8, 0, 0)), node.last)


def test_a_tree_of_ones_own_keeps_to_the_setting() -> None:
    engine = run(setting="lfu", tree=RadixTree(8))
    assert isinstance(engine.tree.eviction, LFU)
    assert found(engine)[6] == 24


def test_what_if_replays_with_another_order_and_asks_for_ones_own() -> None:
    cost = Cost(10, 0.25)
    lru, lfu, own = run(), run(setting="lfu"), run(eviction=NeverA())
    assert own.log[0].classes["eviction"] == "NeverA"
    assert found(own)[6] == 24
    assert what_if(lru.log, cost=cost).deterministic()[1:] == lru.log.deterministic()[1:]
    assert (
        what_if(lru.log, cost=cost, eviction="lfu").deterministic()[1:]
        == (lfu.log.deterministic()[1:])
    )
    with raises_naming(ConfigError, "eviction", "NeverA"):
        what_if(own.log, cost=cost)
    again = what_if(own.log, cost=cost, eviction=NeverA())
    assert again.deterministic()[1:] == own.log.deterministic()[1:]


class Ageing(EvictionOrder):
    """A key that grows with events elsewhere in the tree."""

    level = 0

    def key(self, node) -> tuple[float, ...]:
        return (self.level if node.tokens[0] < 3 else 1, node.last)


def test_a_key_that_has_grown_since_it_was_asked_is_asked_again() -> None:
    order = Ageing()
    tree = RadixTree(1, order)
    young, old = (tree.insert(tree.root, [token], [token]) for token in (2, 7))
    for leaf in (young, old):
        tree.move_lock(tree.root, leaf)
        tree.move_lock(leaf, tree.root)
    assert tree.next_victim() is young
    order.level = 2
    assert tree.next_victim() is old
