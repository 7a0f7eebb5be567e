"""The front page's run and what the page says of it, for whatever a visitor types."""

import json
import re
import subprocess

import pytest

import page_front
from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from tests.browser.conftest import REPOSITORY
from tests.site.page_models import NODE
from visualizer import read

TOLD = REPOSITORY / "visualizer/frontend/test/front/told.js"
PROMPTS = [
    "Tell me a story about a small dragon who lost her fire.",
    "",
    "Tell me a story about a fox.",  # as Ada asks, for more than one block
    "Warum hat der Server mich warten lassen? 为什么",
    "\U0001f409\U0001f525 " * 30,
    "<|user_end|><|assistant_end|> \n\t <b>bold</b>",
    "word " * 400,
]
YOU, NUMBER = 4, re.compile(r"\d+")


@pytest.fixture(scope="module")
def logs() -> list[EventLog]:
    found = []
    for prompt in PROMPTS:
        page_front.front.ask(prompt, 6, lambda _: None)
        found.append(page_front.front.log)
    return found


def test_memory_is_full_for_whatever_is_asked(logs):
    for log in logs:
        assert log.of(v.Preempted)[0].request == YOU
        assert {one.reason for one in log.of(v.RequestFinished)} <= {"length", "stop"}
        assert len(log.of(v.RequestArrived)[-1].prompt) <= page_front.MOST


def test_the_others_begin_as_in_the_recording(logs):
    start, *starts = (log.deterministic() for log in (page_front.recorded(), *logs))
    alone = next(i for i, event in enumerate(logs[0]) if getattr(event, "label", "") == "Cleo")
    assert all(one[1:alone] == start[1:alone] for one in starts)


def test_what_the_page_says_is_in_the_log(logs, tmp_path):
    files = [tmp_path / f"{i}.jsonl" for i in range(len(logs))]
    for file, log in zip(files, logs, strict=True):
        log.save(file)
    command = [str(NODE), "--no-warnings", str(TOLD), *map(str, files)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    for log, one in zip(logs, said, strict=True):
        _, cut, shared, full = one["scenes"]
        row = next(row for row in read(log).request_rows if row.request == YOU)
        assert abs(one["total"] - row.e2e_ms) < 1
        admitted = next(event for event in log.of(v.Admitted) if event.request == YOU)
        hit = len(admitted.blocks) * page_front.BLOCK
        length = len(log.of(v.RequestArrived)[-1].prompt)
        assert NUMBER.findall(shared["what"]) == [str(length), str(hit)]
        assert NUMBER.findall(shared["why"]) == [str(hit // page_front.BLOCK), str(length - hit)]
        rows = [row for plan in log.of(v.StepScheduled) for row in plan.rows if row.request == 3]
        pieces = [row.count for row in rows if row.count > 1]
        assert NUMBER.findall(cut["what"])[:2] == [str(sum(pieces)), str(len(pieces))]
        needed_by = log.of(v.RequestArrived)[log.of(v.Preempted)[0].needed_by - 1].label
        assert full["what"].startswith(f"{needed_by} needs one more block")
