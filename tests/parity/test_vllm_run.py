"""The engine beside a whole vLLM on a CPU: the bundled model, the same prompts, greedy.

`record_vllm_run.py` says how to record it again.
"""

import pytest

from parity.records import read
from tests.parity import FIXTURES
from tests.parity.comparing import Comparison, compare_steps, listing, run_model, table

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


def test_the_engine_decides_like_a_whole_vllm_but_for_the_listed_differences(
    runs, snapshot
) -> None:
    comparisons, tokens_equal = zip(*runs, strict=True)
    assert tokens_equal == (True, True), "the model says something else than in vLLM"
    snapshot("vllm_run", f"{table(comparisons)}\n\n{listing(comparisons)}\n")
