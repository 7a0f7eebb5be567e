"""KV moves between engines: adopted blocks are found, evict others as a request's would, in one event.

That every read finds the right KV, and that the log is true after every event of a move, are properties
of random workloads: `test_random_workloads.py`. With a model: `compute/test_attention.py`.
"""

import threading
from collections.abc import Sequence

import pytest

from engine import Engine, EngineConfig, EventLog, SamplingParams
from engine.core.log import vocabulary as v
from engine.core.runner import Row, Sampled
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.invariants import check_after_step
from tests.engine.workloads import finish, next_token
from visualizer import read
from visualizer.reading.why import why

SIZE, BLOCKS = 4, 16
PREFIX = [97 + index % 5 for index in range(SIZE * 6)]
CACHES = ("radix", "hash")


def make(blocks: int = BLOCKS, runner: CheckingRunner | None = None, **settings: object) -> Engine:
    config = EngineConfig(
        block_size=SIZE, max_kv_tokens=SIZE * blocks, token_budget=256, **settings
    )
    return Engine(runner or CheckingRunner(next_token), config)


def compute(engine: Engine, prompt: list[int], max_tokens: int = 1) -> list[int]:
    request = engine.submit(prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True))
    finish(engine)
    assert request.finish_reason == "length", request.error
    return request.output_ids


def pages(tokens: list[int], first: int = 0) -> bytes:
    """What another engine computes for the whole blocks of `tokens`."""
    engine = make(64)
    compute(engine, [*tokens, 97])
    return engine.kv_transfer.export(tokens, first).data


def check(engine: Engine) -> None:
    check_after_step(engine)
    assert engine.log.state().core() == engine.snapshot()


@pytest.mark.parametrize("cache", CACHES)
def test_an_adopted_prefix_is_found_and_only_the_rest_is_computed(cache: str) -> None:
    engine = make(prefix_cache=cache)
    adopted = engine.kv_transfer.adopt(PREFIX, pages(PREFIX), source="replica 0")
    assert adopted == 6 == engine.kv_transfer.cached_blocks(PREFIX)
    check(engine)
    [event] = engine.log.of(v.PrefixAdopted)
    assert (event.tokens, event.source, len(event.blocks)) == (PREFIX, "replica 0", 6)
    assert "".join(event.texts) == engine.tokenizer.decode(PREFIX)
    assert len(event.nodes) == (1 if cache == "radix" else 6)
    prompt = [*PREFIX, 97, 98]
    assert compute(engine, prompt, 6) == compute(make(), prompt, 6)
    [row] = engine.log.of(v.StepScheduled)[0].rows
    assert (row.start, row.count) == (len(PREFIX), 2)


@pytest.mark.parametrize("number", [0, 5.75, 12])
def test_pages_of_another_size_are_refused(number: float) -> None:
    engine = make()
    wrong = (pages(PREFIX) * 2)[: int(number * 8 * SIZE)]
    with pytest.raises(ValueError, match="pages must have 192 bytes"):
        engine.kv_transfer.adopt(PREFIX, wrong)
    check(engine)


@pytest.mark.parametrize("cache", CACHES)
def test_room_is_made_as_for_a_request_and_not_at_the_prefix_s_own_expense(cache: str) -> None:
    engine = make(8, prefix_cache=cache)
    compute(engine, PREFIX[: 2 * SIZE])  # the oldest, so the next to be evicted
    compute(engine, [98] * SIZE * 5)
    assert engine.kv_transfer.adopt(PREFIX, pages(PREFIX)) == 4
    check(engine)
    evicted = engine.log.of(v.RadixEvicted) + engine.log.of(v.BlockEvicted)
    assert evicted
    assert all((one.reason, one.needed_by) == ("adopted", -1) for one in evicted)
    assert engine.kv_transfer.cached_blocks(PREFIX) == 6
    assert not engine.holds.live


class SlowRunner(CheckingRunner):
    """Waits in each forward pass until it may go on; fails if told to."""

    def __init__(self) -> None:
        super().__init__(next_token)
        self.may_go_on = threading.Event()
        self.fails = False
        self.passes = 0

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        assert self.may_go_on.wait(60)
        if self.fails:
            raise RuntimeError("told to fail")
        sampled = super().run(rows, copies)
        self.passes += 1
        return sampled

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        assert self.may_go_on.is_set(), "written while a pass was running"
        super().write_pages(blocks, pages)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("cache", CACHES)
def test_a_move_waits_for_the_pass_in_flight(cache: str, fails: bool) -> None:
    """A request that was aborted during the pass has released the blocks that the pass writes."""
    runner = SlowRunner()
    engine = make(8, runner, prefix_cache=cache, async_scheduling=True)
    aborted = engine.submit([98] * SIZE * 7, SamplingParams(max_tokens=4))
    engine.step()
    assert engine.is_in_flight
    engine.abort(aborted)
    runner.fails = fails
    threading.Timer(0.05, runner.may_go_on.set).start()
    # A failed pass is reported by the next step; until then nothing moves.
    assert engine.kv_transfer.adopt(PREFIX, pages(PREFIX)) == (0 if fails else 6)
    assert runner.passes == (not fails)
    assert engine.kv_transfer.export(PREFIX).blocks == (0 if fails else 6)
    engine.drain()
    runner.fails = False
    check(engine)
    prompt = [*PREFIX, 97]
    assert compute(engine, prompt, 4) == compute(make(), prompt, 4)


@pytest.mark.parametrize("cache", CACHES)
def test_a_request_whose_prompt_was_adopted_says_so(cache: str) -> None:
    engine = make(prefix_cache=cache)
    engine.kv_transfer.adopt(PREFIX, pages(PREFIX), source="replica 0")
    # A node that is cut keeps the name of the replica, and so does a keyframe.
    compute(engine, [*PREFIX[: 3 * SIZE], 122])
    window = EventLog()
    window.append(engine.log.state().keyframe())
    engine.log = window
    compute(engine, [*PREFIX, 97], 2)
    request = engine.log.of(v.RequestArrived)[0].request
    said = why(engine.log, request, engine.log.of(v.StepStarted)[0].step)
    assert "24 of them were computed by replica 0 and moved here" in said
    time = read(engine.log).waterfall[request]
    assert "24 of them were computed by replica 0 and moved here" in str(time)


@pytest.mark.parametrize("cache", CACHES)
def test_running_requests_keep_their_blocks_and_the_beginning_is_adopted(cache: str) -> None:
    engine = make(8, prefix_cache=cache)
    request = engine.submit([98] * SIZE * 4, SamplingParams(max_tokens=4, ignore_eos=True))
    engine.step()
    assert engine.kv_transfer.adopt(PREFIX, pages(PREFIX)) == 8 - len(request.block_table)
    check(engine)
    finish(engine)
    assert not engine.log.of(v.Preempted)
    assert request.finish_reason == "length"
