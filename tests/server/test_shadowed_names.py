"""A learner's engine.py, server.py and visualizer.py in the working directory hide nothing of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.process import serve_in_background
from tests.facts import assert_names
from tests.server.harness import get, post

ROOT = Path(__file__).parents[2]
NAMES = ("engine", "server", "visualizer")
UNDERGLASS = str(Path(sys.executable).with_name("underglass"))
IMPORTS = [
    line
    for cell in json.loads((ROOT / "notebooks/00_first_look.ipynb").read_text())["cells"]
    if cell["cell_type"] == "code"
    for line in cell["source"]
    if line.startswith(("from ", "import "))
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file of each name. A clone that is not installed is found, too."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("x = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", [[UNDERGLASS], [sys.executable, "-m", "underglass"]])
def test_the_command_works_in_any_folder(command):
    done = run(*command, "why", "preemption", "--stuck")
    assert (done.returncode, done.stderr) == (0, "")
    assert "step" in done.stdout


def test_a_module_whose_package_is_hidden_is_one_line(folder):
    (folder / "visualizer.py").unlink()  # `python -m visualizer` would run it
    done = run(sys.executable, "-m", "visualizer", "--help")
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert_names(done.stderr, str(folder / "engine.py"), "rename")


def test_a_lesson_names_the_files_until_all_are_renamed(folder):
    """A kernel, too, looks for packages in its directory first."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "notebooks")])
    lesson = (sys.executable, "-c", "".join(IMPORTS))
    for name in NAMES:
        file = folder / f"{name}.py"
        done = run(*lesson, PYTHONPATH=paths)
        assert_names(done.stderr.splitlines()[-1], "ImportError", str(file), name)
        file.rename(folder / f"my_{name}.py")
    done = run(*lesson, PYTHONPATH=paths)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("folder")
def test_a_background_server_starts_and_two_runs_are_compared():
    completion = ("/v1/completions", {"prompt": "Once", "max_tokens": 2, "stream": False})
    restart = ("/engine/restart", {"settings": {"max_batch_size": 4}})
    with serve_in_background(request_log="off") as server:
        for path, body in (completion, restart, completion):
            assert post(server.url, path, body).status_code == 200
        assert ["max_batch_size", "8", "4"] in get(server.url, "/compare")["facts"]["settings"]
