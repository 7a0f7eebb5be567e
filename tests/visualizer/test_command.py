"""`underglass open`, or `python -m visualizer`: it shows, exports and summarizes a log."""

import gzip
import json
import webbrowser

import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from engine.core.log.vocabulary import SCHEMA_VERSION
from tests.facts import assert_names
from underglass.commands import app
from visualizer import read
from visualizer.html import to_html
from visualizer.reading.durations import duration


@pytest.fixture
def trace(log, tmp_path):
    log.save(tmp_path / "trace.jsonl")
    return tmp_path / "trace.jsonl"


def run(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, ["open", *map(str, arguments)], input=stdin)


def test_open_shows_the_page_in_the_browser(trace, tmp_path, monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    assert run(trace, "--html", tmp_path / "a b.html").exit_code == 0
    assert shown == []
    assert run(trace, "--html", tmp_path / "a b.html", "--open", "--summary").exit_code == 0
    assert shown == [(tmp_path / "a b.html").as_uri()]


def test_exports_write_what_was_named_and_no_page(trace, log, tmp_path):
    done = run(trace, "--perfetto", tmp_path / "p.json.gz", "--csv", tmp_path / "tables" / "new")
    names = ["p.json.gz", *(f"tables/new/{name}.csv" for name in ("requests", "steps", "tokens"))]
    assert done.stdout.splitlines() == [str(tmp_path / name) for name in names]
    with gzip.open(tmp_path / names[0]) as file:
        assert json.load(file)["traceEvents"]
    for name in ("requests", "steps", "tokens"):
        table = pd.read_csv(tmp_path / "tables" / "new" / f"{name}.csv", keep_default_na=False)
        frame = getattr(read(log), name)
        assert len(table) == len(frame)
        assert set(frame.columns) <= set(table.columns)


def test_the_summary_says_what_happened(trace, log):
    lines = run(trace, "--summary").stdout.splitlines()
    said = {line[:13].strip(): line[13:] for line in lines}
    ttft, gaps = read(log).requests.ttft_ms, read(log).tokens.gap_ms
    assert_names(said["requests"], 12, 9, "length", 3, "stop")
    first, last = read(log).steps.iloc[0], read(log).steps.iloc[-1]
    lasted = last.start_ms + last.duration_ms - first.start_ms
    assert_names(said["steps"], len(read(log).steps), duration(lasted))
    assert_names(said["tokens"], read(log).steps.tokens.sum(), len(read(log).tokens))
    assert_names(said["TTFT"], duration(ttft.median()), duration(ttft.max()))
    assert "p95" not in said["TTFT"], "12 requests have no 95th percentile"
    assert_names(said["ITL"], duration(gaps.median()), "p95", duration(gaps.quantile(0.95)))
    assert_names(said["prefix cache"], 136, 437, "31.1%")
    assert said["preemptions"] == "1"
    assert_names(said["KV blocks"], 40, 27)


def test_a_log_without_a_step_is_summarized(log):
    done = run("-", "--summary", stdin=log.to_bytes().split(b"\n")[0] + b"\n")
    assert [line.split() for line in done.stdout.splitlines()[1:3]] == [
        ["requests", "0"],
        ["steps", "0"],
    ]


def test_the_page_opens_as_asked_for(trace, log, tmp_path):
    for option, select in (("3", 3), ("none", None), ("auto", "auto")):
        assert run(trace, "--select", option, "--html", tmp_path / "page.html").exit_code == 0
        page = (tmp_path / "page.html").read_text("utf-8")
        assert page == to_html(log, select=select, title=trace.name)
    assert "selected: null" in to_html(log, select=None)
    page = tmp_path / "page.html"
    done = run(trace, "--html", page, "--step", 7, "--select", 3, "--theme", "dark")
    assert done.stdout.strip() == str(page)
    expect = to_html(log, step=7, select=3, theme="dark", title="trace.jsonl")
    assert page.read_text("utf-8") == expect


def test_a_request_is_selected_by_its_label(tmp_path):
    for select in ("Ivo", "9"):
        page = tmp_path / f"{select}.html"
        assert run("vllm_tight", "--select", select, "--html", page).exit_code == 0
    assert (tmp_path / "Ivo.html").read_text() == (tmp_path / "9.html").read_text()
    assert (tmp_path / "9.html").read_text() == to_html("vllm_tight", select=9)


def test_a_directory_is_named_as_one_and_hides_no_scenario(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    (tmp_path / "thrash").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "logs: Is a directory" in run("logs", "--summary").stderr
    assert run("thrash", "--summary").exit_code == 0


def test_two_logs_are_compared_under_their_names(trace, tmp_path):
    (tmp_path / "other.jsonl.gz").write_bytes(gzip.compress(trace.read_bytes()))
    done = run(trace, tmp_path / "other.jsonl.gz", "--html", tmp_path / "page.html")
    assert done.stdout.strip() == str(tmp_path / "page.html")
    assert '"names": ["trace", "other"]' in (tmp_path / "page.html").read_text("utf-8")


WRONG = [
    (["{trace}", "{trace}", "--step", "3"], ["--step", 2]),
    (["{trace}", "{trace}", "{trace}", "--html", "x"], ["--html", 3]),
    (["{trace}", "--follow", "--csv", "x"], ["--csv", "--follow"]),
    (["{bad}"], ["{bad}", 1, "hello", "Underglass", "Mooncake"]),
    (["{other}"], ["{other}", 1, 7, SCHEMA_VERSION]),
    (["{empty}"], ["{empty}"]),
    (["{torn_gz}"], ["{torn_gz}"]),
    (["{trace}", "--step", "99"], ["--step", 1, 53, 99]),
    (["{trace}", "--select", "99"], ["--select", 99]),
    (["{trace}", "--select", "-1"], ["--select", "-1", "none"]),
    (["{trace}", "--html", "/no/such/folder/x.html"], ["/no/such/folder/x.html"]),
]


@pytest.mark.parametrize(("arguments", "facts"), WRONG, ids=lambda value: str(value)[:40])
def test_an_error_is_one_line_with_exit_code_2(arguments, facts, trace, tmp_path):
    whole = trace.read_bytes()
    files = {
        "trace": whole,
        "bad": b"# hello\n",
        "other": whole.replace(b'"schema":2', b'"schema":7', 1),
        "empty": b"",
        "torn.gz": gzip.compress(whole)[:200],
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    paths = {name.replace(".", "_"): tmp_path / name for name in files}
    done = run(*(argument.format(**paths) for argument in arguments))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert_names(done.stderr, *(str(fact).format(**paths) for fact in facts))
    assert done.stderr.startswith("underglass: ") and done.stderr.count("\n") == 1
