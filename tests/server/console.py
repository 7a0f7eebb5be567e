"""Running the console command in tests: as a process, or in this one where nothing is started."""

import os
import subprocess
import sys

from typer.testing import CliRunner

from tests.facts import assert_names
from underglass.commands import app

COMMAND = [sys.executable, "-m", "underglass"]


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
        check=False,
    )


def invoke(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The same without a process, for commands that end before anything is started."""
    done = CliRunner().invoke(app, arguments)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def refused(done: "subprocess.CompletedProcess[str]", *facts: object) -> None:
    """Check that the command ended with status 2 and one line that names the facts."""
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert_names(done.stderr, "underglass:", *facts)
    assert done.stdout == ""
