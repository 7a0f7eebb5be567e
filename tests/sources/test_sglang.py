"""What SGLang's own classes have written is read: KV events and forward-pass metrics."""

import gzip
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from engine.core.log import LogError
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.simulation.inferred import inferred
from tests.parity.recorded_steps import read_recording
from tests.sources.kv_feed import chains
from underglass.commands import app
from visualizer import read
from visualizer.reading.summary import summary
from visualizer.reading.why import WhyError, why
from visualizer.sources.frames import write_frame
from visualizer.sources.sglang_metrics import MetricsTranslator

FIXTURES = Path("tests/fixtures")
KV = FIXTURES / "sglang_kv_events.jsonl.gz"
METRICS = FIXTURES / "sglang_forward_pass.jsonl.gz"


def test_a_radix_cache_is_rebuilt() -> None:
    """SGLang's pages become blocks; each of its caches is empty after its last message."""
    log, state, most, clears, cached = read_recording(KV), State(), 0, 0, list[int]()
    media = set[str]()
    for event in log:
        state.apply(event)
        if isinstance(event, v.StepFinished):
            held = chains(state)
            prefixes = {chain[:end] for chain in held for end in range(4, len(chain), 4)}
            assert prefixes <= held  # every page's beginning is cached, too
            most = max(most, len(held))
            clears += not held
            cached.append(sum(len(one.blocks + one.copies) for one in state.nodes.values()))
            media |= {place for node in state.nodes.values() for place in node.media or ()}
    assert [row.cached_blocks for row in read(log).step_rows] == cached
    assert most > 20 and clears >= 12
    assert media == {"GPU", "CPU_PINNED"}
    assert not any(isinstance(event, v.EventsMissing) for event in log)
    evictions = Counter(event.reason for event in log.of(v.BlockEvicted))
    assert min(evictions["room"], evictions["cleared"]) > 50


def test_each_forward_pass_is_a_step() -> None:
    log = read_recording(METRICS)
    lines = gzip.decompress(METRICS.read_bytes()).splitlines()
    reports = log.of(v.StepReported)
    assert len(reports) == len(lines) - 1  # the last message is a heartbeat
    assert max(one.waiting for one in reports) > 5
    assert all(one.prefills + one.decodes for one in reports)
    assert any(one.prefills and one.decodes for one in reports)
    times = [event.t for event in log.of(v.StepFinished)]
    assert all(one["start"] < one["end"] for one in times)
    assert times == sorted(times, key=lambda one: one["end"])
    state, again = log.state(), State()
    again.apply(state.keyframe())
    assert state.reported == again.reported == reports[-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version must be 1, got 2"),
        ({"dp_rank": 1}, "dp_rank must be 0 in the whole capture, got 1"),
        ({"wall_time": -1.0}, "wall_time must be"),
        ({"wall_time": float("nan")}, "wall_time must be"),
        ({"queued_requests": {"num_prefill_requests": 10**12}}, "num_prefill_requests must be"),
        ({"scheduled_requests": []}, "not SGLang's forward-pass metrics"),
    ],
)
def test_wrong_metrics_name_the_field(change: dict[str, object], message: str) -> None:
    good = {"version": 1, "wall_time": 0.1, "scheduled_requests": {}, "queued_requests": {}}
    translator = MetricsTranslator()
    translator.feed(write_frame(b"", 0, msgspec.msgpack.encode(good | {"dp_rank": 0}), 1e9))
    with pytest.raises(LogError, match=message):
        translator.feed(write_frame(b"", 1, msgspec.msgpack.encode(good | change), 1e9))


def test_the_rows_have_the_counts_and_nothing_else() -> None:
    log = read_recording(METRICS)
    rows = list(zip(read(log).step_rows, log.of(v.StepReported), strict=True))
    for row, report in rows:
        assert (row.prefill_tokens, row.decode_tokens) == (report.prefill_tokens, report.decodes)
        assert row.tokens == report.prefill_tokens + report.decodes
        assert (row.batch, row.waiting) == (report.prefills + report.decodes, report.waiting)
        assert (row.running, row.sampled_tokens, row.free_blocks, row.cached_tokens) == (None,) * 4
    assert "unknown output" in summary(log)


def test_a_missing_message_is_a_gap() -> None:
    lines = gzip.decompress(METRICS.read_bytes()).splitlines()
    translator = MetricsTranslator()
    events = [event for line in (lines[0], lines[3]) for event in translator.feed(line)]
    [gap] = [event for event in events if isinstance(event, v.EventsMissing)]
    assert (gap.count, gap.message) == (2, "numbers 1 to 2")


def test_a_recording_of_the_scheduler_tells_only_what_it_knows() -> None:
    """It has overlap, priorities, a retraction and preemptions; `what_if` decides each step alike."""
    log = read_recording(FIXTURES / "sglang_recording.jsonl.gz")
    victims = {event.request for event in log.of(v.Preempted)}
    assert len(read(log).step_rows) == 203 and victims == {8, 12, 18}
    told = " ".join(why(log, max(victims), step=step) for step in range(1, 204))
    assert "resumes. It prefills tokens" in told
    assert not re.search("cached|Of its|needs .* block", told)
    reasons = {event.blocked.reason for event in log.of(v.StepScheduled) if event.blocked}
    assert reasons == {"expected_tokens", "token_budget"}
    with pytest.raises(WhyError, match="does not say what was found"):
        read(log).why_missed(5)


def test_blocks_and_hits_of_such_a_recording_are_inferred(tmp_path: Path) -> None:
    """A replay decides each step as SGLang did, so its memory is that of the recorded run."""
    recording, out = FIXTURES / "sglang_recording.jsonl.gz", tmp_path / "full.jsonl"
    result = CliRunner().invoke(app, ["infer", str(recording), str(out)])
    assert result.exit_code == 0, result.output
    log, full, state = read_recording(recording), read_recording(out), State()
    for event in full:
        state.apply(event)
    assert len(state.free) + sum(len(one.blocks) for one in state.nodes.values()) == len(state.refs)
    ends = [[one.t for one in each.of(v.StepFinished)] for each in (log, full)]
    assert set(map(str, ends[1])) <= set(map(str, ends[0]))
    assert str(read(full).why_missed(5)).startswith("5: 12 of its 14 prompt tokens were cached")
    assert read(full).knowledge.facts("inferred") and not full.of(v.Admitted)[0].resumed
    assert CliRunner().invoke(app, ["infer", "vllm_tight", str(out)]).exit_code == 2, "has its own"


def test_what_is_inferred_of_a_server_agrees_with_its_counters() -> None:
    """SGLang's metrics said 880 tokens cached and 848 evicted; `serve_sglang.py` starts the server."""
    full = read(inferred(read_recording(FIXTURES / "sglang_server.jsonl.gz")))
    assert sum(row.cached_tokens or 0 for row in full.request_rows) == 880
    assert 16 * sum(row.evicted_blocks or 0 for row in full.step_rows) == 848
