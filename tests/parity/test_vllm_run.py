"""The engine beside a whole vLLM on a CPU: the bundled model, the same prompts, greedy.

`record_vllm_run.py` says how to record it again.
"""

import pytest

from parity.records import read, read_header
from parity.replay import Comparison, compare_steps, listing, run_model, table
from tests.parity import FIXTURES

FILE = FIXTURES / "vllm_run.jsonl.gz"


@pytest.fixture(scope="module")
def runs() -> list[tuple[Comparison, bool]]:
    """How the decisions of each run compare, and whether its tokens are equal."""
    results = []
    for recording in read(FILE):
        steps, outputs = run_model(recording.workload)
        said = [ask.output for ask in recording.workload.requests]
        results.append((compare_steps(recording, steps), outputs == said))
    return results


def test_the_model_says_what_it_says_in_vllm(runs) -> None:
    assert [tokens_equal for _, tokens_equal in runs] == [True, True]


def test_the_engine_decides_like_a_whole_vllm_but_for_the_listed_differences(
    runs, snapshot
) -> None:
    comparisons = [comparison for comparison, _ in runs]
    snapshot("vllm_run", f"{table(comparisons)}\n\n{listing(comparisons)}\n")


def test_the_recorded_runs_preempt_and_find_cached_prefixes() -> None:
    assert read_header(FILE)["version"]
    recordings = list(read(FILE))
    assert [one.workload.name for one in recordings] == ["warm", "cold"]
    for recording in recordings:
        assert any(step.preempted for step in recording.steps)
        first_rows: dict[int, int] = {}
        for step in recording.steps:
            for row in step.rows:
                first_rows.setdefault(row.request, row.start)
        assert any(first_rows.values()), "no request found a cached prefix"
