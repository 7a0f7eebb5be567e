"""A submitted line can be run again bit for bit; a line that was changed cannot."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from project import __main__ as commands
from project import scoring
from project.leaderboard import (
    ROOT,
    Line,
    as_html,
    as_text,
    check_name,
    compare,
    difference,
    line_of,
    ranked,
    read,
    rows,
    submit,
)
from project.learner import MineError, Source
from project.scoring import hidden_seeds, score
from project.workloads import WORKLOADS
from tests.facts import assert_names, raises_naming

MINE = Source("mine.py", "SETTINGS = {'policy': 'sjf'}\ndef order(request): return request.id\n")


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Two workloads, which are too small for a real score."""
    kinds = tuple(replace(kind, requests=25) for kind in WORKLOADS[::6])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "WORKLOADS", kinds)
        patch.setattr("project.leaderboard.WORKLOADS", kinds)
        yield


@pytest.fixture(scope="module")
def line(small: None) -> Line:
    return line_of(MINE, ["order"], score(MINE))


def test_a_line_says_what_the_score_is_made_of(line, tmp_path):
    submitted = submit("Ada", line, tmp_path / "board.jsonl")
    assert (submitted.name, submitted.attempts) == ("Ada", 1)
    assert submitted.parts == ["order"]
    assert submitted.seeds[0] == 1
    assert read(tmp_path / "board.jsonl") == [submitted]


@pytest.mark.parametrize("field", ["score", "goodput", "starved", "seeds", "parts", "uses"])
def test_a_changed_field_is_named(line, field):
    changed = msgspec.json.decode(msgspec.json.encode(line), type=Line)  # a copy
    match getattr(changed, field):
        case dict(values):
            values["assistants"] = 130
        case values:
            values[:1] = [130]
    found = compare(changed, line)
    assert found is not None
    assert_names(found, field, 130)


def test_changed_code_and_another_engine_are_found_without_a_run(line):
    code = difference(msgspec.structs.replace(line, code=line.code + "\n"))
    engine = difference(msgspec.structs.replace(line, engine="0123456789ab"))
    assert_names(code, "code_sha")
    assert_names(engine, "engine", "0123456789ab")


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m project` with these arguments, after the folder's `sitecustomize.py`."""
    paths = map(str, (folder, ROOT, ROOT / "notebooks"))
    return subprocess.run(
        [sys.executable, "-m", "project", *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


# Makes the workloads small, also for the processes that a command starts.
SMALL = """
from dataclasses import replace
from project import workloads
workloads.WORKLOADS = tuple(replace(kind, requests=25) for kind in workloads.WORKLOADS[::6])
"""


# It cannot reach the score: that one is made in another process.
CHEAT = """
import gc, os
from project.scoring import Result
from engine.simulation import cost_runner
Result.points = property(lambda result: 130.0)
cost_runner.CostRunner.step_ms = lambda *_, **woken: 0.001
SETTINGS = {"policy": [one for one in gc.get_objects() if type(one) is Result] or "fcfs"}
os.write(2, b"forged")
"""


@pytest.mark.timeout(900)
def test_a_better_score_in_a_real_line_is_found_by_running_it_again(tmp_path):
    """The round trip of the commands: score and submit, verify, then verify what was changed."""
    board, mine = tmp_path / "board.jsonl", tmp_path / "mine.py"
    (tmp_path / "sitecustomize.py").write_text(SMALL, encoding="utf-8")
    mine.write_text(CHEAT, encoding="utf-8")

    options = ("--mine", str(mine), "--submit", "Ada", "--board", str(board))
    submitted = run(tmp_path, "score", *options)
    assert submitted.returncode == 0, submitted.stderr
    assert_names(submitted.stdout, "Ada", "total", "assistants", "Step", "Result.points =")
    [line] = read(board)
    assert [*line.score.values()] == [0.0] * 4
    line.score["total"] += 1
    submit("Bo", line, board)
    verified = run(tmp_path, "verify", "--board", str(board), PYTHONHASHSEED="0")
    assert verified.returncode == 1
    ada, bo, _ = verified.stdout.splitlines()
    assert_names(ada, "Ada", "same", "uses", "gc", "os", "CostRunner.step_ms =", "Result.points =")
    assert_names(bo, "Bo", "DIFFERS", "score")


def test_a_final_round_scores_each_best_file_on_new_seeds(line, tmp_path, monkeypatch):
    board = tmp_path / "class.jsonl"
    better = msgspec.structs.replace(line, code="SETTINGS = {}", score=line.score | {"total": 99.0})
    for name, one in (("Ada", line), ("Ada", better), ("Bo", line)):
        submit(name, one, board)
    monkeypatch.setenv("UNDERGLASS_SEED", "secret")
    monkeypatch.setattr(
        commands,
        "made_again",
        lambda source: msgspec.structs.replace(line, code=source.code, seeds=hidden_seeds(source)),
    )
    monkeypatch.setattr(sys, "argv", ["project", "rescore", "--board", str(board)])
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with pytest.raises(SystemExit) as ended:
        commands.main()
    assert ended.value.code == 0
    ada, bo = read(tmp_path / "class.rescored.jsonl")
    assert (ada.name, ada.attempts, ada.code) == ("Ada", 2, "SETTINGS = {}")
    assert (bo.name, bo.attempts, bo.code) == ("Bo", 1, line.code)
    assert ada.seeds == bo.seeds != line.seeds


def test_a_file_that_fails_a_gate_is_not_scored(tmp_path):
    mine, board = tmp_path / "mine.py", tmp_path / "board.jsonl"
    mine.write_text("def pick_budget(*machine): return -1\n", encoding="utf-8")
    options = ("--mine", str(mine), "--submit", "Ada", "--board", str(board))
    scored = run(tmp_path, "score", *options, PYTHONHASHSEED="0")
    assert scored.returncode == 1
    assert_names(scored.stderr, "pressure", "pick_budget", -1)
    assert not board.exists()


def test_the_table_has_the_best_line_of_each_name(line, tmp_path):
    board = tmp_path / "board.jsonl"
    for name, points in (("Ada", 50.0), ("Bo", 70.0), ("Ada", 90.0), ("Ada", 60.0)):
        better = line.score | {"total": points}
        submit(name, msgspec.structs.replace(line, score=better), board)
    lines = read(board)
    assert [(one.name, one.score["total"]) for one in ranked(lines)] == [("Ada", 90), ("Bo", 70)]
    head, *table = rows(lines)
    columns = [head.index(column) for column in ("name", "total", "attempts")]
    assert [[row[at] for at in columns] for row in table] == [
        ["Ada", "90.0", "2"],
        ["Bo", "70.0", "1"],
    ]
    assert_names(as_text(rows(lines)), "Ada", "Bo", "90.0", "assistants")
    submit("<script>Ada", line, board)  # a name cannot change the page
    page = as_html(rows(read(board)))
    assert "<script>" not in page and "&lt;script&gt;Ada" in page


@pytest.mark.parametrize("name", ["", "  ", "A" * 41, "Ada\x1b[2J"])
def test_a_name_that_the_table_cannot_show_is_rejected(name):
    with raises_naming(MineError, "NAME"):
        check_name(name)


def test_a_line_that_is_no_submission_is_named(line, tmp_path):
    board = tmp_path / "board.jsonl"
    submit("Ada", line, board)
    with board.open("a", encoding="utf-8") as file:
        file.write('{"name": "Bo"}\n')
    with raises_naming(MineError, "line 2", "board.jsonl"):
        read(board)
    with raises_naming(MineError, "none.jsonl"):
        read(tmp_path / "none.jsonl")
