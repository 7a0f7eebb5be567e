"""The postcard in Chromium: one key, two formats, and the picture of a notebook's output."""

import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from playwright.sync_api import Download, Page, expect

from tests.browser.axe import expect_no_violation
from tests.browser.conftest import NewPage
from tests.visualizer.storytellers import storytellers
from visualizer import to_html

SIZE = (1200, 630)


@pytest.fixture
def page(new_page: NewPage, tmp_path: Path) -> Page:
    to_html(storytellers(), tmp_path / "board.html", step=30, select=8)
    page = new_page()
    page.goto((tmp_path / "board.html").as_uri())
    expect(page.locator(".underglass")).to_have_attribute("data-ready", "true")
    return page


def saved(page: Page, form: str) -> Download:
    with page.expect_download() as download:
        page.locator(f".postcard [data-format={form}]").click()
    return download.value


def test_one_key_makes_a_postcard_of_the_step_and_escape_closes_it(page: Page) -> None:
    root = page.locator(".underglass")
    root.press("c")
    picture = page.locator(".postcard img")
    expect(picture).to_be_visible()
    assert (picture.get_attribute("alt") or "").startswith("Step 30: r6")
    assert (
        picture.evaluate("async (img) => { await img.decode(); return img.naturalWidth }")
        == SIZE[0]
    )
    expect_no_violation(page)
    page.keyboard.press("Escape")
    expect(picture).not_to_be_visible()
    expect(root).to_be_focused()
    root.press(".")
    root.press("c")
    assert (picture.get_attribute("alt") or "").startswith("Step 31: ")


def test_it_can_be_saved_as_svg_and_as_png(page: Page, tmp_path: Path) -> None:
    page.locator("[data-act=postcard]").click()
    for form in ("svg", "png"):
        download = saved(page, form)
        assert download.suggested_filename == f"underglass-step-30.{form}"
        download.save_as(tmp_path / f"card.{form}")
    svg = ET.fromstring((tmp_path / "card.svg").read_text("utf-8"))
    assert (svg.get("width"), svg.get("height")) == tuple(map(str, SIZE))
    png = (tmp_path / "card.png").read_bytes()
    assert struct.unpack(">II", png[16:24]) == SIZE
    assert 10_000 < len(png) < 100_000
