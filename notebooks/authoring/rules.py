"""The course's rules: the parts of a lesson in order, what each cell may have, and no answer too early.

`problems` returns messages for the author, and `docs/add_a_lesson.md` explains the rules.

Between a question and its answer a stored lesson has no output, and neither prose nor code has the
answer's value. Before the question, no stored output and no prose has it, and no picture shows the
whole log that the reveal will read. A cell that needs the value for another reason (a block size that
happens to be the answer) says so with the tag `says-NN.name`.
"""

import ast
import base64
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat

from authoring.lab import NOTEBOOKS, REPOSITORY, WIDGET
from authoring.minutes import minutes_of
from authoring.numbers import LEFT_OUT, untraced
from authoring.parts import (
    LINK,
    METADATA,
    ORDER,
    Cell,
    Prediction,
    calls,
    files_in,
    hidden,
    part_of,
    predictions,
    tags_of,
    tree_of,
)
from authoring.routes import onward
from checks.answer import answer_to

# Parts that may repeat.
AGAIN = {"hook", "naive", "predict", "run", "answer", "look", "explain", "change"}
LONG = {"naive", "change", "exercise", "stretch"}  # a short lesson has none of them
ENDING = ("exercise", "stretch", "differs", "recap", "next")
MOST_WORDS, MOST_LINES, MOST_NEW_WORDS, MOST_SET_UP = 90, 15, 4, 3
RECAP_QUESTIONS = 3
MOST_PICTURE_BYTES, MOST_BYTES = 300_000, 1_500_000
FORBIDDEN = ("simply", "just", "obviously", "as you can see", "of course", "trivial")

_FOLD = re.compile(r"<details>\s*<summary>(.+?)</summary>(.+?)</details>", re.DOTALL)
_TAG = re.compile(r"</?\w+>")
_NEW_WORD = re.compile(r"\[\*\*([^*]+)\*\*\]\(\.\./docs/glossary\.md\)")
_GLOSSARY_WORD = re.compile(r"\*\*([^*]+)\*\*")
_STATED = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w]|\.\d)")
_PICTURES = ("show", "compare")


def problems(path: Path) -> list[str]:
    """Return messages about broken rules; none if the lesson is right."""
    notebook = nbformat.read(path, as_version=4)
    found = [*_of_the_file(notebook, path), *_of_the_order(notebook.cells)]
    for index, cell in enumerate(notebook.cells):
        kind = _of_prose if cell.cell_type == "markdown" else _of_code
        found += [f"cell {index} ({part_of(cell)}): {words}" for words in kind(cell)]
    found += _of_the_words(notebook.cells)
    found += [
        f"cell {index} ({part_of(notebook.cells[index])}): {words}"
        for index, words in spoilers(notebook.cells)
    ]
    exercise = [cell for cell in notebook.cells if part_of(cell) == "exercise"]
    if exercise and not any("hint=1" in cell.source for cell in exercise):
        found.append("no exercise cell says how to get the first hint (`hint=1`)")
    found += [
        f"cell {index} ({part_of(notebook.cells[index])}): {number} is in no output or code above it, "
        "and not in the next cell; compute it, or tag the cell `cited` and name the source"
        for index, number in untraced(notebook.cells)
    ]
    return found


def _of_the_file(notebook: Any, path: Path) -> Iterator[str]:
    if notebook.metadata != METADATA:
        yield f"the notebook's metadata are not {METADATA}; `make notebooks` normalises them"
    if path.stat().st_size > MOST_BYTES:
        yield f"the file has {path.stat().st_size} bytes, at most {MOST_BYTES} are allowed"
    first, last, lesson = notebook.cells[0].source, notebook.cells[-1].source, path.name[:2]
    if not re.match(rf"# {lesson} \S", first):
        yield f'the first cell does not begin with "# {lesson} " and the lesson\'s name'
    if f"*{(minutes := minutes_of(notebook.cells, lesson))}*" not in first.splitlines():
        yield f'the first cell has no line "*{minutes}*": run `make contents ARGS={lesson}`'
    if not last.endswith(f"\n\n*{onward(lesson)}*"):
        yield f"the last cell does not say where the routes go on: run `make contents ARGS={lesson}`"
    if not any("image/png" in output.get("data", {}) for output in _outputs(notebook.cells)):
        yield "no stored output has a picture: run `make notebooks`"


def _outputs(cells: list[Cell]) -> Iterator[Any]:
    for cell in cells:
        yield from cell.get("outputs", [])


def _of_the_order(cells: list[Cell]) -> Iterator[str]:
    parts = [part_of(cell) for cell in cells]
    for index, cell in enumerate(cells):
        extra = set(cell.metadata) - {"tags"}
        tags = [tag for tag in cell.metadata.get("tags", []) if tag in ORDER]
        if len(tags) != 1:
            yield f"cell {index} has the parts {tags}: give it exactly one of {', '.join(ORDER)}"
        if extra:
            yield f"cell {index} has the metadata {sorted(extra)}: only tags are kept"
    needed = [part for part in ORDER if part not in LONG or LONG & {*parts}]
    if missing := [part for part in needed if part not in parts]:
        yield f"the lesson has no {' and no '.join(missing)}"
        return
    first = [parts.index(part) for part in needed]
    if first != sorted(first):
        yield f"the parts first appear in another order than {', '.join(ORDER)}: {parts}"
    for (index, before), after in zip(enumerate(parts), parts[1:], strict=False):
        back = after in ORDER and before in ORDER and ORDER.index(after) < ORDER.index(before)
        if back and after not in AGAIN:
            yield f"cell {index + 1} ({after}) comes after a {before}"
        if back and before in ENDING:
            yield f"cell {index + 1} ({after}) comes after the {before}: a lesson ends with those"
    if not re.fullmatch(r"\*\*[^*]+\?\*\*", cells[1].source):
        yield "cell 1 is not the question, in bold: it stands above the first picture"
    set_up = [line for line in cells[2].source.splitlines() if line]
    if cells[2].cell_type != "code" or len(set_up) > MOST_SET_UP:
        yield f"cell 2 is not the first picture, of at most {MOST_SET_UP} lines: use scenario()"
    hooks = [cell for cell in cells if part_of(cell) == "hook"]
    if not any("cited" in cell.metadata.tags and "https://" in cell.source for cell in hooks):
        yield "no hook cell, tagged `cited`, says with a number and a link why the question matters"
    if not any("image/png" in one.get("data", {}) for one in _outputs(hooks)):
        yield "no hook cell shows a stored picture: a reader who runs nothing learns the point from it"


def _of_prose(cell: Cell) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL)
    plain = _TAG.sub(" ", LINK.sub(r"\1", re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)))
    words = len(re.findall(r"\S*\w\S*", plain))
    if words > MOST_WORDS:
        yield f"{words} words, at most {MOST_WORDS}"
    for word in FORBIDDEN:
        if re.search(rf"\b{word}\b", text, re.IGNORECASE):
            yield f'it says "{word}"'
    for _, target in LINK.findall(text):
        file = NOTEBOOKS / target.split("#")[0]
        if not re.match(r"https?://|#", target) and not file.is_file():
            yield f"the link {target} leads to no file"
    folds = _FOLD.findall(text)
    if part_of(cell) == "answer" and (len(folds) != 1 or not text.startswith("<details>")):
        yield "it is not one <details> with a <summary>: an answer stays folded until it is opened"
    if part_of(cell) == "recap" and len(folds) != RECAP_QUESTIONS:
        yield f"it has {len(folds)} questions that unfold their answers, not {RECAP_QUESTIONS}"
    if part_of(cell) == "next" and not files_in(text):
        yield "it names no file of engine/, server/ or visualizer/ to read"


def _of_code(cell: Cell) -> Iterator[str]:
    lines = [line for line in cell.source.splitlines() if line.strip()]
    if len(lines) > MOST_LINES:
        yield f"{len(lines)} lines of code, at most {MOST_LINES}"
    if not cell.execution_count:
        yield "it has not been run: `make notebooks`"
    if not _is_on_a_virtual_clock(cell):
        for line in _asserted_times(cell.source):
            yield f"it asserts a time in `{line}`: only a virtual clock's may be (tag virtual-clock)"
    for output in cell.outputs:
        data = output.get("data", {})
        picture = data.get("image/png")
        if output.output_type == "error":
            yield "its stored output is an error"
        if WIDGET in data:
            yield "a widget's reference is stored, which is dead in a new session: `make notebooks`"
        if picture and len(base64.b64decode(picture)) > MOST_PICTURE_BYTES:
            yield f"its picture has more than {MOST_PICTURE_BYTES} bytes"


def _is_on_a_virtual_clock(cell: Cell) -> bool:
    return "virtual-clock" in cell.metadata.get("tags", [])


def _asserted_times(source: str) -> Iterator[str]:
    """Yield assertions about times: names, columns or keys in ms or seconds."""
    plain = re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)
    for node in ast.walk(compile(plain, "cell", "exec", _AST_WITH_AWAIT)):
        if not isinstance(node, ast.Assert):
            continue
        text = ast.unparse(node.test)
        if re.search(r"_ms\b|perf_counter|monotonic|\bseconds\b|time\.time", text):
            yield ast.unparse(node)


_AST_WITH_AWAIT = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def _of_the_words(cells: list[Cell]) -> Iterator[str]:
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    new = [word for text in prose for word in _NEW_WORD.findall(text)]
    glossary = _GLOSSARY_WORD.findall((REPOSITORY / "docs" / "glossary.md").read_text("utf-8"))
    known = {word.lower() for word in glossary}
    if not 1 <= len(new) <= MOST_NEW_WORDS:
        yield f"new words are [**word**](../docs/glossary.md), one to three a lesson; here: {new}"
    for word in new:
        if word.lower() not in known and word.lower().rstrip("s") not in known:
            yield f'"{word}" is not in docs/glossary.md'
    for before, after in pairwise(sorted(word.lower() for word in new)):
        if before == after:
            yield f'"{before}" is introduced twice'


def spoilers(cells: list[Any]) -> Iterator[tuple[int, str]]:
    """Yield (index of the cell, message) for everything that shows an answer too early."""
    try:
        asked = predictions(cells)
    except ValueError as error:
        yield 0, str(error)
        return
    unseen = hidden(cells)
    for index in sorted(unseen):
        if cells[index].get("outputs"):
            yield index, "an output is stored between a question and its answer"
    for one in asked:
        answer = answer_to(one.key)
        if answer.said:
            continue  # nothing is right: the reader decides
        truth, options = answer.truth, {answer.truth, *answer.reasons}
        read = _names_read_by_the_reveal(cells, one)
        for index in range(one.answered):
            cell = cells[index]
            if f"says-{one.key}" in tags_of(cell):
                continue
            where = _where_it_states(cell, truth, options, after_the_question=index >= one.asked)
            if where:
                yield index, f"its {where} has {truth!r}, the answer to {one.key}"
            if index < one.asked:
                for name in _whole_pictures(cell) & read:
                    yield (
                        index,
                        f"it draws all of `{name}`, with the answer to {one.key}: use until()",
                    )


def _where_it_states(
    cell: Any, truth: Any, options: set[Any], after_the_question: bool
) -> str | None:
    """Return which part of a cell states the truth, or None. Code that has all options states none."""
    if cell.cell_type == "markdown":
        return "prose" if states(LEFT_OUT.sub(" ", cell.source), truth) else None
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        texts = [output.get("text", ""), data.get("text/plain", ""), data.get("text/markdown", "")]
        if any(states(text, truth) for text in texts):
            return "output"
    if after_the_question:
        found = _literals(cell.source)
        if truth in found and not options <= set(found):
            return "code"
    return None


def states(text: str, truth: Any) -> bool:
    """Return whether a text has the truth: the number, or the words."""
    if isinstance(truth, int | float) and not isinstance(truth, bool):
        return any(float(one.replace(",", "")) == truth for one in _STATED.findall(text))
    return re.search(rf"(?<!\w){re.escape(str(truth))}(?!\w)", text, re.IGNORECASE) is not None


def _literals(source: str) -> list[Any]:
    """Return the constants in a cell's code, without the options of a question."""
    tree = tree_of(source)
    asked = [node for call in calls(source, "predict") for node in ast.walk(call)]
    options = {(node.lineno, node.col_offset) for node in asked if isinstance(node, ast.Constant)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and (node.lineno, node.col_offset) not in options
    ]


def _names_read_by_the_reveal(cells: list[Any], one: Prediction) -> set[str]:
    """Return the variables that the reveal's value comes from, in the cells from question to answer."""
    code = [cell.source for cell in cells[one.asked : one.answered] if cell.cell_type == "code"]
    reveals = [call for source in code for call in calls(source, "reveal")]
    names = {
        node.id
        for call in reveals
        for part in call.args
        for node in ast.walk(part)
        if isinstance(node, ast.Name)
    }
    for source in reversed(code):  # one assignment further back: value = log...
        for node in ast.walk(tree_of(source)):
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id in names for target in node.targets
            ):
                names |= {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
    return names


def _whole_pictures(cell: Any) -> set[str]:
    """Return the variables that a code cell draws without `until`."""
    if cell.cell_type != "code":
        return set()
    return {
        part.id
        for call in calls(cell.source, *_PICTURES)
        for part in call.args
        if isinstance(part, ast.Name)
    }
