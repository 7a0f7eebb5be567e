"""The table of grades: for the terminal, as CSV and as a page."""

import csv
import html
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from grading.runner import Row
from grading.submissions import Unrecognised

LIMITS = (
    "The limits stop accidents and simple tricks. They are not a security boundary: a determined "
    "student can forge a grade. Read the code of a part that uses what no exercise needs."
)
_SHOWN = ("student", "lesson", "result", "seconds", "limit", "uses", "message")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run such a cell
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif }
body { margin: 2rem auto; max-width: 90rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #8885 }
td.seconds { text-align: right; font-variant-numeric: tabular-nums }
.passed { color: light-dark(#1a6b33, #7ed492) } .failed { color: light-dark(#a32020, #ff9a8f) }
td.message { width: 55% }
pre { overflow-x: auto; margin: .3rem 0; font-size: .8rem }
"""


@dataclass(frozen=True)
class Report:
    """All rows, and what the reader has to know of them."""

    rows: Sequence[Row]
    others: Sequence[Unrecognised]
    isolation: str

    @property
    def head(self) -> list[str]:
        """Return the sentences above the table."""
        counts = Counter(row.result for row in self.rows)
        results = ", ".join(f"{counts[one]} {one}" for one in ("passed", "failed", "not written"))
        students = len({row.student for row in self.rows})
        files = len({row.file for row in self.rows})
        return [
            f"Notebooks: {files}. Students: {students}. Results: {results}.",
            self.isolation,
            LIMITS,
        ]


def text(report: Report, width: int | None = None) -> str:
    """Return the table for a terminal; messages are cut at its right edge."""
    width = width or shutil.get_terminal_size((120, 24)).columns
    rows = [_SHOWN, *(tuple(_word(row, name) for name in _SHOWN) for row in report.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_SHOWN) - 1)]
    lines = []
    for row in rows:
        cells = [cell.ljust(wide) for cell, wide in zip(row, widths, strict=False)]
        line = "  ".join([*cells, row[-1]])
        lines.append(line if len(line) <= width else line[: width - 1] + "…")
    others = [f"  {_printable(one.file)}: {one.reason}" for one in report.others]
    if others:
        others = ["", "Not graded:", *others]
    return "\n".join([*report.head, "", *lines, *others])


def write(report: Report, path: Path) -> None:
    """Write the table as the file's ending asks: .csv or .html. Raises ValueError for another one."""
    if path.suffix == ".csv":
        _write_csv(report, path)
    elif path.suffix == ".html":
        path.write_text(_page(report), "utf-8")
    else:
        raise ValueError(f"the file must end in .csv or .html, got {path.name}")


def _write_csv(report: Report, path: Path) -> None:
    names = [field.name for field in fields(Row)]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(names)
        for row in report.rows:
            cells = [_word(row, name) for name in names]
            table.writerow(["'" + one if one.startswith(_FORMULA) else one for one in cells])


def _page(report: Report) -> str:
    head = "".join(f"<p>{html.escape(one)}</p>" for one in report.head)
    titles = "".join(f"<th>{name}" for name in _SHOWN)
    rows = "\n".join(map(_html_row, report.rows))
    others = "".join(
        f"<li>{html.escape(one.file)}: {html.escape(one.reason)}" for one in report.others
    )
    left = f"<h2>Not graded</h2><ul>{others}</ul>" if others else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Grades</title>'
        f"<style>{_STYLE}</style><h1>Grades</h1>{head}\n<table><tr>{titles}\n{rows}\n</table>{left}\n"
    )


def _html_row(row: Row) -> str:
    cells = []
    for name in _SHOWN:
        inside = html.escape(_word(row, name))
        if name == "message" and row.details:
            details = html.escape(_printable(row.details))
            inside = f"<details><summary>{inside}</summary><pre>{details}</pre></details>"
        kind = row.result.replace(" ", "-") if name == "result" else name
        cells.append(f'<td class="{kind}">{inside}')
    return f"<tr>{''.join(cells)}"


def _word(row: Row, name: str) -> str:
    value = getattr(row, name)
    return f"{value:.1f}" if isinstance(value, float) else " ".join(_printable(value).split())


def _printable(text: str) -> str:
    """Replace characters that would move a terminal's cursor or reverse a text."""
    return "".join(one if one.isprintable() or one == "\n" else " " for one in text)
