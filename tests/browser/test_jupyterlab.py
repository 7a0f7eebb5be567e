"""The board in a real JupyterLab: what the browser draws, the kernel knows, and the other way round."""

import base64

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from authoring.lab import WIDGET, cells, open_notebook
from tests.browser.board import BoardOnPage, expect_fold
from tests.browser.exported import the_log
from tests.browser.notebooks import expect_said, open_exported, open_saved, run_cell
from tests.visualizer.clusters import three_replicas
from visualizer import read
from visualizer.widgets.log_model import SAVED_BYTES

pytestmark = pytest.mark.usefixtures("patience")

CELLS = [
    'from visualizer import show\nboard = show("run.jsonl")\nboard',
    "print('kernel:', board.step, board.selected, len(board.state()['free']))",
    # A slow kernel sends the state of its widgets late, so it is set a second time; this does the same.
    "board.view_model.send_state()\nboard.step = 7\nboard.selected = 5",
]
PANELS = [
    "from engine.core.log import EventLog\n"
    "from visualizer import BlockMap, Timeline, Tokens\n"
    'log = EventLog.load("run.jsonl")\ntimeline = Timeline(log)\ntimeline',
    "blocks = BlockMap(log)\nblocks",
    "show(log, step=5)",
    "print('kernel:', timeline.step, blocks.step, blocks.selected, blocks.view_model.range,"
    " blocks.axis)",
    "timeline.step, blocks.selected, blocks.axis = 12, 5, 'steps'",
]


@pytest.fixture(autouse=True)
def saved_log(jupyter):
    the_log().save(jupyter[1] / "run.jsonl")


def test_browser_and_kernel_agree_and_panels_of_one_log_move_together(open_cells, jupyter):
    # As if the project had been cloned into the folder that JupyterLab serves.
    source = (
        "from pathlib import Path\nfrom visualizer.widgets import log_model\n"
        "log_model.PROJECT = Path.cwd()\n"
    )
    file = jupyter[1] / "engine" / "scheduling" / "scheduler.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("# the scheduler\n")
    cells = [source + CELLS[0], *CELLS[1:], *PANELS]
    page = open_cells("board.ipynb", cells, height=4000)
    log, board = the_log(), BoardOnPage(page).wait()
    expect_fold(board, log, 30)
    board.expect_selected(8)
    # A decision links to its function where JupyterLab serves the project.
    link = board.root.locator(".source a")
    expect(link).to_have_text("engine/core/scheduling/scheduler.py::_schedule_running")
    expect(link).to_have_attribute("href", "/lab/tree/engine/core/scheduling/scheduler.py")

    # The kernel learns of actions on the board.
    board.press(".", ".")
    expect_fold(board, log, 32)
    chip = board.root.locator(".decisions .chip").first
    selected = chip.get_attribute("data-request")
    chip.click()
    expect(board.root).to_have_attribute("data-synced", f"32 {selected}")
    run_cell(page, 1)
    expect_said(page, f"kernel: 32 {selected} {board.data('free')}")

    # The kernel has what the board loads when it is wanted: the tour's page, and the scheduler's seat.
    board.root.get_by_text("Tell me").first.click()
    board.expect_data(tour=1, scenes=len(read(log).tour))
    board.press("Escape", "u")
    expect(page.locator(".seat")).to_have_attribute("data-ready", "true")
    page.keyboard.press("Escape")
    board.expect_step(32)

    # The board shows what the kernel sets.
    run_cell(page, 2)
    expect_fold(board, log, 7)
    board.expect_selected(5)

    # Keys typed on the board are no commands of the notebook ("b" would insert a cell).
    count = page.locator(".jp-Cell").count()
    board.press("b", "a", "d", "x", ".")
    board.expect_step(8)
    assert page.locator(".jp-Cell").count() == count

    for index in (3, 4, 5):
        run_cell(page, index)
    timeline, blocks, other = (
        BoardOnPage(page, page.locator(".underglass").nth(index)).wait() for index in (1, 2, 3)
    )
    expect(timeline.root.locator("section")).to_have_count(1)
    expect(blocks.root.locator("section.map")).to_have_count(1)
    expect_fold(blocks, log, 30)
    timeline.press(".", "x", "ArrowDown", "[", ".", "]")
    blocks.expect_data(step=32, selected=9)
    other.expect_step(5)
    board.expect_step(8)
    timeline.expect_data(range="31-32", synced="32 9")
    run_cell(page, 6)
    expect_said(page, "kernel: 32 32 9 [31, 32] time")
    run_cell(page, 7)
    for panel in (timeline, blocks):
        panel.expect_data(step=12, selected=5)
    expect(timeline.root).to_have_attribute("data-axis", "steps")
    other.expect_data(step=5, axis="steps")


def save(page: Page) -> None:
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")


def shut_down(page: Page) -> None:
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")


STATE = "application/vnd.jupyter.widget-state+json"
PNG = b"\x89PNG\r\n\x1a\n"
OUTPUT = ".jp-RenderedImage"
COMPARED = """\
from engine import what_if
from engine.core.log import EventLog
from visualizer import compare
log = EventLog.load("run.jsonl")
compare(log, what_if(log, token_budget=48))"""
# Labels that do not compress make the log larger than what a notebook saves of one.
LARGE = """\
import random
from engine import Engine, EngineConfig, SamplingParams
from engine.simulation.cost_runner import CostRunner
runner, chance = CostRunner(10, 0.25), random.Random(1)
engine = Engine(runner, EngineConfig(), clock=runner.clock)
for _ in range(120):
    engine.submit("Once", SamplingParams(max_tokens=2), label=chance.randbytes(20_000).hex())
    engine.step()
large = show(engine.log, step=9, level="memory")
print("packed:", len(large.view_model.packed), "steps:", len(large.view_model.steps.ends))
large"""
CLUSTER = "show('cluster.jsonl', at_ms=100, level='memory')"
FORM = """\
import ipywidgets
ipywidgets.VBox([ipywidgets.HTML('<b>Guess</b>'), ipywidgets.RadioButtons(options=['5', '7'])])"""


def wait_for_pictures(page: Page, count: int) -> list[bytes]:
    """The pictures in the open notebook's outputs, once there are `count`."""
    expect(page.locator(f"{OUTPUT} img")).to_have_count(count, timeout=30_000)
    bundles = [output.get("data", {}) for one in cells(page) for output in one["outputs"]]
    return [base64.b64decode(data["image/png"]) for data in bundles if "image/png" in data]


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


def reopen_without_kernel(page: Page, address: str, name: str) -> None:
    """End the notebook's kernel, reload the page, and end the kernel that JupyterLab starts.

    JupyterLab asks that kernel for its widgets before it draws the saved ones, and draws none when
    the kernel ends meanwhile.
    """
    shut_down(page)
    open_saved(page, address, name, page.locator(".underglass").first)
    shut_down(page)


def test_what_is_saved_is_shown_without_a_kernel_and_a_board_steps_and_selects(open_cells, jupyter):
    (address, work), log = jupyter, the_log()
    path = work / "saved.ipynb"
    three_replicas().save(work / "cluster.jsonl")
    saved = [CELLS[0], COMPARED, LARGE, CLUSTER, FORM]
    page = open_cells(path.name, saved, height=7000)
    board = BoardOnPage(page).wait()
    board.press(".", ".")
    for index in range(1, len(saved)):
        run_cell(page, index)
    comparison, cluster = page.locator(".underglass.compare"), page.locator(".underglass.cluster")
    large = BoardOnPage(page, page.locator(".jp-Cell").nth(2).locator(".underglass"))
    choices = page.locator("input[type=radio]")
    for root in (comparison, cluster):
        expect(root).to_have_attribute("data-ready", "true")

    # Each board gets a picture, which is hidden while the board is drawn.
    pictures = wait_for_pictures(page, 4)
    assert all(picture.startswith(PNG) and 10_000 < len(picture) < 150_000 for picture in pictures)
    expect_fold(board, log, 32)
    expect(page.locator(f"{OUTPUT} img:visible")).to_have_count(0)
    # The kernel sends all of a log that is too large to save.
    _, packed, _, steps = "".join(cells(page)[2]["outputs"][0]["text"]).split()
    assert int(packed) > 2_000_000
    large.expect_data(steps=steps)
    expect(large.root.locator(".part")).to_have_count(0)

    choices.nth(1).check()
    at = cluster.evaluate(
        """async (board) => {
          const before = board.dataset.at;
          board.dispatchEvent(new KeyboardEvent("keydown", { key: ".", bubbles: true }));
          while (board.dataset.at === before) await new Promise(requestAnimationFrame);
          await window.jupyterapp.commands.execute("docmanager:save");
          return Number(board.dataset.at);
        }"""
    )
    state = nbformat.read(path, as_version=4).metadata.widgets[STATE]["state"]
    assert [one["state"]["at"] for one in state.values() if "at" in one["state"]] == [at]
    board.press(".")
    expect(board.root).to_have_attribute("data-synced", "33 8")
    board.root.locator("[data-act=slo]").click()
    board.press("v", "v")
    type_and_save(board.root.locator("input[name=ttft]"), "81")
    notebook = nbformat.read(path, as_version=4)
    outputs = [output for one in notebook.cells for output in one.outputs]
    assert sum(WIDGET in output.get("data", {}) for output in outputs) == len(saved)
    state = notebook.metadata.widgets[STATE]["state"]
    assert sum("log" in one["state"] for one in state.values()) == 5
    assert [81, 40] in [one["state"].get("slo") for one in state.values()]
    assert {one["state"].get("level", "memory") for one in state.values()} == {"memory"}
    [part] = [one["state"]["log"] for one in state.values() if not one["state"].get("whole", True)]
    assert len(part) <= SAVED_BYTES / 3 * 4 + 4

    # nbconvert shows the pictures without a network, in its theme.
    for theme, drawn in (("light", "normal"), ("dark", "url(")):
        images = open_exported(page, path, theme).locator(f"{OUTPUT} img:visible")
        expect(images).to_have_count(4)
        for one in images.all():
            assert one.evaluate("one => getComputedStyle(one).content").startswith(drawn)

    # JupyterLab's new kernel knows none of these widgets: what the page shows is what was saved.
    reopen_without_kernel(page, address, path.name)
    board = BoardOnPage(page).wait()
    expect(page.locator(f"{OUTPUT} img:visible")).to_have_count(0)
    expect_fold(board, log, 33)
    board.expect_data(level="memory")
    board.press("v")
    expect(board.root.locator("[data-act=slo]")).to_contain_text("81")
    board.press(",", ",", ",")
    expect_fold(board, log, 30)
    chip = board.root.locator(".decisions .chip").first
    chip.click()
    board.expect_selected(chip.get_attribute("data-request") or "")
    expect(comparison).to_have_attribute("data-ready", "true")
    comparison.locator("button[data-shows='a']").click()
    expect(comparison.locator(".run .underglass").first).to_have_attribute("data-ready", "true")
    step = int(comparison.get_attribute("data-step") or 0)
    comparison.locator(".run .underglass").first.press(".")
    expect(comparison).to_have_attribute("data-step", str(step + 1))
    # Of a log that was too large, the board shows the part that was saved and says so.
    large.wait().press("v")
    for fact in (f"{int(packed) / 1e6:.1f} MB", f"{SAVED_BYTES / 1e6:.1f} MB", "to_html"):
        expect(large.root.locator(".part")).to_contain_text(fact)
    assert int(large.data("steps")) < int(steps)
    expect(large.root.locator(".summary .cell").first).to_contain_text(f"of {int(steps):,}")
    expect(cluster).to_have_attribute("data-at", str(at))
    expect(choices).to_have_count(2)
    expect(choices.nth(1)).to_be_checked()
    expect(page.get_by_text("model not found")).to_have_count(0)

    # Saved without a kernel it is still there; run again and saved, what it was before is not.
    save(page)
    assert nbformat.read(path, as_version=4).metadata.widgets[STATE]["state"] == state
    open_notebook(page, address, path.name)
    for index in range(len(saved)):
        run_cell(page, index)
    wait_for_pictures(page, 4)
    save(page)
    again = nbformat.read(path, as_version=4).metadata.widgets[STATE]["state"]
    assert len(again) == len(state)
    assert not again.keys() & state.keys()
