"""The radix cache beside SGLang's `RadixCache`: match lengths and evictions on recorded histories.

`record_sglang.py` says how to record them again.
"""

from collections import Counter

import pytest

from recorders.fixtures.record_sglang import SEEDS
from tests.parity import FIXTURES
from tests.parity.radix_records import SETTINGS, Edge, History, draw, read
from tests.parity.radix_replay import EngineCache, differences
from tests.parity.writing import read_header

FILE = FIXTURES / "sglang.jsonl.gz"


@pytest.fixture(scope="module")
def histories() -> list[History]:
    return list(read(FILE))


def test_the_cache_answers_like_sglangs(histories) -> None:
    assert read_header(FILE)["engine"] == "sglang"
    assert Counter(one.setting for one in histories) == dict.fromkeys(SETTINGS, SEEDS)
    assert differences(histories) == []


def test_the_generator_still_draws_what_was_recorded(histories) -> None:
    for recorded in histories[::50]:
        for history, operation in draw(recorded.setting, recorded.seed, recorded.page):
            at = len(history.operations)
            assert recorded.operations[at][: len(operation)] == operation
            history.operations.append(recorded.operations[at])
        assert history == recorded


@pytest.mark.parametrize(("end", "victim"), [("drop", b"ab"), ("release", b"cd")])
def test_a_request_that_is_dropped_does_not_use_its_path_again(end: str, victim: bytes) -> None:
    history = History("", 0, 1, [("ab", ""), ("cd", "")])
    cache = EngineCache(history)
    for request in (0, 1):
        cache.match(request, history.tokens(request))
        cache.checkpoint(request, history.tokens(request))
    cache.drop(1)
    getattr(cache, end)(0)
    assert cache.evict(1) == [Edge(list(victim), 2)]
