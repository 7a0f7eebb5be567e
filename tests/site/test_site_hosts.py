"""The services that run a lesson: their addresses, and the notebooks for Colab."""

import ast
import json

import nbformat
import pytest

import site_hosts
from underglass.workbook import LESSONS

LESSON = LESSONS / "04_continuous_batching.ipynb"
WHEEL = "https://github.com/ada/glass/raw/colab/underglass-1-py3-none-any.whl"


@pytest.fixture(autouse=True)
def outside_of_github(monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)


@pytest.mark.parametrize("end", ["", "/", ".git"])
def test_the_repository_comes_from_the_project(tmp_path, end):
    project = tmp_path / "pyproject.toml"
    project.write_text(f'[project]\nurls = {{ Repository = "https://github.com/ada/glass{end}" }}')
    assert site_hosts.repository(project) == "ada/glass"


def test_a_fork_links_to_itself(monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "bo/fork")
    assert "/bo/fork/" in site_hosts.colab_url("04_continuous_batching")


def test_a_notebook_for_colab_installs_the_wheel_first():
    notebook = nbformat.reads(site_hosts.colab_notebook(LESSON, WHEEL, "ada/glass"), as_version=4)
    nbformat.validate(notebook)
    first, *rest = notebook.cells
    assert WHEEL in first.source
    plain = [line for line in first.source.splitlines() if not line.startswith("%")]
    ast.parse("\n".join(plain))
    assert [cell.source for cell in rest if cell.cell_type == "code"] == [
        cell.source
        for cell in nbformat.read(LESSON, as_version=4).cells
        if cell.cell_type == "code"
    ]


def test_all_lessons_and_the_wheel_are_written(tmp_path):
    wheel = tmp_path / "underglass-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    site_hosts.write_colab(tmp_path / "colab", wheel, "ada/glass")
    written = {path.name for path in (tmp_path / "colab").rglob("*.*")}
    assert written == {wheel.name, *(path.name for path in LESSONS.glob("[0-9]*.ipynb"))}
    lesson = tmp_path / "colab" / "notebooks" / LESSON.name
    first = json.loads(lesson.read_text("utf-8"))["cells"][0]
    assert f"/ada/glass/raw/colab/{wheel.name}" in "".join(first["source"])
