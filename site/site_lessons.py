"""Build a page for each lesson.

When the site is built, each lesson's cells run in Pyodide, as they would in a page (`run_lessons.mjs`).
This tells which cells run in a page, and it provides the logs of the page's boards. A cell that does
not run there shows the output that its notebook stores, and says why.

A page is divided at its questions: the part after a question is folded until the reader has answered.
So no answer is visible before its question is answered, with or without JavaScript.
"""

import ast
import base64
import html
import json
import os
import re
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from authoring.lab import NOTEBOOKS
from authoring.parts import lessons
from page_cells import PageGuess
from site_assets import run_node
from site_cells import Verdict, verdicts
from site_hosts import colab_url
from site_markdown import render
from site_pages import Site
from site_pictures import Job, draw

WORKERS = 2
_ALL = 999  # cells: more than any lesson has
_DARK = re.compile(r"url\(data:image/webp;base64,([^)]+)\)")
_UNRUN: dict[str, Any] = {"ok": False, "outputs": []}

Output = dict[str, Any]
Runs = dict[int, dict[str, Any]]  # by cell: ok, outputs


@dataclass
class Prose:
    """A Markdown cell: the question if `asks`; followed by the list of headings if `contents`."""

    cell: int
    html: str
    asks: bool = False
    contents: bool = False


@dataclass
class Code:
    """A code cell, as the template draws it."""

    cell: int
    code: str
    runs: bool
    needs: str
    explains: bool
    outputs: list[Output]
    figure: str = ""
    only_asks: bool = False
    hints: str = ""

    @property
    def picture(self) -> Output | None:
        """Its board or image, if it has one alone."""
        drawn = [one for one in self.outputs if one["kind"] in ("board", "image")]
        return drawn[0] if len(drawn) == 1 else None

    @property
    def stands_beside(self) -> bool:
        """Whether its picture fits beside the prose: a panel, not a whole board.

        A figure does not: it is stored for the whole width, and half as large its words are too small.
        """
        if self.picture is None or self.picture["kind"] == "image":
            return False
        options = self.picture["options"]
        return bool(options.get("only")) or options.get("level") == "lanes"


@dataclass
class Part:
    """A part of a page: the beginning, or the cells after the question with this key."""

    question: str = ""
    blocks: list[Prose | Code] = field(default_factory=list)

    @property
    def scenes(self) -> Iterator["Scene"]:
        """Yield the blocks, those around a picture as a scene of their own.

        The prose before and after a picture speaks of it, up to code that does more than ask. Of the
        prose between two pictures the last cell belongs to the second one.
        """
        loose: list[Prose | Code] = []
        blocks = self.blocks
        at = 0
        while at < len(blocks):
            block = blocks[at]
            at += 1
            if not _is_picture(block):
                loose.append(block)
                continue
            start = len(loose)
            while start and isinstance(loose[start - 1], Prose):
                start -= 1
            if start:
                yield Scene(loose[:start])
            scene = [*loose[start:], block]
            end = at
            while end < len(blocks) and _only_speaks(blocks[end]):
                end += 1
            if end > at and end < len(blocks) and _is_picture(blocks[end]):
                end -= 1
            yield Scene([*scene, *blocks[at:end]], picture=block)
            loose, at = [], end
        if loose:
            yield Scene(loose)


def _is_picture(block: Prose | Code) -> bool:
    return isinstance(block, Code) and block.picture is not None


def _only_speaks(block: Prose | Code) -> bool:
    return isinstance(block, Prose) or (block.only_asks and block.picture is None)


@dataclass
class Scene:
    """Blocks that follow each other, and the one among them with the picture that they speak of."""

    blocks: list[Prose | Code]
    picture: Prose | Code | None = None


@dataclass
class Lesson:
    """A lesson's page, and the verdicts on its cells."""

    path: Path
    title: str
    question: str
    parts: list[Part] = field(default_factory=list)
    headings: list[tuple[str, str]] = field(default_factory=list)  # anchor, text as HTML
    replies: dict[str, Any] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def file(self) -> str:
        """The page's name."""
        return f"{self.path.stem}.html"

    @property
    def notebook(self) -> str:
        """The notebook's path in the repository."""
        return f"notebooks/{self.path.name}"


def build(site: Site) -> list[Lesson]:
    """Write the pages in lessons/, and return the lessons."""
    paths = lessons()
    notebooks = {path.stem: nbformat.read(path, as_version=4) for path in paths}
    runs = run_cells(site, notebooks)
    made = [_lesson(site, path, notebooks[path.stem].cells, runs[path.stem]) for path in paths]
    previews = _previews(site, made)
    for at, lesson in enumerate(made):
        site.write(
            f"lessons/{lesson.file}",
            "lesson.html",
            page="lessons",
            lesson=lesson,
            before=made[at - 1] if at else None,
            after=made[at + 1] if at + 1 < len(made) else None,
            colab=colab_url(lesson.path.stem),
            **previews[at],
        )
    return made


def _previews(site: Site, made: list[Lesson]) -> list[dict[str, str]]:
    """Draw each lesson's first board as its link preview. Return each page's image variables.

    Only a board before the first question is used, because a later board could show an answer.
    """
    boards = [_first_board(lesson) for lesson in made]
    jobs = [
        Job(
            log=site.out / board["log"],
            title=lesson.title,
            step=board["options"].get("step"),
            selected=board["options"].get("selected"),
            card=site.out / f"images/lessons/{lesson.path.stem}.png",
        )
        for lesson, board in zip(made, boards, strict=True)
        if board
    ]
    said = {job.title: drawn.words for job, drawn in zip(jobs, draw(jobs), strict=True)}
    return [
        {"image": f"images/lessons/{one.path.stem}.png", "image_alt": said[one.title]}
        if one.title in said
        else {}
        for one in made
    ]


def _first_board(lesson: Lesson) -> Output | None:
    """Return the first board of one log before the lesson's first question."""
    outputs = [
        output
        for block in lesson.parts[0].blocks
        if isinstance(block, Code)
        for output in block.outputs
        if output["kind"] == "board" and output["module"] == "board"
    ]
    return next((one for one in outputs if "compare" not in one["options"]), None)


def run_cells(site: Site, notebooks: dict[str, Any]) -> dict[str, Runs]:
    """Run the code cells in Pyodide under Node, several lessons at a time.

    SITE_LESSONS="04 18:2" runs those of lesson 04, and of lesson 18 those up to the notebook's cell 2.
    """
    sources = {
        name: [
            {"cell": number, "source": cell.source}
            for number, cell in enumerate(notebook.cells)
            if cell.cell_type == "code"
        ]
        for name, notebook in notebooks.items()
    }
    wanted = {one[:2]: int(one[3:] or _ALL) for one in os.environ.get("SITE_LESSONS", "").split()}
    asked = [
        (name, [one for one in cells if one["cell"] <= wanted.get(name[:2], _ALL)])
        for name, cells in sources.items()
        if not wanted or name[:2] in wanted
    ]
    workers = 1 if wanted else WORKERS  # another Python costs more than it saves with few lessons
    shares = [dict(asked[at::workers]) for at in range(workers)]

    def run(share: dict[str, Any]) -> dict[str, Any]:
        ran: dict[str, Any] = json.loads(
            run_node("run_lessons.mjs", str(site.out), given=json.dumps(share))
        )
        return ran

    with ThreadPoolExecutor(workers) as pool:
        found = {name: cells for share in pool.map(run, shares) for name, cells in share.items()}
    unrun = {name: {one["cell"]: _UNRUN for one in cells} for name, cells in sources.items()}
    return unrun | {
        name: unrun[name] | {int(cell): one for cell, one in cells.items()}
        for name, cells in found.items()
    }


def _lesson(site: Site, path: Path, cells: list[Any], runs: Runs) -> Lesson:
    first = cells[0].source
    title = re.sub(r"^# ", "", first.splitlines()[0])
    asked = next(cell.source for cell in cells if "question" in cell.metadata.get("tags", []))
    question = re.findall(r"\*\*([^*]+\?)\*\*", asked)[0].replace("\n", " ")
    lesson = Lesson(path, title, question)
    sources = {n: cell.source for n, cell in enumerate(cells) if cell.cell_type == "code"}
    judged = verdicts(sources, runs)
    lesson.verdicts = list(judged.values())
    hints = _hints(path.stem[:2])
    page = f"lessons/{lesson.file}"
    part = Part()
    lesson.parts.append(part)
    for number, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            rendered = render(cell.source, site.links.resolver(lesson.notebook, page))
            lesson.headings += [
                (anchor, text) for level, anchor, text in rendered.headings if level == 2
            ]
            part.blocks.append(Prose(number, rendered.html, asks=number == 1, contents=number == 3))
            continue
        verdict = judged[number]
        stored = list(_stored(site, f"{path.stem}-{number}", cell.outputs))
        picture = next((one for one in stored if one["kind"] == "image"), None)
        outputs = runs[number]["outputs"] if verdict.runs else stored
        outputs = list(_drawable(outputs, picture))
        part.blocks.append(
            Code(
                number,
                _highlighted(cell.source),
                verdict.runs,
                verdict.needs,
                verdict.explains,
                outputs,
                figure=picture["src"] if picture else "",
                only_asks=_only_asks(cell.source),
                hints=hints if f"check.lesson_{path.stem[:2]}(" in cell.source else "",
            )
        )
        asked_here = [one for one in runs[number]["outputs"] if one["kind"] == "question"]
        if not asked_here and (unrun := _question(cell.source)):
            asked_here = [unrun]
            outputs.append(unrun)
        for asking in asked_here:
            key = asking["key"]
            lesson.replies[key] = {
                name: asking[name] for name in ("options", "replies", "unanswered")
            }
            part = Part(key)
            lesson.parts.append(part)
    return lesson


def _question(source: str) -> Output | None:
    """Return the question in a cell's source, for a lesson whose cells do not run.

    None if it has none, or if only running the cell shows what it asks.
    """
    given: dict[str, ast.expr] = {}  # what the cell calls by a name
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            given[node.targets[0].id] = node.value
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "predict":
            arguments = [given.get(getattr(one, "id", ""), one) for one in node.args]
            try:
                key, question, options = map(ast.literal_eval, arguments)
            except ValueError:  # an argument comes from another cell
                return None
            output: Output = PageGuess(key, question, options).page_output()
            return output
    return None


def _stored(site: Site, name: str, outputs: list[Any]) -> Iterator[Output]:
    """Yield the outputs that the notebook stores, and write their pictures."""
    for at, output in enumerate(outputs):
        data = output.get("data", {})
        after = outputs[at + 1].get("data", {}) if at + 1 < len(outputs) else {}
        if output.output_type == "stream":
            yield {"kind": "text", "stream": output.name, "text": output.text}
        elif "image/png" in data:
            path = f"images/lessons/{name}-{at}.png"
            width, height = _write_png(site.out / path, data["image/png"])
            words = data.get("text/plain", "").strip()
            alt = words if words.isprintable() else ""
            image: Output = {
                "kind": "image",
                "src": path,
                "width": width,
                "height": height,
                "alt": alt,
            }
            if dark := _DARK.search(after.get("text/html", "")):
                image["dark"] = f"images/lessons/{name}-{at}-dark.webp"
                (site.out / image["dark"]).write_bytes(base64.b64decode(dark[1]))
            yield image
        elif "text/markdown" in data:
            yield {"kind": "html", "html": render(data["text/markdown"], str).html}


def _write_png(path: Path, encoded: str) -> tuple[int, int]:
    """Write a picture, and return its size."""
    data = base64.b64decode(encoded)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    width, height = struct.unpack(">II", data[16:24])  # the size is in the header of every PNG
    return width, height


def _drawable(outputs: list[Output], picture: Output | None) -> Iterator[Output]:
    """Yield outputs for the template, with adjacent text merged and figures as stored pictures."""
    text: Output | None = None
    for output in outputs:
        if output["kind"] == "text" and text is not None and text["stream"] == output["stream"]:
            text["text"] += output["text"]
            continue
        text = None
        if output["kind"] == "text":
            text = dict(output)
            yield text
        elif output["kind"] == "figure":
            if picture is not None:
                yield picture
        else:
            yield output


def _highlighted(source: str) -> str:
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    markup: str = highlight(source, lexer, HtmlFormatter(nowrap=True))
    return markup.rstrip("\n")


def _only_asks(source: str) -> bool:
    """Return whether a cell only asks a question, so that its code would only repeat the question."""
    tree = ast.parse(source)
    asks = "predict(" in source and len(tree.body) == 2
    return asks and isinstance(tree.body[0], ast.Assign) and isinstance(tree.body[1], ast.Expr)


def _hints(lesson: str) -> str:
    """Return a lesson's hints as HTML, each nested in the previous one, without importing its check.

    A short lesson has no exercise and no hints.
    """
    source = (NOTEBOOKS / "checks" / f"lesson_{lesson}.py").read_text("utf-8")
    found = (
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "HINTS"
    )
    words: tuple[str, ...] = next(found, ())
    folded = ""
    for number, hint in reversed(list(enumerate(words, start=1))):
        summary = f"Hint {number} of {len(words)}"
        marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(hint))
        text = f"<summary>{summary}</summary><p>{marked}</p>"
        folded = f'<details class="hint">{text}{folded}</details>'
    return folded
