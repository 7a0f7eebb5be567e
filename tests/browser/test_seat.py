"""The scheduler's seat in a browser: a choice is drawn below what happened, with Python's numbers."""

import re

from playwright.sync_api import expect

from engine.simulation.choice import Evict, Settings, Victim
from engine.simulation.scenarios import SCENARIOS
from tests.browser.axe import expect_no_violation
from tests.browser.test_open import opened  # noqa: F401 (a fixture)
from tests.visualizer.clusters import three_replicas
from visualizer.seat.seat import Seat


def busy(name, step, choice):
    before, after = Seat(SCENARIOS[name].run()).take(step, choice).consequence.busy_ms
    return f"{before:g} {after:g}"


def sit(page, url, step):
    page.goto(f"{url}#step={step}")
    expect(page.locator(".underglass")).to_have_attribute("data-ready", "true")
    page.keyboard.press("u")
    expect(page.locator(".seat")).to_have_attribute("data-ready", "true")
    return page.locator(".seat")


def test_a_choice_is_drawn_from_its_step_on(opened, new_page):  # noqa: F811
    page = new_page()
    seat = sit(page, opened("preemption"), 20)
    canvas = seat.locator(".ghost canvas")
    expect(canvas).to_have_attribute("data-states", "same same same")
    assert seat.get_attribute("data-busy") is None  # no result before a choice
    page.keyboard.press("1")
    expect(seat).to_have_attribute("data-busy", busy("preemption", 20, Victim(1)))
    expect(canvas).to_have_attribute("data-states", "gap gap gap")
    seat.locator(".candidate").nth(1).click()
    expect(seat.locator(".gain")).to_have_text(["25 ms more", "13 ms more", "what happened"])
    expect_no_violation(page)
    seat.get_by_text("take a block away").click()
    expect(seat).to_have_attribute("data-busy", busy("preemption", 20, Settings(blocks=-1)))
    seat.locator("input[name=seats]").fill("2")
    expect(seat).to_have_attribute("data-chosen", re.compile('"seats":2,.*"blocks":-1'))
    expect(seat).to_have_attribute("data-ready", "true")
    seat.locator("[data-act=helped]").click()
    helped = "max_kv_tokens=140 instead of 112: mean e2e 287 ms -> 264 ms (-8%)"
    expect(seat.locator(".would-help li")).to_contain_text([helped])
    page.keyboard.press("Escape")
    expect(seat).to_have_count(0)
    board = page.locator(".underglass")
    expect(board).to_have_attribute("data-step", "20")
    board.locator("[data-act=help-run]").click()
    expect(board.locator(".would-help li")).to_contain_text([helped])
    page.keyboard.press("h")
    expect(board.locator(".would-help")).to_have_count(0)


def test_a_leaf_is_evicted_and_a_prompt_matches_down_the_tree(opened, new_page):  # noqa: F811
    page = new_page(390, 844)
    seat = sit(page, opened("eviction"), 12)
    page.keyboard.press("n")
    expect(seat).to_have_attribute("data-kind", "evict")
    page.keyboard.press("3")
    expect(seat).to_have_attribute("data-busy", busy("eviction", 13, Evict(3)))
    for typed, tokens in (("In the old", "3"), ("In the new", "2"), ("Xx", "0")):
        seat.locator(".own-prompt input").fill(typed)
        expect(seat.locator(".own-prompt")).to_have_attribute("data-tokens", tokens)


def test_a_replica_of_a_cluster_is_decided_alone(opened, new_page, tmp_path):  # noqa: F811
    three_replicas().save(tmp_path / "cluster.jsonl")
    page = new_page()
    page.goto(opened(tmp_path / "cluster.jsonl"))
    page.locator("[data-act=open-replica]").first.click()
    expect(page.locator(".one .underglass")).to_have_attribute("data-ready", "true")
    page.keyboard.press("u")
    expect(page.locator(".seat[data-ready=true]")).to_contain_text("when the router sent them")


def test_a_page_without_python_says_how_to_get_it(open_board):
    board = open_board("preemption")
    for press in (lambda: board.press("u"), board.root.locator("[data-act=help-run]").click):
        press()
        expect(board.page.locator(".no-seat")).to_contain_text("underglass open FILE")
