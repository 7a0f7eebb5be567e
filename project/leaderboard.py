"""The leaderboard: one line of JSON for each submission, with the file that it was made from.

A line can be run again anywhere, so a teacher collects lines and needs no other files. All of it but
the name and the number of attempts follows from its `code`, from the engine and from the seeds.
"""

import hashlib
import html
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from project.learner import MineError, Source
from project.scoring import PASSED, PUBLIC_SEED, Result, checks, hidden_seeds, passed, score, total
from project.uses import uses
from project.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent
MADE_BY = (
    "engine/**/*.py",
    "notebooks/checks/*.py",
    "project/solutions/*.py",
    *(
        f"project/{name}.py"
        for name in (
            "gates",
            "learner",
            "parts",
            "process",
            "runs",
            "scoring",
            "tight",
            "workloads",
        )
    ),
)
LONGEST_NAME = 40


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One submission. The fields by workload have its name as key; `score` has two more.

    seeds    the public one, then the hidden ones; goodput and starved are in this order
    engine   a hash of the code that made the score
    score    also "checks", the points for parts with one right answer, and "total"
    parts    the learner's own parts
    uses     what the code uses that no part needs; see `uses.py`
    """

    name: str
    attempts: int
    code_sha: str
    engine: str
    seeds: list[int]
    goodput: dict[str, list[float]]
    starved: dict[str, list[int]]
    score: dict[str, float]
    parts: list[str]
    uses: list[str]
    code: str


def engine_sha() -> str:
    """Return a hash of the code that makes a score."""
    digest = hashlib.sha256()
    for path in sorted(path for one in MADE_BY for path in ROOT.glob(one)):
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(path.read_text(encoding="utf-8").encode())
    return digest.hexdigest()[:12]


def line_of(source: Source, parts: Sequence[str], results: Sequence[Result]) -> Line:
    """Return the line of a score that has not been submitted: without a name."""
    points = {one.kind.name: one.points for one in results} | {"checks": checks(parts)}
    return Line(
        name="",
        attempts=0,
        code_sha=source.sha,
        engine=engine_sha(),
        seeds=[PUBLIC_SEED, *hidden_seeds(source)],
        goodput={one.kind.name: [run.goodput for run in one.yours] for one in results},
        starved={one.kind.name: [run.starved for run in one.yours] for one in results},
        score=points | {"total": total([*points.values()])},
        parts=sorted(parts),
        uses=uses(source),
        code=source.code,
    )


def check_name(name: str) -> None:
    """Raise MineError for a name that the table cannot show."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise MineError(
            f"NAME must have 1 to {LONGEST_NAME} printable characters, got {name[:60]!r}"
        )


def submit(name: str, line: Line, board: Path) -> Line:
    """Append a line and return it."""
    attempts = sum(one.name == name for one in read(board)) + 1 if board.exists() else 1
    return append(msgspec.structs.replace(line, name=name, attempts=attempts), board)


def append(line: Line, board: Path) -> Line:
    """Append a line that has a name, and return it."""
    with board.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")
    return line


def read(board: Path) -> list[Line]:
    """Return all lines. Raises MineError for a line that is not from `submit`."""
    try:
        texts = board.read_bytes().splitlines()
    except OSError as error:
        raise MineError(
            f"{board} cannot be read: {error}; `make submit NAME=...` makes it"
        ) from None
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            line = msgspec.json.decode(text, type=Line)
            check_name(line.name)
            if line.score.keys() != {"checks", "total", *(kind.name for kind in WORKLOADS)}:
                raise MineError(f"score has {list(line.score)}")
        except (msgspec.DecodeError, MineError) as error:
            raise MineError(f"{board}, line {number} is not a submission: {error}") from None
        lines.append(line)
    return lines


def difference(line: Line) -> str | None:
    """Run a line again. Return what differs, or None."""
    source = Source("mine.py", line.code)
    for field, here in {"code_sha": source.sha, "engine": engine_sha()}.items():
        if (there := getattr(line, field)) != here:
            return f"{field}: the line has {there}, here it is {here}"
    found = made_again(source)
    return found if isinstance(found, str) else compare(line, found)


@cache
def made_again(source: Source) -> Line | str:
    """Score a file again. Return its line, or why there is none."""
    try:
        parts = passed(source)
        return line_of(source, parts, score(source))
    except MineError as error:
        return str(error)


def compare(line: Line, found: Line) -> str | None:
    """Return the first field in which a line differs from the same score made again, or None."""
    for field in Line.__struct_fields__:
        there, again = getattr(line, field), getattr(found, field)
        if field not in ("name", "attempts") and there != again:
            return f"{field}: the line has {there}, run again it is {again}"
    return None


def ranked(lines: Sequence[Line]) -> list[Line]:
    """Return each name's best line, the highest total first; of equal ones the earlier."""
    best: dict[str, Line] = {}
    for line in lines:
        if line.name not in best or line.score["total"] > best[line.name].score["total"]:
            best[line.name] = line
    return sorted(best.values(), key=lambda one: one.score["total"], reverse=True)


def rows(lines: Sequence[Line]) -> list[list[str]]:
    """Return the table, its head first."""
    kinds = ["total", *(kind.name for kind in WORKLOADS), "checks"]
    table = [["", "name", *kinds, "attempts", "uses"]]
    for rank, line in enumerate(ranked(lines), 1):
        total_points, *points = (line.score[kind] for kind in kinds)
        numbers = [f"{total_points:.1f}", *(f"{one:.0f}" for one in points)]
        table.append([str(rank), line.name, *numbers, str(line.attempts), ", ".join(line.uses)])
    return table


def as_text(table: Sequence[Sequence[str]]) -> str:
    """Return a table for a terminal. Numbers are aligned at their right end."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [
            cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Leaderboard</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font: 1.25rem/1.5 system-ui, sans-serif; max-width: 90rem; margin: auto; padding: 1rem; }}
  table {{ border-collapse: collapse; width: 100%; font-size: 1rem; display: block; overflow-x: auto; }}
  th, td {{ padding: 0.4rem; text-align: left; border-bottom: 1px solid #8886; }}
  .number {{ text-align: right; font-variant-numeric: tabular-nums; }}
  td:last-child {{ font-size: 0.85rem; min-width: 12rem; }}
</style>
<h1>Your engine against ours</h1>
<p>An engine without parts has 0 points, our solution 100; {passed} pass. Each name's best submission.
<i>Uses</i> has what a file uses that no part needs.</p>
<table>
<thead>{head}</thead>
<tbody>
{body}
</tbody>
</table>
</html>
"""


def as_html(table: Sequence[Sequence[str]]) -> str:
    """Return a page for a projector."""
    head, *body = table
    return _PAGE.format(
        passed=PASSED,
        head=_html_row("th", head),
        body="\n".join(_html_row("td", row) for row in body),
    )


def _html_row(tag: str, row: Sequence[str]) -> str:
    last = len(row) - 2  # columns up to "attempts", without the name, are numbers
    cells = [
        f"<{tag}{' class=number' if index != 1 and index <= last else ''}>{html.escape(cell)}</{tag}>"
        for index, cell in enumerate(row)
    ]
    return f"<tr>{''.join(cells)}</tr>"
