"""The live page of a gateway follows its feed: replicas, decisions, controls for all, prompts."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from server.process import BackgroundServer
from tests.browser.axe import expect_no_violation
from tests.browser.conftest import NewPage
from tests.server.gateway.cluster import ClusterFeed, cluster_trace, start_gateway
from tests.server.harness import post, start

ENGINE = {"max_batch_size": 4, "max_kv_tokens": 512, "block_size": 8, "token_budget": 64}
PREFIXES = ["The first of the prefixes " * 3, "Another one, also shared " * 3]


@pytest.fixture
def cluster() -> Iterator[BackgroundServer]:
    """A gateway over two servers."""
    with (
        start(engine=ENGINE) as first,
        start(engine=ENGINE) as second,
        start_gateway(first.url, second.url) as gateway,
    ):
        with ClusterFeed(gateway.url) as feed:
            feed.until_ready("0", "1")
        yield gateway


def ask(url: str, count: int) -> None:
    for number in range(count):
        body = {"prompt": f"{PREFIXES[number % 2]}{number}", "max_tokens": 4, "model": "m"}
        assert post(url, "/v1/completions", body).status_code == 200


def opened(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator(".underglass")).to_have_attribute("data-live", "live")


def test_the_page_follows_the_gateway_and_shows_what_its_log_has(
    new_page: NewPage, cluster: BackgroundServer
) -> None:
    page = new_page(1280, 1000)
    opened(page, cluster.url)
    root = page.locator(".underglass")
    expect(page.locator(".message")).to_contain_text("2 replicas")
    expect(page.locator("#server")).to_contain_text("2 of 2 replicas")
    ask(cluster.url, 6)
    expect(root).to_have_attribute("data-ready", "true")
    expect(root).to_have_attribute("data-judged", "6")
    rows = cluster_trace(cluster.url).decision_rows
    summary = root.locator(".summary")
    for name, value in {
        "requests": 6,
        "delivered": sum(row.cached_tokens or 0 for row in rows),
        "wrong": sum(row.cached_tokens != row.predicted_tokens for row in rows),
    }.items():
        expect(summary).to_have_attribute(f"data-{name}", str(value))
    expect(root).to_have_attribute("data-following", "true")
    newest = int(root.get_attribute("data-at") or 0)
    ask(cluster.url, 1)
    expect(root).to_have_attribute("data-judged", "7")
    assert int(root.get_attribute("data-at") or 0) > newest
    expect_no_violation(page)


def test_selecting_a_decision_stops_following_until_n(
    new_page: NewPage, cluster: BackgroundServer
) -> None:
    ask(cluster.url, 3)
    page = new_page()
    opened(page, cluster.url)
    root = page.locator(".underglass")
    expect(root).to_have_attribute("data-judged", "3")
    root.focus()
    page.keyboard.press("ArrowDown")
    expect(root).to_have_attribute("data-route", "0")
    at = root.get_attribute("data-at")
    ask(cluster.url, 1)
    expect(root).to_have_attribute("data-judged", "4")
    expect(root).to_have_attribute("data-following", "false")
    expect(root).to_have_attribute("data-at", str(at))
    root.focus()
    page.keyboard.press("n")
    expect(root).to_have_attribute("data-following", "true")
    expect(root).not_to_have_attribute("data-at", str(at))


def test_a_prompt_of_the_page_is_answered_and_selected_and_all_replicas_pause(
    new_page: NewPage, cluster: BackgroundServer
) -> None:
    page = new_page()
    opened(page, cluster.url)
    page.locator("#name").fill("Ada")
    page.locator("#tokens").fill("12")
    page.locator("#text").fill("Once upon a time")
    page.locator("#send").click()
    stream = page.locator("#streams li")
    expect(stream).to_have_attribute("data-state", "length")
    root = page.locator(".underglass")
    expect(root).to_have_attribute("data-selected", "1")
    expect(root.locator(".sentence")).to_contain_text("Ada")
    page.locator("#pause").click()
    expect(page.locator("#resume")).to_be_visible()
    expect(root.locator(".live")).to_contain_text("paused")
    page.locator("#resume").click()
    expect(page.locator("#pause")).to_be_visible()


def test_a_lost_gateway_is_told_and_the_picture_stays(
    new_page: NewPage, cluster: BackgroundServer
) -> None:
    ask(cluster.url, 2)
    page = new_page()
    opened(page, cluster.url)
    root = page.locator(".underglass")
    expect(root).to_have_attribute("data-judged", "2")
    cluster.process.kill()
    expect(root).to_have_attribute("data-live", "lost")
    expect(root.locator(".picture")).to_be_visible()
