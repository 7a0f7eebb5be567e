"""Memory below the GPU: nothing is lost and nothing is wrong, whatever moves, fails or is altered."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from engine import ConfigError, Engine, EngineConfig, SamplingParams, simulate
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.extensions import tier_disk
from engine.extensions.tier_files import BlockFiles
from engine.extensions.tier_prices import fetch_or_compute
from engine.simulation.checking_runner import CheckingRunner
from engine.simulation.cost_runner import Cost, VirtualClock
from engine.simulation.rerun import recorded_cost
from engine.simulation.workload import Workload, poisson, uniform
from tests.engine.invariants import check
from tests.engine.workloads import TOKENIZER, finish, named, next_token, tiered_workload
from visualizer import read
from visualizer.reading.summary import summary

CONFIG = EngineConfig(max_kv_tokens=32, block_size=4, host_kv_tokens=16, disk_kv_tokens=64)
PROMPTS = [[97 + (7 * one + at) % 3 for at in range(21)] for one in range(4)]
PROMPTS = [[99 - one % 3, 97 + one // 3, *prompt] for one, prompt in enumerate(PROMPTS)]


def test_no_invariant_breaks_with_tiers(soak: bool, first_seed: int) -> None:
    """What a fetched block holds is checked, too: each token is the one that a plain loop gives."""
    moves = Counter[tuple[str, str, str]]()
    count = 1_000 if soak else 20
    for seed in range(first_seed, first_seed + count):
        with named(seed):
            log = check(tiered_workload(seed))
        moves += Counter((one.source, one.target, one.reason) for one in log.of(v.BlocksMoved))
    print(f"\n{count} workloads, fold equals snapshot after each event; moves: {dict(moves)}")
    assert len(moves) >= 15


def with_files(folder: Path, config: EngineConfig = CONFIG, *, thread: bool = False) -> Engine:
    """An engine that checks each read, and has its disk tier in a folder."""
    clock = None if thread else VirtualClock()  # on which the disk is asked without a thread
    engine = Engine(CheckingRunner(next_token), config, tokenizer=TOKENIZER, clock=clock)
    engine.tiers.places.io.files = BlockFiles(folder)
    return engine


def answers(engine: Engine) -> list[list[int]]:
    """Serve each prompt twice; most blocks have left the GPU in between."""
    outputs = []
    for prompt in PROMPTS + PROMPTS[::-1]:
        request = engine.submit(prompt, SamplingParams(max_tokens=3, ignore_eos=True))
        finish(engine)
        outputs.append(request.output_ids)
        assert engine.snapshot() == engine.log.state().core()
    return outputs


EXPECTED = answers(Engine(CheckingRunner(next_token), EngineConfig(prefix_cache="off")))


def reasons(log: EventLog, target: str = "") -> dict[str, str]:
    """The moves to nowhere, or to a tier, by their reason, with what went wrong."""
    return {one.reason: one.detail for one in log.of(v.BlocksMoved) if one.target == target}


@pytest.mark.parametrize("cache", ["radix", "hash"])
@pytest.mark.parametrize("write", ["write_back", "write_through"])
def test_evicted_blocks_come_back_from_both_tiers(tmp_path: Path, cache: str, write: str) -> None:
    engine = with_files(tmp_path, CONFIG.changed(prefix_cache=cache, kv_write=write))
    assert answers(engine) == EXPECTED
    came = Counter(one.source for one in engine.log.of(v.BlocksMoved) if one.target == "gpu")
    assert came["disk"] or came["host"]
    assert len(list(tmp_path.glob("*.kv"))) == len(engine.tiers.disk.blocks) > 0


@pytest.mark.parametrize("cache", ["radix", "hash"])
@pytest.mark.parametrize("write", ["write_back", "write_through"])
def test_a_tier_keeps_salts_apart(cache: str, write: str) -> None:
    """A request with another salt fetches nothing, although the tokens are equal."""
    config = CONFIG.changed(host_kv_tokens=256, prefix_cache=cache, kv_write=write)
    runner = CheckingRunner(next_token)  # a real clock might find that computing is cheaper
    engine = Engine(runner, config, tokenizer=TOKENIZER, clock=VirtualClock())
    served: list[tuple[str, int]] = []
    for salt, other in [("a", "x"), ("b", "y"), ("a", "z"), ("", "x")]:
        for prompt, key in [(PROMPTS[0], salt), (PROMPTS[1], other)]:
            request = engine.submit(prompt, SamplingParams(max_tokens=2), cache_salt=key)
            finish(engine)
            served.append((key, request.id))
    came = {one.request for one in engine.log.of(v.BlocksMoved) if one.target == "gpu"}
    assert [key for key, id_ in served if id_ in came] == ["a", "x"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def swap(path: Path) -> None:
    """Another block's file, whole and right, under this block's name."""
    other = next(one for one in sorted(path.parent.glob("*.kv")) if one != path)
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("damage", [cut, empty, flip, swap, Path.unlink])
def test_a_damaged_file_is_a_miss_with_its_reason(tmp_path: Path, damage) -> None:
    engine = with_files(tmp_path)
    answers(engine)
    for path in sorted(tmp_path.glob("*.kv")):
        damage(path)
    assert answers(engine) == EXPECTED
    assert reasons(engine.log)["damaged"]


class FailingFiles(BlockFiles):
    """A full disk, or one that fails, after some writes."""

    def __init__(self, folder: Path, *, writes: int) -> None:
        super().__init__(folder)
        self.writes = writes

    def save(self, key: bytes, page: bytes) -> bytes:
        if self.writes == 0:
            raise OSError(28, "No space left on device")
        self.writes -= 1
        return super().save(key, page)


@pytest.mark.parametrize("writes", [0, 3])
def test_a_full_disk_loses_nothing_but_the_copies(tmp_path: Path, writes: int) -> None:
    engine = with_files(tmp_path)
    engine.tiers.places.io.files = FailingFiles(tmp_path, writes=writes)
    assert answers(engine) == EXPECTED
    assert "No space left on device" in reasons(engine.log)["failed"]
    failed = [one.detail for one in engine.log.of(v.BlocksMoved) if one.reason == "failed"]
    assert any("not used any more" in detail for detail in failed)  # after three in a row
    assert len(list(tmp_path.iterdir())) == writes


class HangingFiles(BlockFiles):
    """A disk that does not answer before it is released, and notes what it is asked to read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.released, self.asked = threading.Event(), list[bytes]()

    def load(self, key: bytes) -> bytes:
        self.asked.append(key)
        self.released.wait()
        return super().load(key)

    def save(self, key: bytes, page: bytes) -> bytes:
        self.released.wait()
        return super().save(key, page)


@pytest.mark.parametrize("cache", ["radix", "hash"])
def test_a_disk_that_hangs_is_a_miss_with_its_reason(monkeypatch, tmp_path, cache: str) -> None:
    config = CONFIG.changed(host_kv_tokens=0, prefix_cache=cache)
    engine = with_files(tmp_path, config, thread=True)
    engine.tiers.choose = lambda fetch, compute: len(fetch)
    answers(engine)
    disk = engine.tiers.places.io
    disk.files = files = HangingFiles(tmp_path)
    monkeypatch.setattr(tier_disk, "DEADLINE_US", 1)
    assert answers(engine) == EXPECTED
    # Only the first request has waited: until the disk has answered, it is not asked again.
    late = [one for one in engine.log.of(v.BlocksMoved) if one.reason == "late"]
    assert late[0].detail.startswith("the disk did not answer within")
    assert {one.detail for one in late[1:]} == {disk.refusal}
    assert len(late) > 2
    assert len(files.asked) <= 1
    assert "are not fetched: the disk did not answer" in str(
        read(engine.log).why_missed(late[0].request)
    )
    monkeypatch.setattr(tier_disk, "DEADLINE_US", 60_000_000)
    files.released.set()
    disk._late.result()
    assert not disk.refusal
    assert answers(engine) == EXPECTED
    assert "cheaper" in reasons(engine.log, "gpu")


def test_writes_to_a_disk_that_hangs_have_a_limit_and_an_end(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(tier_disk, "MAX_WRITES", 3)
    monkeypatch.setattr(tier_disk, "DEADLINE_US", 1)
    config = CONFIG.changed(host_kv_tokens=0, kv_write="write_through")
    engine = with_files(tmp_path, config, thread=True)
    disk = engine.tiers.places.io
    disk.files = files = HangingFiles(tmp_path)
    assert answers(engine) == EXPECTED
    worker = disk._worker
    assert len(worker.writes) == 3
    refused = [one.detail for one in engine.log.of(v.BlocksMoved) if one.reason == "failed"]
    assert "3 blocks wait to be written" in refused[0]
    worker.end()  # what the engine's end does: it waits only to the deadline
    assert worker.thread.is_alive()
    assert [one.cancelled() for one in worker.writes.values()][1:] == [True, True]
    files.released.set()
    worker.thread.join()


def test_the_cheaper_way_is_chosen() -> None:
    """The choice equals the best of all prefixes, counted from scratch."""
    for fetch, compute in [
        ([1, 1, 1], [2, 2, 2]),
        ([3, 3], [2, 2]),
        ([9, 1, 1], [2, 5, 6]),  # the first costs more, all together less
        ([1, 9, 9], [2, 5, 6]),
        ([2, 2], [2, 2]),
        ([], []),
    ]:
        sums = [sum(fetch[:at]) + sum(compute[at:]) for at in range(len(fetch) + 1)]
        best = max(at for at, total in enumerate(sums) if total == min(sums))
        assert fetch_or_compute(fetch, compute) == best
    # As long as the price of computing is not known, all blocks are fetched.
    assert fetch_or_compute([5, 5], [float("inf")] * 2) == 2


def agents(**settings: object) -> EventLog:
    """A simulated machine under agents whose turns come back after a minute."""
    prices = Cost(8, 0.1, per_pair_ms=2e-6, per_host_token_ms=0.006, per_disk_token_ms=0.04)
    workload = Workload.agents(
        8, 4, away_ms=poisson(1 / 60), instructions=256, prompt=uniform(100, 300),
        output=uniform(10, 30),
    )  # fmt: skip
    config = EngineConfig(token_budget=512, max_kv_tokens=2048, **settings)
    return simulate(workload, config, cost=prices)


def computed(log: EventLog) -> int:
    return sum(row.count for event in log.of(v.StepScheduled) for row in event.rows)


def test_agents_compute_less_with_tiers() -> None:
    without, host = agents(), agents(host_kv_tokens=4096)
    both = agents(host_kv_tokens=1024, disk_kv_tokens=8192)
    assert computed(host) < 0.8 * computed(without)
    assert computed(both) < computed(host) + 200
    assert "fetched from host memory: " in summary(host)
    assert " and disk: " in summary(both)
    assert {"prefetched", "fetched"} & {one.reason for one in both.of(v.BlocksMoved)}
    texts = [event.texts for event in without.of(v.RequestArrived)]
    assert texts == [event.texts for event in both.of(v.RequestArrived)]


def test_a_fetch_and_its_rejection_say_their_prices() -> None:
    log = agents(host_kv_tokens=4096)
    fetch = next(one for one in log.of(v.BlocksMoved) if one.target == "gpu")
    assert fetch.t["us"] == fetch.t["fetch_us"] < fetch.t["compute_us"]
    assert "are fetched from host memory in " in str(read(log).why_missed(fetch.request))
    prices = Cost(8, 0.1, per_host_token_ms=0.5, per_disk_token_ms=0)
    workload = Workload.agents(
        3, 3, away_ms=poisson(1 / 60), instructions=64, prompt=uniform(50, 60), output=uniform(4, 5)
    )
    config = EngineConfig(max_kv_tokens=256, host_kv_tokens=1024)
    slow = simulate(workload, config, cost=prices)
    assert recorded_cost(slow) == prices
    usual = simulate(workload, config, cost=Cost(8, 0.1))
    assert recorded_cost(usual) == Cost(8, 0.1)
    us = [one.t["us"] / len(one.slots) for one in usual.of(v.BlocksMoved) if one.target == "gpu"]
    assert set(us) == {round(config.block_size * 131_072 / 31.5e3)}  # 31.5 GB/s, in whole us
    stays = next(one for one in slow.of(v.BlocksMoved) if one.reason == "dearer")
    assert stays.t["fetch_us"] > stays.t["compute_us"]
    assert "are not fetched: that takes " in str(read(slow).why_missed(stays.request))


@pytest.mark.parametrize("name", ["host_kv_tokens", "disk_kv_tokens"])
def test_what_excludes_tiers_says_so(name: str) -> None:
    for other in ({"prefix_cache": "off"}, {"async_scheduling": True}):
        with pytest.raises(ConfigError, match=f"{name} must be 0 with {next(iter(other))}="):
            EngineConfig(**{name: 64}, **other)
    with pytest.raises(ConfigError, match=f"{name} cannot be used with a model whose sliding"):
        Engine(CheckingRunner(next_token, window=8), EngineConfig(**{name: 64}))
