"""watch() in a real JupyterLab: the kernel holds the connection, the browser shows the same numbers."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.board import BoardOnPage
from tests.browser.live import ask, expect_same_as_trace, held_server, steps
from tests.browser.notebooks import expect_said, run_cell
from tests.browser.test_jupyterlab import wait_for_pictures

pytestmark = pytest.mark.usefixtures("patience")


def test_a_notebook_follows_a_running_server_looks_back_and_outlives_it(open_cells):
    with held_server() as first:
        ask(first.url, "Ada", "Bo", "Cy", max_tokens=20)
        steps(first.url, 3)
        cells = [
            f'from visualizer import watch\nboard = watch("{first.url}")\nboard',
            "print('kernel:', board.step, board.following, len(board.state()['free']))",
            "board.step = 5",
            "board.following = True",
        ]
        page = open_cells("watch.ipynb", cells)
        board = BoardOnPage(page).wait()
        for step in range(3, 9):
            expect_same_as_trace(board, first.url, step)
            steps(first.url, 1)
        expect_same_as_trace(board, first.url, 9)

        run_cell(page, 2)
        expect_same_as_trace(board, first.url, 5)
        steps(first.url, 1)
        board.expect_data(steps="10", step=5)
        run_cell(page, 3)
        expect_same_as_trace(board, first.url, 10)
        expect(board.root).to_have_attribute("data-synced", "10 true")
        run_cell(page, 1)
        expect_said(page, f"kernel: 10 True {board.data('free')}")

        # The kernel passes on what the board asks the server besides.
        board.press("u")
        expect(page.locator(".seat h2")).to_contain_text("BreakingPolicy")  # the server's answer
        page.keyboard.press("Escape")
        board.press("g")
        board.expect_data(tour=1)
        page.keyboard.press("Escape")

        first.process.kill()
        board.expect_data(live="lost", step=10)
        assert wait_for_pictures(page, 1)  # of the moment at which it came to rest
    with held_server(port=urlsplit(first.url).port) as second:
        ask(second.url, "Di")
        expect(board.root).to_have_attribute("data-live", "live")
        steps(second.url, 2)
        expect_same_as_trace(board, second.url, 2)
