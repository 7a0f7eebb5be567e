"""A test's view of a board on a page, and what the Python fold says must be there."""

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import JSHandle, Locator, Page, expect

from engine.core.log import EventLog
from visualizer.logs import StepIndex, state_at


class BoardOnPage:
    """A drawn board. `data` reads what its root says in attributes."""

    def __init__(self, page: Page, root: Locator | None = None) -> None:
        self.page = page
        self.root = root or page.locator(".underglass").first

    def wait(self) -> "BoardOnPage":
        expect(self.root).to_have_attribute("data-ready", "true", timeout=30_000)
        return self

    def data(self, name: str) -> str:
        value = self.root.get_attribute(f"data-{name}")
        assert value is not None, name
        return value

    def expect_data(self, **values: object) -> None:
        for name, value in values.items():
            expect(self.root).to_have_attribute(f"data-{name}", str(value))

    def expect_step(self, step: int) -> None:
        expect(self.root).to_have_attribute("data-step", str(step))

    def expect_selected(self, request: int | str) -> None:
        expect(self.root).to_have_attribute("data-selected", str(request))

    def record(self, name: str) -> Callable[[], list[str]]:
        """Record an attribute: the result returns its value now and the value after each change.

        A locator looks every 0.1 to 1 s and can miss a value that stays for less.
        """
        record: JSHandle = self.root.evaluate_handle(
            """(root, name) => {
              const values = [root.dataset[name]];
              const note = () => {
                if (values.at(-1) !== root.dataset[name]) values.push(root.dataset[name]);
              };
              new MutationObserver(note).observe(root, { attributes: true });
              return values;
            }""",
            name,
        )
        return lambda: list(record.json_value())

    def press(self, *keys: str) -> None:
        self.root.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def settle(self) -> None:
        """Wait until what was moved so far is drawn: a board takes it over once a frame."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def act(self, name: str) -> Locator:
        return self.root.locator(f"[data-act={name}]")

    def told(self) -> set[str]:
        """The kinds of clauses in the sentence."""
        return set(str(self.root.locator(".sentence").first.get_attribute("data-told")).split())

    def text(self, selector: str) -> str:
        return " ".join(self.root.locator(selector).first.inner_text().split())

    def walk(self) -> list[dict[str, Any]]:
        """Steps from first to last by key; what the board shows at each, and where its parts lie."""
        shown: list[dict[str, Any]] = self.root.evaluate(
            """async (root) => {
              const press = (key) =>
                root.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
              const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
              const top = (selector) => root.querySelector(selector).getBoundingClientRect().top;
              const shown = [];
              press("Home");
              await drawn();
              for (let step = 1; step <= Number(root.dataset.steps); step += 1) {
                const swatches = root.querySelector(".swatches");
                const { hidden, ariaLabel } = swatches.previousElementSibling; // their picture
                const words = hidden ? swatches.innerText : ariaLabel;
                const tops = [top(".strip"), top(".lanes canvas"), top(".map > canvas")];
                shown.push({ ...root.dataset, words, tops });
                press(".");
                await drawn();
              }
              return shown;
            }"""
        )
        return shown

    def canvas(self, selector: str) -> dict[str, float]:
        box = self.root.locator(selector).bounding_box()
        assert box is not None
        return dict(box)


def right_end(page: Page, unless: str = ".for-screen-readers, .scroll, .alternative") -> float:
    """Where what is farthest to the right on boards ends, but for what may scroll or is not seen."""
    end: float = page.evaluate(
        """(unless) => Math.max(...[...document.querySelectorAll(".underglass *")]
             .filter((node) => !node.closest(unless))
             .map((node) => node.getBoundingClientRect().right))""",
        unless,
    )
    return end


def numbers_in(text: str) -> list[int]:
    """The whole numbers of a text, in order."""
    return [int(number) for number in re.findall(r"\d+", text)]


def counts_at(log: EventLog, step: int) -> dict[str, int]:
    """Blocks by kind after a step, counted from the Python fold's plain state."""
    state = state_at(log, StepIndex(log), step)
    holders: dict[int, int] = {}
    for request in state["requests"]:
        for block in request["block_table"]:
            holders[block] = holders.get(block, 0) + 1
    in_tree = {block for node in state["nodes"] for block in node["blocks"]}
    return {
        "unshared": sum(count == 1 for count in holders.values()),
        "shared": sum(count > 1 for count in holders.values()),
        "cached": len(in_tree - holders.keys()),
        "free": len(state["free"]),
        "running": len(state["running"]),
        "waiting": len(state["waiting"]),
    }


def expect_fold(board: BoardOnPage, log: EventLog, step: int) -> None:
    """The board shows what the Python fold says of this step, in attributes and in its words."""
    board.expect_step(step)
    expected = counts_at(log, step)
    assert {name: int(board.data(name)) for name in expected} == expected
    expect(board.root).not_to_have_attribute("data-moving", "true")  # words are painted until then
    assert numbers_in(board.text(".swatches")) == swatches_for(expected)


def swatches_for(counts: dict[str, int]) -> list[int]:
    """The numbers in the block map's header for these counts."""
    return [counts[kind] for kind in ("unshared", "shared", "cached", "free")]


def table_at(log: EventLog, step: int, request: int) -> list[int]:
    state: dict[str, Any] = state_at(log, StepIndex(log), step)
    return next(entry["block_table"] for entry in state["requests"] if entry["id"] == request)
