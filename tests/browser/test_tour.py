"""A tour in Chromium: scenes, keys, what is lit, and what is saved."""

from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.axe import expect_no_violation
from tests.browser.exported import the_log
from tests.visualizer import clusters
from underglass.commands.tell import tell_me
from visualizer import read
from visualizer.comparing.compared_clusters import ComparedClusters
from visualizer.comparing.compared_runs import ComparedRuns
from visualizer.html import write_page
from visualizer.packed import packed_log
from visualizer.scenario import gallery

# How many pixels of a canvas have a colour and not a grey, red excepted: it is the price's.
HUED = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let hued = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [low, , high] = [data[i], data[i + 1], data[i + 2]].sort((a, b) => a - b);
    hued += high - low > 60 && data[i + 3] > 200;
  }
  return hued;
}"""


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light"), (1920, "light")])
def test_one_key_tells_the_run_and_escape_returns_to_its_step(open_board, width, scheme):
    board = open_board(width=width, color_scheme=scheme, reduced_motion="reduce")
    tour, root, keyboard = read(the_log()).tour, board.root, board.page.keyboard
    board.press("g")
    said, large = root.locator(".said"), root.locator("canvas.large")
    for number, scene in enumerate(tour, start=1):
        board.expect_data(tour=number, scenes=len(tour), kind=scene.kind)
        expect(said).to_contain_text(scene.text.replace("◑", ""))
        expect(large).to_have_attribute("data-lit", " ".join(map(str, scene.requests)))
        expect(root.locator(".beside > *")).to_have_count(len(scene.beside))
        hued = large.evaluate(HUED)
        assert hued if scene.requests else not hued, scene.kind
        expect_no_violation(board.page)
        assert root.evaluate("root => root.scrollWidth <= root.clientWidth")
        keyboard.press("ArrowRight")
    board.expect_data(tour=len(tour))
    [number] = [n for n, one in enumerate(tour, start=1) if one.kind == "preemption"]
    for _ in range(len(tour) - number):
        root.locator(".tour [data-act=back]").click()
    why, answer = root.locator(".ask"), root.locator(".answer")
    expect(answer).to_be_hidden()
    why.click()
    expect(answer).to_have_text(tour[number - 1].why)
    keyboard.press("End")  # moves the tour, and not the board
    keyboard.press("Home")
    board.expect_data(tour=1)
    for _ in range(number - 1):
        keyboard.press(".")
    keyboard.press("Escape")
    expect(root).not_to_have_attribute("data-tour", "1")
    board.expect_step(tour[number - 1].step)
    board.expect_selected(tour[number - 1].requests[0])
    expect(root.locator("canvas.strip")).to_be_visible()


def test_a_tour_is_saved_as_a_page_a_gif_and_one_printed_page(open_board, tmp_path):
    page, gif, pdf = (tmp_path / f"tour.{kind}" for kind in ("html", "gif", "pdf"))
    tell_me(["vllm_tight"], html=page, gif=gif, pdf=pdf)
    scenes = len(read(gallery()["vllm_tight"].log).tour)
    with Image.open(gif) as image:
        assert (getattr(image, "n_frames", 1), image.size) == (scenes, (960, 600))
    assert pdf.read_bytes().count(b"/Type /Page\n") == 1


@pytest.mark.parametrize("name", ["cluster", "comparison", "clusters"])
def test_clusters_and_comparisons_are_told(new_page, tmp_path, name):
    cluster, one, two = clusters.one_dies(), gallery()["overload"].log, gallery()["thrash"].log
    told: Any = read(cluster) if name == "cluster" else ComparedRuns(one, two)
    if name == "clusters":
        told = ComparedClusters(clusters.three_replicas(), cluster)
    packed = packed_log(cluster, asks=False) if name == "cluster" else told.packed()
    path, page = tmp_path / "page.html", new_page()
    write_page(packed, path, theme="light", title="", telling=True)
    page.goto(path.as_uri())
    root = page.locator(".underglass[data-tour]")
    for number, scene in enumerate(told.tour, start=1):
        expect(root).to_have_attribute("data-tour", str(number))
        expect(root.locator(".said")).to_contain_text(scene.text)
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    expect(page.locator(".tour")).to_have_count(0)
