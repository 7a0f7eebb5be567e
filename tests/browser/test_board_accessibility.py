"""The board for everyone: axe-core finds nothing, tables say what canvases show, keys reach all."""

import pytest
from playwright.sync_api import expect

from tests.browser.axe import expect_no_violation
from tests.browser.board import counts_at, numbers_in
from tests.browser.exported import the_log
from tests.visualizer.storytellers import crowd
from visualizer.logs import StepIndex, state_at


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(open_board, scheme):
    board = open_board(color_scheme=scheme)
    page = board.page
    expect(board.root).to_have_attribute("data-theme", scheme)
    expect(board.root.locator(".alternative table").first).to_be_attached()
    expect_no_violation(page)
    board.press("t", "[", "?")
    expect_no_violation(page)
    board.press("Escape", "/")
    page.keyboard.type("dragon")
    expect(board.root.get_by_role("option").first).to_be_visible()
    expect_no_violation(page)
    page.keyboard.press("Escape")
    board.press("l")
    page.set_viewport_size({"width": 360 if scheme == "light" else 1920, "height": 860})
    expect_no_violation(page)
    board.press("Escape", "2")
    expect_no_violation(page)


def test_t_shows_the_pictures_as_tables_of_this_step(open_board):
    board = open_board()
    board.press("t", ".")
    board.expect_step(31)
    state = counts_at(the_log(), 31)
    step = board.root.locator(".time .alternative table").first
    expect(step).to_be_visible()
    assert numbers_in(step.locator("caption").inner_text()) == [31, 53]
    used = state["unshared"] + state["shared"]
    cells = step.locator("td").all_inner_texts()
    assert cells[:3] == [str(used), str(state["cached"]), str(state["free"])]
    assert str(state["waiting"]) in cells[3:]
    blocks = board.root.locator(".map .alternative table")
    assert numbers_in(blocks.locator("caption").inner_text()) == [31, state["free"]]
    expect(blocks.locator("tbody tr")).to_have_count(used + state["cached"])
    tree = board.root.locator(".tree .alternative table")
    assert numbers_in(tree.locator("caption").inner_text()) == [31]
    expect(tree).to_contain_text("You are a kind storyteller")
    board.press("t")
    expect(step).not_to_be_in_viewport()
    requests = board.root.locator(".time .alternative table").nth(1)
    assert numbers_in(requests.locator("caption").inner_text()) == [31]
    state = state_at(the_log(), StepIndex(the_log()), 31)
    names = [f"r{one}" for one in [8, *state["running"], *state["waiting"]]]
    assert requests.locator("tbody th").all_inner_texts() == list(dict.fromkeys(names))


def test_tables_of_a_large_log_are_short_and_say_how_much_more_there_is(open_board):
    log = crowd(requests=200, max_kv_tokens=65536)
    board = open_board(log, step=790)
    rows = board.root.locator(".map .alternative tbody tr")
    expect(rows).to_have_count(41)
    state = counts_at(log, 790)
    inside = state["unshared"] + state["shared"] + state["cached"]
    assert numbers_in(rows.last.inner_text()) == [inside - 40]
    assert board.root.locator("*").count() < 3000


def test_tab_reaches_everything_the_focus_can_be_seen_and_escape_gives_it_back(open_board):
    board = open_board()
    page = board.page
    for key in ("?", "/", "l"):
        board.press(key)
        box = board.root.locator(":is(.help, .search, .link):visible")
        expect(box).to_have_count(1)
        page.keyboard.press("Escape")
        expect(box).to_have_count(0)
        expect(board.root).to_be_focused()
    board.expect_selected(8)
    seen: set[str] = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        place = page.evaluate(
            """() => {
              const { activeElement: active } = document;
              if (!active.closest(".underglass")) return null;
              const style = getComputedStyle(active);
              const visible = style.outlineStyle !== "none" || style.boxShadow !== "none";
              const where = active.closest("section, .foot, .sentence, .bar")?.className ?? "root";
              return `${where.split(" ")[0]} ${active.localName} ${visible}`;
            }"""
        )
        if place is None:
            break
        seen.add(place)
    else:
        pytest.fail("Tab does not leave the board")
    for place in [
        "sentence button", "time button", "map canvas", "tree canvas", "decisions button",
        "decisions code", "tokens div", "foot button",
    ]:  # fmt: skip
        assert f"{place} true" in seen
    assert not [place for place in seen if place.endswith("false")]


def test_screen_readers_get_words_for_everything_but_not_while_it_plays(open_board):
    board = open_board()
    for canvas in board.root.locator("canvas:not([hidden])").all():
        named = canvas.get_attribute("role") in ("img", "application")
        named = named and canvas.get_attribute("aria-label")
        assert named or canvas.get_attribute("aria-hidden") == "true"
    expect(board.root.locator(".alternative table")).to_have_count(4)
    sentence = board.root.locator(".sentence")
    expect(sentence).to_have_attribute("aria-live", "polite")
    board.press("Home", "-", "-", " ")
    expect(sentence).to_have_attribute("aria-live", "off")
    board.press(" ")
    expect(sentence).to_have_attribute("aria-live", "polite")
