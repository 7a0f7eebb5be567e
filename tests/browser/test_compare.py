"""compare in Chromium: two runs on one cursor, in JupyterLab and as a file from disk."""

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from engine import what_if
from engine.events import EventLog
from tests.browser.axe import expect_no_violation
from tests.browser.conftest import NewPage
from tests.browser.notebooks import open_notebook, run_cell, set_theme, write_notebook
from tests.facts import assert_names
from tests.visualizer.storytellers import crowd, storytellers
from visualizer import compare
from visualizer.comparing.comparison import Comparison

FIRST = 19  # the step in which the two runs part
PREEMPTIONS = 16  # the column of their change in a row of the comparison's requests


@pytest.fixture(scope="module")
def logs() -> tuple[EventLog, EventLog]:
    return storytellers(), storytellers(max_kv_tokens=280)


@pytest.fixture(scope="module")
def comparison(logs: tuple[EventLog, EventLog]) -> Comparison:
    return compare(*logs, names=("40 blocks", "35 blocks"))


def opened(page: Page, comparison: Comparison, folder: Path, theme: str | None = None) -> Locator:
    comparison.to_html(folder / "two.html", theme=theme)
    page.goto((folder / "two.html").as_uri())
    root = page.locator(".underglass.compare")
    expect(root).to_have_attribute("data-ready", "true", timeout=30_000)
    return root


def timelines(root: Locator) -> list[Locator]:
    boards = root.locator(".underglass:has(.strip)")
    expect(boards).to_have_count(2)
    return [boards.nth(0), boards.nth(1)]


def words_of(locator: Locator) -> str:
    return " ".join(locator.inner_text().split())


def at_steps(root: Locator, a: int, b: int) -> None:
    for board, step in zip(timelines(root), (a, b), strict=True):
        expect(board).to_have_attribute("data-step", str(step))
    expect(root).to_have_attribute("data-step", str(a))
    expect(root).to_have_attribute("data-step-b", str(b))


def test_it_opens_at_the_first_difference_with_both_reasons(
    new_page: NewPage, comparison: Comparison, tmp_path: Path
) -> None:
    page = new_page(height=1200)
    root = opened(page, comparison, tmp_path)
    at_steps(root, FIRST, FIRST)
    assert str(comparison.first_difference) in words_of(root.locator(".verdict"))
    assert_names(words_of(root.locator(".changes-line")), "max_kv_tokens", 320, 280)
    for board in timelines(root):
        expect(board).to_have_attribute("data-selected", "1")
    # The two runs' decisions of the step stand beside each other.
    decisions = root.locator(".decisions")
    expect(decisions).to_have_count(2)
    expect(decisions.nth(1).locator("[data-heat=evicting]")).not_to_have_count(0)
    expect(decisions.nth(0).locator("[data-heat=evicting]")).to_have_count(0)


def test_a_replay_states_the_models_error(
    new_page: NewPage, comparison: Comparison, tmp_path: Path
) -> None:
    root = opened(new_page(height=1200), comparison, tmp_path)
    expect(root.locator(".model-error")).to_have_count(0)
    log = storytellers()
    replayed = compare(log, what_if(log, token_budget=32))
    root = opened(new_page(height=1200), replayed, tmp_path)
    assert words_of(root.locator(".model-error")) == replayed.note


def test_one_cursor_moves_both_and_a_jump_leads_back(
    new_page: NewPage, comparison: Comparison, tmp_path: Path
) -> None:
    page = new_page(height=1200)
    root = opened(page, comparison, tmp_path)
    first, second = timelines(root)
    first.focus()
    page.keyboard.press(".")
    at_steps(root, FIRST + 1, FIRST + 1)
    second.focus()
    page.keyboard.press(",")
    page.keyboard.press(",")
    at_steps(root, FIRST - 1, FIRST - 1)
    # The shorter run stays at its end while the longer one goes on, and is not pulled back.
    page.keyboard.press("End")
    at_steps(root, 53, 57)
    assert_names(words_of(root.locator(".title").nth(0)), 53)
    page.keyboard.press(",")
    at_steps(root, 53, 56)
    root.locator("[data-jump]").click()
    at_steps(root, FIRST, FIRST)


def test_by_time_the_other_run_stands_where_it_was_at_the_same_moment(
    new_page: NewPage, logs: tuple[EventLog, EventLog], comparison: Comparison, tmp_path: Path
) -> None:
    page = new_page(height=1200)
    root = opened(page, comparison, tmp_path)
    root.locator('button[data-clock="time"]').click()
    expect(root).to_have_attribute("data-clock", "time")
    timelines(root)[0].focus()
    page.keyboard.press("End")
    frames = [log.steps for log in logs]
    ends = [frame["start_ms"] + frame["duration_ms"] for frame in frames]
    other = int((ends[1] <= ends[0].iloc[-1]).sum())
    assert other < 53
    at_steps(root, 53, other)
    # Both show the same time, however long each run took, and a step is as wide as it lasted.
    for board in timelines(root):
        expect(board).to_have_attribute("data-axis", "time")
    views = [one.get_attribute("data-view") for one in root.locator(".lanes canvas").all()]
    assert views == [f"0 {round(max(end.iloc[-1] for end in ends) * 1000)}"] * 2
    page.keyboard.press("x")
    expect(root).to_have_attribute("data-clock", "step")
    expect(root.locator('button[data-clock="step"]')).to_have_attribute("aria-pressed", "true")
    for board in timelines(root):
        expect(board).to_have_attribute("data-axis", "steps")


def test_it_opens_by_time_where_that_was_asked_for(
    new_page: NewPage, logs: tuple[EventLog, EventLog], tmp_path: Path
) -> None:
    page = new_page(height=1200)
    root = opened(page, compare(*logs, axis="time"), tmp_path)
    expect(root).to_have_attribute("data-clock", "time")
    for board in timelines(root):
        expect(board).to_have_attribute("data-axis", "time")


def test_the_table_has_the_changes_of_each_request_and_can_be_sorted(
    new_page: NewPage, comparison: Comparison, tmp_path: Path
) -> None:
    page = new_page(height=1200)
    root = opened(page, comparison, tmp_path)
    table = comparison.requests
    rows = root.locator(".requests tbody tr")
    expect(rows).to_have_count(12)
    by_ttft = table["ttft_ms_change"].abs().sort_values(ascending=False, kind="stable")
    expect(rows.first.locator("[data-request]")).to_have_attribute(
        "data-request", str(by_ttft.index[0])
    )
    root.locator(f"[data-sort='{PREEMPTIONS}']").click()
    heads = root.locator(".requests th[aria-sort=descending] [data-sort]")
    expect(heads).to_have_attribute("data-sort", str(PREEMPTIONS))
    most = table["preemptions_change"].abs().idxmax()
    expect(rows.first.locator("[data-request]")).to_have_attribute("data-request", str(most))
    expect(rows.first).to_contain_text("0 → 2 +2")
    # A request that is chosen here is chosen in both runs.
    rows.first.locator("[data-request]").click()
    for board in timelines(root):
        expect(board).to_have_attribute("data-selected", str(most))
    totals = root.locator(".totals tbody tr").all()
    assert ["1", "3", "+2"] in [row.locator("td").all_inner_texts() for row in totals]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_nothing_is_wider_than_the_page_and_axe_finds_nothing(
    new_page: NewPage, comparison: Comparison, tmp_path: Path, width: int, theme: str
) -> None:
    page = new_page(width=width)
    root = opened(page, comparison, tmp_path, theme)
    expect(root).to_have_attribute("data-theme", theme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect_no_violation(page)


def test_long_names_of_runs_and_requests_keep_everything_in_its_place(
    new_page: NewPage, tmp_path: Path
) -> None:
    one, two = (crowd(6, labels=labels) for labels in (["Ada"], ["Ada of the second floor"]))
    page = new_page(width=360)
    names = ("64 tokens", "64 tokens, and a name that is long")
    root = opened(page, compare(one, two, names=names), tmp_path)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # A step lies at the same place in both, though one of them has longer names beside its lanes.
    first, second = root.locator("canvas.strip").all()
    timelines(root)[0].press("Home")
    expect(root).to_have_attribute("data-step-b", "1")
    first.click(position={"x": 250, "y": 40})
    expect(root).not_to_have_attribute("data-step", "1")
    step = root.get_attribute("data-step") or ""
    timelines(root)[0].press("Home")
    expect(root).to_have_attribute("data-step-b", "1")
    second.click(position={"x": 250, "y": 40})
    expect(root).to_have_attribute("data-step-b", step)


def test_equal_runs_say_so(
    new_page: NewPage, logs: tuple[EventLog, EventLog], tmp_path: Path
) -> None:
    page = new_page()
    equal = compare(logs[0], logs[0].to_bytes())
    assert equal.first_difference is None
    root = opened(page, equal, tmp_path)
    expect(root.locator(".verdict")).not_to_be_empty()
    expect(root.locator("[data-jump]")).to_have_count(0)


def test_in_jupyterlab_and_names_are_text(
    new_page: NewPage, jupyter: tuple[str, Path], logs: tuple[EventLog, EventLog]
) -> None:
    address, work = jupyter
    for name, log in zip("ab", logs, strict=True):
        log.save(work / f"{name}.jsonl")
    cells = [
        "from visualizer import compare\n"
        'both = compare("a.jsonl", "b.jsonl", names=("<b>a</b>", "<img src=x onerror=alert(1)>"))\n'
        "both",
        "print('kernel:', both.step, len(both.requests))",
    ]
    write_notebook(work / "compare.ipynb", cells)
    page = new_page(width=1400, height=1200)
    open_notebook(page, address, "compare.ipynb")
    run_cell(page, 0)
    root = page.locator(".underglass.compare")
    expect(root).to_have_attribute("data-ready", "true", timeout=30_000)
    at_steps(root, FIRST, FIRST)
    expect(root.locator(".title strong").first).to_have_text("<b>a</b>")
    assert root.locator("img").count() == 0
    set_theme(page, "JupyterLab Dark")
    expect(root).to_have_attribute("data-theme", "dark")
    run_cell(page, 1)
    outputs = page.locator(".jp-OutputArea-output")
    expect(outputs.filter(has_text="kernel:")).to_have_text(f"kernel: {FIRST} 12")
    set_theme(page, "JupyterLab Light")
