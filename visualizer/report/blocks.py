"""The parts that a report consists of, and how they are written: as HTML and as Markdown."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; the report's title has level 1."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts, of which the first has the heads. In all columns but `words`, they are numbers."""

    rows: list[list[str]]
    words: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG, what it shows in words, a name for its file, and the same picture for a phone."""

    name: str
    shows: str
    svg: str
    narrow: str


Block = Heading | Text | Table | Picture
WIDTHS = 900, 400  # of pictures, in pixels
_STYLE = """
:root { color-scheme: light dark; --line: #8886; }
body { font: 15px/1.5 Arial, "Liberation Sans", sans-serif; max-width: 940px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; margin: 1rem 0; }
td, th { padding: 3px 12px 3px 0; text-align: right; vertical-align: top; font-weight: normal;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { opacity: .7; } .words { text-align: left; } figcaption { font-size: 13px; opacity: .75; }
.narrow { height: 0; overflow: hidden; visibility: hidden; }
@media (max-width: 640px) {
  .narrow { height: auto; visibility: visible; }
  .broad { height: 0; overflow: hidden; visibility: hidden; }
  .told th { display: none; } .told td { display: block; border: 0; padding: 2px 0; }
  .told td:not(:first-child)::before { content: attr(data-head) ": "; opacity: .7; }
  .told tr { display: block; border-bottom: 1px solid var(--line); padding: 6px 0; }
}
"""


def as_html(blocks: Sequence[Block]) -> str:
    """Return a page that needs no other file."""
    body, title = [], ""
    for block in blocks:
        match block:
            case Heading(text, level):
                title = title or text
                body.append(f"<h{level}>{html.escape(text)}</h{level}>")
            case Text(text):
                body.append(f"<p>{html.escape(text)}</p>")
            case Table(rows, words):
                is_told = len(words) == len(rows[0]) > 2  # wide columns of words
                told = ' class="told"' * is_told
                body.append(f'<div class="wide"><table{told}>{_rows(rows, words)}</table></div>')
            case Picture(_, shows, svg, narrow):
                both = f'<div class="broad">{svg}</div><div class="narrow">{narrow}</div>'
                body.append(f"<figure>{both}<figcaption>{html.escape(shows)}</figcaption></figure>")
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    style = f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return f'<!doctype html><html lang="en">{head}{style}\n' + "\n".join(body) + "\n</html>\n"


def _rows(rows: list[list[str]], words: tuple[int, ...]) -> str:
    """Return the rows; each cell names its head, which a phone shows beside it."""
    said = []
    for number, row in enumerate(rows):
        cell, cells = "td" if number else "th", list[str]()
        for column, (head, text) in enumerate(zip(rows[0], row, strict=True)):
            kind = ' class="words"' * (column in words) + f' data-head="{html.escape(head)}"'
            cells.append(f"<{cell}{kind}>{html.escape(text)}</{cell}>")
        said.append(f"<tr>{''.join(cells)}")
    return "".join(said)


def write_markdown(blocks: Sequence[Block], path: Path) -> list[Path]:
    """Write Markdown, and each picture to an SVG file beside it; return the paths."""
    lines, paths = list[str](), [path]
    for block in blocks:
        match block:
            case Heading(text, level):
                lines.append(f"{'#' * level} {_plain(text)}")
            case Text(text):
                lines.append(_plain(text))
            case Table(rows, words):
                heads, *others = [[_plain(cell) for cell in row] for row in rows]
                rule = ["---" if column in words else "---:" for column in range(len(heads))]
                lines.append("\n".join(f"| {' | '.join(row)} |" for row in (heads, rule, *others)))
            case Picture(name, shows, svg, _):
                file = path.with_name(f"{path.stem}-{name}.svg")
                file.write_text(svg, encoding="utf-8")
                paths.append(file)
                lines.append(f"![{_plain(shows)}]({file.name})")
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return paths


def _plain(text: str) -> str:
    """A text that Markdown shows as it is: a client's label may contain anything."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", text.replace("\n", " "))
