"""The Makefile and make.py offer the same targets, and both pass variables on."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import make

ROOT = Path(__file__).parents[1]


def test_the_makefile_has_the_targets_of_make_py() -> None:
    text = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
    [names] = re.findall(r"^TARGETS := (.+)$", text, re.MULTILINE)
    assert names.split() == list(make.TARGETS)


def test_an_unknown_target_and_an_old_python_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="no target tset; choose from help, setup"):
        make.main(["tset"])
    monkeypatch.setattr(make.sys, "version_info", (3, 9))
    with pytest.raises(SystemExit, match=r"3\.11 or newer.*make PYTHON=python3\.12 lab"):
        make.main(["lab", "FRESH=04"])


@pytest.mark.parametrize("command", [[sys.executable, "make.py"], ["make"]])
def test_a_variable_and_an_exit_code_pass_through(command: list[str], tmp_path: Path) -> None:
    """`record-vllm` runs the Python that VLLM_PYTHON names; here it is one that tells its arguments."""
    if shutil.which(command[0]) is None:
        pytest.skip("this machine has no make")
    told = tmp_path / "told.txt"
    recorder = tmp_path / "python"
    recorder.write_text(f'#!/bin/sh\necho "$PYTHONPATH $@" > "{told}"\nexit 3\n')
    recorder.chmod(0o755)
    variables = [f"VLLM_PYTHON={recorder}", "RECORD_ARGS=--seeds '1 0'"]
    done = subprocess.run(
        [*command, "record-vllm", *variables], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == (3 if command[0] != "make" else 2), done.stderr
    path = os.pathsep.join(["recorders/vllm", "notebooks"])
    assert told.read_text() == f"{path} -m tests.parity.record_vllm --seeds 1 0\n"


def test_a_target_is_made_again_only_after_a_source_has_changed(tmp_path: Path) -> None:
    made, source = tmp_path / "made", tmp_path / "source"
    source.touch()
    assert not make.is_newer(made, [source])
    made.touch()
    os.utime(source, (1, 1))
    assert make.is_newer(made, [source])
    os.utime(made, (0, 0))
    assert not make.is_newer(made, [source])


@pytest.mark.parametrize(
    ("target", "path"),
    [("test-browser", "tests/browser/test_open.py"), ("test-fast", "tests/test_make.py")],
)
def test_a_path_in_pytest_args_replaces_the_targets_folder(
    target: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(make, "setup", lambda: None)
    monkeypatch.setattr(make, "is_newer", lambda *_: True)
    monkeypatch.setattr(make, "run", lambda *command, **_: commands.append([*map(str, command)]))
    monkeypatch.setenv("PYTEST_ARGS", path)
    make.TARGETS[target].__wrapped__()
    [_, *arguments] = commands[-1]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "--collect-only", "-q", "-n", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert {
        line.partition(":")[0] for line in done.stdout.splitlines() if line.startswith("tests/")
    } == {path}
