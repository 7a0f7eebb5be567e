"""`underglass grade`: every notebook of a class gets its row, whatever its code does."""

import csv
import inspect
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from grading import table
from grading.needed import Cell, program, unusual
from grading.runner import Limits, Row, grade, unavailable
from grading.submissions import find, lessons
from tests.grading.homework import (
    CHECK,
    NAMES,
    RIGHT,
    STUB,
    attack,
    function,
    isolated_ones,
    notebook,
    the_class,
)
from underglass.commands import app

NOT_ISOLATED = unavailable()
isolated_only = pytest.mark.skipif(bool(NOT_ISOLATED), reason=f"no isolation: {NOT_ISOLATED}")
# Notebooks whose row depends on namespaces.
OF_NAMESPACES = {one.student for one in isolated_ones("", 0)}


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> dict[str, Any]:
    """The homework and the row of each student, and the folders that must stay empty."""
    outside, scratch = tmp_path_factory.mktemp("outside"), tmp_path_factory.mktemp("scratch")
    folder = tmp_path_factory.mktemp("class")
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(scratch))
        homework = the_class(str(outside / "stolen"), server.getsockname()[1])
        for one in homework:
            (folder / one.student).mkdir()
            (folder / one.student / f"{NAMES[one.lesson]}.ipynb").write_text(one.text)
        found, others = find(folder)
        assert others == []
        limits = Limits(seconds=3, memory=256 << 20)
        rows = {row.student: row for row in grade(found, limits, isolated=not NOT_ISOLATED, jobs=2)}
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    names = {one.student: (one, rows[one.student]) for one in homework}
    assert len(names) == len(homework) == len(rows) >= 30
    return {"rows": names, "outside": outside, "scratch": scratch}


STUDENTS = [one.student for one in the_class("", 0)]


@pytest.mark.parametrize("student", STUDENTS)
def test_each_notebook_gets_its_row(graded, student):
    if NOT_ISOLATED and student in OF_NAMESPACES:
        pytest.skip(NOT_ISOLATED)
    homework, row = graded["rows"][student]
    assert (row.result, row.limit) == (homework.result, homework.limit), row.message
    assert homework.says in row.message


def test_an_attack_is_named_even_if_it_forges_a_verdict(graded):
    _, row = graded["rows"]["forges_with_the_nonce"]
    assert row.uses == "f_back, f_locals, getframe, os, sys"
    assert graded["rows"]["right"][1].uses == graded["rows"]["split"][1].uses == ""


@isolated_only
def test_no_notebook_wrote_a_file_or_left_a_process(graded):
    assert [*graded["outside"].iterdir(), *graded["scratch"].iterdir()] == []
    homes = [one.info["environ"] or {} for one in psutil.process_iter(["environ"])]
    assert [one for one in homes if one.get("HOME", "").startswith(str(graded["scratch"]))] == []


def test_a_second_run_gives_the_same_rows(graded, tmp_path):
    """They run without namespaces, and write nothing beside the notebooks."""
    names = {f"10_chunked_prefill_{one}.ipynb" for one in ("wrong", "right", "undefined")}
    for name in names:
        homework, _ = graded["rows"][name[19:-6]]
        (tmp_path / name).write_text(homework.text)
    for again in grade(find(tmp_path)[0], Limits(), isolated=False, jobs=1):
        _, row = graded["rows"][again.student]
        assert (again.result, again.message) == (row.result, row.message)
        assert again.details == row.details
    assert {one.name for one in tmp_path.iterdir()} == names


def test_without_namespaces_limits_still_hold(tmp_path):
    isolated = {one.student: one.cells for one in the_class("", 0)}
    cells = {name: isolated[name] for name in ("memory_bomb", "kills_its_parent", "right")}
    for student, sources in (cells | {"loops": function("return max(iter(int, 1))")}).items():
        (tmp_path / f"10_chunked_prefill_{student}.ipynb").write_text(notebook(*sources))
    limits = Limits(seconds=2, memory=256 << 20)
    rows = list(grade(find(tmp_path)[0], limits, isolated=False, jobs=2))
    assert {row.student: (row.result, row.limit) for row in rows} == {
        "loops": ("failed", "time"),
        "memory_bomb": ("failed", "memory"),
        "kills_its_parent": ("failed", ""),
        "right": ("passed", ""),
    }


def test_the_notebooks_die_with_the_command(tmp_path):
    cells = attack("import time\ntime.sleep(3600)")
    (tmp_path / "10_chunked_prefill_ada.ipynb").write_text(notebook(*cells))
    command = [sys.executable, "-m", "underglass", "grade", str(tmp_path), "--seconds", "3600"]
    grader = psutil.Popen(command, stdout=subprocess.DEVNULL)
    waiting = threading.Event()
    while len(children := grader.children(recursive=True)) < (2 if NOT_ISOLATED else 3):
        waiting.wait(0.05)
        assert grader.is_running()
    grader.send_signal(signal.SIGKILL)
    grader.wait()
    assert psutil.wait_procs(children, timeout=30)[1] == []


def test_students_and_lessons_are_recognised(tmp_path):
    right = notebook(RIGHT, CHECK)
    files = {
        "10_chunked_prefill_ada.ipynb": "ada",
        "bo-10_chunked_prefill (1).ipynb": "bo",
        "Cleo Miller_123_file/10_chunked_prefill.ipynb": "Cleo Miller_123_file",
        "Dev/homework.ipynb": "Dev",
        "10 eva.ipynb": "eva",
        "10_chunked_prefill.ipynb": tmp_path.name,
    }
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(right)
    for name in ("notes.ipynb", "Dev/answer.py", ".ipynb_checkpoints/10_chunked_prefill.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    found, others = find(tmp_path)
    assert {one.file: one.student for one in found} == files
    assert {one.lesson for one in found} == {"10_chunked_prefill"}
    assert [one.file for one in others] == ["Dev/answer.py", "notes.ipynb"]


@pytest.mark.parametrize("lesson", sorted(lessons()))
def test_a_solution_uses_nothing_unusual(lesson):
    source = inspect.getsource(import_module(f"solutions.lesson_{lesson[:2]}"))
    for exercise in lessons()[lesson]:
        needs = program([Cell(1, source)], exercise.check, list(exercise.parts), [])
        assert needs.statements
        assert unusual(needs) == []


def test_every_lesson_with_a_check_can_be_graded():
    checks = Path(table.__file__).parents[1] / "checks"
    modules = {
        path.stem for path in checks.glob("lesson_*.py") if "HINTS" in path.read_text("utf-8")
    }
    assert {one.check for exercises in lessons().values() for one in exercises} == modules


def needed(*cells: str) -> list[str]:
    """The names that the chosen statements bind."""
    numbered = [Cell(number, source) for number, source in enumerate(cells, 1)]
    chosen = program(numbered, "lesson_10", ["part"], [["other"]])
    return [name for one in chosen.statements for name in sorted(one.binds)]


def test_only_the_statements_that_the_part_uses_are_run():
    assert needed(
        "import slow\nlog = slow.run()\nlimit = 3",
        "def helper(log):\n    return limit",
        "def other():\n    return log",
        "def part(a):\n    return [helper(x) for x in a]",
        "check.lesson_10(part)",
    ) == ["limit", "helper", "part"]


ROW = Row(
    "=cmd()", "10", "pick_budget", "failed", "-1 <b>\x1b[2J", "why\x1b", 1.25, "", "", "a.ipynb"
)


def test_the_table_is_safe_to_open(tmp_path):
    report = table.Report([ROW], [], "isolated")
    assert "\x1b" not in table.text(report, 200)
    table.write(report, tmp_path / "grades.csv")
    table.write(report, tmp_path / "grades.html")
    with (tmp_path / "grades.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["student"], row["seconds"]) == ("'=cmd()", "1.2")
    assert row["message"].startswith("'-1")
    page = (tmp_path / "grades.html").read_text()
    assert "&lt;b&gt;" in page and "<b>" not in page and "\x1b" not in page


def test_the_command_prints_and_writes_the_table(tmp_path):
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "10_chunked_prefill_ada.ipynb").write_text(notebook(RIGHT, CHECK))
    (folder / "10_chunked_prefill_bo.ipynb").write_text(notebook(STUB, CHECK))
    (folder / "readme.txt").write_text("")
    end = CliRunner().invoke(app, ["grade", str(folder), "--write", str(tmp_path / "grades.csv")])
    assert end.exit_code == 0, end.output
    assert "1 passed, 0 failed, 1 not written" in end.output
    assert "readme.txt" in end.output and "not a security boundary" in end.output
    with (tmp_path / "grades.csv").open(newline="") as file:
        assert [row["result"] for row in csv.DictReader(file)] == ["passed", "not written"]


@pytest.mark.parametrize("arguments", [["--write", "grades.txt"], []])
def test_what_cannot_be_graded_is_a_message_of_one_line(tmp_path, arguments):
    end = CliRunner().invoke(app, ["grade", str(tmp_path), *arguments])
    assert end.exit_code == 2
    assert end.output.count("\n") == 1
