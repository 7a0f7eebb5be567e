"""Running the console command in tests: as a process, or in this one where nothing is started."""

import subprocess
import sys
import tempfile

from typer.testing import CliRunner

from tests.facts import assert_names
from tests.server.harness import forked
from underglass.commands import app

COMMAND = [sys.executable, "-m", "underglass"]


def run(*arguments: str, text: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process that has imported it, with `text` on its standard input."""
    with tempfile.TemporaryFile("w+") as errors:
        process = forked("underglass.commands", *arguments, stderr=errors.fileno(), **environment)
        process.stdin.write(text.encode())
        process.stdin.close()
        with process.stdout as output:
            said = output.read().decode()
        code = process.wait(60)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, said, errors.read())


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
