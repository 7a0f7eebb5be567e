"""`underglass why`: the answers of a log on the console, and one line for what it cannot answer."""

from pathlib import Path

import pytest

from engine.events.log import EventLog
from tests.server.console import invoke
from visualizer.sources import read_source

FIXTURES = Path(__file__).parents[1] / "fixtures"
VLLM = FIXTURES / "vllm" / "vllm_tight.jsonl.gz"
OWN = FIXTURES / "logs" / "schema_2_hash.jsonl"


@pytest.mark.parametrize("file", [OWN, VLLM])
def test_each_question_has_the_answer_of_the_log(file: Path) -> None:
    log = read_source(file)
    assert isinstance(log, EventLog)
    asked = {
        ("2",): log.why_slow(2),
        ("2", "--missed"): log.why_missed(2),
        ("--stuck",): log.stuck(),
        ("--stuck", "--step", "3"): log.stuck(3),
    }
    for arguments, answer in asked.items():
        done = invoke("why", str(file), *arguments)
        assert done.returncode == 0
        assert done.stdout == f"{answer}\n"


def test_a_label_and_a_step_of_a_real_vllm() -> None:
    done = invoke("why", str(VLLM), "Ivo", "--step", "88")
    assert done.stdout.startswith("Step 88: Ivo (r9) waits behind Hal (r8)")


def test_a_log_of_the_gallery_and_a_part_of_a_label() -> None:
    expect = invoke("why", str(VLLM), "Ivo").stdout
    assert invoke("why", "vllm_tight", "Ivo").stdout == expect
    assert invoke("why", "vllm_tight", "Iv").stdout == expect
