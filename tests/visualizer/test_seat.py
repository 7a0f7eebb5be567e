"""The scheduler's seat: what the board shows of a choice is what a rerun by hand does."""

import gzip
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import msgspec
import pytest

from engine import CostRunner, EngineConfig, EventLog, Workload, simulate
from engine.core.cache.eviction import EvictionOrder
from engine.core.log import vocabulary as v
from engine.core.scheduling.policies import Fcfs
from engine.simulation.choice import (
    Budget,
    Choice,
    ChoiceError,
    Evict,
    First,
    Later,
    Settings,
    Victim,
)
from engine.simulation.scenarios import SCENARIOS
from engine.simulation.simulate import ReplayEngine, play
from tests.facts import assert_names, raises_naming
from tests.parity.recorded_steps import read_recording
from tests.server.console import invoke
from tests.sources.test_vllm_runs import FIXTURES
from visualizer import read
from visualizer.comparing.run_totals import computed_twice
from visualizer.reading.busy_time import busy_us
from visualizer.seat.answers import answers
from visualizer.seat.decisions import decisions
from visualizer.seat.helped import helped
from visualizer.seat.seat import Seat

# Reruns by hand, each without the seat: own policies, an own eviction order, other settings.


def by_hand(log: EventLog, config: dict[str, Any] | None = None, **parts: Any) -> EventLog:
    recipe_config = EngineConfig(
        **{name: log[0].settings[name] for name in EngineConfig.__struct_fields__}
    )
    runner = CostRunner(10, 0.25)
    return simulate(
        Workload.from_log(log, "time"),
        recipe_config.changed(**(config or {})),
        cost=runner,
        **parts,
    )


def first_victim(request: int) -> Fcfs:
    class Mine(Fcfs):
        asked = 0

        def victim(self, running, needed_by):
            self.asked += 1
            wanted = [one for one in running if one.id == request]
            return wanted[0] if self.asked == 1 else super().victim(running, needed_by)

    return Mine()


def in_front(request: int) -> Fcfs:
    class Mine(Fcfs):
        def key(self, one, tree):
            return (one.id != request,)

    return Mine()


def put_off_once(request: int) -> Fcfs:
    class Mine(Fcfs):
        left = 1

        def defer(self, one, tree, computing):
            if one.id != request or not self.left:
                return False
            self.left -= 1
            return True

    return Mine()


class Sooner(EvictionOrder):
    def __init__(self, node: int) -> None:
        self.node = node

    def key(self, node):
        return (node.id != self.node, node.last)


def step_budget(log: EventLog, step: int, tokens: int) -> EventLog:
    """Play by hand, with another token budget in one step."""
    workload = Workload.from_log(log, "time")
    runner = CostRunner(10, 0.25)
    config = EngineConfig(**{n: log[0].settings[n] for n in EngineConfig.__struct_fields__})

    class Mine(ReplayEngine):
        def step(self):
            is_now = self.step_count + 1 == step
            self.scheduler.config = config.changed(token_budget=tokens) if is_now else config
            return super().step()

    engine = Mine(runner, config, workload)
    play(workload.inputs, engine, engine.apply, runner.clock.skip_to)
    return engine.log


Rerun = Callable[[EventLog], EventLog]
TEN: Sequence[tuple[str, int, Choice, Rerun]] = [
    ("preemption", 20, Victim(1), lambda log: by_hand(log, policy=first_victim(1))),
    ("preemption", 20, Victim(2), lambda log: by_hand(log, policy=first_victim(2))),
    ("preemption", 1, Settings(blocks=2), lambda log: by_hand(log, {"max_kv_tokens": 16 * 8})),
    ("preemption", 1, Settings(seats=2), lambda log: by_hand(log, {"max_batch_size": 2})),
    ("thirty", 1, First(3), lambda log: by_hand(log, policy=in_front(3))),
    ("thirty", 1, First(6), lambda log: by_hand(log, policy=in_front(6))),
    ("thirty", 2, Later(3), lambda log: by_hand(log, policy=put_off_once(3))),
    ("thirty", 1, Budget(47), lambda log: step_budget(log, 1, 47)),
    ("eviction", 13, Evict(1), lambda log: by_hand(log, eviction=Sooner(1))),
    ("eviction", 13, Evict(3), lambda log: by_hand(log, eviction=Sooner(3))),
]


def essence(log: EventLog) -> list[Any]:
    """Everything but the header and the keys of policies: each decision and each time."""
    return [
        msgspec.structs.replace(event, key=[]) if isinstance(event, v.Admitted) else event
        for event in log[1:]
    ]


@pytest.mark.parametrize(("name", "step", "choice", "rerun"), TEN)
def test_the_board_shows_what_a_rerun_by_hand_does(name, step, choice, rerun):
    log = SCENARIOS[name].run()
    asked = {"seat": "take", "step": step, "choice": msgspec.to_builtins(choice)}
    [shown] = answers(Seat(log), asked)
    happened, board = (EventLog.from_bytes(gzip.decompress(shown[side])) for side in "ab")
    hand = rerun(log)
    assert essence(board) == essence(hand)
    assert essence(happened) == essence(log)
    said = shown["consequence"]
    assert list(said["busy_ms"]) == [busy_us(log)[0] / 1000, busy_us(hand)[0] / 1000]
    assert list(said["again"]) == [computed_twice(log), computed_twice(hand)]
    difference = said["busy_ms"][1] - said["busy_ms"][0]
    assert sum(ms for _, _, ms in said["parts"]) == pytest.approx(difference)
    before = [isinstance(event, v.StepStarted) and event.step == step for event in log[1:]].index(
        True
    )
    if not isinstance(choice, Settings):
        assert essence(board)[:before] == essence(log)[:before]


SMALL = "preemption priority eviction hash_eviction copy_on_write mixed_step speculation".split()


@pytest.mark.parametrize("name", SMALL)
def test_every_candidate_of_every_step_can_be_chosen(name):
    recipe = SCENARIOS[name]
    log = recipe.run()
    parts = {} if recipe.drafter is None else {"drafter": recipe.drafter()}
    seat = Seat(log, **parts)
    kinds = set()
    for step in seat.rerun.steps:
        for decision in decisions(log, step):
            kinds.add(decision.kind)
            assert sum(one.happened for one in decision.candidates) == 1
            for candidate in decision.candidates:
                taken = seat.take(step, candidate.choice)
                taken.log.state()  # the log is one that a reader can fold
                if candidate.happened:
                    assert taken.log.deterministic()[1:] == taken.happened.deterministic()[1:]
    if name in ("preemption", "eviction", "mixed_step"):
        assert {"preemption": "victim", "eviction": "evict", "mixed_step": "chunk"}[name] in kinds


def test_blocks_are_taken_away_as_soon_as_they_are_free():
    log = SCENARIOS["preemption"].run()
    taken = Seat(log).take(20, Settings(blocks=-1))
    held = taken.log.of(v.PrefixHeld)
    assert [len(hold.blocks) for hold in held] == [1]
    assert taken.consequence.busy_ms[1] > taken.consequence.busy_ms[0]


def test_what_cannot_be_chosen_says_why():
    log = SCENARIOS["preemption"].run()
    seat = Seat(log)
    for step, choice, names in (
        (20, First(3), ("3", "20")),
        (19, Victim(1), ("19", "decision")),
        (99, Victim(1), ("99",)),
        (20, Victim(9), ("9", "run")),
        (2, Settings(blocks=-9), ("memory",)),
    ):
        with raises_naming(ChoiceError, *names):
            seat.take(step, choice)
    other = EventLog.from_events([*log[:60], *log[61:]])  # a decision is missing
    with raises_naming(ChoiceError, "rerun"):
        Seat(other).decisions(20)
    [answer] = answers(seat, {"seat": "take", "step": 20})
    assert "choice" in answer["error"]


def test_what_would_have_helped_is_measured():
    log = SCENARIOS["thrash"].run()
    *tried, found = helped(Seat(log).rerun)
    assert found.tried == tried
    first, *_ = found.best
    assert first.settings == {"max_kv_tokens": 32 * 8}
    hand = by_hand(log, first.settings)
    mean = fmean(row.e2e_ms for row in read(hand).request_rows)
    assert first.numbers.mean_ms == pytest.approx(mean)
    assert first.numbers.busy_ms == busy_us(hand)[0] / 1000
    means = [one.numbers.mean_ms for one in found.best]
    assert means == sorted(means) and means[-1] < found.as_it_was.mean_ms
    assert len({tuple(one.settings) for one in found.best}) == len(means)


@pytest.mark.parametrize(
    "run", ["vllm_calm", "vllm_shared_prefix", "vllm_tight", "async", "drafts"]
)
def test_a_recorded_vllm_is_decided_otherwise_or_says_why(run):
    log = read_recording(FIXTURES / f"{run}.jsonl.gz")
    seat = Seat(log)
    if seat.rerun.first_difference is not None:
        with raises_naming(ChoiceError, str(seat.rerun.first_difference)):
            seat.decisions(max(seat.rerun.steps))
        return
    victims = 0
    for step in seat.rerun.steps:
        for decision in seat.decisions(step):
            victims += decision.kind == "victim"
            other = next(one for one in decision.candidates if not one.happened)
            taken = seat.take(step, other.choice)
            assert {-1} >= {id_ for row in taken.log.of(v.RequestArrived) for id_ in row.prompt}
    assert victims or run != "vllm_tight"


def test_the_command_says_what_would_have_helped():
    done = invoke("why", "thrash", "--helped")
    assert_names(done.stdout, "32", "KV blocks", "admission")
    assert done.stderr.count("tried:") > 10
