"""Find what gives a prediction's answer away before its question is answered.

A prediction is three parts: `predict` asks, `run` computes and reveals, `answer` explains, folded.
Between the question and its answer a stored lesson has no output, and neither prose nor code has the
answer's value. Before the question, no stored output and no prose has it, and no picture shows the
whole log that the reveal will read. A cell that needs the value for another reason (a block size that
happens to be the answer) says so with the tag `says-NN.name`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from authoring.numbers import LEFT_OUT
from checks.answer import answer_to

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w]|\.\d)")
_PICTURES = ("show", "compare")


@dataclass(frozen=True)
class Prediction:
    """A question: its key, and the cells that ask it and that answer it."""

    key: str
    asked: int
    answered: int


def predictions(cells: list[Any]) -> list[Prediction]:
    """Return the questions in order. Raises ValueError if they and the answers do not pair up."""
    asked = [
        (index, key)
        for index, cell in enumerate(cells)
        if cell.cell_type == "code"
        for key in _keys(cell.source)
    ]
    answers = [index for index, cell in enumerate(cells) if "answer" in _tags(cell)]
    if len(asked) != len(answers):
        raise ValueError(f"{len(asked)} predictions have {len(answers)} answer cells")
    pairs = [
        Prediction(key, index, answer) for (index, key), answer in zip(asked, answers, strict=True)
    ]
    for one in pairs:
        if one.answered < one.asked:
            raise ValueError(f"{one.key} is answered in cell {one.answered}, before it is asked")
    return pairs


def hidden(cells: list[Any]) -> set[int]:
    """Return the cells whose outputs are not stored: from each question to its answer."""
    return {cell for one in predictions(cells) for cell in range(one.asked, one.answered + 1)}


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
        truth, options = answer.truth, {answer.truth, *answer.reasons}
        read = _names_read_by_the_reveal(cells, one)
        for index in range(one.answered):
            cell = cells[index]
            if f"says-{one.key}" in _tags(cell):
                continue
            where = _where_itstates(cell, truth, options, after_the_question=index >= one.asked)
            if where:
                yield index, f"its {where} has {truth!r}, the answer to {one.key}"
            if index < one.asked:
                for name in _whole_pictures(cell) & read:
                    yield (
                        index,
                        f"it draws all of `{name}`, with the answer to {one.key}: use until()",
                    )


def _tags(cell: Any) -> list[str]:
    tags: list[str] = cell.metadata.get("tags", [])
    return tags


def _where_itstates(
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
        return any(float(one.replace(",", "")) == truth for one in _NUMBER.findall(text))
    return re.search(rf"(?<!\w){re.escape(str(truth))}(?!\w)", text, re.IGNORECASE) is not None


def _tree(source: str) -> ast.AST:
    plain = re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree: ast.AST = compile(plain, "cell", "exec", flags)
    return tree


def _calls(source: str, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Call):
            function = node.func
            name = (
                function.attr
                if isinstance(function, ast.Attribute)
                else getattr(function, "id", "")
            )
            if name in names:
                yield node


def _keys(source: str) -> list[str]:
    return [ast.literal_eval(call.args[0]) for call in _calls(source, "predict")]


def _literals(source: str) -> list[Any]:
    """Return the constants in a cell's code, without the options of a question."""
    tree = _tree(source)
    asked = [node for call in _calls(source, "predict") for node in ast.walk(call)]
    options = {(node.lineno, node.col_offset) for node in asked if isinstance(node, ast.Constant)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and (node.lineno, node.col_offset) not in options
    ]


def _names_read_by_the_reveal(cells: list[Any], one: Prediction) -> set[str]:
    """Return the variables that the reveal's value comes from, in the cells from question to answer."""
    code = [cell.source for cell in cells[one.asked : one.answered] if cell.cell_type == "code"]
    reveals = [call for source in code for call in _calls(source, "reveal")]
    names = {
        node.id
        for call in reveals
        for part in call.args
        for node in ast.walk(part)
        if isinstance(node, ast.Name)
    }
    for source in reversed(code):  # one assignment further back: value = log...
        for node in ast.walk(_tree(source)):
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
        for call in _calls(cell.source, *_PICTURES)
        for part in call.args
        if isinstance(part, ast.Name)
    }
