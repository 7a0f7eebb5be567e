"""`patchChildren` makes an element's children equal to new ones and leaves equal children alone."""

import subprocess

import pytest

from tests.browser.conftest import REPOSITORY
from tests.site.page_models import NODE

SOURCE = REPOSITORY / "visualizer" / "frontend" / "src" / "board" / "patch_children.ts"
STRIP = """
const source = require("node:fs").readFileSync(0, "utf8");
process.stdout.write(require("node:module").stripTypeScriptTypes(source));
"""


@pytest.fixture
def page(new_page):
    """A blank page that knows `patchChildren`, and makes random elements with `grown(chance)`."""
    page = new_page()
    page.evaluate(
        """async (source) => {
          const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
          window.patchChildren = (await import(url)).patchChildren;
          window.dice = (seed) => (sides) => {
            seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
            return Math.floor((seed / 2 ** 32) * sides);
          };
          window.grown = (chance, depth = 3) => {
            const node = document.createElement(["p", "b", "i"][chance(3)]);
            if (chance(2)) node.className = "xyz"[chance(3)];
            if (chance(4) === 0) node.setAttribute("title", chance(3));
            if (chance(4) === 0) node.style.width = `${chance(9)}px`;
            const count = depth ? chance(4) : 0;
            for (let i = 0; i < count; i += 1)
              node.append(chance(3) ? grown(chance, depth - 1) : ["<b>", "one", "two"][chance(3)]);
            return node;
          };
        }""",
        subprocess.run(
            [NODE, "--no-warnings", "-e", STRIP],
            input=SOURCE.read_text("utf-8"),
            capture_output=True,
            text=True,
            check=True,
        ).stdout,
    )
    return page


def test_what_is_there_afterwards_is_what_was_asked_for(page):
    wrong = page.evaluate(
        """() => {
          const wrong = [];
          const parent = document.createElement("div");
          for (let seed = 1; seed <= 500; seed += 1) {
            const chance = dice(seed);
            const fresh = Array.from({ length: chance(5) }, () => (chance(4) ? grown(chance) : "text"));
            const asked = document.createElement("div");
            asked.append(...fresh.map((node) => node.cloneNode?.(true) ?? node));
            patchChildren(parent, fresh);
            if (!parent.isEqualNode(asked)) wrong.push([seed, parent.innerHTML, asked.innerHTML]);
          }
          return wrong;
        }"""
    )
    assert wrong == []
    # Nothing is touched where nothing changes.
    changes = page.evaluate(
        """() => {
          const parent = document.createElement("div");
          const made = () => [grown(dice(7)), "words", grown(dice(8))];
          patchChildren(parent, made());
          const before = [...parent.querySelectorAll("*")];
          const watch = new MutationObserver(() => {});
          const all = { subtree: true, childList: true, attributes: true, characterData: true };
          watch.observe(parent, all);
          patchChildren(parent, made());
          const same = [...parent.querySelectorAll("*")].every((node, i) => node === before[i]);
          return [before.length > 3, same, watch.takeRecords().length];
        }"""
    )
    assert changes == [True, True, 0]


def test_a_button_keeps_the_focus_and_a_list_its_place(page):
    kept = page.evaluate(
        """() => {
          const made = (count) => {
            const list = document.createElement("div");
            list.style.cssText = "height: 40px; overflow: auto";
            for (let i = 0; i < count; i += 1) {
              const button = document.createElement("button");
              button.textContent = `request ${i + count}`;
              list.append(button, document.createElement("br"));
            }
            return [list, "and so on"];
          };
          patchChildren(document.body, made(20));
          const list = document.body.firstChild;
          list.querySelectorAll("button")[9].focus();
          list.scrollTop = 77;
          patchChildren(document.body, made(15));
          const { activeElement: active } = document;
          return [active.textContent, document.body.firstChild === list, list.scrollTop];
        }"""
    )
    assert kept == ["request 24", True, 77]
