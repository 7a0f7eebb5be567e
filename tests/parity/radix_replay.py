"""Ask this project's radix cache what SGLang's was asked, and compare the answers.

python -m tests.parity.radix_replay                # the committed recording of SGLang
python -m tests.parity.radix_replay /tmp/fresh.gz  # another one, see `record_sglang.py`
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.request import Request
from engine.core.sampling_params import SamplingParams
from engine.simulation.cost_runner import CostRunner
from tests.parity import FIXTURES
from tests.parity.radix_records import Edge, History, first_difference, read


class EngineCache:
    """The engine's `SGLangCache`, asked as `radix_records.PrefixCache`."""

    def __init__(self, history: History) -> None:
        page = history.page
        pages = sum(-(-len("".join(one)) // page) for one in history.requests)
        config = EngineConfig.like("sglang", block_size=page, max_kv_tokens=pages * page)
        self._cache: Any = Engine(CostRunner(1.0, 0.0), config).cache
        self._live: dict[int, Request] = {}

    def match(self, request: int, prompt: list[int]) -> int:
        one = Request(request + 1, prompt, [], SamplingParams(), prompt_length=len(prompt))
        self._cache.attach(one, self._cache.match_prefix(one))
        self._live[request] = one
        return one.num_computed_tokens

    def checkpoint(self, request: int, tokens: list[int]) -> None:
        one = self._live[request]
        one.tokens = tokens
        self._cache.allocate_slots(one, len(tokens) - one.num_computed_tokens)
        one.num_computed_tokens = len(tokens)
        self._cache.checkpoint(one)

    def release(self, request: int) -> None:
        self._cache.free(self._live.pop(request))

    drop = release

    def evict(self, tokens: int) -> list[Edge]:
        radix = self._cache
        edges: list[Edge] = []
        while sum(edge.length for edge in edges) < tokens:
            leaf = radix.tree.next_victim()
            if leaf is None:
                break
            above = reversed(list(radix.tree.path(leaf)))
            path = [token for node in above for token in node.tokens]
            edges.append(Edge(path, len(leaf.tokens)))
            radix.evict(0, "room")
            assert leaf.id not in radix.nodes
        return edges


def differences(histories: Iterable[History]) -> list[tuple[str, int, list[Any]]]:
    """Return setting, seed and first different operation of each history that is not equal."""
    return [
        (one.setting, one.seed, operation)
        for one in histories
        if (operation := first_difference(EngineCache(one), one))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the engine with a recording of SGLang.")
    parser.add_argument("file", type=Path, nargs="?", default=FIXTURES / "sglang.jsonl.gz")
    options = parser.parse_args()
    different = differences(read(options.file))
    print(*different, f"{len(different)} histories differ", sep="\n")


if __name__ == "__main__":
    main()
