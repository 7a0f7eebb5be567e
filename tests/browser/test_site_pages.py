"""The static site's pages other than its lessons: nothing comes from another host."""

from playwright.sync_api import Page, expect

from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage
from tests.browser.conftest import REPOSITORY
from tests.browser.test_open_log import drop
from tests.visualizer import clusters
from visualizer import read
from visualizer.playing.game import Game
from visualizer.playing.questions import QUESTIONS
from visualizer.scenario import gallery

VLLM = REPOSITORY / "tests/fixtures/vllm/vllm_tight.jsonl.gz"
PAGES = ["index", "gallery/index", "gallery/thirty", "play/index", "open/index", "docs/clients"]


def _board(page: Page) -> BoardOnPage:
    return BoardOnPage(page).wait()


def test_the_front_page_serves_a_request_and_tells_where_its_time_went(site, new_page):
    page = new_page()
    page.goto(site)
    story = page.locator(".story")
    page.get_by_label("Your question").fill("Tell me a story about a fox.")
    page.keyboard.press("Enter")
    expect(story).to_have_attribute("data-state", "starting")
    expect(story).not_to_have_attribute("data-step", "6")  # the others move, as recorded
    expect(story).to_have_attribute("data-recorded", "true")
    expect(story).to_have_attribute("data-written", "0")  # only real tokens are the visitor's
    expect(story).to_have_attribute("data-state", "held", timeout=60_000)
    expect(story).to_have_attribute("data-written", "5")
    expect(story).to_have_attribute("data-recorded", "false")
    page.locator(".way button").nth(3).click()
    expect(page.locator("#scene-4 h2")).to_be_focused()
    expect(page.locator("#scene-4 .what")).to_contain_text("needs one more block to go on")
    expect(page.locator("#scene-4 .consequence")).to_contain_text("Pick one")
    page.keyboard.press("1")
    expect(page.locator("#scene-4 .consequence")).to_contain_text("No request has to give its")
    expect(page.locator(".picture .ghost").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".picture .ghost")).to_have_count(0)
    page.keyboard.press("ArrowRight")
    board = _board(page)
    board.expect_data(selected=4)
    page.get_by_role("button", name="sent away").first.click()
    expect(board.root).to_have_attribute("data-moment", "preempted")
    expect_no_violation(page)


def test_a_scenario_opens_at_its_moment_and_a_link_has_a_preview(site, site_folder, new_page):
    page = new_page()
    for name in ("experts", "vllm_tight"):
        page.goto(f"{site}gallery/{name}.html")
        board = _board(page)
        board.expect_data(step=gallery()[name].step, selected=gallery()[name].select)
    page.goto(f"{site}gallery/preemption.html#step=27&select=2")
    board = _board(page)
    board.expect_data(step=27, selected=2)
    board.press("l")
    link = board.root.locator(".box.link input").input_value()
    assert link.endswith("gallery/preemption/27.html#step=27&selected=2")
    page.goto(link)
    page.wait_for_url("**/gallery/preemption.html#step=27&selected=2")
    _board(page).expect_step(27)
    preview = (site_folder / "gallery/preemption/27.html").read_text("utf-8")
    assert 'property="og:image" content="../../images/gallery/preemption/27.png"' in preview
    assert (site_folder / "images/gallery/preemption/27.png").read_bytes().startswith(b"\x89PNG")


def test_a_link_to_a_moment_of_a_lesson_opens_its_board_there(site, new_page):
    page = new_page()
    page.goto(f"{site}lessons/04_continuous_batching.html#cell-2&step=9&select=2")
    board = BoardOnPage(page, page.locator("#cell-2 .underglass")).wait()
    board.expect_step(9)
    board.expect_selected(2)
    board.press("l")
    link = board.root.locator(".box.link input").input_value()
    assert "lessons/04_continuous_batching.html#cell-2&step=9&selected=2" in link
    named = page.locator("a.step:not([aria-current])", has_text="step 20")
    named.click()
    board.expect_step(20)
    expect(named).to_have_count(0)


def test_a_trace_of_another_engine_is_read_in_the_page(site, new_page):
    page = new_page()
    page.goto(f"{site}open/index.html")
    page.locator("#file").set_input_files(VLLM)
    scenario = gallery()["vllm_tight"]
    board = BoardOnPage(page)
    expect(board.root).to_have_attribute("data-ready", "true", timeout=60_000)
    assert int(board.data("steps")) == read(scenario.log).step_rows[-1].step
    board.press("g")  # Python in the page has told it
    board.expect_data(scenes=len(read(scenario.log).tour))
    drop(page, b'{"hello": 1}\n', "notes.jsonl")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("notes.jsonl cannot be opened: line 1: no known log begins with")
    expect(page.locator("main > .board")).to_be_hidden()
    drop(page, gallery()["hit"].log.to_bytes(), "own.jsonl")
    expect(page.locator("#status")).to_be_hidden()
    _board(page)
    assert page.title() == "own.jsonl · Underglass"
    drop(page, clusters.one_dies().to_bytes(), "cluster.jsonl")
    button = page.locator(".cluster button.tell")
    expect(button).to_be_visible(timeout=60_000)  # once Python in the page has told it
    button.click()
    expect(page.locator(".cluster")).to_have_attribute("data-tour", "1")


def test_a_setting_of_the_playground_runs_the_workload_again(site, new_page):
    page = new_page()
    page.goto(f"{site}play/index.html")
    expect(page.get_by_role("heading", level=1)).to_have_text(QUESTIONS[0].text)
    page.get_by_text("Most urgent", exact=True).click()
    game = Game()
    game.change({"policy": "priority"})
    values = [
        goal.measure.words(value)
        for goal, value in zip(game.question.goals, game.runs[-1].values, strict=True)
    ]
    expect(page.locator(".meter b")).to_have_text(values, timeout=60_000)
    runs = page.get_by_role("region", name="Runs so far")
    assert runs.evaluate("one => one.clientWidth === one.parentElement.clientWidth")
    page.get_by_role("button", name="Another question").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(QUESTIONS[1].text)


def test_pages_are_accessible_and_fit_a_phone(site, new_page):
    page = new_page(width=390, height=844, reduced_motion="reduce")
    for name in PAGES:
        page.goto(f"{site}{name}.html")
        if page.locator("main > .board:not([hidden])").count():
            _board(page)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is {wide} px too wide"
        expect_no_violation(page)


def test_a_step_is_decided_otherwise_by_python_in_the_page(site, new_page):
    page = new_page()
    page.goto(f"{site}/gallery/preemption.html#step=20")
    _board(page).root.press("u")
    seat = page.locator(".seat")
    expect(seat).to_have_attribute("data-kind", "victim", timeout=60_000)
    page.keyboard.press("1")
    expect(seat).to_have_attribute("data-busy", "341.25 366.25", timeout=60_000)
