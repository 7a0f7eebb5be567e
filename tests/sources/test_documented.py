"""docs/sources.md says what each reader knows; its tables are made from `READERS` and from the board.

pytest tests/sources/test_documented.py --update-snapshots      # rewrites the tables
"""

import re
from pathlib import Path

import pytest

from engine.simulation.facts import FACTS
from visualizer.html import MODULE
from visualizer.reading.knowledge import WORDS
from visualizer.sources import READERS

DOC = Path(__file__).parents[2] / "docs" / "sources.md"
BOARD = MODULE.parents[1] / "frontend" / "src" / "board" / "board.ts"
MARKS = {"recorded": "●", "inferred": "◐", "unknown": "–"}
FOREIGN = [one for one in READERS if not one.name.startswith("underglass")]
TABLE = re.compile(r"(?<=<!-- tables -->\n).*?(?=<!-- end of the tables -->)", re.DOTALL)


def panels() -> dict[str, list[str]]:
    """Return each panel that a log may lack the facts for: its title -> these facts."""
    [needs] = re.findall(r"const NEEDS: .* = \{(.*?)\n\};", BOARD.read_text("utf-8"), re.DOTALL)
    rows = [re.findall(r'"([^"]+)"', row) for row in needs.splitlines() if row]
    return {title: facts for title, *facts in rows}


def tables() -> str:
    """Return both tables as markdown."""
    head = ["| |", *(f" {one.title} |" for one in FOREIGN)]
    rule = "|---|" + "---|" * len(FOREIGN)
    lines = ["".join(head), rule]
    for fact in FACTS:
        marks = [MARKS[one.facts.get(fact, "unknown")] for one in FOREIGN]
        lines.append(f"| {WORDS['facts'][fact]} | " + " | ".join(marks) + " |")
    lines += ["", f"{head[0]} needs |{''.join(head[1:])}", f"|---{rule}"]
    for title, facts in panels().items():
        drawn = [
            all(one.facts.get(fact, "unknown") != "unknown" for fact in facts) for one in FOREIGN
        ]
        cells = ["drawn" if one else "says what is missing" for one in drawn]
        needs = ", ".join(WORDS["facts"][fact] for fact in facts)
        lines.append(f"| {title} | {needs} | " + " | ".join(cells) + " |")
    return "\n" + "\n".join(lines) + "\n\n"


def test_the_tables_are_those_of_today(request: pytest.FixtureRequest) -> None:
    written = DOC.read_text("utf-8")
    if request.config.getoption("--update-snapshots"):
        written = TABLE.sub(lambda _: tables(), written)
        DOC.write_text(written, "utf-8")
    assert TABLE.findall(written) == [tables()], "run it with --update-snapshots"
