"""Speculative decoding on the board: what became of each draft of a step."""

from pathlib import Path

from playwright.sync_api import expect

from engine import Engine, SamplingParams
from engine.events import vocabulary as v
from engine.events.log import EventLog
from engine.simulation.scenarios import scenario
from tests.browser.board import numbers_in
from tests.engine.compute.pruned import save_without_layers


def test_the_tokens_panel_says_what_became_of_each_draft_of_the_step(open_board):
    board = open_board(scenario("speculation").run(), "#step=4&selected=1")
    assert numbers_in(board.text(".drafts strong")) == [1, 3, 2, 4]
    drafts = board.root.locator(".drafts .draft")
    expect(drafts).to_have_class(["draft kept", "draft kept", "draft refused", "draft unused"])
    # A column each: the drafter's token, and below it the model's.
    expect(drafts.locator("span")).to_have_text(
        ["apple", "✓ apple", "trees", "✓ trees", ",", "and", "a", "–"]
    )
    expect(drafts.locator("del")).to_have_text([","])
    expect(drafts.locator("ins")).to_have_text(["and"])
    expect(board.root.locator(".drafts .names span")).to_have_text(["PromptLookup", "model"])
    board.press(".")
    expect(drafts).to_have_count(0)
    expect(board.root.locator(".drafts")).to_be_visible()
    board.press(".", ".")
    expect(drafts).to_have_class([*["draft kept"] * 4, "draft own"])
    expect(drafts.last.locator("span")).to_have_text(["–", "Behind"])
    assert numbers_in(board.text(".drafts strong")) == [1, 5, 4, 4]
    # A request without drafts has no line about them.
    board.press("ArrowDown", ",", ",", ",")
    board.expect_selected(2)
    board.expect_step(4)
    expect(board.root.locator(".tokens .text")).to_be_visible()
    expect(board.root.locator(".drafts")).to_have_count(0)


def two_models(tmp_path: Path) -> EventLog:
    """A run in which a broken copy of the bundled model drafts: it lacks a layer."""
    save_without_layers(tmp_path / "broken", [3])
    engine = Engine.load("bundled", draft_model=tmp_path / "broken")
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    engine.complete(["Once upon a time there was a fox"], params, progress=False)
    return engine.log


def test_both_models_and_their_tokens_are_named(open_board, tmp_path):
    log = two_models(tmp_path)
    gains = {event.step: event.tokens[0] for event in log.of(v.StepFinished)}
    rows = {
        step: event.rows[0].drafts
        for step, event in enumerate(log.of(v.StepScheduled), 1)
        if event.rows[0].drafts
    }
    step = next(at for at, drafts in rows.items() if gains[at].accepted < len(drafts))
    kept, rejected = gains[step].accepted, log.of(v.StepFinished)[step - 1].t["rejected"][0]
    board = open_board(log, f"#step={step}&selected=1")
    drafts = board.root.locator(".drafts")
    expect(drafts.locator(".names span")).to_have_text(["broken", "bundled"])
    # The log has the text even of a draft that is in no request.
    assert len(rejected) == len(rows[step]) - kept
    expect(drafts.locator("del")).to_have_text([rejected[0].strip() or rejected[0]])
    expect(drafts.locator("ins")).to_have_text([gains[step].texts[kept].strip()])
    for width in (390, 1440):
        board.page.set_viewport_size({"width": width, "height": 860})
        board.settle()
        box, panel = drafts.bounding_box(), board.root.bounding_box()
        assert box and panel and box["x"] + box["width"] <= panel["x"] + panel["width"]
    drafted = sum(map(len, rows.values()))
    accepted = sum(gain.accepted for gain in gains.values())
    cells = board.root.locator(".summary .cell")
    expect(cells.filter(has_text="drafts accepted")).to_contain_text(
        f"{100 * accepted / drafted:.0f} % {1 + accepted / len(rows):.2f}"
    )
    assert log.steps.drafting_ms.min() > 0
