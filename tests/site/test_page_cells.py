"""Cells of a lesson as a page runs them: the same module, in CPython."""

import asyncio
import sys
import types
from collections.abc import Callable

import pytest

import checks
import page_cells
import visualizer
from engine.core.log import EventLog
from engine.simulation.scenarios import scenario
from visualizer.logs import read_any

Run = Callable[..., list[dict]]


@pytest.fixture
def run(monkeypatch):
    """Runs cells of one lesson and returns the outputs of the last one."""
    monkeypatch.setattr(visualizer, "_MODULE_OF", dict(visualizer._MODULE_OF))
    monkeypatch.delattr(visualizer, "figures", raising=False)  # another test may have imported it
    monkeypatch.setattr(checks, "predict", checks.predict)
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name))
    page_cells.install()
    lesson = page_cells.Lesson()

    def run(*sources: str, is_changed: bool = False) -> list[dict]:
        outputs: list[dict] = []
        for number, source in enumerate(sources):
            outputs.clear()
            asyncio.run(lesson.run(number, source, outputs.append, is_changed=is_changed))
        return outputs

    return run


def text_of(outputs: list[dict], stream: str = "stdout") -> str:
    return "".join(one["text"] for one in outputs if one.get("stream") == stream)


def test_a_cell_prints_and_shows_its_last_value_unless_it_ends_with_a_semicolon(run):
    outputs = run("import sys\nprint('one')\nprint('two', file=sys.stderr)\n[3]")
    assert (text_of(outputs), text_of(outputs, "stderr")) == ("one\n", "two\n")
    assert text_of(outputs, "result") == "[3]\n"
    assert run("3;") == run("None") == []


def test_cells_share_their_names_and_may_await(run):
    assert text_of(run("import asyncio\nx = 4", "await asyncio.sleep(0)\nprint(x + 1)")) == "5\n"
    assert text_of(run("async def six(): return 6", "await six()"), "result") == "6\n"


def test_a_cell_that_waits_for_ever_takes_no_output_of_a_later_one(run):
    lesson, outputs = page_cells.Lesson(), []
    lesson.names["rest"] = types.coroutine(lambda: (yield))
    stuck = lesson.run(0, "await rest()", [].append)
    stuck.send(None)
    later = lesson.run(1, "await rest()\nprint('mine')", outputs.append)
    later.send(None)
    stuck.close()  # as when it is destroyed
    with pytest.raises(StopIteration):
        later.send(None)
    assert text_of(outputs) == "mine\n"


def test_a_board_is_the_log_and_where_it_opens(run):
    [board] = run(
        "from visualizer import show\n"
        "from engine.simulation.scenarios import scenario\n"
        "show(scenario('first_look').run(), step=8, select=5, panel='timeline', level='lanes')"
    )
    assert (board["kind"], board["module"]) == ("board", "board")
    limits = board["options"].pop("run")  # what limited the run, which Python alone computes
    assert limits["sentence"] and limits["regimes"]
    assert board["options"] == {"step": 8, "selected": 5, "only": "timeline", "level": "lanes"}
    shown = read_any(board["log"])
    assert isinstance(shown, EventLog)
    assert shown.deterministic() == scenario("first_look").run().deterministic()


def test_a_comparison_has_both_logs_and_its_facts(run):
    [shown] = run(
        "from visualizer import compare\n"
        "from engine.simulation.scenarios import scenario\n"
        "one = scenario('first_look')\n"
        "compare(one.run(), one.run(max_batch_size=5), ('four', 'five'))"
    )
    compared = shown["options"]["compare"]
    assert compared["facts"]["names"] == ["four", "five"]
    seats = [read_any(log)[0].settings["max_batch_size"] for log in (shown["log"], compared["b"])]
    assert seats == [4, 5]


ASK = 'from checks import predict\nguess = predict("00.eva", "When?", [9, 10, 11, 13])\nguess'


def test_another_answer_is_an_error_only_in_the_lesson_as_it_is_written(run):
    [error] = run(ASK, "guess.reveal(12)")
    assert error["name"] == "ValueError"
    assert "12" in text_of(run(ASK, "guess.reveal(12)", is_changed=True))


def test_an_error_has_the_line_of_the_cell_and_no_frame_of_the_page(run):
    [error] = run("def part(x):\n    return 1 / x", "a = 1\npart(0)")
    assert (error["name"], error["line"]) == ("ZeroDivisionError", 2)
    assert "<cell 1>" in error["trace"] and "<cell 0>" in error["trace"]
    assert "return 1 / x" in error["trace"] and "page_cells" not in error["trace"]
    assert run("a = = 2")[0]["line"] == 1
    assert run("import nothing_of_this_name")[0]["missing"] == "nothing_of_this_name"
