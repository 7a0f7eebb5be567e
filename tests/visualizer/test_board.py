"""The board in Python: reading logs, the opening step, the state, selection and repr."""

import base64
import gzip
from typing import Any

import pytest

from engine.core.log import EventLog, LogError
from engine.core.log.vocabulary import Forked, Preempted, StepStarted
from tests.facts import assert_names, raises_naming
from tests.visualizer.storytellers import storytellers
from visualizer import BlockMap, RadixTree, Scheduler, Timeline, Tokens, read, show, to_perfetto
from visualizer.logs import StepIndex, read_log
from visualizer.packed import told_later
from visualizer.reading.opening import eventful


def test_what_is_not_a_log_is_rejected_with_the_reason(tmp_path):
    with raises_naming(TypeError, "EventLog"):
        show({"events": []})  # type: ignore[call-overload]
    with pytest.raises(FileNotFoundError):
        show(tmp_path / "nowhere.jsonl")
    with pytest.raises(LogError):
        show("")
    with pytest.warns(UserWarning, match="line 2"):
        show(storytellers().to_bytes().split(b"\n")[0] + b'\n{"type": "surprise"}\n')


def test_it_opens_at_the_first_preemption_with_the_victim_selected(log):
    board = show(storytellers())
    first = log.of(Preempted)[0]
    before = [event for event in log[: list(log).index(first)] if isinstance(event, StepStarted)]
    assert (board.step, board.selected) == (before[-1].step, first.request)


def test_without_preemption_it_opens_at_the_fork_and_without_a_fork_at_a_large_hit():
    log = storytellers(max_kv_tokens=4096)
    (fork,) = log.of(Forked)
    first = read(log).requests.first_token_step[fork.request]
    assert eventful(log, StepIndex(log)) == (first, fork.request)
    assert show(log).step == read(log).regimes.worst
    plain = read_log("hit")
    step, request = eventful(plain, StepIndex(plain))
    assert StepIndex(plain).hits[step] == request


def test_the_state_is_the_fold_up_to_the_end_of_the_step(log):
    board = show(log, step=2)
    for step in (1, 17, 28, 53):
        board.step = step
        assert board.state()["step"] == step
        # A finished step has no plan left.
        assert board.state()["plan"] == []
    assert board.state()["requests"] == []


WRONG: list[tuple[dict[str, Any], list[object]]] = [
    ({"step": 54}, ["step", 1, 53, 54]),
    ({"range": (50, 60)}, ["range", 1, 53, 60]),
    ({"range": (9, 4)}, ["range"]),
    ({"panel": "map"}, ["panel", "timeline", "blocks"]),
    ({"axis": "days"}, ["axis", "steps", "time"]),
    ({"level": "some"}, ["level", "lanes", "memory", "all", "some"]),
]


@pytest.mark.parametrize(("view", "facts"), WRONG, ids=str)
def test_a_view_that_the_log_does_not_have_is_rejected(log, view, facts):
    with raises_naming(ValueError, *facts):
        show(log, **view)


def test_a_log_without_steps_can_be_shown_but_has_no_state(log):
    for empty in (log.to_bytes().split(b"\n")[0] + b"\n", EventLog()):
        board = show(empty)
        assert (board.step, board.selected) == (0, None)
        assert_names(repr(board), "Board", 0)
        with pytest.raises(ValueError):
            board.state()


def test_the_log_is_sent_packed_and_once_for_all_panels(log):
    board = show(log)
    sent = board.view_model.log
    assert gzip.decompress(base64.b64decode(sent)) == log.to_bytes()
    assert len(sent) < len(log.to_bytes()) / 3
    assert show(log.to_bytes()).view_model.log == sent, "the same log gives the same bytes"
    for panel in (Timeline(log), BlockMap(log), RadixTree(log), Scheduler(log), Tokens(log)):
        assert panel.view_model is board.view_model
        assert "log" not in panel.get_state()


def test_the_front_end_gets_the_log_or_its_trace_when_it_asks(log, monkeypatch):
    model = show(log).view_model
    sent: list[Any] = []
    monkeypatch.setattr(model, "send", lambda message, buffers: sent.append((message, buffers)))
    for message in ({"ask": "log"}, {"ask": "trace"}, {"ask": "nothing"}, "log"):
        model._handle_custom_msg(message, [])
    (first, (packed,)), (second, (trace,)) = sent
    assert (first, second) == ({"log": True}, {"trace": True})
    assert gzip.decompress(packed) == log.to_bytes()
    assert gzip.decompress(trace).decode() == to_perfetto(log)


def test_the_tour_that_it_asks_for_is_of_the_events_on_display_and_not_of_later_ones():
    log = storytellers()
    end = StepIndex(log).ends[20]
    shown = EventLog.from_events(log[:end])
    model = show(shown).view_model
    before, more = dict(model.run), told_later(EventLog.from_events(log[:end]))
    for event in log[end:]:
        shown.append(event)
    model._handle_custom_msg({"ask": "more"}, [])
    assert model.run == {**before, **more, "more": False} and more["saved"]


def test_panels_of_one_log_move_together_and_each_has_the_step_in_its_repr():
    log = storytellers()
    timeline, blocks = Timeline(log), BlockMap(log)
    assert (timeline.step, timeline.selected) == (30, 8)
    blocks.step = 12
    timeline.selected = 5
    assert (timeline.step, blocks.selected) == (12, 5)
    assert timeline.state() == blocks.state()
    assert_names(repr(blocks), "BlockMap", 12, 53)
    with raises_naming(ValueError, "step", 1, 53, 54):
        blocks.step = 54
    assert (timeline.step, blocks.step) == (12, 12)


def test_a_board_with_its_own_step_and_a_grown_log_leave_other_boards_alone():
    log = storytellers()
    shared, own = show(log), show(log, step=9)
    beside = Tokens(own)
    own.step = 10
    assert (shared.step, beside.step) == (30, 10)
    growing = EventLog()
    events = list(log)
    for event in events[:200]:
        growing.append(event)
    before = show(growing)
    for event in events[200:]:
        growing.append(event)
    after = show(growing)
    assert after.view_model is not before.view_model
    assert_names(repr(after), "Board", 12, 53, 30)


def test_a_notebook_saves_the_limits_of_the_goodput_and_the_browser_sets_them(log):
    board = show(log, step=12, slo=(80, 12.5))
    assert board.view_model.get_state("slo") == {"slo": [80, 12.5]}
    board.view_model.set_state({"slo": [200, 30]})
    assert board.view_model.slo == [200, 30]
    for wrong in [(1,), (-1, 2), (1, float("nan"))]:
        with raises_naming(ValueError, "slo", "TTFT", "ITL"):
            board.view_model.slo = wrong


def test_no_selection_is_none_and_only_the_wire_has_a_number_for_it(log):
    assert show(log, step=30).selected == 8, "left out, the request that the step is about"
    board = show(log, step=30, select=None)
    assert board.selected is board.view_model.selected is None
    assert board.view_model.get_state("selected") == {"selected": -1}
    for sent, selected in ((5, 5), (-1, None)):
        board.view_model.set_state({"selected": sent})
        assert board.selected == selected
