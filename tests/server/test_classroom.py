"""docs/classroom.md: its command, its student's cell, its prompts, its moments with a class."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.core.log.log import EventLog
from engine.core.log.vocabulary import Preempted, RequestFinished, StepScheduled
from server.api.live import PAGES
from solutions.lesson_12 import report
from tests.facts import assert_names
from tests.server.console import invoke
from tests.server.harness import Caller, ForkedServer, get, post, queue, trace, until
from visualizer import read

DOC = (Path(__file__).parents[2] / "docs" / "classroom.md").read_text()
COMMAND = re.search(r"underglass (class.*?)\n```", DOC, re.S)[1]
CELLS = re.findall(r"```python\n(.*?)```", DOC, re.S)

# The page's prompts, as its buttons send them.
SOURCE = (PAGES / "suggestions.ts").read_text()
TALE = "".join(re.findall(r'"(.*)"', re.search(r"const LONG =(.*?);", SOURCE, re.S)[1]))
LONG = TALE + re.search(r"\$\{LONG\}(Tell .*?)`", SOURCE)[1]
ANIMALS = re.search(r'ANIMALS =\s*"(.*?)"', SOURCE)[1].split()
STORIES = [f"Tell me a story about a {animal}." for animal in ANIMALS]
[SAME] = re.findall(r'\["(What does the engine .*?)"\]', SOURCE)
FIXED = re.findall(r'\["([A-Z][^"]*[?.])"\]', SOURCE)
NAMES = [f"Student {number}" for number in range(1, 31)]


@dataclass
class Class:
    url: str
    folder: Path

    def tap(self, prompts: Iterable[str], names: Iterable[str] = NAMES) -> list[Caller]:
        """Send chats as the page does, one after the other; wait until all are queued."""
        body = {"max_tokens": 200, "temperature": 0, "stream": True}
        asked = (
            {"messages": [{"role": "user", "content": prompt}], "user": name} | body
            for prompt, name in zip(prompts, names, strict=False)
        )
        return queue(self.url, *asked, path="/v1/chat/completions")

    def step(self, steps: int = 1) -> int:
        last: int = post(self.url, "/engine/step", {"steps": steps}).json()["step"]
        return last

    def run_until(self, moment: str, **fields: Any) -> dict[str, Any]:
        stopped: dict[str, Any] = post(
            self.url, "/engine/run_until", {"until": moment, **fields}
        ).json()
        return stopped

    def restart(self, prompts: str = "none", **settings: Any) -> None:
        body = {"settings": settings, "prompts": prompts, "abort": True}
        assert post(self.url, "/engine/restart", body).status_code == 200

    def rows(self, step: int) -> list[tuple[int, int, int]]:
        """(request, start, count) of each row of a step."""
        rows = trace(self.url).of(StepScheduled)[step - 1].rows
        return [(row.request, row.start, row.count) for row in rows]


@contextmanager
def started(folder: Path) -> Iterator[Class]:
    """The server of the page's command, on a free port."""
    with chdir(folder):
        started = ForkedServer("underglass.commands", *shlex.split(COMMAND), "--port", "0")
    with started as server:
        yield Class(server.url, folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Class]:
    with started(tmp_path_factory.mktemp("class")) as server:
        yield server


@pytest.fixture
def room(server: Class) -> Class:
    """The class's server with an empty engine, paused, with the plan's settings."""
    server.restart(prefix_cache="radix")
    return server


def test_the_class_of_the_page_runs_from_the_teachers_command_to_the_words_of_its_trace(tmp_path):
    """The command, the cell of three students while the engine is paused, twelve steps, the trace."""
    student, from_its_trace = CELLS
    with started(tmp_path) as room:
        cell = student.replace("http://127.0.0.1:8000", room.url)
        students = [
            subprocess.Popen([sys.executable, "-c", cell], stdout=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        until(room.url, "/health", lambda health: health.json()["waiting"] == 3)
        assert get(room.url, "/health")["step"] == 0  # paused: they wait, nothing runs
        assert room.step(12) == 12
        post(room.url, "/engine/resume")
        answers = [one.communicate()[0] for one in students]
        assert all('"done"' in answer and '"ttft_ms"' in answer for answer in answers)
    log = EventLog.load(str(tmp_path / "class.jsonl"))
    assert set(read(log).requests.label) == {"Ada"}
    printed = subprocess.run(
        [sys.executable, "-c", from_its_trace], cwd=tmp_path, capture_output=True, text=True
    )
    assert printed.stdout, printed.stderr
    assert_names(printed.stdout.splitlines()[0], 10, "Ada", "r3")


def test_the_bundled_model_answers_the_pages_prompts_with_the_tokens_that_the_table_says(room):
    table = dict(re.findall(r"^\| (\S[^|]*?) \| (\d+ \| \d+) \|", DOC, re.M))
    [long] = [name for name in table if name.startswith("**A long prompt**")]
    table[LONG] = table.pop(long)
    assert set(table) == {*FIXED, LONG}
    callers = room.tap([*table, *STORIES])
    post(room.url, "/engine/resume")
    answers = [caller.read_all() for caller in callers]
    post(room.url, "/engine/pause")
    log = trace(room.url)
    rows = [f"{one.prompt_tokens} | {one.output_tokens}" for one in read(log).request_rows]
    assert dict(zip(table, rows, strict=False)) == table
    assert {one.prompt_tokens for one in read(log).request_rows[len(table) :]} == {12, 13, 14, 15}
    assert all(170 <= one.output_tokens <= 195 for one in read(log).request_rows[len(table) :])
    assert all("know no stories" not in answer for answer in answers)


def test_the_ninth_waits(room):
    callers = room.tap(STORIES[:8])
    room.step(2)
    callers += room.tap([SAME], ["Eva"])
    stopped = room.run_until("waiting")
    assert (stopped["reason"], stopped["step"], stopped["request"]) == ("waiting", 3, 9)
    assert trace(room.url).of(StepScheduled)[2].blocked.reason == "batch_full"


def test_a_long_document_takes_four_steps_beside_four_stories(room):
    callers = room.tap(STORIES[:4])
    room.step(10)
    callers += room.tap([LONG], ["Teacher"])
    stopped = room.run_until("first_token", request=5)
    assert stopped["step"] == 14
    chunks = [row[2] for step in range(11, 15) for row in room.rows(step) if row[0] == 5]
    assert chunks == [60, 60, 60, 33]


def test_of_a_long_prompt_again_five_tokens_are_computed(room):
    [first] = room.tap([LONG])
    post(room.url, "/engine/resume")
    first.read_all()
    post(room.url, "/engine/pause")
    _open = room.tap([LONG] * 8)
    at = room.step()
    assert [row[1:] for row in room.rows(at)] == [(208, 5)] * 8


def test_the_same_prompt_at_once_is_shared_by_the_table_and_not_by_the_tree(room):
    _open = room.tap([SAME] * 30)
    room.step()
    assert [row[1:] for row in room.rows(1)] == [(0, 18)] * 3 + [(0, 10)]
    room.restart("together", prefix_cache="hash")
    room.step()
    assert [row[1:] for row in room.rows(1)] == [(0, 18)] + [(16, 2)] * 7


def test_different_stories_fill_the_memory_and_equal_ones_do_not(room):
    callers = room.tap([STORIES[0]] * 30)
    stopped = room.run_until("preemption", steps=190)  # a story has 175 tokens
    assert stopped["reason"] == "steps" and trace(room.url).of(RequestFinished)
    assert not trace(room.url).of(Preempted)
    room.restart()
    # Phones draw their animals at random, so some tell the same story.
    callers += room.tap(STORIES[number * 7 % 11] for number in range(30))
    stopped = room.run_until("preemption")
    assert stopped["reason"] == "preemption" and 80 <= stopped["step"] <= 120
    # Homework: the run's file, for the report of lesson 12.
    room.step(100)
    room.restart()  # ends the file
    files = sorted(room.folder.glob("class*.jsonl"), key=lambda path: (len(path.stem), path.stem))
    log = EventLog.load(str(files[-2]))
    assert len(log.of(Preempted)) > 0
    found = report(log)
    assert found["cause"] == "whole_sequence" and found["gain"] >= 1


def options_of(command: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]+", invoke(command, "--help").stdout))


def test_flags_that_the_page_names_are_flags_of_the_class_or_of_the_server(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    flags = set(re.findall(r"--[a-z][a-z-]+", DOC))
    assert flags and flags - options_of("class") == {"--max-waiting"} <= options_of("serve")
