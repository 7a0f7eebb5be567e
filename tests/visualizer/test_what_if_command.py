"""`underglass what-if` and its page: three runs side by side, and errors in one line."""

import json

import pytest

from engine import EngineConfig, what_if
from tests.engine.simulation.test_replayable import stripped, vllm_log
from tests.engine.simulation.test_study import slowed
from tests.facts import assert_names
from tests.server.console import invoke, refused
from visualizer import compare


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("logs") / "run.jsonl"
    stripped(vllm_log()).save(found)
    return str(found)


def test_the_table_has_the_three_runs_and_the_error(path):
    done = invoke("what-if", path, "token_budget=32,128")
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert_names(head, "recorded", "replayed", "token_budget=32", "token_budget=128", "held-back")
    for name in "TTFT p50,ITL p99,e2e p50,preemptions,hit rate,throughput,makespan".split(","):
        line = next(line for line in lines if name in line)
        assert "%" in line or "exact" in line
    assert_names(done.stdout, "median", "p90", "100.0%")


def test_json_has_the_same_numbers(path):
    done = invoke("what-if", path, "policy=sjf", "--json")
    found = json.loads(done.stdout)
    assert found["reproduced"]["equal"] == found["reproduced"]["steps"] > 50
    assert {one["name"] for one in found["measures"]} >= {"preemptions", "makespan, s"}
    assert all(list(one["changed"]) == ["policy=sjf"] for one in found["measures"])


def test_the_page_shows_the_table_beside_the_picture(path, tmp_path):
    page = tmp_path / "out.html"
    done = invoke("what-if", path, "max_batch_size=2", "--html", str(page))
    assert done.stdout.splitlines()[-1] == str(page)
    html = page.read_text()
    assert "held-back error" in html
    assert "max_batch_size=2" in html


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["budget=3"], ["budget", *EngineConfig.__struct_fields__]),
        (["--", "max-num-seqs=8"], ["max_num_seqs", "max_batch_size", "vLLM"]),
        (["token_budget"], ["token_budget", "VALUE"]),
        (["token_budget=1,"], ["token_budget", "VALUE"]),
        (["token_budget=0"], ["token_budget", 1, 0]),
        (["token_budget=many"], ["token_budget", "many"]),
        (["token_budget=8", "token_budget=9"], ["token_budget", "twice"]),
        (["policy=lifo"], ["policy", "fcfs", "lifo"]),
        (["max_kv_tokens=32"], ["request", "max_kv_tokens", 101, 2]),
        (["token_budget=8", "--arrivals", "never"], ["--arrivals", "never"]),
        (["token_budget=8", "--steps", "2"], ["--steps", "2"]),
        (["token_budget=8", "--steps", "900-950"], [900, 950]),
    ],
)
def test_a_wrong_word_is_one_line(path, words, facts):
    refused(invoke("what-if", path, *words), *facts)


def test_a_file_that_is_no_log_is_one_line(tmp_path):
    wrong = tmp_path / "notes.txt"
    wrong.write_text("a note\n")
    refused(invoke("what-if", str(wrong), "token_budget=8"), str(wrong))
    header = tmp_path / "begun.jsonl"
    header.write_bytes(vllm_log().to_bytes().splitlines(keepends=True)[0])
    refused(invoke("what-if", str(header), "token_budget=8"), str(header), "step")


def test_a_comparison_of_two_replays_knows_their_error():
    log = slowed(vllm_log(), 1.3)
    a, b = what_if(log, pinned="time"), what_if(log, pinned="time", token_budget=48)
    comparison = compare(a, b)
    held = a[0].t["fitted"]["held_back"]
    assert_names(comparison.note, held["text"])
    assert comparison.facts["end_noise"]["share"] == pytest.approx(abs(held["bias"]))
    assert comparison.inputs == []  # all arrive when they did
    assert_names(compare(log, what_if(log)).note, held["text"])
