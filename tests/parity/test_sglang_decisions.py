"""The engine's SGLang scheduler beside SGLang's own, decision for decision, on recorded workloads.

`record_sglang_scheduler.py` says how to record them again.
"""

from collections import Counter

from parity.records import read
from parity.replay import replay
from recorders.fixtures.sglang_workloads import COUNTS
from tests.parity import FIXTURES
from tests.parity.comparing import first_difference

HARD = ("mixed", "overlap", "priority")  # some of their workloads retract or preempt


def test_the_engine_decides_like_sglang() -> None:
    recordings = list(read(FIXTURES / "sglang_decisions.jsonl.gz"))
    assert Counter(one.workload.stratum for one in recordings) == COUNTS
    retracted = Counter[str]()
    for workload, theirs in recordings:
        ours = replay(workload)
        assert first_difference(ours, theirs) == "", workload.name
        assert [step.free for step in ours] == [step.free for step in theirs], workload.name
        retracted[workload.stratum] += sum(len(step.preempted) for step in theirs)
    assert retracted["tight"] > 3 and min(retracted[kind] for kind in HARD) > 0
