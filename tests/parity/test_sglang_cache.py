"""The radix cache beside SGLang's `RadixCache`: match lengths and evictions on recorded histories.

`record_sglang.py` says how to record them again. The snapshot counts the differences that are left;
after an intended change, run `pytest tests/parity --update-snapshots` and read the diff.
"""

from collections import Counter

import pytest

from tests.parity import FIXTURES
from tests.parity.radix_records import SETTINGS, History, draw, read
from tests.parity.radix_replay import compare, table
from tests.parity.record_sglang import SEEDS
from tests.parity.writing import read_header

FILE = FIXTURES / "sglang.jsonl.gz"


@pytest.fixture(scope="module")
def histories() -> list[History]:
    return list(read(FILE))


def test_the_cache_answers_like_sglangs_but_for_the_listed_differences(histories, snapshot) -> None:
    assert read_header(FILE)["engine"] == "sglang"
    assert Counter(one.setting for one in histories) == dict.fromkeys(SETTINGS, SEEDS)
    results = [(history, compare(history)) for history in histories]
    different: dict[tuple[str, str], list[str]] = {}
    for history, kind in results:
        different.setdefault((history.setting, kind), []).append(str(history.seed))
    listing = [
        f"{setting}, {kind}: {' '.join(seeds)}"
        for (setting, kind), seeds in sorted(different.items())
        if kind
    ]
    snapshot("sglang_cache", "\n".join([table(results), "", *listing, ""]))


def test_the_generator_still_draws_what_was_recorded(histories) -> None:
    for recorded in histories[::50]:
        for history, operation in draw(recorded.setting, recorded.seed, recorded.page):
            at = len(history.operations)
            assert recorded.operations[at][: len(operation)] == operation
            history.operations.append(recorded.operations[at])
        assert history == recorded
