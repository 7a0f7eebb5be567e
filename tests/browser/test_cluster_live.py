"""The live page of a gateway follows its feed: replicas, decisions, controls for all, prompts."""

import pytest
from playwright.sync_api import expect

from tests.browser.axe import expect_no_violation
from tests.server.gateway.cluster import ClusterFeed, cluster_trace, start_gateway
from tests.server.harness import post, start
from visualizer import read

ENGINE = {"max_batch_size": 4, "max_kv_tokens": 512, "block_size": 8, "token_budget": 64}
PREFIXES = ["The first of the prefixes " * 3, "Another one, also shared " * 3]


@pytest.fixture
def cluster():
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


def test_the_page_follows_the_gateway_asks_it_and_outlives_it(new_page, cluster):
    page = new_page(1280, 1000)
    page.goto(cluster.url)
    root = page.locator(".underglass")
    expect(root).to_have_attribute("data-live", "live")
    expect(page.locator(".message")).to_contain_text("2 replicas")
    expect(page.locator("#server")).to_contain_text("2 of 2 replicas")
    ask(cluster.url, 6)
    expect(root).to_have_attribute("data-ready", "true")
    expect(root).to_have_attribute("data-judged", "6")
    rows = read(cluster_trace(cluster.url)).decision_rows
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

    # A selected decision stops the page from following, until N.
    root.focus()
    page.keyboard.press("ArrowDown")
    expect(root).to_have_attribute("data-route", "0")
    at = root.get_attribute("data-at")
    ask(cluster.url, 1)
    expect(root).to_have_attribute("data-judged", "8")
    expect(root).to_have_attribute("data-following", "false")
    expect(root).to_have_attribute("data-at", str(at))
    root.focus()
    page.keyboard.press("n")
    expect(root).to_have_attribute("data-following", "true")
    expect(root).not_to_have_attribute("data-at", str(at))

    # A prompt of the page is answered and selected, and all replicas pause.
    page.locator("#name").fill("Ada")
    page.locator("#tokens").fill("12")
    page.locator("#text").fill("Once upon a time")
    page.locator("#send").click()
    expect(page.locator("#streams li")).to_have_attribute("data-state", "length")
    expect(root).to_have_attribute("data-selected", "9")
    expect(root.locator(".sentence")).to_contain_text("Ada")
    page.locator("#pause").click()
    expect(page.locator("#resume")).to_be_visible()
    expect(root.locator(".live")).to_contain_text("paused")
    page.locator("#resume").click()
    expect(page.locator("#pause")).to_be_visible()

    cluster.process.kill()
    expect(root).to_have_attribute("data-live", "lost")
    expect(root.locator(".picture")).to_be_visible()
