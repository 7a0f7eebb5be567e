"""Any file is read as a stream: packed or not, cut off, too large, damaged, or still growing."""

import gzip
import os
import re
from functools import cache
from random import Random

import pytest

from engine import ClusterLog, Cost, EngineConfig, EventLog, LogError, Workload, simulate
from engine.core.log.vocabulary import EventsMissing, Keyframe, RunStarted
from engine.simulation.workload import poisson, uniform
from server.core.event_log import TraceFile
from tests.facts import assert_names, raises_naming
from tests.visualizer.clusters import three_replicas
from tests.visualizer.storytellers import storytellers
from underglass.commands import read_log
from visualizer.indexed.beside import make_index
from visualizer.indexed.indexed_log import log_of
from visualizer.live import beginning
from visualizer.live.live_log import open_live
from visualizer.reading.summary import summary
from visualizer.sources import READERS, SourceError, read_source
from visualizer.sources.feed import Feed
from visualizer.sources.follow import FollowedFile
from visualizer.sources.limits import MAX_BLOCKS, MAX_LINE, MAX_SEATS


@cache
def log() -> EventLog:
    return storytellers()


@pytest.fixture
def data():
    return log().to_bytes()


def test_a_file_is_read_whatever_it_is_packed_in(data, tmp_path):
    lines = data.splitlines(keepends=True)
    members = b"".join(gzip.compress(line) for line in lines)  # a recorder that flushes each line
    for name, packed in {"a": data, "b.gz": gzip.compress(data), "c.gz": members}.items():
        (tmp_path / name).write_bytes(packed)
        assert list(read_source(tmp_path / name)) == list(log())
    replicas = three_replicas()
    cluster = read_source(gzip.compress(replicas.to_bytes()))
    assert isinstance(cluster, ClusterLog)
    assert list(cluster) == list(replicas)
    some = read_source(replicas.to_bytes(), last=5000)
    assert isinstance(some, ClusterLog)
    assert len(some) < len(replicas)
    ends = [
        {name: one.state().core() for name, one in each.replicas.items()}
        for each in (some, cluster)
    ]
    assert ends[0] == ends[1]


def test_bytes_may_be_cut_anywhere(data):
    for packed in (data, gzip.compress(data)):
        feed = Feed(READERS)
        events = [event for i in range(len(packed)) for event in feed.push(packed[i : i + 1])]
        assert events + feed.end() == list(log())


def test_what_is_cut_off_at_the_end_is_left_out(data):
    whole = list(log())
    assert list(read_source(data[:-10]))[:-1] == whole[:-1]
    packed = gzip.compress(data)
    notes: list[str] = []
    *some, gap = read_source(packed[: len(packed) // 2], tell_damage=notes.append)
    assert 1 < len(some) < len(whole)
    assert some == whole[: len(some)]
    assert isinstance(gap, EventsMissing)
    assert_names([gap.message, notes], "gzip", f"line {len(some)}")


def test_a_window_holds_the_last_events_after_the_state_of_the_earlier_ones(data):
    notes: list[str] = []
    some, whole = read_source(data, len(data) // 3, tell=notes.append), log()
    assert isinstance(some, EventLog)
    assert isinstance(some[0], Keyframe)
    assert len(whole) / 4 < len(some) < len(whole) / 2
    assert_names(notes, f"{len(whole) - len(some) + 1:,}")
    assert some.next_seq == whole.next_seq
    assert some[1:] == whole[-len(some) + 1 :]
    assert some.state().core() == whole.state().core()


def test_a_file_of_no_known_kind_is_rejected_in_one_line_that_names_all_kinds():
    for content in (b"# notes\n", b"\x93NUMPY\n", b"null\n", b'{"type":"x"}\n'):
        with raises_naming(SourceError, "line 1", *(one.title for one in READERS)) as caught:
            read_source(content)
        assert "\n" not in str(caught.value)
    for content in (b"", b"\n\n", b'{"type":"run_st'):
        with raises_naming(SourceError, "no complete line"):
            read_source(content)


def test_what_is_too_large_is_rejected_before_it_fills_the_memory(data):
    bomb = gzip.compress(bytes(64 << 20))
    with raises_naming(SourceError, "line 1", MAX_LINE >> 20):
        read_source(bomb)
    with raises_naming(SourceError, 1, "underglass open"):
        read_source(gzip.compress(data + b"\n" * (2 << 20)), limit=1 << 20)
    first = data.split(b"\n")[0]
    blocks = len(log().state().refs)
    huge = first.replace(f'"num_blocks":{blocks}'.encode(), b'"num_blocks":1000000000000')
    assert huge != first
    with raises_naming(SourceError, "line 1", "num_blocks", MAX_BLOCKS, 10**12):
        read_source(huge + b"\n")
    seats = first.replace(b'"max_batch_size":7', b'"max_batch_size":1000000000000')
    with raises_naming(SourceError, "line 1", "max_batch_size", MAX_SEATS, 10**12):
        read_source(seats + b"\n")


def test_a_tree_that_is_a_circle_does_not_fit():
    lines = log().to_bytes().splitlines(keepends=True)
    inserted = next(i for i, line in enumerate(lines) if b'"radix_inserted"' in line)
    circle = re.sub(rb'"node":(\d+),"parent":0', rb'"node":\1,"parent":\1', lines[inserted])
    assert circle != lines[inserted]
    damaged = read_source(b"".join([*lines[:inserted], circle, *lines[inserted + 1 :]]))
    with raises_naming(LogError, "fit"):
        damaged.state()  # type: ignore[union-attr]


def test_a_damaged_line_is_named_and_what_came_before_it_is_there(data):
    lines = data.splitlines(keepends=True)
    feed = Feed(READERS)
    assert feed.push(b"".join(lines[:9])) == list(log())[:9]
    [gap] = feed.push(b"{oh\n")
    assert_names([gap.message, feed.damage], "line 10", "JSON", "3 bytes")
    with raises_naming(LogError, "fit"):
        read_source(b"".join([lines[0], *lines[60:]]), last=2000)
    notes: list[str] = []
    packed = gzip.compress(data)
    damaged = packed[: len(packed) // 2] + b"\xff" * 300
    some = read_source(damaged, tell_damage=notes.append)
    assert len(some) > 40
    assert_names(notes, "gzip", f"line {len(some) - 1}")
    for wrong in (packed[:20] + bytes(300), Random(1).randbytes(500), Random(2).randbytes(90)):
        with raises_naming(SourceError, "no log"):
            read_source(wrong)


@pytest.mark.parametrize("cache", ["radix", "hash", "cluster"])
def test_a_damaged_line_costs_what_it_said(cache, tmp_path):
    whole = three_replicas() if cache == "cluster" else _tight(cache)
    lines = whole.to_bytes().splitlines(keepends=True)
    for seed in range(20):
        at = Random(seed).randrange(1, len(lines))
        notes: list[str] = []
        path = tmp_path / f"{seed}.jsonl"
        path.write_bytes(b"".join([*lines[:at], lines[at][:-9] + b"\n", *lines[at + 1 :]]))
        some = read_source(path, tell_damage=notes.append)
        with path.open("rb") as file:
            assert list(log_of(make_index(path, file))) == list(some)
        assert_names(notes, f"line {at + 1}")
        assert list(some)[:at] == list(whole)[:at]
        for one in [some] if isinstance(some, EventLog) else some.replicas.values():
            one.state()
            summary(one)
        known = set(map(str, some))
        kept = sum(event in known for event in map(str, whole))
        assert kept > len(lines) / 3, (seed, lines[at])


def _tight(cache: str) -> EventLog:
    config = EngineConfig(block_size=4, max_kv_tokens=160, prefix_cache=cache, max_batch_size=4)
    size = uniform(1, 20)
    arrivals = Workload.generate(
        30, arrivals=poisson(500), prompt=size, output=size, groups=3, shared_tokens=12, seed=3
    )
    return simulate(arrivals, config, cost=Cost(base_ms=1, per_token_ms=0.1))


def test_a_growing_file_is_followed_through_rotation_and_truncation(data, tmp_path):
    path, lines = tmp_path / "run.jsonl", data.splitlines(keepends=True)
    whole = list(log())
    file = FollowedFile(path, READERS)
    assert file.read() == []  # it does not exist yet
    with path.open("wb", buffering=0) as out:
        out.write(b"".join(lines[:3]) + lines[3][:7])
        assert file.read() == whole[:3]
        assert file.read() == []
        out.write(lines[3][7:])
        assert file.read() == whole[3:4]
        path.rename(tmp_path / "run.jsonl.1")
        assert file.read() == []
        out.write(lines[4])  # the writer has not noticed yet
        path.write_bytes(lines[0])
        assert file.read() == whole[4:5]
    assert file.read() == [whole[0]]
    path.write_bytes(b"".join(lines[:5]))
    assert file.read() == whole[1:5]
    os.truncate(path, 0)
    with path.open("ab") as out:
        out.write(lines[0])
    assert file.read() == [whole[0]]
    assert isinstance(whole[0], RunStarted)


def test_a_growing_log_is_followed_from_where_its_index_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(read_log, "LARGE", 0)
    path, whole = tmp_path / "run.jsonl", _tight("radix")
    lines = whole.to_bytes().splitlines(keepends=True)
    monkeypatch.setattr(beginning, "_SHOWN", 30)
    path.write_bytes(b"".join(lines[:-40])[:-9])  # its last line is being written
    read_log.index_to_follow(path)
    with path.open("ab") as out:
        out.write(lines[-41][-9:] + b"".join(lines[-40:-1]) + b"?\n" + lines[-1])
    file = open_live(str(path))
    assert isinstance(file, FollowedFile)
    first, *rest = [event for _ in range(2) for event in file.read()]
    assert isinstance(first, Keyframe) and first.seq > 20
    assert rest[: len(whole) - first.seq - 2] == whole[first.seq + 1 : -1]
    assert_names([one.message for one in rest if isinstance(one, EventsMissing)], len(lines))
    path.write_bytes(b"".join(lines[:9]))
    assert file.read() == whole[:9]


def test_a_followed_file_goes_on_with_that_of_the_writers_next_run(tmp_path):
    whole, path = list(log()), tmp_path / "run.jsonl"
    old = TraceFile(path, 2)  # left from before
    old.write(whole[:2])
    old.close()
    os.utime(path.with_stem("run-2"), (0, 0))
    run, file = TraceFile(path), FollowedFile(path, READERS)
    for number in (2, 3):
        run.write(whole[:3])
        assert file.read() == whole[:3]
        assert file.read() == [] and not file.resting
        run.close()
        assert file.read() == []
        assert f"run-{number}.jsonl" in file.resting
        run = run.next()
        assert file.read() == []
    run.write(whole[:1])
    assert file.read() == whole[:1] and not file.resting
    run.close()


def test_a_followed_file_is_read_in_pieces_and_closed(data, tmp_path):
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(data))
    file = FollowedFile(path, READERS)
    batches = file.events()
    assert next(batches) == list(log())
    file.close()
    assert list(batches) == []
