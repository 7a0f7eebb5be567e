"""The engine beside vLLM, decision for decision, on recorded workloads.

`record_vllm.py` says how to record them again. The snapshot lists every difference that is left: the
test fails if one appears or disappears. After an intended change, run this and read the diff:

    pytest tests/parity --update-snapshots
"""

import msgspec
import pytest

from parity.records import DECISIONS_OF_VLLM, Recording, Row, Step, read
from tests.parity.comparing import (
    CAUSES,
    compare,
    first_difference,
    listing,
    shares_equally,
    table,
)
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
    assert header["scheduler_reserve_full_isl"] is True
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


def _changed(steps: list[Step], at: int, **fields: object) -> list[Step]:
    return [*steps[:at], msgspec.structs.replace(steps[at], **fields), *steps[at + 1 :]]


def test_each_kind_of_change_is_found() -> None:
    rows = [Row(1, 0, 8), Row(2, 4, 4)]
    steps = [
        Step(rows, [], [], 9, {1: [0, 1], 2: [0, 2]}),
        Step([Row(1, 8, 1)], [2], [1], 7, {1: [0, 1, 3]}),
    ]
    assert first_difference(steps, steps) is None
    changes = {
        "schedules more": (0, {"rows": [*rows, Row(3, 0, 1)]}),
        "schedules less": (0, {"rows": rows[:1]}),
        "finds more": (0, {"rows": [rows[0], Row(2, 6, 2)]}),
        "finds less": (0, {"rows": [rows[0], Row(2, 0, 8)]}),
        "splits differently": (0, {"rows": [Row(1, 0, 7), rows[1]]}),
        "preempts others": (1, {"preempted": [1]}),
        "preempts more": (1, {"preempted": [2, 1]}),
        "preempts less": (1, {"preempted": []}),
        "finishes differently": (1, {"finished": []}),
    }
    for kind, (at, fields) in changes.items():
        found = first_difference(_changed(steps, at, **fields), steps)
        assert found is not None, kind
        assert (found.kind, found.step) == (kind, at + 1)
    shorter = first_difference(steps[:1], steps)
    assert shorter is not None
    assert shorter.kind == "length"


def test_renumbered_blocks_share_equally_and_a_copy_does_not() -> None:
    steps = [Step([Row(1, 0, 8), Row(2, 4, 4)], [], [], 9, {1: [0, 1], 2: [0, 2]})]
    renumbered = _changed(steps, 0, tables={1: [5, 4], 2: [5, 3]})
    copied = _changed(steps, 0, tables={1: [0, 1], 2: [3, 2]})
    assert shares_equally(renumbered, steps)
    assert not shares_equally(copied, steps)
