"""make.py: tasks, variables, and the choice of PyTorch's build."""

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import make
from tests.conftest import seconds_of_files

ROOT = Path(__file__).parents[1]


def test_an_unknown_task_and_an_old_python_are_named(monkeypatch):
    with pytest.raises(SystemExit, match="no task tset; choose from setup, "):
        make.main(["tset"])
    monkeypatch.setattr(make.sys, "version_info", (3, 9))
    with pytest.raises(SystemExit, match=r"3\.11 or newer.*make PYTHON=python3\.12 lab"):
        make.main(["lab", "FRESH=04"])


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    """A Python that writes its path and its arguments to a file, and fails."""
    file = tmp_path / "python"
    file.write_text(f'#!/bin/sh\necho "$PYTHONPATH $@ $RECORD_ARGS" > "{tmp_path}/told"\nexit 3\n')
    file.chmod(0o755)
    return file


def test_variables_arguments_and_the_exit_code_pass_through_a_task(recorder, monkeypatch):
    monkeypatch.setattr(make, "set_up", lambda level: None)
    monkeypatch.setattr(make.os, "environ", dict(os.environ))
    variables = [f"VLLM_PYTHON={recorder}", "RECORD_ARGS=--seeds '1 0'"]
    with pytest.raises(SystemExit) as stopped:
        make.main([*variables, "record-vllm", "--out", "x"])
    assert stopped.value.code != 0
    said = recorder.with_name("told").read_text()
    assert said.startswith(
        "recorders/vllm:notebooks -m recorders.fixtures.record_vllm --out x --seeds 1 0"
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="this machine has no make")
def test_make_hands_a_task_and_its_variables_to_make_py(recorder):
    # A folder has the name of this task, too.
    command = ["make", "site", f"PYTHON={recorder}", "RECORD_ARGS=--seeds 1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 2
    assert recorder.with_name("told").read_text().split() == ["make.py", "site", "--seeds", "1"]


def test_a_file_is_made_again_only_after_a_source_has_changed(tmp_path):
    made, source = tmp_path / "made", tmp_path / "source"
    source.touch()
    assert not make.is_newer(made, [source])
    made.touch()
    os.utime(source, (1, 1))
    assert make.is_newer(made, [source])
    os.utime(made, (0, 0))
    assert not make.is_newer(made, [source])


@pytest.fixture
def indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package index, `pypi`, and a stand-in for PyTorch's, `cpu`."""
    for index, version in (("pypi", "2.13.0"), ("cpu", "2.13.0+cpu")):
        folder = tmp_path / index / "torch"
        folder.mkdir(parents=True)
        wheel = folder / f"torch-{version}-py3-none-any.whl"
        about = f"torch-{version}.dist-info"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("torch/__init__.py", "")
            archive.writestr(
                f"{about}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
            )
            archive.writestr(
                f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{about}/RECORD", "")
        link = f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>'
        (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    monkeypatch.setattr(make.os, "environ", dict(os.environ))
    for name in ("TORCH", "TORCH_INDEX"):
        os.environ.pop(name, None)
    os.environ |= {"UV_DEFAULT_INDEX": (tmp_path / "pypi").as_uri(), "UV_NO_CACHE": "1"}
    os.environ |= {"UV_INDEX": "", "UV_FIND_LINKS": ""}
    monkeypatch.setattr(make.sys, "platform", "linux")
    monkeypatch.setattr(make, "TORCH_INDEX", (tmp_path / "cpu").as_uri())
    monkeypatch.setattr(make, "_has_nvidia_gpu", lambda: False)
    return tmp_path


@pytest.mark.parametrize(
    ("variables", "has_gpu", "version"),
    [
        ({}, False, "2.13.0+cpu"),
        ({}, True, "2.13.0"),
        ({"TORCH": "cuda"}, False, "2.13.0"),
        ({"TORCH": "cpu"}, True, "2.13.0+cpu"),
        ({"TORCH_INDEX": "{folder}/cpu", "TORCH": "cuda"}, False, "2.13.0+cpu"),  # a mirror
        ({"TORCH_INDEX": "http://127.0.0.1:9/cpu"}, False, "2.13.0"),  # no server answers there
    ],
)
def test_the_build_of_pytorch_fits_the_machine_and_is_named(
    variables, has_gpu, version, indexes, monkeypatch, capfd
):
    monkeypatch.setattr(make, "_has_nvidia_gpu", lambda: has_gpu)
    os.environ |= {name: value.format(folder=indexes.as_uri()) for name, value in variables.items()}
    make.install_torch(indexes / "env")
    [installed] = (indexes / "env").glob("lib/*/site-packages/torch-*.dist-info")
    assert installed.name == f"torch-{version}.dist-info"
    said = capfd.readouterr().out
    assert f"PyTorch {version} from " in said
    assert ("127.0.0.1:9/cpu cannot be reached" in said) == ("9/cpu" in str(variables))


def test_a_wrong_build_of_pytorch_is_named(monkeypatch):
    monkeypatch.setenv("TORCH", "rocm")
    with pytest.raises(SystemExit, match="TORCH must be cpu or cuda, got rocm"):
        make.install_torch()


@pytest.mark.parametrize("task", ["test-browser", "test-fast", "test-notebooks"])
def test_a_path_replaces_the_folder_of_a_task(task):
    """pytest adds a path to those that a command names, so it may name none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    _, *arguments = shlex.split(project["tool"]["poe"]["tasks"][task]["cmd"])
    assert [one for one in arguments if (ROOT / one).exists()] == []


def test_workers_start_with_files_that_are_there():
    seconds = seconds_of_files()
    assert len(seconds) > 10, "measure again: make test-fast ARGS=--write-seconds"
    assert [file for file in seconds if not (ROOT / file).exists()] == []
