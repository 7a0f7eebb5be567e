"""docs/classroom.md: the server it starts, the cell that students send, and `why` from its trace."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from engine.events.log import EventLog
from tests.facts import assert_names
from tests.server.harness import get, post, until

DOC = (Path(__file__).parents[2] / "docs" / "classroom.md").read_text()
SERVE = re.search(r"underglass serve (.*?)\n```", DOC.replace("\\\n", ""), re.S)[1]
CELLS = re.findall(r"```python\n(.*?)```", DOC, re.S)


def test_the_class_of_the_page_runs_from_the_teachers_command_to_the_words_of_its_trace(
    tmp_path: Path,
) -> None:
    """The command, the cell of two students while the engine is held, two steps, the trace."""
    arguments = [*shlex.split(SERVE), "--port", "0"]
    command = [str(Path(sys.executable).with_name("underglass")), "serve", *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = next(
                found[0] for line in server.stdout if (found := re.search(r"http://[\d.:]+", line))
            )
            student, from_its_trace = CELLS
            cell = student.replace("http://127.0.0.1:8000", url)
            students = [
                subprocess.Popen([sys.executable, "-c", cell], stdout=subprocess.PIPE, text=True)
                for _ in range(3)
            ]
            until(url, "/health", lambda health: health.json()["waiting"] == 3)
            assert get(url, "/health")["step"] == 0  # held: they wait, nothing runs
            assert post(url, "/engine/step", {"steps": 12}).json()["step"] == 12
            post(url, "/engine/resume")
            answers = [one.communicate()[0] for one in students]
            assert all('"done"' in answer and '"ttft_ms"' in answer for answer in answers)
        finally:
            server.terminate()
            server.communicate()
    log = EventLog.load(str(tmp_path / "class.jsonl"))
    assert set(log.requests.label) == {"Ada"}
    printed = subprocess.run(
        [sys.executable, "-c", from_its_trace], cwd=tmp_path, capture_output=True, text=True
    )
    assert printed.stdout, printed.stderr
    assert_names(printed.stdout.splitlines()[0], 10, "Ada", "r3")


def test_flags_that_the_page_names_are_flags_of_the_server() -> None:
    known = subprocess.run(
        [str(Path(sys.executable).with_name("underglass")), "serve", "--help"],
        capture_output=True,
        text=True,
        env={"COLUMNS": "200", "PATH": ""},
    ).stdout
    flags = set(re.findall(r"--[a-z][a-z-]+", DOC))
    assert flags and all(flag in known for flag in flags)
