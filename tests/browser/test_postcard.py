"""The postcard in Chromium: one key, two formats, and the picture of a notebook's output."""

import base64
import struct
import xml.etree.ElementTree as ET

import pytest
from playwright.sync_api import Download, Page, expect

from tests.browser.axe import expect_no_violation

SIZE = (1200, 630)


@pytest.fixture
def page(open_board):
    return open_board().page


def saved(page: Page, form: str) -> Download:
    with page.expect_download() as download:
        page.locator(f".postcard [data-format={form}]").click()
    return download.value


def test_one_key_makes_a_postcard_of_the_step_that_can_be_saved(page, tmp_path):
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
    page.keyboard.press("Escape")
    root.press(",")
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


FRAMES = """async (url) => {
  const data = await (await fetch(url)).arrayBuffer();
  const decoder = new ImageDecoder({ data, type: "image/gif" });
  await Promise.all([decoder.tracks.ready, decoder.completed]);
  const frames = decoder.tracks.selectedTrack.frameCount;
  const { image } = await decoder.decode({ frameIndex: frames - 1 });
  return { frames, width: image.displayWidth, height: image.displayHeight };
}"""


def test_a_range_of_steps_can_be_saved_as_a_gif(page, tmp_path):
    root = page.locator(".underglass")
    root.press("[")
    for _ in range(3):
        root.press(".")
    root.press("]")
    expect(root).to_have_attribute("data-range", "30-33")
    root.press("c")
    expect(page.locator("[data-format=gif]")).to_contain_text("30 to 33")
    download = saved(page, "gif")
    assert download.suggested_filename == "underglass-steps-30-33.gif"
    download.save_as(tmp_path / "steps.gif")
    expect(page.locator(".postcard progress")).not_to_be_visible()
    url = (
        "data:image/gif;base64," + base64.b64encode((tmp_path / "steps.gif").read_bytes()).decode()
    )
    assert page.evaluate(FRAMES, url) == {"frames": 4, "width": 800, "height": 420}
    assert (tmp_path / "steps.gif").stat().st_size < 200_000
