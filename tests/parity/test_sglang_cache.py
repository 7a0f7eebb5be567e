"""The radix cache beside SGLang's `RadixCache`: match lengths and evictions on recorded histories.

`record_sglang.py` says how to record them again.
"""

from collections import Counter

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.core.request import Request
from engine.simulation.cost_runner import CostRunner
from recorders.fixtures.record_sglang import SEEDS
from tests.parity import FIXTURES
from tests.parity.radix_records import SETTINGS, History, read
from tests.parity.radix_replay import differences
from tests.parity.writing import read_header

FILE = FIXTURES / "sglang.jsonl.gz"


@pytest.fixture(scope="module")
def histories() -> list[History]:
    return list(read(FILE))


def test_the_cache_answers_like_sglangs(histories) -> None:
    assert read_header(FILE)["engine"] == "sglang"
    assert Counter(one.setting for one in histories) == dict.fromkeys(SETTINGS, SEEDS)
    assert differences(histories) == []


@pytest.mark.parametrize(("end", "victim"), [(None, b"ab"), ("stop", b"cd")])
def test_without_checkpoints_an_end_after_the_prompt_is_an_access(end, victim) -> None:
    cache = Engine(CostRunner(1.0, 0.0), EngineConfig(block_size=1, max_kv_tokens=4)).cache
    requests = [Request(1, list(b"ab"), [], SamplingParams(), prompt_length=2)]
    requests += [Request(2, list(b"cd"), [], SamplingParams(), prompt_length=2)]
    for request in requests:
        cache.allocate_slots(request, 2)
        request.num_computed_tokens = 2
        cache.cache_computed(request)
    requests[0].finish_reason = end
    for request in reversed(requests):
        cache.free(request)
    assert cache.tree.next_victim().tokens == list(victim)
