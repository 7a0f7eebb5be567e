"""Restart with other settings from the live page; old and new in one picture."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.axe import expect_no_violation
from tests.browser.live import (
    ask,
    expect_same_as_trace,
    held_server,
    open_live,
    run_until,
    send,
    steps,
)
from tests.facts import assert_names
from tests.server.harness import trace


@pytest.fixture
def server():
    with held_server() as server:
        yield server


def test_the_same_prompts_run_with_another_setting_and_both_runs_are_compared(new_page, server):
    url = server.url
    page = new_page()
    board = open_live(page, url)
    ask(url, *"ABC")
    send(page, "Once upon a time D", name="Dee", tokens="6")
    board.wait()
    expect(board.root).to_have_attribute("data-requests", "4")
    expect(page.locator("#compare-button")).to_be_hidden()
    steps(url, 3)
    expect_same_as_trace(board, url, 3)
    run = board.data("run")

    page.locator("#restart-button").click()
    expect(page.locator("[name=max_batch_size]")).to_have_value("4")
    page.locator("[name=max_batch_size]").fill("2")
    page.locator("[name=preemption]").select_option("off")
    note = page.locator("#restart-note")
    assert_names(note.inner_text(), "max_batch_size 4 → 2", "preemption on → off", "4 unfinished")
    expect_no_violation(page)
    page.locator("#restart-now").click()
    expect(page.locator("#restart")).to_be_hidden()
    expect(board.root).not_to_have_attribute("data-run", run)
    expect(page.locator("#stopped")).to_contain_text("max_batch_size 4 → 2")
    expect(page.locator("#server")).to_contain_text("2 seats")
    expect(page.locator(".stream .words")).to_contain_text("again")
    assert trace(url)[0].settings["preemption"] is False  # type: ignore[union-attr]
    run_until(url, "finish")
    run_until(url, "finish")
    while run_until(url, "finish")["reason"] != "idle":
        pass
    expect(page.locator(".stream .text")).to_have_text("abcdef")
    expect(page.locator(".stream")).to_have_attribute("data-state", "length")

    page.locator("#compare-button").click()
    picture = page.locator("#compared .compare")
    expect(picture).to_have_attribute("data-ready", "true", timeout=60_000)
    expect(picture.locator(".changes-line")).to_contain_text("max_batch_size")
    expect(picture).to_have_attribute("data-requests", "4")
    expect(page.locator("#board")).to_be_hidden()
    page.locator("#compare-close").click()
    expect(page.locator("#board")).to_be_visible()
    expect(picture).to_have_count(0)


def test_a_wrong_setting_is_said_and_the_run_goes_on(new_page, server):
    page = new_page()
    board = open_live(page, server.url)
    ask(server.url, "Ada")
    board.wait()
    page.locator("#restart-button").click()
    page.locator("[name=prefix_cache]").select_option("hash")
    page.locator("[name=eviction]").select_option("lfu")
    page.locator("#restart-now").click()
    expect(page.locator("#error")).to_contain_text(re.compile("eviction.*lru"))
    expect(page.locator("#restart")).to_be_visible()
    steps(server.url, 2)
    expect_same_as_trace(board, server.url, 2)


def test_a_phone_follows_its_own_prompt_into_the_new_run(new_page, server):
    phone, teacher = new_page(width=390, height=844), new_page()
    open_live(phone, server.url)
    open_live(teacher, server.url)
    send(phone, "Once", name="Vera", tokens="4")
    me = phone.locator("#me")
    expect(me.locator("h2")).to_have_text("Vera")
    expect(me.locator(".at")).to_contain_text("paused")
    steps(server.url, 2)
    teacher.locator("#restart-button").click()
    teacher.locator("[name=prefix_cache]").select_option("off")
    teacher.locator("#restart-now").click()
    expect(me).to_have_attribute("data-step", "1")
    expect(phone.locator(".stream .words")).to_contain_text("again")
    steps(server.url, 3)
    expect(phone.locator(".stream .text")).to_have_text("abc")
    expect(me.locator("dd").first).to_have_text("3 of 4")

    teacher.locator("#restart-button").click()
    teacher.locator("[value=none]").check()
    teacher.locator("#restart-now").click()
    expect(phone.locator(".stream .chip, .stream .name")).to_be_disabled()
    expect(phone.locator("#me")).to_be_hidden()
