"""Make the slides of each session from its lessons, for Marp (https://marp.app): `make slides`.

A lesson gives its question, its pictures, its predictions with each answer on the next slide, its
exercise, what production does, and its recap. The tags of the lesson's cells say which is which, so the
slides follow the lessons. They are written to `build/slides`, with the stored pictures beside them.
"""

import ast
import base64
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from authoring.lab import REPOSITORY
from authoring.parts import Prediction, lessons, part_of, predictions
from checks.answer import answer_to

SLIDES = REPOSITORY / "build" / "slides"
# The lessons of docs/classroom.md's three sessions: first those of the class, then the homework.
_FIRST = ["00", "02", "03", "04", "10", "01"]
_SECOND = ["05", "06", "07", "08", "09"]
_THIRD = ["11", "14", "18", "20"]
_LEFT = sorted({path.name[:2] for path in lessons()} - {*_FIRST, *_SECOND, *_THIRD})
SESSIONS = {
    "session1": ("Sharing time", _FIRST),
    "session2": ("Sharing memory", _SECOND),
    "session3": ("What companies run", _THIRD + _LEFT),
}
WIDTH, HEIGHT = 1180, 600  # pixels of a slide of 1280 x 720 that a picture may fill, below a title
LINE, MANY_LINES = 72, 11  # characters in a line; texts of more lines are set in smaller type
_HEAD = """\
---
marp: true
paginate: true
size: 16:9
title: "Underglass: {title}"
style: |
  section {{ padding: 44px 50px; place-content: safe start center; font-size: 31px }}
  section.question, section.title {{ place-content: safe center center; font-size: 34px }}
  section.question h1 {{ font-size: 52px }}
  section.small {{ font-size: 26px }}
  section.picture {{ padding: 26px 50px }}
  section.picture h2 {{ font-size: 27px; margin: 0 0 8px }}
  section.picture p {{ margin: 0; text-align: center }}
  pre {{ font-size: 20px; line-height: 1.35 }}
---
"""
_LINK = re.compile(r"\[((?:\*\*)?[^\]]*)\]\((?!https?:)[^)]*\)")
_SOFT_BREAK = re.compile(r"(?<=[^\s|>])\n[ \t]*(?=[^\s|<\-#\d]|\d+(?!\d|\. ))")
_FOLD = re.compile(r"<details>\s*<summary>(.+?)</summary>(.+?)</details>", re.DOTALL)

Cell = Any


def main() -> None:
    """Write the decks and their pictures."""
    shutil.rmtree(SLIDES, ignore_errors=True)
    SLIDES.mkdir(parents=True)
    files = {path.name[:2]: path for path in lessons()}
    for name, (title, numbers) in SESSIONS.items():
        slides = [slide(f"# {title}\n\nUnderglass: LLM inference under glass", "title")]
        for number in numbers:
            slides += Lesson(files[number]).slides(SLIDES)
        deck = SLIDES / f"{name}.md"
        deck.write_text(_HEAD.format(title=title) + "\n---\n\n".join(slides), "utf-8")
        print(f"{deck.relative_to(REPOSITORY)}: {len(slides)} slides")
    print(f"As HTML or PDF: npx @marp-team/marp-cli {SLIDES.relative_to(REPOSITORY)}/*.md [--pdf]")


def slide(text: str, kind: str = "", notes: str = "") -> str:
    """Return one slide. `kind` is a class of the style; `notes` are for the presenter."""
    lines = sum(1 + len(line) // LINE for line in text.splitlines() if line)
    kind = kind or ("small" if lines > MANY_LINES else "")
    top = f"<!-- _class: {kind} -->\n\n" if kind else ""
    below = f"\n\n<!-- {notes} -->" if notes else ""
    return f"{top}{text.strip()}{below}\n\n"


class Lesson:
    """A lesson's cells, and the slides that they make."""

    def __init__(self, path: Path) -> None:
        self.number = path.name[:2]
        self.cells: list[Cell] = nbformat.read(path, as_version=4).cells
        self.title = self.cells[0].source.splitlines()[0].lstrip("# ")
        answered = any(part_of(cell) == "answer" for cell in self.cells)
        self.predictions = predictions(self.cells) if answered else []
        self.pictures = 0

    def slides(self, folder: Path) -> Iterator[str]:
        """Yield the lesson's slides; write their pictures into `folder`."""
        yield slide(f"# {self.title}\n\n{self._opening()}", "title")
        yield from self._pictures(folder, 0, self._first("naive", "predict"), self.title)
        for cell in self._prose("hook")[1:]:
            yield slide(f"## {self.title}\n\n{cell}")
        yield slide(f"# {self._question()}", "question")
        for one, after in zip(self.predictions, self._ends(), strict=True):
            yield from self._prediction(one)
            yield from self._pictures(folder, one.answered, after, "What the log shows")
        yield from self._exercise()
        for text in self._prose("differs"):
            yield slide(text)
        folds = [fold for text in self._prose("recap") for fold in _FOLD.findall(text)]
        if folds:
            yield slide("## Recap\n\n" + "\n".join(f"- **{asked}**" for asked, _ in folds))
            answers = [f"- **{asked}** {' '.join(answer.split())}" for asked, answer in folds]
            yield slide("## Recap\n\n" + "\n".join(answers))

    def _opening(self) -> str:
        lines = self.cells[0].source.splitlines()[1:]
        return plain("\n".join(line for line in lines if not line.startswith("*About")))

    def _question(self) -> str:
        text = "\n".join(self._prose("question"))
        found: list[str] = re.findall(r"\*\*([^*]+\?)\*\*", text)
        return found[0].replace("\n", " ")

    def _prediction(self, one: Prediction) -> Iterator[str]:
        question, answer = self.question(one), answer_to(one.key)
        before = self.cells[one.asked - 1]
        context = plain(before.source) if before.cell_type == "markdown" else ""
        context = re.sub(r"^## .*\n+", "", context)
        options = sorted([answer.truth, *answer.reasons], key=_in_order)
        lettered = zip("ABCDE", options, strict=False)
        choice = "\n".join(f"- **{letter}.** {option}" for letter, option in lettered)
        yield slide(
            f"## Predict\n\n{context}\n\n**{question}**\n\n{choice}", notes="Vote, then go on."
        )
        reasons = "\n".join(f"- *{option}*: {why}" for option, why in answer.reasons.items())
        [(_, explained)] = _FOLD.findall(self.cells[one.answered].source)
        yield slide(f"## {question}\n\n{plain(explained).strip()}\n\n{reasons}\n\n{answer.then}")

    def question(self, one: Prediction) -> str:
        """Return a prediction's question."""
        for call in ast.walk(ast.parse(self.cells[one.asked].source)):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "predict":
                key, question = (ast.literal_eval(argument) for argument in call.args[:2])
                if key == one.key:
                    return str(question)
        raise ValueError(f"cell {one.asked} does not ask {one.key}")

    def _ends(self) -> list[int]:
        """Return where the cells that belong to each prediction's answer end."""
        return [*(one.asked for one in self.predictions), self._first("exercise", "differs")][1:]

    def _exercise(self) -> Iterator[str]:
        cells = [cell for cell in self.cells if part_of(cell) == "exercise"]
        if not cells:
            return
        yield slide(plain(cells[0].source))
        stub = next((one for one in cells if re.search(r"^(def|class) ", one.source, re.M)), None)
        if stub is not None:
            yield slide(f"## Your turn\n\n```python\n{stub.source.strip()}\n```", "small")

    def _pictures(self, folder: Path, start: int, end: int, title: str) -> Iterator[str]:
        """Yield a slide for each picture between two cells; its notes are the prose above it."""
        said = ""
        for cell in self.cells[start:end]:
            if cell.cell_type == "markdown":
                said = plain(cell.source) if part_of(cell) in ("look", "explain") else ""
                continue
            for output in cell.outputs:
                if picture := output.get("data", {}).get("image/png"):
                    above = _first_sentence(said) or title
                    yield slide(f"## {above}\n\n{self._store(folder, picture)}", "picture", said)
                    said = ""

    def _store(self, folder: Path, picture: str) -> str:
        self.pictures += 1
        name = f"{self.number}_{self.pictures}.png"
        data = base64.b64decode(picture)
        (folder / name).write_bytes(data)
        width, height = struct.unpack(">II", data[16:24])
        scale = min(WIDTH / width, HEIGHT / height)
        return f"![w:{round(scale * width)}]({name})"

    def _first(self, *parts: str) -> int:
        return next(index for index, cell in enumerate(self.cells) if part_of(cell) in parts)

    def _prose(self, part: str) -> list[str]:
        return [
            plain(cell.source)
            for cell in self.cells
            if cell.cell_type == "markdown" and part_of(cell) == part
        ]


def plain(text: str) -> str:
    """Return prose without links to files, which a slide cannot follow, and without soft line breaks.

    Marp would draw those as hard ones.
    """
    parts = re.split(r"(```.*?```)", _LINK.sub(r"\1", text), flags=re.DOTALL)
    return "".join(
        part if index % 2 else _SOFT_BREAK.sub(" ", part) for index, part in enumerate(parts)
    )


def _in_order(option: Any) -> tuple[bool, float, str]:
    """Order options that begin with a number by it, before the others."""
    number = re.match(r"-?\d+(\.\d+)?", str(option))
    return number is None, float(number[0]) if number else 0, str(option)


def _first_sentence(text: str) -> str:
    """Return a short first sentence, which can stand above a picture, or ""."""
    found = re.match(r"[^.#*`]{1,75}\.(?=\s|$)", text)
    return found[0] if found else ""


if __name__ == "__main__":
    main()
