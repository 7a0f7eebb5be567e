"""The reader of vLLM recordings, on bytes that vLLM has written with `underglass_vllm`."""

import gzip
import json
from dataclasses import replace

import pytest

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.simulation.facts import FACTS
from engine.simulation.log_part import LogPart
from engine.simulation.rerun import recorded_cost
from engine.simulation.study import study
from engine.simulation.what_if import what_if
from tests.facts import assert_names
from tests.recorders.scenarios import RECORDINGS, translated
from visualizer import read
from visualizer.scenario import FOLDER, RECORDED, gallery
from visualizer.sources import READERS, SourceError, read_source
from visualizer.sources.follow import FollowedFile
from visualizer.sources.vllm_recorder import VllmTranslator
from visualizer.spans.export import Outbox
from visualizer.spans.runs import Runs

NAMES = sorted(path.name for path in RECORDINGS.glob("*.gz") if "kv_events" not in path.name)


def lines_of(name: str) -> list[bytes]:
    return gzip.decompress((RECORDINGS / name).read_bytes()).splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_after_each_line_the_fold_has_what_vllm_counted(name):
    translator, state, checked = VllmTranslator(), State(), 0
    for text in lines_of(name):
        for event in translator.feed(text):
            assert not isinstance(event, v.EventsMissing) or b'"lost"' in text
            state.apply(event)
        line = json.loads(text)
        if "free" in line:
            assert len(state.free) + len(state.queue) == line["free"]
            checked += 1
        if line["type"] == "step":
            assert len(state.waiting) == line["waiting"]
            assert [[row.request, row.start, row.count] for row in state.plan] == rows_of(line)
            if line["head"]:
                assert line["head"][0] == next(iter(state.waiting))
    assert checked > 30


def rows_of(line):
    """The rows of a step, which version 2 writes as columns."""
    if "rows" in line:
        return [row[:3] for row in line["rows"]]
    batch = {"requests": [], "offsets": []} | line["batch"]
    counts = batch.get("counts", [1] * len(batch["requests"]))
    starts = [line["step"] + offset for offset in batch["offsets"]]
    return [list(row) for row in zip(batch["requests"], starts, counts, strict=True)]


@pytest.mark.parametrize("name", json.loads(RECORDED.read_text()))
def test_the_gallery_has_the_recordings_as_the_reader_translates_them(name):
    """Stale? `python -m tests.recorders.scenarios`."""
    assert gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()) == translated(name)


def test_a_later_file_of_a_rotated_recording_begins_with_the_state():
    log = read_source(RECORDINGS / "rotated.part2.jsonl.gz")
    assert isinstance(log[0], v.Keyframe)
    state = State()
    state.apply(log[0])
    assert state.running and state.source["engine"].startswith("vLLM ")
    assert len(log.of(v.RequestFinished)) > 0
    (lost,) = read_source(RECORDINGS / "lost.jsonl.gz").of(v.EventsMissing)
    assert_names(lost.message, lost.count, "disk")
    assert isinstance(read_source(RECORDINGS / "lost.part2.jsonl.gz")[0], v.Keyframe)


def test_a_split_recording_is_followed_through_its_parts(tmp_path):
    for part in sorted(RECORDINGS.glob("rotated.*")):
        (tmp_path / part.name).write_bytes(part.read_bytes())
    file, runs = FollowedFile(tmp_path / "rotated.jsonl.gz", READERS), Runs(Outbox())
    while events := file.read():
        runs.add(events)
    runs.end()
    assert (runs.requests, runs.undated) == (19, False)


def test_a_miss_names_the_kv_cache_group_that_had_less_of_the_prefix():
    log = read_source(RECORDINGS / "windows.jsonl.gz")
    hits = {one.request: one.hits for one in log.of(v.Admitted) if not one.resumed}
    told = [one for one in map(read(log).why_missed, hits) if one.kind == "no_group"]
    assert "beyond the hit" in str(replace(told[0], group=("", told[0].found + 16)))
    for one in told:
        assert hits[one.request][0] == one.agree > one.group[1] == min(hits[one.request])
        assert_names(str(one), one.agree, "full attention", "sliding window of 20", "2 layers")


@pytest.mark.parametrize("name", ["windows", "groups", "grouped_drafts", "aligned", "async"])
def test_a_replay_and_replays_of_parts_share_memory_as_vllm_did(name):
    log = read_source(RECORDINGS / f"{name}.jsonl.gz")
    replay = what_if(log)
    assert recorded_cost(replay) is not None
    (theirs, evicted), (ours, also) = map(memory, (log, replay))
    assert theirs == ours and evicted == also and bool(log.of(v.Preempted)) == (name != "windows")
    for step in (15, 30):
        part = LogPart.cut(log, list(log).index(v.StepStarted(step)), len(log))
        assert study(part, {}).reproduced.first is None
    told = study(log, {})
    assert told.reproduced.first is None and "KV cache groups" not in str(told)


def memory(log):
    evicted = [(one.block, one.needed_by) for one in log.of(v.BlockEvicted)]
    return [(one.request, one.blocks, one.hits) for one in log.of(v.Admitted)], evicted


def test_without_token_ids_their_counts_and_their_sharing_are_known():
    log = read_source(RECORDINGS / "async.jsonl.gz")
    facts = log[0].source["facts"]
    unknown = {fact for fact in FACTS if facts[fact] == "unknown"}
    assert unknown == {"token_ids", "texts", "probabilities"}
    rows = read(log).request_rows
    assert any(row.cached_tokens for row in rows)
    assert all(row.prompt_tokens for row in rows)
    tokens = [row for event in log.of(v.StepFinished) for row in event.tokens]
    assert {id_ for row in tokens for id_ in row.ids} == {-1}


DAMAGE = [
    ("step", b'"free":', b'"free":-', "free"),
    ("step", b'"ops":[]', b'"ops":[["grow",1,[4000000]]]', "ops"),
    ("step", b'"ops":[]', b'"ops":[["grow",1,[1]]]', "block 1"),
    ("step", b'"ops":[]', b'"ops":[["grow",99,[1]]]', "request 99 has not arrived"),
    ("step", b'"ops":[]', b'"ops":[["melt",1]]', "melt"),
    ("step", b'"rows":[[', b'"rows":[[77,0,1],[', "77"),
    ("arrived", b'"request":', b'"request":1000000000', "request"),
    ("done", b'"step":', b'"step":9', "step 9.* no earlier line scheduled it"),
]


@pytest.mark.parametrize(("kind", "old", "new", "named"), DAMAGE)
def test_a_damaged_line_is_rejected_in_one_line(kind, old, new, named):
    translator = VllmTranslator()
    damaged = f'{{"type":"{kind}"'.encode()
    for number, line in enumerate(lines_of("vllm_calm.jsonl.gz")):
        if number > 20 and line.startswith(damaged) and old in line:
            with pytest.raises(SourceError, match=named) as raised:
                translator.feed(line.replace(old, new))
            assert "\n" not in str(raised.value)
            return
        translator.feed(line)
    pytest.fail("no line has what the damage replaces")


@pytest.mark.parametrize("name", ["vllm_tight.jsonl.gz", "vllm_shared_prefix.jsonl.gz"])
def test_a_line_that_cannot_be_read_costs_what_it_said_and_is_named(name, soak):
    lines = [line + b"\n" for line in lines_of(name)]
    steps = len(read_source(b"".join(lines)).of(v.StepStarted))
    for number in range(2, len(lines) + 1, 1 if soak else 4):
        line = lines[number - 1]
        damaged = [*lines[: number - 1], line[: len(line) // 2] + b"\n", *lines[number:]]
        log = read_source(b"".join(damaged))
        state, gaps = log.state(), log.of(v.EventsMissing)
        assert gaps[0].message.startswith(f"line {number}: ")
        told = [event.step for event in log.of(v.StepStarted)]
        assert told == list(range(1, len(told) + 1))
        assert len(told) >= steps - (line.startswith(b'{"type":"step"') and number > len(lines) - 3)
        assert len(state.free) + len(state.queue) <= state.settings["num_blocks"]
    packed = gzip.compress(b"".join(lines))
    *_, end = read_source(packed[: len(packed) // 2])
    assert isinstance(end, v.EventsMissing)
    assert "cut off after line" in end.message


def test_a_header_of_another_version_or_with_too_many_blocks_is_rejected():
    header = json.loads(lines_of("vllm_calm.jsonl.gz")[0])
    too_many = header["settings"] | {"num_blocks": 10**12}
    for named, change in (("version", {"version": 3}), ("4000000", {"settings": too_many})):
        with pytest.raises(SourceError, match=named):
            VllmTranslator().feed(json.dumps(header | change).encode())
    with pytest.raises(SourceError, match='"underglass_vllm" in the first line'):
        VllmTranslator().feed(b'{"type":"pieces","pieces":{}}')
    translator = VllmTranslator()
    translator.feed(json.dumps(header).encode())
    with pytest.raises(SourceError, match='"underglass_vllm" only in the first line'):
        translator.feed(json.dumps(header).encode())


def test_a_recording_that_misses_blocks_says_so_once():
    lines = lines_of("vllm_calm.jsonl.gz")
    translator, missing = VllmTranslator(), []
    for line in lines:
        events = translator.feed(line.replace(b'"free":47', b'"free":46'))
        missing += [event for event in events if isinstance(event, v.EventsMissing)]
    assert len(missing) == 1
    assert "46" in missing[0].message


def test_the_captions_are_true():
    calm, tight, shared = (gallery()[name].log for name in json.loads(RECORDED.read_text()))
    finn, bo = (read(calm).request(name) for name in ("Finn", "Bo"))
    gus, hal = (read(shared).request(name) for name in ("Gus", "Hal"))
    assert (finn.arrived_step, finn.admitted_step, bo.finished_step) == (31, 37, 36)
    assert not calm.of(v.Preempted)
    step, told = 0, list[tuple[int, int]]()
    for event in tight:
        step = event.step if isinstance(event, v.StepStarted) else step
        if isinstance(event, v.Preempted) and event.request == 4:
            told.append((step, event.needed_by))
        if isinstance(event, v.Admitted) and event.request == 4 and event.resumed:
            told.append((step, len(event.blocks)))
    assert told[-2:] == [(39, 3), (61, 3)]
    assert (gus.admitted_step, gus.prompt_tokens, gus.cached_tokens) == (100, 84, 0)
    assert (hal.admitted_step, hal.cached_tokens) == (104, 64)
    assert {1, 2} <= {one.node for one in shared.of(v.BlockEvicted) if one.needed_by == 6}
