"""compare in Chromium: two runs in one picture, in JupyterLab and as a file from disk."""

from functools import cache

import pytest
from playwright.sync_api import Locator, Page, expect

from engine import EventLog, study, what_if
from tests.browser.axe import expect_no_violation
from tests.browser.exported import the_log
from tests.facts import assert_names
from tests.visualizer.storytellers import crowd, storytellers
from visualizer import compare, gallery, read
from visualizer.comparing.comparison import Comparison
from visualizer.comparing.differences import differing_steps, pair

FIRST = 19  # the step in which the two runs part


@cache
def logs() -> tuple[EventLog, EventLog]:
    return the_log(), storytellers(max_kv_tokens=280)


@cache
def comparison() -> Comparison:
    return compare(*logs(), names=("40 blocks", "35 blocks"))


@pytest.fixture
def opened(new_page, tmp_path):
    """Open a comparison's exported page, of the two runs above unless another is given."""

    def opened(
        shown: Comparison | None = None,
        *,
        on: Page | None = None,
        width: int = 1280,
        height: int = 1200,
    ) -> Locator:
        (shown or comparison()).to_html(tmp_path / "two.html")
        page = on or new_page(width=width, height=height)
        page.goto((tmp_path / "two.html").as_uri())
        root = page.locator(".underglass.compare")
        expect(root).to_have_attribute("data-ready", "true", timeout=30_000)
        return root

    return opened


def words_of(locator: Locator) -> str:
    return " ".join(locator.inner_text().split())


class Picture:
    """The canvas with both runs, and where its rows are."""

    def __init__(self, root: Locator) -> None:
        self.canvas = root.locator(".ghost canvas")

    def data(self, name: str) -> list[str]:
        return (self.canvas.get_attribute(f"data-{name}") or "").split()

    def click(self, request: int, share: float, below: bool = False) -> None:
        """Click in the row of a request, at a share of the axis: on A's lane, or on B's below it."""
        row = self.data("shown").index(str(request))
        top, pitch = map(float, self.data("rows"))
        left, right = map(float, self.data("plot"))
        y = top + row * pitch + (pitch - 4 if below else 6)
        self.canvas.click(position={"x": left + share * (right - left), "y": y})


def board_of(root: Locator, run: str) -> Locator:
    """The board of a run, once it shows."""
    expect(root).to_have_attribute("data-shows", run)
    board = root.locator(f".run[data-side='{'ab'.index(run)}'] .underglass")
    expect(board).to_have_attribute("data-ready", "true")
    return board


def ends_of(log: EventLog) -> list[float]:
    """When each request ends, in ms since the run began."""
    frame = read(log).steps
    ends = frame["start_ms"] + frame["duration_ms"] - frame["start_ms"].iloc[0]
    return [float(ends[step]) for step in read(log).requests["finished_step"]]


def test_the_picture_has_the_fork_and_the_gap_of_every_request(opened):
    root = opened()
    expect(root).to_have_attribute("data-fork", str(FIRST))
    expect(root).to_have_attribute("data-axis", "time")
    assert_names(words_of(root.locator(".verdict")), FIRST, FIRST - 1, "35 blocks")
    assert_names(words_of(root.locator(".changes-line")), "max_kv_tokens", 320, 280)
    expect(root.locator(".model-error")).to_have_count(0)
    picture = Picture(root)
    assert picture.data("shown") == [str(id_) for id_ in read(logs()[0]).requests.index]
    gaps = [b - a for a, b in zip(*map(ends_of, logs()), strict=True)]
    assert [int(gap) for gap in picture.data("gaps")] == pytest.approx([1000 * g for g in gaps])
    steps = read(logs()[0]).requests["finished_step"]
    before = [gap == 0 and step < FIRST for gap, step in zip(gaps, steps, strict=True)]
    assert [state == "before" for state in picture.data("states")] == before
    # Both decisions and both memories are beside it.
    ways = root.locator(".way")
    for side in (0, 1):
        said = words_of(ways.nth(side).locator("p").nth(1))
        assert said
        assert said in str(comparison().first_difference)
        assert_names(ways.nth(side).locator("canvas").get_attribute("aria-label"), "used", "free")
    # Buttons go to the other steps in which the runs decide differently.
    back, forward = root.locator(".turn button").all()
    expect(back).to_be_disabled()
    forward.click()
    differing = differing_steps(*logs(), pair(*logs()))
    expect(root).to_have_attribute("data-step", str(differing[1]))
    assert_names(words_of(root.locator(".ways h2")), differing[1])
    assert_names(words_of(root.locator(".turn")), 2, len(differing))
    for side in (0, 1):
        assert_names(words_of(ways.nth(side).locator("p").nth(1)), f"Step {differing[1]}")
    back.click()
    expect(root).to_have_attribute("data-step", str(FIRST))


def test_the_page_fits_a_laptops_screen_with_twenty_requests_and_counts_the_rest(opened):
    root = opened(compare(crowd(20), crowd(20, max_batch_size=2)), height=800)
    assert len(Picture(root).data("shown")) == 20
    assert root.page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    log = gallery()["thirty"].log
    root = opened(compare(log, what_if(log, token_budget=32)), on=root.page)
    gaps = [abs(int(gap)) for gap in Picture(root).data("gaps")]
    assert len(gaps) == 20
    assert gaps == sorted(gaps, reverse=True)
    assert_names(words_of(root.locator(".tables summary")), 10)
    assert root.page.evaluate("document.documentElement.scrollHeight <= innerHeight")


def test_a_what_if_shows_three_runs_and_the_error_beside_each_number(opened):
    answer = study(logs()[0], {"token_budget": [16, 24, 32, 48]})
    names = "replayed", answer.changed[0]
    told = {"table": answer.table(), "statements": answer.statements()}
    root = opened(Comparison(answer.replayed, answer.first, names, study=told), width=390)
    rows = root.locator(".study tr")
    shown = [rows.nth(at).locator("th, td").all_inner_texts() for at in range(rows.count())]
    assert shown == answer.table()
    for statement in answer.statements():
        expect(root.locator(".study")).to_contain_text(statement)
    assert "(±" not in words_of(root.locator(".verdict"))  # times of a simulated run are exact
    assert root.page.evaluate("document.documentElement.scrollWidth") <= 390
    expect_no_violation(root.page)
    # A replay states the model's error.
    replayed = compare(logs()[0], what_if(logs()[0], token_budget=32))
    root = opened(replayed, on=root.page)
    assert words_of(root.locator(".model-error")) == replayed.note


def test_a_click_opens_that_step_on_the_board_of_its_run(opened):
    root = opened()
    picture = Picture(root)
    frames = [read(log).steps for log in logs()]
    ends = [frame["start_ms"] + frame["duration_ms"] for frame in frames]
    for run, below in (("a", False), ("b", True)):
        picture.click(8, 0.8, below)
        board = board_of(root, run)
        expect(board).to_have_attribute("data-selected", "8")
        at = 0.8 * max(end.iloc[-1] for end in ends)
        step = int((ends["ab".index(run)] <= at).sum()) + 1
        assert abs(int(board.get_attribute("data-step") or 0) - step) <= 1
        root.locator("button[data-shows='both']").click()
        expect(picture.canvas).to_be_visible()
    # The fork's glyph opens its step.
    fork = float(picture.data("fork")[0])
    picture.canvas.click(position={"x": fork, "y": 12})
    expect(board_of(root, "a")).to_have_attribute("data-step", str(FIRST))
    # B's board then shows the same step, because until here both decided alike.
    root.locator("button[data-shows='b']").click()
    board = board_of(root, "b")
    expect(board).to_have_attribute("data-step", str(FIRST))
    expect(board.locator(".decisions [data-heat=evicting]")).not_to_have_count(0)


def test_the_keyboard_reaches_everything(opened):
    root = opened()
    page, picture = root.page, root.locator(".ghost")
    picture.focus()
    page.keyboard.press("Escape")
    expect(root).to_have_attribute("data-selected", "")
    for id_ in (1, 2, 3):
        page.keyboard.press("ArrowDown")
        expect(root).to_have_attribute("data-selected", str(id_))
    expect(picture.get_by_role("status")).to_contain_text("r3")
    page.keyboard.press("a")
    board = board_of(root, "a")
    expect(board).to_be_focused()
    expect(board).to_have_attribute("data-selected", "3")
    root.locator("button[data-shows='both']").press("Enter")
    expect(picture).to_be_focused()
    page.keyboard.press("t")
    expect(root.locator(".requests")).to_be_focused()
    picture.focus()
    page.keyboard.press("f")
    expect(board_of(root, "a")).to_have_attribute("data-step", str(FIRST))


def test_nothing_is_wider_than_the_page_and_axe_finds_nothing(opened):
    root = opened(width=360)
    for width, theme in ((360, "light"), (1280, "dark"), (1920, "light")):
        root.page.set_viewport_size({"width": width, "height": 860})
        root.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        expect(root).to_have_attribute("data-theme", theme)
        assert root.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if width < 1920:
            expect_no_violation(root.page)
    # Long names of runs and requests keep everything in its place.
    root.page.set_viewport_size({"width": 360, "height": 860})
    one, two = crowd(6, labels=["Ada of the second floor"]), crowd(6, max_batch_size=1)
    names = ("64 tokens", "64 tokens, and a name that is long")
    root = opened(compare(one, two, names=names), on=root.page)
    assert root.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    left, right = map(float, Picture(root).data("plot"))
    assert right - left > 100
    # Ada's label differs, so no request of the other run is hers.
    assert Picture(root).data("states").count("only") == 2
