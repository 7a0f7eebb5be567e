"""axe-core, asked about a page."""

from typing import Any

from playwright.sync_api import Page

from tests.browser.conftest import REPOSITORY

AXE = REPOSITORY / "visualizer" / "frontend" / "node_modules" / "axe-core" / "axe.min.js"


def expect_no_violation(page: Page) -> None:
    """Asks axe-core about the page, all of its rules that are not experiments."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text("utf-8"))
    found: list[dict[str, Any]] = page.evaluate(
        """async () =>
           (await axe.run(document, { resultTypes: ["violations"], preload: false })).violations
             .map(({ id, help, nodes }) => ({ id, help, nodes: nodes.map(({ html, failureSummary }) =>
               `${html.slice(0, 200)} ${failureSummary}`) }))"""
    )
    assert not found, found
