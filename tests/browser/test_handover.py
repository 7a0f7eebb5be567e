"""The motion of a preemption: when it appears, what moves, and that it is gone afterwards."""

import pytest
from playwright.sync_api import JSHandle, expect

from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage

PREEMPTION = 30
VICTIM, TAKER = 8, 6
# An animation waits until its time is set.
HOLD_ANIMATIONS = """
  const animate = Element.prototype.animate;
  Element.prototype.animate = function (...how) {
    const animation = animate.apply(this, how);
    animation.pause();
    return animation;
  };
"""
BEFORE = f"#step={PREEMPTION - 1}&selected={VICTIM}"


@pytest.fixture
def held(new_page, open_board):
    """A board one step before the preemption, on a page on which no animation runs."""
    page = new_page()
    page.add_init_script(HOLD_ANIMATIONS)
    return open_board(None, BEFORE, on=page)


def record(board: BoardOnPage) -> JSHandle:
    """Record from now on whether the motion was added or removed."""
    return board.root.evaluate_handle(
        """(root) => {
          const seen = [];
          const note = (nodes, what) => {
            for (const node of nodes) if (node.className === "handover") seen.push(what);
          };
          new MutationObserver((changes) => {
            for (const { addedNodes, removedNodes } of changes) {
              note(addedNodes, "begins");
              note(removedNodes, "ends");
            }
          }).observe(root, { childList: true });
          return seen;
        }"""
    )


def test_the_victims_blocks_move_over_the_finished_picture_and_end(held, open_board):
    overlay = held.root.locator(".handover")
    expect(overlay).to_have_count(0)
    held.press(".")
    held.expect_step(PREEMPTION)
    expect(overlay).to_have_attribute("aria-hidden", "true")
    moves = overlay.locator("i").evaluate_all(
        "all => all.map(({ dataset: { block, request } }) => [Number(block), Number(request)])"
    )
    assert moves == [[8, VICTIM], [8, TAKER], [32, VICTIM], [33, VICTIM], [37, VICTIM]]
    steps = held.root.locator("section[data-step]").evaluate_all(
        "all => all.map((one) => one.dataset.step)"
    )
    assert set(steps) == {str(PREEMPTION)}
    assert overlay.evaluate("element => getComputedStyle(element).pointerEvents") == "none"
    ends = "document.getAnimations().map((one) => one.effect.getComputedTiming().endTime)"
    assert set(held.page.evaluate(ends)) == {150}
    expect_no_violation(held.page)
    held.page.evaluate("for (const one of document.getAnimations()) one.finish()")
    expect(overlay).to_have_count(0)
    # It also ends when the reader goes on, and none begins with a page.
    held = open_board(None, BEFORE, on=held.page)
    held.press(".")
    expect(overlay).to_have_count(1)
    held.press(".")
    held.expect_step(PREEMPTION + 1)
    expect(overlay).to_have_count(0)
    open_board(None, f"#step={PREEMPTION}", on=held.page)
    expect(overlay).to_have_count(0)


def test_the_motion_begins_once_and_ends(open_board):
    board = open_board(None, BEFORE)
    seen = record(board)
    board.press(".")
    board.page.wait_for_function("seen => seen.length === 2", arg=seen)
    board.press("ArrowDown", "Escape")
    board.settle()
    assert seen.json_value() == ["begins", "ends"]
