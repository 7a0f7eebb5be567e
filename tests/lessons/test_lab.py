"""`underglass lab` makes the learner's copy and starts JupyterLab with what the lessons import."""

import os
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from tests.server.console import invoke, refused
from underglass.workbook import LESSONS


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The command lines that JupyterLab was started with."""
    calls: list[list[str]] = []
    monkeypatch.setattr("jupyterlab.labapp.main", calls.append)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PYTHONPATH", "mine")  # restored, because the command changes it
    return calls


def test_lab_copies_the_lessons_and_opens_the_first(
    started: list[list[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "a folder"
    more = ("--no-browser", "--port", "8999", str(folder), "--", "--ServerApp.token=x")
    done = invoke("lab", *more)
    assert done.returncode == 0, done
    [options] = started
    assert f"--ServerApp.root_dir={folder}" in options
    assert "--LabApp.default_url=/doc/tree/00_first_look.ipynb" in options
    assert {"--no-browser", "--ServerApp.port=8999", "--ServerApp.token=x"} <= set(options)
    lesson = nbformat.read(folder / "00_first_look.ipynb", as_version=4)
    assert NotebookNotary().check_signature(lesson)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(LESSONS), "mine"]


def test_lab_says_what_it_put_aside_and_refuses_an_unknown_lesson(
    started: list[list[str]], tmp_path: Path
) -> None:
    invoke("lab", str(tmp_path))
    assert "04_continuous_batching.old.ipynb" in invoke("lab", str(tmp_path), "--fresh", "4").stdout
    refused(invoke("lab", str(tmp_path), "--fresh", "99"), "--fresh", "00", "23", "99")
    assert len(started) == 2


def test_lab_refuses_a_file(started: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(invoke("lab", str(tmp_path / "file")), "file")
    assert not started
