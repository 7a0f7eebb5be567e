"""What ideas saved is what a comparison with a run without them says."""

import msgspec
import pytest

from engine import EventLog, what_if
from engine.core.log.log import without_measured
from engine.simulation.rerun import recorded_cost
from tests.facts import assert_names
from visualizer import compare
from visualizer.comparing.saved import savings
from visualizer.logs import StepIndex, part_of
from visualizer.reading.durations import duration
from visualizer.scenario import gallery

OFF = {
    "prefix cache": {"prefix_cache": "off"},
    "speculation": {"drafter": None},
    "chunked prefill": {"chunked_prefill": False},
}


@pytest.mark.parametrize("name", ["hit", "thirty", "preemption", "speculation", "vllm_tight"])
def test_a_saving_is_the_difference_from_a_run_without_the_idea(name):
    log = gallery()[name].log
    found = savings(log)
    assert found
    cost = recorded_cost(log)
    run = log if name == "speculation" else what_if(log, pinned="time", cost=cost)
    for saving in found:
        comparison = compare(run, what_if(log, pinned="time", cost=cost, **OFF[saving.idea]))
        busy = comparison.totals.loc["busy time, ms"]
        assert [one / 1000 for one in saving.took] == pytest.approx([busy.a, busy.b])
        change = [us / 1000 for us in saving.requests.values()]
        assert change == pytest.approx(comparison.requests.e2e_ms_change.dropna().to_list())
        times = [duration(busy.a), duration(busy.b)] * int(abs(busy.b / busy.a - 1) > 0.01)
        assert_names(saving.words, saving.idea.split()[-1], *times)
        most = comparison.requests.loc[comparison.requests.e2e_ms_change.abs().idxmax()]
        if saving.idea != "chunked prefill":
            assert_names(saving.words, duration(most.e2e_ms_a), duration(most.e2e_ms_b))


def test_a_log_that_cannot_be_replayed_has_no_savings():
    log = gallery()["hit"].log
    cut = part_of(log, StepIndex(log).ends[3], len(log))
    started, *rest = log
    own = msgspec.structs.replace(started, classes=started.classes | {"policy": "Mine"})
    assert savings(EventLog.from_events([own, *rest])) == []
    without_times = EventLog.from_events([without_measured(event) for event in log])
    assert savings(cut) == savings(without_times) == savings(EventLog()) == []
