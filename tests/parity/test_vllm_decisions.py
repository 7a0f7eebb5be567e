"""The engine beside vLLM, decision for decision, on recorded workloads.

`record_vllm.py` says how to record them again. The snapshot lists every difference that is left: the
test fails if one appears or disappears. After an intended change, run this and read the diff:

    pytest tests/parity --update-snapshots
"""

import pytest

from parity.records import DECISIONS_OF_VLLM, Recording, read
from tests.parity.comparing import CAUSES, compare, listing, table
from tests.parity.workloads import COUNTS, workloads
from tests.parity.writing import read_header, write

FILE = DECISIONS_OF_VLLM


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return list(read(FILE))


def test_the_engine_decides_like_vllm_but_for_the_listed_differences(recordings, snapshot) -> None:
    comparisons = [compare(recording) for recording in recordings]
    snapshot("vllm_decisions", f"{table(comparisons)}\n\n{listing(comparisons)}\n")
    assert {one.kind for one in comparisons if one.kind} <= CAUSES.keys(), "a cause is missing"


def test_the_recording_names_its_version_and_has_every_workload(recordings, tmp_path) -> None:
    header = read_header(FILE)
    assert header["engine"].startswith("vllm")
    assert header["version"]
    assert header["workloads"] == len(recordings) >= 1000
    write(tmp_path / "again.gz", header, recordings[::40])
    assert list(read(tmp_path / "again.gz")) == recordings[::40]
    for stratum in COUNTS:
        steps = [
            step for one in recordings if one.workload.stratum == stratum for step in one.steps
        ]
        assert any(step.preempted for step in steps), f"{stratum}: nothing is preempted"
    # A changed generator needs a new recording.
    assert [recording.workload for recording in recordings] == list(workloads())
