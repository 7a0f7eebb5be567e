"""The playground in Python: settings start runs, one at a time, and the run before stays."""

import asyncio
import importlib
import re
import threading

import ipywidgets as widgets
import pytest

from engine import Cost, EngineConfig, simulate
from engine.core.log.vocabulary import Preempted
from engine.simulation.scenarios import scenario
from tests.facts import assert_names, raises_naming
from visualizer import playground, read, show
from visualizer.logs import StepIndex
from visualizer.playing import rerun
from visualizer.playing.numbers import MIME, UNITS, change, numbers, plots, table
from visualizer.playing.playground import Playground
from visualizer.playing.rerun import Setup, SetupError
from visualizer.reading.opening import opening


@pytest.fixture(autouse=True)
def no_figures(request, monkeypatch):
    """Figures take longer than the run and have a test of their own."""
    if "figures" not in request.node.name:
        module = importlib.import_module("visualizer.playing.playground")
        monkeypatch.setattr(module, "plots", lambda *_: [{}] * 4)


def words(p: Playground) -> str:
    return p._message_box.value


def at_once(**settings: object) -> Playground:
    """A playground that runs as soon as a control moves."""
    p = playground(**settings)
    p._debounce = 0
    return p


def test_the_first_run_has_preemptions_hits_and_a_queue():
    p = playground()
    assert p.log.of(Preempted)
    assert read(p.log).steps.cached_tokens.sum() > 0
    assert read(p.log).steps.waiting.max() > 0
    assert (p.board.step, p.board.selected) == opening(p.log, StepIndex(p.log), read(p.log).regimes)
    assert p.previous is None
    assert repr(p).startswith("Playground(token_budget=48, ")
    assert repr(p) == repr(playground())
    text = p._repr_mimebundle_()["text/plain"]  # ipywidgets truncates it
    assert repr(p).startswith(text.removesuffix("…"))
    # Other widgets can hold it.
    box = widgets.HBox([p])
    saved = widgets.Widget.get_manager_state()["state"]
    assert f"IPY_MODEL_{p.model_id}" in saved[box.model_id]["state"]["children"]
    assert saved[p.model_id]["model_name"] == "VBoxModel"


def test_a_control_runs_what_it_says_and_the_run_before_stays():
    p = at_once()
    first, mine = p.log, show(p.log)
    p.controls["max_batch_size"].value = 2
    assert p.settings["max_batch_size"] == 2
    assert p.previous is first
    again = simulate(p.setup.traffic.workload, p.setup.config, cost=Cost(10, 0.25))
    assert p.log.deterministic() == again.deterministic()
    assert_names(words(p), "6 → 2")
    assert p.board.view_model.events is p.log
    assert p.board_before.view_model.events is first
    # Another board of the log does not move along.
    assert mine.view_model.events is first
    assert p.board_before.view_model is not mine.view_model
    # `set` is the same as moving controls, and moves them.
    before = p.log
    p.set(token_budget=16, shared=0)
    assert (p.controls["token_budget"].value, p.controls["shared"].value) == (16, 0)
    assert p.previous is before
    assert_names(words(p), "48 → 16", "50 → 0")


OTHER_VALUES = {
    "token_budget": 16, "max_batch_size": 3, "max_kv_tokens": 512, "block_size": 16,
    "policy": "sjf", "batching": "static", "chunked_prefill": False, "prefix_cache": "off",
    "preemption": False, "requests": 5, "rate": 10, "prompt_tokens": 50, "output_tokens": 8,
    "shared": 0, "seed": 7,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_every_control_changes_the_run(name):
    p = at_once(max_kv_tokens=400, max_batch_size=8, token_budget=96)
    p.controls[name].value = OTHER_VALUES[name]
    assert p.settings[name] == OTHER_VALUES[name]
    assert p.log.to_bytes() != p.previous.to_bytes()


def test_the_cursor_and_the_selection_stay_whatever_is_changed():
    p = playground()
    opened = p.board.step, p.board.selected
    p.set(token_budget=40)
    assert (p.board.step, p.board.selected) == opened
    p.board.step, p.board.selected = 9, 3
    for budget in (32, 24, 48):
        p.set(token_budget=budget)
        assert (p.board.step, p.board.selected) == (9, 3)
        assert (p.board_before.step, p.board_before.selected) == (9, 3)
    p.board.selected = read(p.log).requests.index[-1]
    p.set(requests=2)
    assert p.board.selected is None
    p.board.step = max(StepIndex(p.log).ends)
    p.set(output_tokens=4)
    assert p.board.step == max(StepIndex(p.log).ends)


def test_an_impossible_setting_is_reported_and_the_last_run_stays():
    p = at_once()
    log = p.log
    p.controls["max_kv_tokens"].value = 64
    assert 'role="alert"' in words(p)
    assert_names(words(p), "max_kv_tokens")
    assert p.log is log
    assert p.settings["max_kv_tokens"] == 224
    p.controls["max_kv_tokens"].value = 256
    assert 'role="status"' in words(p)
    assert p.previous is log
    with raises_naming(SetupError, "max_kv_tokens"):
        p.set(max_kv_tokens=16)
    assert p.settings["max_kv_tokens"] == 256
    # Moving back keeps the run before.
    log, before, message = p.log, p.previous, words(p)
    p.controls["max_kv_tokens"].value = 64
    p.controls["max_kv_tokens"].value = 256
    assert (p.log, p.previous, words(p)) == (log, before, message)


def test_wrong_settings_are_rejected_by_name():
    wrong = {"budget": 3, "token_budget": 0, "rate": 0, "policy": "chance"}
    for name, value in wrong.items():
        with raises_naming(SetupError, name, "token_budget" if name == "budget" else value):
            playground(**{name: value})


def test_controls_come_to_rest_first_and_there_is_one_run_at_a_time(monkeypatch):
    served, running = [], threading.Lock()
    serve = Setup.run

    def counted(self: Setup) -> rerun.Run:
        assert running.acquire(blocking=False), "two runs at a time"
        served.append(self.config.token_budget)
        try:
            return serve(self)
        finally:
            running.release()

    monkeypatch.setattr(Setup, "run", counted)

    async def drag() -> Playground:
        p = Playground(Setup())
        p._debounce = 0
        for budget in range(47, 22, -1):
            p.controls["token_budget"].value = budget
        for budget in (22, 21, 20):
            await asyncio.sleep(0)  # it is waiting for the control to rest
            p.controls["token_budget"].value = budget
        await p.settled()
        # One more while a run is in flight: it is run after that.
        p.controls["token_budget"].value = 12
        while len(served) < 3:
            await asyncio.sleep(0)
        p.controls["token_budget"].value = 14
        await p.settled()
        return p

    p = asyncio.run(drag())
    assert served == [48, 20, 12, 14]
    assert p.settings["token_budget"] == 14


def test_a_given_workload_is_served_and_has_no_controls_for_traffic():
    one = scenario("preemption")
    p = playground(one.config, one.workload)
    assert p.log.deterministic() == one.run().deterministic()
    assert "requests" not in p.controls
    assert "seed" not in p.settings
    p.set(max_kv_tokens=16 * 8)
    assert not p.log.of(Preempted)
    with raises_naming(SetupError, "requests"):
        p.set(requests=3)
    unusual = {"token_budget": 300, "max_kv_tokens": 3333, "block_size": 7}
    controls = playground(EngineConfig(**unusual)).controls
    assert {name: controls[name].value for name in unusual} == unusual


def test_a_run_that_would_take_too_long_is_truncated_and_says_so(monkeypatch):
    monkeypatch.setattr(rerun, "SIMULATED_TOKENS", 300)
    p = playground(requests=14)
    left = 14 - len(read(p.log).requests)
    assert 0 < left < 14
    assert_names(words(p), left)
    total = read(p.log).requests.prompt_tokens.sum() + read(p.log).requests.max_tokens.sum()
    assert total <= 300


def test_the_model_serves_the_same_requests():
    p = playground(requests=3, output_tokens=4)
    p.set(model=True)
    before, after = read(p.previous).requests, read(p.log).requests
    assert before.label.tolist() == after.label.tolist()
    assert before.output_tokens.tolist() == after.output_tokens.tolist()
    assert p.log[0].model["parameters"] > 0


def test_numbers_are_those_of_the_log_and_the_table_has_both_runs():
    log = scenario("preemption").run()
    found = numbers(log)
    assert list(found) == list(UNITS)
    assert (found["steps"], found["preemptions"], found["from the cache"]) == (31, 1, 72)
    assert found["memory, peak"] == 13  # the fourteenth is given away in the step that preempts
    assert found["throughput"] == pytest.approx(72 / found["whole run"])
    changes = {(10, 12): "+20 %", (10, 9.95): "−0.5 %", (10, 100): "×10", (0, 3): "+3"}
    for (before, now), said in (changes | {(4, 4): "–", (float("nan"), 4): "–"}).items():
        assert change(before, now) == said
    assert table(found, None).count("<tr>") == 2
    both = table(found, found | {"steps": 62.0})
    assert both.index("the run before") < both.index("this run") < both.index("change")
    assert "<td>62</td>" in both
    assert "<td>−50 %</td>" in both


def test_figures_are_there_for_one_run_and_for_two_and_this_run_keeps_its_colour():
    p = playground()
    p.set(max_batch_size=2)
    alone, both = plots(p.log, None), plots(p.log, p.previous)
    assert [figure["text/plain"] for figure in both] == ["ttft", "itl", "throughput", "memory"]
    titles = [figure[MIME]["layout"]["title"]["text"] for figure in both]
    assert all("this run" in title and "the run before" in title for title in titles)
    this_run = re.compile(r'color:(#\w+);[^"]*">.</span> this run')
    colours = [
        this_run.findall(figure[MIME]["layout"]["title"]["text"]) for figure in (alone[0], both[0])
    ]
    assert colours[0] == colours[1] != []
    shown = [output.outputs[0]["data"] for output in p._plots.children]
    assert shown == both
