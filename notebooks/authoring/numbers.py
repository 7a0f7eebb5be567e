"""Every number that a lesson states in prose is computed, or cited.

The rule that a program can check: a number in a lesson's prose is in an output or in the code of a cell
above it, or of the cell right below it, rounded as far as the prose rounds it. A lesson's
picture comes before its code, so until the first `naive` code all code counts. Left out are cells that
cite (`differs`, `next`, and those tagged `cited`), headings, links and words in backticks.

The outputs between a prediction and its answer are not stored. So `make notebooks` traces the answer's
numbers before it drops them (`ran=True`); in a stored lesson an answer is taken as a source.
"""

import re
from collections.abc import Iterator
from typing import Any

CITING = {"differs", "next", "stretch", "recap", "cited"}
_NUMBER = re.compile(r"(?<![\w.#])\d[\d,]*(?:\.\d+)?(?!\w)")
_IN_OUTPUT = re.compile(r"\d[\d,]*(?:\.\d+)?")
LEFT_OUT = re.compile(
    r"```.*?```|`[^`]*`|!?\[[^\]]*\]\([^)]*\)|^#[^\n]*$|^\*About [^\n]*$"
    r"|\blessons? \d\d(?: and \d\d)?|^\d+\. ",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)


def untraced(cells: list[Any], ran: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (index of the cell, number) for every number in prose without a source."""
    code = [cell for cell in cells if cell.cell_type == "code"]
    naive = next((at for at, cell in enumerate(code) if "naive" in cell.metadata.tags), 0)
    known = {value for cell in code[: naive + 1] for value in _values(cell)}
    for index, cell in enumerate(cells):
        tags = set(cell.metadata.get("tags", []))
        if cell.cell_type == "code":
            known |= _values(cell)
            continue
        if CITING & tags:
            continue
        if "answer" in tags and not ran:
            known |= {float(one.replace(",", "")) for one in _IN_OUTPUT.findall(cell.source)}
            continue
        below = cells[index + 1 : index + 2]
        here = known | (_values(below[0]) if below and below[0].cell_type == "code" else set())
        for number in _NUMBER.findall(LEFT_OUT.sub(" ", cell.source)):
            if not _is_among(number.rstrip(","), here):
                yield index, number


def _values(cell: Any) -> set[float]:
    """Return all numbers in a code cell and its outputs."""
    texts = [cell.source]
    for output in cell.outputs:
        data = output.get("data", {})
        texts += [output.get("text", ""), data.get("text/plain", ""), data.get("text/markdown", "")]
    return {float(one.replace(",", "")) for text in texts for one in _IN_OUTPUT.findall(text)}


def _is_among(number: str, known: set[float]) -> bool:
    """Return whether a known value, or its percentage, rounds to this number."""
    digits = len(number.partition(".")[2])
    value = float(number.replace(",", ""))
    return any(round(other * scale, digits) == value for other in known for scale in (1, 100))
