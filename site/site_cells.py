"""Decide from a run in Pyodide which cells of the lessons run in a page, and why the others do not."""

import ast
import builtins
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# What a cell needs if a module is missing, by the first part of the module's name.
_NEEDS = {
    "torch": "PyTorch",
    "transformers": "PyTorch",
    "numpy": "NumPy",
    "pandas": "pandas",
    "plotly": "Plotly",
    "visualizer": "Plotly",  # its figures
    "server": "a server",
    "httpx": "a server",
    "websockets": "a server",
    "fastapi": "a server",
    "parity": "the recordings of vLLM's decisions",
    "llguidance": "llguidance",
    "IPython": "Jupyter",
}


# Why a page does not have it.
_WHY = {
    "NumPy": ", because PyPI has no build of it for browsers",
    "llguidance": ", a library for grammars of which PyPI has no build for browsers",
    "PyTorch": ", because there is no build of it for browsers",
}

_CONDITIONS = "threads, a clock or an event loop like a server's"
_NEVER_ENDED = {"name": "GeneratorExit", "message": ""}


@dataclass(frozen=True)
class Verdict:
    """Whether a cell runs in a page.

    reason      what the cell needs that a page does not have; empty if the cell runs
    has_figure  whether one of its outputs is a stored picture of a Plotly figure
    explains    whether it is the lesson's first cell with this reason
    """

    cell: int
    reason: str = ""
    has_figure: bool = False
    explains: bool = False

    @property
    def runs(self) -> bool:
        """Whether the cell runs."""
        return not self.reason

    @property
    def needs(self) -> str:
        """The sentence that the page shows below a cell that does not run."""
        stored = "The output below comes from the stored notebook."
        if not self.explains:
            return f"This cell needs {self.reason}, too. {stored}"
        why = _WHY.get(self.reason, "")
        return f"This cell needs {self.reason}, which this page does not have{why}. {stored}"


def verdicts(sources: Mapping[int, str], runs: Mapping[int, Any]) -> dict[int, Verdict]:
    """Return a verdict for each code cell of a lesson."""
    found: dict[int, Verdict] = {}
    lost: dict[str, str] = {}  # a name that a failed cell did not define -> what the cell needed
    for cell, source in sources.items():
        ran = runs[cell]
        if ran["ok"]:
            figure = any(output["kind"] == "figure" for output in ran["outputs"])
            found[cell] = Verdict(cell, has_figure=figure)
            continue
        error = next((one for one in ran["outputs"] if one["kind"] == "error"), _NEVER_ENDED)
        used = _names(source)
        if error["name"] == "NameError":
            used &= {error.get("missing", "")}
        # A cell may also fail because an earlier cell has not changed an object that both use.
        inherits = error["name"] in ("NameError", "AssertionError")
        inherited = next((lost[name] for name in used & lost.keys()), "") if inherits else ""
        reason = inherited or _reason(error)
        explains = all(one.reason != reason for one in found.values())
        found[cell] = Verdict(cell, reason, explains=explains)
        lost |= {name: reason for name in _names(source) if name not in lost}
    return found


def _reason(error: Mapping[str, Any]) -> str:
    missing = error.get("missing", "")
    if missing and error["name"] != "NameError":
        first = missing.split(".")[0]
        return _NEEDS.get(first, f"the module {missing}")
    if "PageRunner" in error["message"]:
        return "PyTorch"  # the cell looks into the model's memory
    is_thread = error["name"] == "RuntimeError" and "thread" in error["message"]
    if is_thread or error["name"] in ("AssertionError", "GeneratorExit"):
        return _CONDITIONS
    return f"something that fails in a page ({error['name']}: {error['message'][:80]})"


def _names(source: str) -> set[str]:
    """Return the names that a cell defines or uses, without those of builtins."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(one.asname or one.name).split(".")[0] for one in node.names}
    return names - set(dir(builtins))


def table(lessons: Iterable[tuple[str, str, list[Verdict]]]) -> list[dict[str, Any]]:
    """Return one row per lesson (its file and title): how many cells run, and why others do not."""
    return [
        {
            "lesson": name,
            "title": title,
            "cells": len(found),
            "run": sum(one.runs for one in found),
            "figures": sum(one.has_figure for one in found),
            "reasons": dict(Counter(one.reason for one in found if not one.runs).most_common()),
        }
        for name, title, found in lessons
    ]


def totals(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return the sums over all lessons."""
    return {name: sum(row[name] for row in rows) for name in ("run", "cells", "figures")}
