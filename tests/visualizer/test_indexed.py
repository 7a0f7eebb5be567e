"""The index of a log: it has the same events, a damaged part is named, and a stale one is not used."""

import json
import random
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from engine import ClusterLog, EngineConfig, Workload, simulate
from engine.core.log import EventLog, LogError
from engine.core.log import vocabulary as v
from engine.simulation.workload import lognormal, poisson
from tests.engine.workloads import named, random_log
from tests.facts import assert_names, raises_naming
from tests.visualizer.clusters import COST, one_dies, prefill_and_decode, three_replicas
from tests.visualizer.foreign import foreign
from tests.visualizer.test_golden_fold import node
from underglass.commands import app, read_log
from visualizer import packed, read
from visualizer.indexed import beside, index_file
from visualizer.indexed.beside import index_beside, index_of
from visualizer.indexed.index_file import FOOTER, IndexFile, index_bytes
from visualizer.indexed.indexed_log import IndexedLog, log_of
from visualizer.indexed.known import known_of
from visualizer.indexed.part import end_of, replayed_part
from visualizer.logs import StepIndex, part_of, read_any
from visualizer.packed import board_options
from visualizer.reading.summary import summary
from visualizer.scenario import gallery
from visualizer.sources import limits, read_source

EVENTS = 64
RECORDINGS = Path(__file__).parents[1] / "fixtures" / "vllm"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Cut even short logs into several chunks, with keyframes."""
    monkeypatch.setattr(index_file, "EVENTS", EVENTS)
    for name in ("KEYFRAME_EVERY", "FACTS_EVERY", "SLICE_EVERY"):
        monkeypatch.setattr(index_file, name, 2)


def indexed(log, folder: Path) -> EventLog:
    (folder / "log.index").write_bytes(index_bytes(log))
    return log_of(IndexFile(folder / "log.index"))


def long_log() -> EventLog:
    """A log that a page begins to draw before it has read all of it."""
    config = EngineConfig(max_kv_tokens=512, max_batch_size=24, block_size=4)
    sizes = {"prompt": lognormal(12, 0.5, 60), "output": lognormal(30, 0.5, 90)}
    work = Workload.generate(900, arrivals=poisson(200), groups=9, shared_tokens=8, seed=1, **sizes)
    log = simulate(work, config, cost=COST)
    assert len(log) > 30_000
    return log


def test_both_forms_of_a_log_have_the_same_events(soak, first_seed, tmp_path):
    rng = random.Random(first_seed)
    for seed in range(first_seed, first_seed + (1000 if soak else 30)):
        log = EventLog.from_bytes(random_log(seed, may_be_async=True).to_bytes())
        with named(seed):
            if seed % 3 == 1:
                log = foreign(log)
            elif seed % 3 == 2:
                log = EventLog.from_bytes(random_log(seed, EventLog(window=150)).to_bytes())
            other = indexed(log, tmp_path)
            assert other.to_bytes() == log.to_bytes()
            assert list(other) == list(log)
            assert (len(other), other.next_seq) == (len(log), log.next_seq)
            kinds = rng.sample([type(event) for event in log], min(3, len(log)))
            assert other.of(*kinds) == log.of(*kinds)
            begin, end = sorted(rng.choices(range(len(log) + 1), k=2))
            assert other[begin:end] == log[begin:end]
            assert other[-1] == log[len(log) - 1]
            assert other.since(log.next_seq - 9) == log.since(log.next_seq - 9)
            seq = log.next_seq - 1 - rng.randrange(len(log))
            assert other.state(seq).core() == log.state(seq).core()
            assert other.state().keyframe() == log.state().keyframe()
            assert said(other) == said(log)


def said(log: EventLog) -> list[object]:
    """What limited the run, its tour, a summary, the last queue, all times, and a board's opening."""
    stuck = read(log).stuck() if log.of(v.StepScheduled) else None
    times = [(one.spans, one.arrived, one.first_token, str(one)) for one in read(log).waterfall]
    opening = [board_options(log).get(name) for name in ("step", "selected")]
    return [str(read(log).regimes), str(read(log).tour), summary(log), stuck, times, opening]


def test_reading_an_index_says_what_reading_the_log_says(tmp_path):
    recorded = map(read_any, map(str, RECORDINGS.glob("*.jsonl.gz")))
    logs = [*(scenario.log for scenario in gallery().values()), *recorded]
    assert len(logs) > 30
    for log in logs:
        assert said(indexed(log, tmp_path)) == said(log)


def test_a_cluster_log_has_the_same_index_for_python_and_the_browser(tmp_path):
    window = ClusterLog(window=150)
    for event in three_replicas():
        window.append(event)
    logs = [three_replicas(), one_dies(), prefill_and_decode(), window]
    for number, log in enumerate(logs):
        other = indexed(log, tmp_path)
        assert other.to_bytes() == log.to_bytes()
        assert (len(other), str(read(other).regimes)) == (len(log), str(read(log).regimes))
        assert summary(other) == summary(log)
        for one, part in zip(other.parts, log.parts, strict=True):
            assert (one.name, one.run.left, [*one.log]) == (part.name, part.run.left, [*part.log])
        assert read(other).decision_rows == read(log).decision_rows
        log.save(tmp_path / f"{number}.lines")
        log.save(tmp_path / "damaged.lines")
        (tmp_path / "log.index").rename(tmp_path / f"{number}.cluster")
    data = bytearray((tmp_path / f"{number}.cluster").read_bytes())
    data[other.index.directory.chunks[2].offset + 3] ^= 1
    (tmp_path / "damaged.cluster").write_bytes(data)
    *told, damaged = json.loads(node("indexed.js", tmp_path))
    assert told == [{"events": len(log), "error": None} for log in logs]
    assert damaged["events"] == 2 * EVENTS
    assert_names(damaged["error"], "events 128 to", "checksum")


def test_numbers_and_strings_of_all_sizes_come_back(tmp_path):
    log = random_log(1)
    log.append(v.Admitted(1, 2**70, [-1, 2**31, 2**53], True, [1, 1.0, -0.0, 2.5]))
    log.append(v.Admitted(2, 2**40, [], False, [-0.0, 0.0]))
    log.append(v.RequestFinished(3, "error", 'a "b"\n\u2028\0', "\U0001f600"))
    packed, _plain = index_file.pack_events(log[:], v.AnyEvent)
    again = EventLog.from_events(list(index_file.unpack_events(packed, v.AnyEvent)))
    assert again.to_bytes() == log.to_bytes()


def test_the_browser_reads_the_same_from_both_forms(soak, first_seed, tmp_path):
    for seed in range(first_seed, first_seed + (1000 if soak else 20)):
        log = random_log(seed, may_be_async=True)
        log.save(tmp_path / f"{seed}.jsonl")
        (tmp_path / f"{seed}.index").write_bytes(index_bytes(log, has_keyframes=False))
    told = json.loads(node("indexed.js", tmp_path))
    assert [one["error"] for one in told] == [None] * len(told)
    assert len(told) >= 20


def test_the_browser_names_damaged_events_and_does_without_damaged_facts(tmp_path):
    log = next(log for log in map(random_log, range(50)) if len(log) > 8 * EVENTS)
    whole = index_bytes(log)
    for name in ("events", "facts", "slices", "whole"):
        log.save(tmp_path / f"{name}.jsonl")
        (tmp_path / f"{name}.index").write_bytes(whole)
    directory = IndexFile(tmp_path / "whole.index").directory
    parts = [directory.chunks[3], directory.facts["steps"][1], directory.slices[1]]
    for name, part in zip(("events", "facts", "slices"), parts, strict=True):
        damaged = bytearray(whole)
        damaged[part.offset + 5] ^= 1
        (tmp_path / f"{name}.index").write_bytes(damaged)
    events, *others = json.loads(node("indexed.js", tmp_path))
    assert others == [{"events": len(log), "error": None}] * 3
    assert events["events"] == 3 * EVENTS
    assert_names(events["error"], f"events {3 * EVENTS} to {4 * EVENTS - 1}", "checksum")


def test_damage_is_named_and_never_shown(tmp_path):
    log = next(log for log in map(random_log, range(50)) if len(log) > 8 * EVENTS)
    path = tmp_path / "log.index"
    path.write_bytes(whole := index_bytes(log))
    chunks = IndexFile(path).directory.chunks
    rng = random.Random(4)
    for number, chunk in enumerate(chunks):
        damaged = bytearray(whole)
        damaged[chunk.offset + rng.randrange(chunk.length)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        other = IndexedLog(IndexFile(path))
        first = number * EVENTS
        with raises_naming(LogError, f"events {first} to {first + chunk.events - 1}", "checksum"):
            list(other)
        assert other[:first] == log[:first]
        assert other[first + chunk.events :] == log[first + chunk.events :]
    for end in rng.sample(range(len(whole)), 40):
        path.write_bytes(whole[:end])
        with raises_naming(LogError, "index"):
            IndexFile(path)
    path.write_bytes(whole[: -FOOTER.size - 1] + b"x" + whole[-FOOTER.size :])
    with raises_naming(LogError, "directory", "checksum"):
        IndexFile(path)


def test_an_index_gives_the_answers_that_the_log_gives(tmp_path):
    for log in (*map(random_log, range(4)), read_source(RECORDINGS / "async.jsonl.gz")):
        (tmp_path / "index").write_bytes(index_bytes(log))
        saved = read(log_of(IndexFile(tmp_path / "index")))
        for row in read(log).request_rows:
            for step in (None, 2, log.state().step // 2):
                assert saved.why(row.request, step) == read(log).why(row.request, step)
            assert str(saved.why_slow(row.request)) == str(read(log).why_slow(row.request))
            assert str(saved.why_missed(row.request)) == str(read(log).why_missed(row.request))
        assert str(saved.stuck()) == str(read(log).stuck())
        assert [*replayed_part(saved.log, 2, 4)] == [*replayed_part(log, 2, 4)]
        assert [*known_of(saved.log).step_numbers] == [*StepIndex(log).ends]
        end, begin = end_of(saved.log, 0.3)
        assert 0.5 < begin / len(log) < 0.8 and [*end][1:] == log[begin:]
        assert end[0] == part_of(log, begin, len(log))[0]


@pytest.mark.parametrize("cache", ["radix", "hash"])
def test_an_index_names_evictions_of_long_ago_as_the_log_does(cache, first_seed, tmp_path):
    config = EngineConfig(max_kv_tokens=256, max_batch_size=6, block_size=4, prefix_cache=cache)
    sizes = {"prompt": lognormal(12, 0.5, 60), "output": lognormal(20, 0.5, 60)}
    many, seed = {"groups": 9, "shared_tokens": 16}, first_seed
    work = Workload.generate(80, arrivals=poisson(60), seed=seed, **many, **sizes)
    log = simulate(work, config, cost=COST)
    saved, evicted = read(indexed(log, tmp_path)), 0
    admitted, step = dict[int, int](), 0
    for event in log:
        step = event.step if isinstance(event, v.StepStarted) else step
        if isinstance(event, v.Admitted):
            admitted[event.request] = step
    for request, step in [*admitted.items()][20:]:
        answer = read(log).why_missed(request)
        evicted += answer.kind == "evicted"
        assert saved.why_missed(request) == answer, (seed, request)
        assert saved.why(request, step) == read(log).why(request, step), (seed, request)
    assert evicted > 5


def test_a_stale_or_damaged_index_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(read_log, "LARGE", 0)
    path = tmp_path / "run.jsonl"
    long, short = (random_log(seed) for seed in (1, 2))
    ask = lambda: CliRunner().invoke(app, ["why", str(path)]).stdout.strip()  # noqa: E731
    for log in (short, long):
        log.save(path)
        assert index_of(path) is None
        assert ask() == str(read(log).regimes)
        index = index_of(path)
        assert index is not None
        assert ask() == str(read(log).regimes)  # the answer that the index remembers
        assert list(log_of(index)) == list(log)
    index_beside(path).write_bytes(index_beside(path).read_bytes()[:-9])
    assert index_of(path) is None
    monkeypatch.setattr(beside.os, "access", lambda *_: False)  # the folder cannot be written
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    index_beside(path).unlink()
    assert ask() == str(read(long).regimes)
    assert index_of(path).path.parent == beside.cache_folder() == tmp_path / "cache/underglass"
    monkeypatch.setattr(index_file, "checksum_of_types", lambda: 0)
    assert index_of(path) is None


def test_a_notebook_reads_the_end_of_a_long_log_from_its_index(tmp_path, monkeypatch):
    path, log = tmp_path / "run.jsonl", random_log(1)
    log.save(path)
    CliRunner().invoke(app, ["index", str(path)])
    monkeypatch.setattr("visualizer.logs.LAST", path.stat().st_size // 3)
    with pytest.warns(UserWarning, match="events are left out"):
        end = read_any(path)
    assert isinstance(end, IndexedLog) and 5 < len(end) < len(log) * 0.6
    assert end[1:] == log[-len(end) + 1 :]


def test_what_a_long_log_has_no_room_for_is_told_in_one_line(tmp_path, monkeypatch):
    path, page = tmp_path / "run.jsonl", tmp_path / "run.html"
    random_log(1).save(path)
    run = lambda *words: CliRunner().invoke(app, [*words, str(path)])  # noqa: E731
    monkeypatch.setattr(read_log, "LARGE", 0)
    monkeypatch.setattr(limits, "LAST", 0)
    full = OSError(28, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(index_file, "write_directory", Mock(side_effect=full))
        assert_names(run("why").stderr, "without an index", "No space left on device")
    assert [*tmp_path.iterdir()] == [path]
    monkeypatch.setattr(packed, "MOST_IN_PAGE", 1000)
    for command in ("open", "tell"):
        done = run(command, "--html", str(page))
        assert done.exit_code and not page.exists()
        assert_names(done.stderr, "--last 50", "MB")
    assert run("open", "--summary").exit_code == 0


def test_the_command_writes_an_index_that_opens_by_itself(tmp_path):
    path = tmp_path / "run.jsonl"
    random_log(1).save(path)
    run = lambda *words: CliRunner().invoke(app, list(map(str, words)))  # noqa: E731
    assert run("index", path).stdout.strip() == str(index_beside(path))
    asked = [run("open", "--summary", one).stdout for one in (path, index_beside(path))]
    assert read_any(str(index_beside(path))).to_bytes() == path.read_bytes()
    path.unlink()
    assert asked == [run("open", "--summary", index_beside(path)).stdout] * 2
    assert run("index", index_beside(path)).exit_code == 2
