"""The panel of expert loads: only for a mixture of experts, and what it says is what the log says."""

import gzip
import re
from functools import cache
from pathlib import Path

from playwright.sync_api import expect

from engine import EventLog, simulate
from engine.simulation.mixture_runner import MixtureRunner
from engine.simulation.scenarios import scenario
from tests.browser.axe import expect_no_violation
from visualizer import figures, read

TENSOR = Path(__file__).parents[2] / "notebooks/checks/devices_tensor.jsonl.gz"


@cache
def the_log() -> EventLog:
    return scenario("experts").run()


def test_the_panel_says_the_logs_loads_fits_and_is_accessible(open_board):
    cost = MixtureRunner(5, 0.1, layers=48, experts=128, per_token=8)
    large = simulate(scenario("experts").workload, scenario("experts").config, cost=cost)
    page = None
    for width, scheme, log in ((390, "light", the_log()), (1280, "dark", large)):
        board = open_board(log, "#step=8", on=page, width=width, color_scheme=scheme)
        page = board.page
        page.set_viewport_size({"width": width, "height": 860})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        board.settle()
        panel, root = board.root.locator(".experts"), board.root.bounding_box()
        said = panel.locator(".swatches span").inner_text()
        assert said.endswith(str(read(log).expert_loads(8)))
        heights = set()
        for _ in range(4):
            box, canvas = panel.bounding_box(), panel.locator("canvas").bounding_box()
            assert root["x"] <= canvas["x"]
            assert canvas["x"] + canvas["width"] <= root["x"] + root["width"]
            heights.add(box["height"])
            board.press(".")
            board.settle()
        assert len(heights) == 1, "the panel keeps its height"
        expect(panel.locator("table")).to_be_attached()
        expect_no_violation(page)
        board.press("6")
        expect(panel).to_be_visible()
        expect(board.root.locator("section:visible")).to_have_count(1)
    # The next two are dense. One is on two devices, whose times are those of the figure.
    divided = EventLog.from_bytes(gzip.decompress(TENSOR.read_bytes()))
    board = open_board(divided, "#step=2", on=page)
    told = board.root.locator(".devices canvas").get_attribute("aria-label")
    title = figures.lanes(divided, step=2).layout.title.text
    assert sorted(re.findall(r"\d+(?= %)", told)) == sorted(re.findall(r"\((\d+)%\)", title))
    assert re.search(r"[\d.]+ ms", title)[0] in told
    board = open_board(on=page)
    expect(board.root.locator(".experts")).to_be_hidden()
    board.press("6")
    expect(board.root.locator(".experts")).to_contain_text("not a mixture of experts")
    expect(board.root.locator(".experts canvas")).to_be_hidden()
