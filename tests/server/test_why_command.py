"""`underglass why`: the answers of a log on the console, and one line for what it cannot answer."""

from pathlib import Path

import pytest

from engine.events.log import EventLog
from tests.server.console import invoke, refused
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


def test_what_it_cannot_answer_is_one_line(tmp_path: Path) -> None:
    refused(invoke("why", str(VLLM), "Ivor"), "similar: Ivo")
    refused(invoke("why", str(VLLM), "77"), "1 to 9")
    refused(invoke("why", str(VLLM), "a"), "similar:", "Eva", "Hal")  # two labels have it
    refused(invoke("why", str(tmp_path), "1"), str(tmp_path), "directory")
    refused(invoke("why", str(VLLM), "--stuck", "--missed"), "--missed and --stuck")
    refused(invoke("why"), "missing argument", "FILE", "why -h")
    refused(invoke("why", str(VLLM)), "--stuck")
    refused(invoke("why", str(VLLM), "Ivo", "--step", "999"), "999")
    refused(invoke("why", str(VLLM), "Ivo", "--missed", "--step", "3"), "--missed and --step")
    refused(invoke("why", str(tmp_path / "gone.jsonl"), "1"), "gone.jsonl: No such file")
    kv_events = FIXTURES / "vllm" / "vllm_tight.kv_events.jsonl.gz"
    refused(invoke("why", str(kv_events), "--stuck"), "no queue")
    broken = tmp_path / "broken.jsonl"
    broken.write_text("nothing\n")
    refused(invoke("why", str(broken), "1"), "broken.jsonl")
