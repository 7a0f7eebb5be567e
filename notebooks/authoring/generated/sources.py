"""The tables of docs/sources.md: what each reader knows, and which panels can be drawn from it."""

import re

from engine.simulation.facts import FACTS
from visualizer.html import MODULE
from visualizer.reading.knowledge import WORDS
from visualizer.sources import READERS

_BOARD = MODULE.parents[1] / "frontend" / "src" / "board" / "board.ts"
_MARKS = {"recorded": "●", "inferred": "◐", "unknown": "–"}
_FOREIGN = [one for one in READERS if not one.name.startswith("underglass")]


def _panels() -> dict[str, list[str]]:
    """Return each panel that a log may lack the facts for: its title -> these facts."""
    [needs] = re.findall(r"const NEEDS: .* = \{(.*?)\n\};", _BOARD.read_text("utf-8"), re.DOTALL)
    rows = [re.findall(r'"([^"]+)"', row) for row in needs.splitlines() if row]
    return {title: facts for title, *facts in rows}


def tables() -> str:
    """Return both tables as markdown."""
    head = ["| |", *(f" {one.title} |" for one in _FOREIGN)]
    rule = "|---|" + "---|" * len(_FOREIGN)
    lines = ["".join(head), rule]
    for fact in FACTS:
        marks = [_MARKS[one.facts.get(fact, "unknown")] for one in _FOREIGN]
        lines.append(f"| {WORDS['facts'][fact]} | " + " | ".join(marks) + " |")
    lines += ["", f"{head[0]} needs |{''.join(head[1:])}", f"|---{rule}"]
    for title, facts in _panels().items():
        drawn = [
            all(one.facts.get(fact, "unknown") != "unknown" for fact in FACTS if fact in facts)
            for one in _FOREIGN
        ]
        cells = ["drawn" if one else "says what is missing" for one in drawn]
        needs = ", ".join(WORDS["facts"][fact] for fact in facts)
        lines.append(f"| {title} | {needs} | " + " | ".join(cells) + " |")
    return "\n" + "\n".join(lines) + "\n\n"
