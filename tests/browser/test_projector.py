"""The projector's view: chosen, one lane per person, every part at the step of the board."""

import re

import pytest
from playwright.sync_api import expect

from engine.core.log.vocabulary import Preempted
from tests.browser.axe import expect_no_violation
from tests.browser.live import ask, held_server, open_live, send, steps
from tests.facts import assert_names
from tests.server.harness import get, trace
from visualizer import read


@pytest.fixture
def server():
    with held_server(host="0.0.0.0") as server:
        yield server


def test_it_is_chosen_remembered_and_left(new_page, server):
    ask(server.url, "Ada")
    page = new_page(width=1920, height=1080)
    open_live(page, server.url).wait()
    stage, board = page.locator("#stage"), page.locator("#board")
    expect(stage).to_be_hidden()  # a wide screen is no projector
    page.locator("#projector").click()
    expect(stage).to_have_attribute("data-lanes", "1")
    expect(board).to_be_hidden()
    for moment in ("preemption", "eviction", "finish", "waiting"):
        expect(page.locator(f"[data-until={moment}]")).to_be_visible()
    stage.locator("[data-act=memory]").click()
    page.reload()
    expect(stage).to_have_attribute("data-level", "memory")
    page.locator("#projector").click()
    expect(stage).to_be_hidden()
    expect(board.locator(".underglass")).to_have_attribute("data-layout", "wide")
    page.locator("#pause, #resume").locator(
        "visible=true"
    ).first.click()  # the controls are back, too
    expect(board.locator(".underglass")).to_have_attribute("data-held", "false")


TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def test_everything_fits_the_screen_and_shows_one_step(new_page, server):
    names = [f"Student {number}" for number in range(30)]
    ask(server.url, *names, max_tokens=60)
    page = new_page(width=1920, height=1080)
    open_live(page, server.url).wait()
    page.locator("#projector").click()
    stage = page.locator("#stage")
    expect(stage).to_have_attribute("data-lanes", "30")
    expect(page.locator("#address")).to_have_text(
        get(server.url, "/join")["addresses"][0]["address"]
    )
    expect(page.locator("#joined")).to_have_text(re.compile(r"\b30\b.*\b30\b"))
    page.locator("[data-until=preemption]").click()
    expect(page.locator("#stopped")).to_contain_text("preempted")
    log = trace(server.url)
    health = get(server.url, "/health")
    step, [lost, *_] = health["step"], log.of(Preempted)
    expect(stage).to_have_attribute("data-step", str(step))
    blocks = health["blocks"]
    running = health["active"] + health["prefilling"]
    expect(stage).to_have_attribute("data-level", "lanes")  # where a class begins
    expect(stage.locator(".decided")).to_be_hidden()
    stage.press("v")
    stage.press("v")
    counts = [text.strip() for text in page.locator("#stage dd").all_inner_texts()]
    assert counts == [
        f"{running} of 4",
        str(health["waiting"]),
        f"{blocks['total'] - blocks['free'] - blocks['cached']} of {blocks['total']}",
        str(len(log.of(Preempted))),
    ]
    name = read(log).requests.label[lost.request]
    assert_names(page.locator("#stopped").inner_text(), step, name)
    assert_names(stage.locator(".sentence").inner_text(), step, name)
    assert_names(stage.locator(".decided .hot").inner_text(), name)
    expect(stage.locator("canvas").first).to_have_attribute(
        "aria-label", re.compile(rf"{name}: preempted")
    )
    size = "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    for width, height in ((1920, 1080), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(TWO_FRAMES)  # it is laid out a frame after its size is known
        assert page.evaluate(size) == [width, height]
        for element in page.locator("#qr, #address, #stage :is(.sentence, canvas, li)").all():
            box = element.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width
            assert box["y"] + box["height"] <= height
    expect_no_violation(page)


def test_looking_back_freezes_it_and_says_where_the_engine_is(new_page, server):
    ask(server.url, "Ada", "Bo", max_tokens=20)
    page, phone = new_page(width=1920, height=1080), new_page(width=390, height=844)
    open_live(page, server.url).wait()
    page.locator("#projector").click()
    stage = page.locator("#stage")
    open_live(phone, server.url)
    send(phone, "Once", name="Vera", tokens="20")
    at = phone.locator("#me .at")
    expect(at).to_contain_text("paused")
    last = steps(server.url, 6)
    expect(stage).to_have_attribute("data-step", str(last))
    stage.press("ArrowLeft")
    expect(stage).to_have_attribute("data-step", str(last - 1))
    assert_names(stage.locator(".moment").inner_text(), last - 1, last)
    expect(at).to_have_text(re.compile(rf"screen.*\b{last - 1}\b"))
    steps(server.url, 3)
    expect(stage.locator(".moment")).to_contain_text(str(last + 3))
    expect(stage).to_have_attribute("data-step", str(last - 1))
    stage.press("n")
    expect(stage).to_have_attribute("data-step", str(last + 3))
    expect(at).to_have_text(re.compile(rf"paused.*\b{last + 3}\b"))
