"""The live page of a server with several models: one at a time, each under an address of its own."""

import re
import shutil

from playwright.sync_api import expect

from engine.models.loader import BUNDLED
from tests.browser.live import engine_button, open_live, send
from tests.server.harness import get, serve_forked


def test_each_model_is_watched_asked_and_held_by_itself(new_page, tmp_path):
    page = new_page()
    shutil.copytree(BUNDLED, tmp_path / "second")
    with serve_forked("auto", model_dir=tmp_path) as server:
        open_live(page, server.url)
        expect(page.locator("#server")).to_contain_text("bundled")
        models = page.locator("#models").get_by_role("link")
        expect(models).to_have_text(["bundled", "second"])

        models.last.click()
        expect(page.locator("#server")).to_contain_text("second")
        assert {one["id"]: one["loaded"] for one in get(server.url, "/v1/models")["data"]} == {
            "bundled": True,
            "second": False,
        }
        send(page, "OnceUponATime", raw=None)
        # A process loads the model. Only then can the page's feed join, which tries every 15 seconds.
        expect(page.locator(".stream")).to_have_attribute(
            "data-state", re.compile("length|stop"), timeout=200_000
        )
        expect(page.locator("[data-live=live]")).to_be_visible(timeout=60_000)
        expect(page.locator("#server")).to_have_text(re.compile(r"^second\b.*\d"))

        engine_button(page, "pause").click()
        expect(engine_button(page, "resume")).to_be_enabled()
        assert get(server.url, "/health?model=second")["paused"] is True
        assert get(server.url, "/health")["paused"] is False

        expect(models.first).not_to_have_attribute("aria-current", "page")
        models.first.click()
        expect(models.first).to_have_attribute("aria-current", "page")
        expect(engine_button(page, "pause")).to_be_enabled()
