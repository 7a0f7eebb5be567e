"""The board in a real JupyterLab: what the browser draws, the kernel knows, and the other way round."""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbclient
import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from authoring.lab import WIDGET, cells
from engine.events import EventLog
from tests.browser.board import BoardOnPage, expect_fold
from tests.browser.conftest import NewPage
from tests.browser.notebooks import (
    open_notebook,
    open_saved,
    run_cell,
    set_theme,
    write_notebook,
)
from tests.visualizer.clusters import three_replicas
from tests.visualizer.storytellers import storytellers
from visualizer.widgets.log_model import SAVED_BYTES

CELLS = [
    'from visualizer import show\nboard = show("run.jsonl")\nboard',
    "print('kernel:', board.step, board.selected, len(board.state()['free']))",
    # A slow kernel sends the state of its widgets late, so it is set a second time; this does the same.
    "board.view_model.send_state()\nboard.step = 7\nboard.selected = 5",
]

# Whether the first cell's output has a static picture, and is drawn with it.
_HAS_PICTURE = """
() => {
  const [cell] = window.jupyterapp.shell.currentWidget.content.widgets;
  const outputs = cell.model.outputs.toJSON();
  return outputs.some(({ data }) => data?.["image/png"]);
}
"""


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A kernel answers when it gets to it: on a busy machine later than a page does."""
    expect.set_options(timeout=30_000)
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture(scope="module")
def log() -> EventLog:
    return storytellers()


def test_browser_and_kernel_agree(
    new_page: NewPage, jupyter: tuple[str, Path], log: EventLog
) -> None:
    address, work = jupyter
    log.save(work / "run.jsonl")
    write_notebook(work / "board.ipynb", CELLS)
    page = new_page(width=1400, height=1000)
    open_notebook(page, address, "board.ipynb")
    run_cell(page, 0)
    board = BoardOnPage(page).wait()
    expect_fold(board, log, 30)
    board.expect_selected(8)

    # JupyterLab draws the output again when its static picture arrives; the board keeps the focus.
    board.root.focus()
    page.wait_for_function(_HAS_PICTURE)
    expect(board.root).to_be_focused()

    # The kernel learns of actions on the board.
    board.press(".", ".")
    expect_fold(board, log, 32)
    chip = board.root.locator(".decisions .chip").first
    selected = chip.get_attribute("data-request")
    chip.click()
    expect(board.root).to_have_attribute("data-synced", f"32 {selected}")
    run_cell(page, 1)
    free = board.data("free")
    said = f"kernel: 32 {selected} {free}"
    expect(page.locator(".jp-OutputArea-output").filter(has_text="kernel:")).to_have_text(said)

    # The board shows what the kernel sets.
    run_cell(page, 2)
    expect_fold(board, log, 7)
    board.expect_selected(5)

    # Keys typed on the board are no commands of the notebook ("b" would insert a cell).
    cells = page.locator(".jp-Cell").count()
    board.press("b", "a", "d", "x", ".")
    board.expect_step(8)
    assert page.locator(".jp-Cell").count() == cells


def test_it_follows_jupyterlabs_theme(
    new_page: NewPage, jupyter: tuple[str, Path], log: EventLog
) -> None:
    address, work = jupyter
    log.save(work / "run.jsonl")
    write_notebook(work / "theme.ipynb", CELLS[:1])
    page = new_page(width=1400, height=1000)
    open_notebook(page, address, "theme.ipynb")
    run_cell(page, 0)
    board = BoardOnPage(page).wait()
    expect(board.root).to_have_attribute("data-theme", "light")
    set_theme(page, "JupyterLab Dark")
    expect(board.root).to_have_attribute("data-theme", "dark")
    expect(board.root).to_have_css("background-color", "rgb(20, 22, 26)")
    set_theme(page, "JupyterLab Light")
    expect(board.root).to_have_attribute("data-theme", "light")


def nth(page: Page, index: int) -> BoardOnPage:
    """One of several boards in a notebook, from 0."""
    board = BoardOnPage(page)
    board.root = page.locator(".underglass").nth(index)
    return board.wait()


def test_panels_of_one_log_move_together_in_the_page_and_the_kernel_hears(
    new_page: NewPage, jupyter: tuple[str, Path], log: EventLog
) -> None:
    address, work = jupyter
    log.save(work / "run.jsonl")
    cells = [
        "from engine.events import EventLog\nfrom visualizer import BlockMap, Timeline, Tokens, show\n"
        'log = EventLog.load("run.jsonl")\ntimeline = Timeline(log)\ntimeline',
        "blocks = BlockMap(log)\nblocks",
        "show(log, step=5)",
        "print('kernel:', timeline.step, blocks.step, blocks.selected, blocks.range,"
        " blocks.url_fragment())",
        "timeline.step, blocks.selected, blocks.axis = 12, 5, 'steps'",
    ]
    write_notebook(work / "panels.ipynb", cells)
    page = new_page(width=1400, height=3000)
    open_notebook(page, address, "panels.ipynb")
    for index in range(3):
        run_cell(page, index)
    timeline, blocks, other = (nth(page, index) for index in range(3))
    expect(timeline.root.locator("section")).to_have_count(1)
    expect(blocks.root.locator("section.map")).to_have_count(1)
    expect_fold(blocks, log, 30)

    # In the page they move in the same frame: the kernel is not asked.
    page.evaluate(
        "document.querySelector('.underglass').dispatchEvent("
        "new KeyboardEvent('keydown', { key: '.', bubbles: true }))"
    )
    timeline.settle()
    assert (timeline.data("step"), blocks.data("step")) == ("31", "31")
    timeline.press("x", "ArrowDown", "[", ".", "]")
    blocks.expect_step(32)
    blocks.expect_selected(9)
    other.expect_step(5)
    expect(timeline.root).to_have_attribute("data-range", "31-32")
    expect(timeline.root).to_have_attribute("data-synced", "32 9")
    run_cell(page, 3)
    link = "#step=32&selected=9&range=31-32&axis=time&panel=blocks"
    expect(page.locator(".jp-OutputArea-output").filter(has_text="kernel:")).to_have_text(
        f"kernel: 32 32 9 (31, 32) {link}"
    )
    run_cell(page, 4)
    for panel in (timeline, blocks):
        panel.expect_step(12)
        panel.expect_selected(5)
    expect(timeline.root).to_have_attribute("data-axis", "steps")
    other.expect_step(5)
    expect(other.root).to_have_attribute("data-axis", "steps")


def test_a_decision_links_to_its_function_where_jupyterlab_serves_the_project(
    new_page: NewPage, jupyter: tuple[str, Path], log: EventLog
) -> None:
    address, work = jupyter
    log.save(work / "run.jsonl")
    # As if the project had been cloned into the folder that JupyterLab serves.
    source = (
        "from pathlib import Path\nfrom visualizer.widgets import log_model\n"
        "log_model.PROJECT = Path.cwd()\n"
    )
    write_notebook(work / "source.ipynb", [source + CELLS[0]])
    file = work / "engine" / "scheduling" / "scheduler.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("# the scheduler\n")
    page = new_page(width=1400, height=1400)
    open_notebook(page, address, "source.ipynb")
    run_cell(page, 0)
    board = BoardOnPage(page).wait()
    link = board.root.locator(".source a")
    expect(link).to_have_text("engine/scheduling/scheduler.py::_schedule_running")
    expect(link).to_have_attribute("href", "/lab/tree/engine/scheduling/scheduler.py")


LARGE = """\
import random
from engine import Engine, EngineConfig, SamplingParams
from engine.simulation.cost_runner import CostRunner
from visualizer import show
runner = CostRunner(10, 0.25)
config = EngineConfig(max_kv_tokens=16384, token_budget=4096, max_batch_size=8)
engine = Engine(runner, config, clock=runner.clock)
chance = random.Random(1)
for _ in range(1000):
    label = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=4000))
    engine.submit("Once upon a time", SamplingParams(max_tokens=2), label=label)
    engine.step()
board = show(engine.log)
print("packed:", len(board.view_model.packed), "steps:", len(board.view_model.steps.ends))
board
"""


def trust(path: Path) -> None:
    """Signs a notebook for the server of the fixture: JupyterLab draws no widget of others unasked."""
    home = path.parents[1]
    environment = {**os.environ, "JUPYTER_DATA_DIR": str(home / "jupyter_data_dir")}
    command = [sys.executable, "-m", "nbformat.sign", str(path)]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def test_a_board_of_a_large_log_saves_little_and_shows_all_of_it(
    new_page: NewPage, jupyter: tuple[str, Path]
) -> None:
    address, work = jupyter
    path = work / "large.ipynb"
    write_notebook(path, [LARGE])
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(work)}}).execute()
    nbformat.write(notebook, path)
    trust(path)
    said = notebook.cells[0].outputs[0].text.split()
    packed, steps = int(said[1]), int(said[3])
    assert packed > 2_000_000
    assert path.stat().st_size < 2_000_000

    # Opened without a kernel that knows it, the board shows the part that was saved and says so.
    page = new_page(width=1400, height=1400)
    open_saved(page, address, "large.ipynb", page.locator(".underglass"))
    board = BoardOnPage(page).wait()
    note = board.root.locator(".part")
    for fact in (f"{packed / 1e6:.1f} MB", f"{SAVED_BYTES / 1e6:.1f} MB", "to_html"):
        expect(note).to_contain_text(fact)
    assert int(board.data("steps")) < steps

    # With one it shows everything.
    run_cell(page, 0)
    expect(board.root).to_have_attribute("data-steps", str(steps), timeout=60_000)
    expect(board.root.locator(".part")).to_have_count(0)


STATE = "application/vnd.jupyter.widget-state+json"
PNG = b"\x89PNG\r\n\x1a\n"
COMPARED = """\
from engine import what_if
from engine.events import EventLog
from visualizer import compare
log = EventLog.load("run.jsonl")
compare(log, what_if(log, token_budget=48))"""


def wait_for_pictures(page: Page, count: int) -> list[bytes]:
    """The pictures in the open notebook's outputs, once there are `count`."""
    page.wait_for_function(
        """(count) => {
          const { cells } = window.jupyterapp.shell.currentWidget.model.sharedModel.toJSON();
          const outputs = cells.flatMap(({ outputs }) => outputs);
          return outputs.filter(({ data }) => data?.["image/png"]).length === count;
        }""",
        arg=count,
        timeout=30_000,
    )
    bundles = [output.get("data", {}) for one in cells(page) for output in one["outputs"]]
    return [base64.b64decode(data["image/png"]) for data in bundles if "image/png" in data]


def save(page: Page) -> None:
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")


def type_and_save(field: Locator, value: str) -> None:
    """Enter a value and save the notebook at once, before the kernel can have the value."""
    field.evaluate(
        """(field, value) => {
          field.value = value;
          field.dispatchEvent(new Event("input", { bubbles: true }));
          return window.jupyterapp.commands.execute("docmanager:save");
        }""",
        value,
    )


def shut_down(page: Page) -> None:
    """End the open notebook's kernel."""
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")


def reopen_without_kernel(page: Page, address: str, name: str) -> None:
    """End the notebook's kernel, reload the page, and end the kernel that JupyterLab starts.

    JupyterLab asks that kernel for its widgets before it draws the saved ones, and draws none when
    the kernel ends meanwhile.
    """
    shut_down(page)
    open_saved(page, address, name, page.locator(".underglass").first)
    shut_down(page)


def test_a_saved_board_steps_and_selects_without_a_kernel(
    new_page: NewPage, jupyter: tuple[str, Path], log: EventLog
) -> None:
    address, work = jupyter
    log.save(work / "run.jsonl")
    path = work / "saved.ipynb"
    write_notebook(path, [CELLS[0], COMPARED])
    page = new_page(width=1400, height=3000)
    open_notebook(page, address, path.name)
    run_cell(page, 0)
    board = BoardOnPage(page).wait()
    board.press(".", ".")
    run_cell(page, 1)
    comparison = page.locator(".underglass.compare")
    expect(comparison).to_have_attribute("data-ready", "true")

    # Each output gets a picture, and what the output shows stays: the same element, the same step.
    page.evaluate("() => { document.querySelector('.underglass').isTheFirst = true; }")
    pictures = wait_for_pictures(page, 2)
    assert all(picture.startswith(PNG) and 10_000 < len(picture) < 150_000 for picture in pictures)
    expect_fold(board, log, 32)
    assert page.evaluate("() => document.querySelector('.underglass').isTheFirst")
    expect(page.locator(".underglass:not(.compare, .compare *)")).to_have_count(1)
    expect(page.locator(".underglass.compare")).to_have_count(1)
    board.press(".")
    expect(board.root).to_have_attribute("data-synced", "33 8")
    board.root.locator("[data-act=slo]").click()
    type_and_save(board.root.locator("input[name=ttft]"), "81")
    notebook = nbformat.read(path, as_version=4)
    assert all({WIDGET, "image/png"} <= one.outputs[0].data.keys() for one in notebook.cells)
    state = notebook.metadata.widgets[STATE]["state"]
    assert sum("log" in one["state"] for one in state.values()) == 3
    assert [81, 40] in [one["state"].get("slo") for one in state.values()]

    reopen_without_kernel(page, address, path.name)
    board = BoardOnPage(page).wait()
    expect_fold(board, log, 33)
    expect(board.root.locator("[data-act=slo]")).to_contain_text("81")
    board.press(",", ",", ",")
    expect_fold(board, log, 30)
    chip = board.root.locator(".decisions .chip").first
    chip.click()
    board.expect_selected(chip.get_attribute("data-request") or "")
    comparison = page.locator(".underglass.compare")
    expect(comparison).to_have_attribute("data-ready", "true")
    comparison.locator("button[data-shows='a']").click()
    expect(comparison.locator(".run .underglass").first).to_have_attribute("data-ready", "true")
    step = int(comparison.get_attribute("data-step") or 0)
    comparison.locator(".run .underglass").first.press(".")
    expect(comparison).to_have_attribute("data-step", str(step + 1))

    # Saved without a kernel it is still there; run again and saved, what it was before is not.
    save(page)
    assert nbformat.read(path, as_version=4).metadata.widgets[STATE]["state"] == state
    open_notebook(page, address, path.name)
    run_cell(page, 0)
    run_cell(page, 1)
    wait_for_pictures(page, 2)
    save(page)
    again = nbformat.read(path, as_version=4).metadata.widgets[STATE]["state"]
    assert len(again) == len(state)
    assert not again.keys() & state.keys()


def test_a_cluster_is_saved_where_the_reader_has_just_gone(
    new_page: NewPage, jupyter: tuple[str, Path]
) -> None:
    address, work = jupyter
    three_replicas().save(work / "cluster.jsonl")
    path = work / "cluster.ipynb"
    write_notebook(path, ["from visualizer import show\nshow('cluster.jsonl', at_ms=100)"])
    page = new_page(width=1400, height=3000)
    open_notebook(page, address, path.name)
    run_cell(page, 0)
    board = page.locator(".underglass.cluster")
    expect(board).to_have_attribute("data-ready", "true")
    wait_for_pictures(page, 1)
    at = board.evaluate(
        """async (board) => {
          const before = board.dataset.at;
          board.dispatchEvent(new KeyboardEvent("keydown", { key: ".", bubbles: true }));
          while (board.dataset.at === before) await new Promise(requestAnimationFrame);
          await window.jupyterapp.commands.execute("docmanager:save");
          return Number(board.dataset.at);
        }"""
    )
    state = nbformat.read(path, as_version=4).metadata.widgets[STATE]["state"]
    assert at != 100_000
    assert [one["state"]["at"] for one in state.values() if "at" in one["state"]] == [at]


def test_plain_widgets_are_saved_beside_a_board(
    new_page: NewPage, jupyter: tuple[str, Path]
) -> None:
    address, work = jupyter
    path = work / "forms.ipynb"
    form = "[ipywidgets.HTML('<b>Guess</b>'), ipywidgets.RadioButtons(options=['5', '7'])]"
    cells = ["from visualizer import show\nshow('preemption')"]
    write_notebook(path, [*cells, f"import ipywidgets\nipywidgets.VBox({form})"])
    page = new_page(width=1400, height=3000)
    open_notebook(page, address, path.name)
    run_cell(page, 0)
    BoardOnPage(page).wait()
    run_cell(page, 1)
    page.locator("input[type=radio]").nth(1).check()
    save(page)

    # The new kernel knows none of these widgets: what the page shows is what was saved.
    shut_down(page)
    open_saved(page, address, path.name, page.locator("input[type=radio]").first)
    expect(page.locator("input[type=radio]")).to_have_count(2)
    expect(page.locator("input[type=radio]").nth(1)).to_be_checked()
    expect(page.get_by_text("model not found")).to_have_count(0)
