"""The scheduler's seat: what the board shows of a choice is what a rerun by hand does."""

import gzip
import json
from queue import Queue
from statistics import fmean
from typing import Any

import msgspec
import pytest

from engine import CostRunner, EngineConfig, EventLog, Workload, simulate
from engine.core.cache.eviction import EvictionOrder
from engine.core.log import vocabulary as v
from engine.core.scheduling.policies import Fcfs
from engine.simulation import choice as c
from engine.simulation.scenarios import SCENARIOS
from engine.simulation.simulate import ReplayEngine, play
from engine.simulation.workload import poisson, uniform
from tests.facts import assert_names, raises_naming
from tests.parity.recorded_steps import read_recording
from tests.server.console import invoke
from tests.sources.test_vllm_runs import FIXTURES
from visualizer import read
from visualizer.comparing.run_totals import computed_twice
from visualizer.logs import part_of
from visualizer.reading.busy_time import busy_us
from visualizer.seat.answers import answers
from visualizer.seat.decisions import decisions
from visualizer.seat.seat import Seat
from visualizer.widgets.log_model import LogModel


def by_hand(
    log: EventLog, *, budget: tuple[int, int] = (0, 0), parts=(), **settings: int
) -> EventLog:
    """Run a log's workload again without the seat; `budget` is a step and its token budget."""
    config = EngineConfig(**{n: log[0].settings[n] for n in EngineConfig.__struct_fields__})
    workload, runner = Workload.from_log(log, "time"), CostRunner(10, 0.25)

    class Mine(ReplayEngine):
        def step(self) -> Any:
            tokens = budget[1] if self.step_count + 1 == budget[0] else self.config.token_budget
            self.scheduler.config = self.config.changed(token_budget=tokens)
            return super().step()

    engine = Mine(runner, config.changed(**settings), workload, **dict(parts))
    play(workload.inputs, engine, engine.apply, runner.clock.skip_to)
    return engine.log


def deciding(**decided: Any) -> dict[str, Any]:
    """First come, first served, with other decisions."""
    policy = Fcfs()
    vars(policy).update(decided)
    return {"parts": {"policy": policy}}


def once(request: int) -> Any:
    """Whether a request is that one, the first time."""
    left = [request]
    return lambda one, *_: one.id in left and not left.remove(one.id)


def first_victim(request: int) -> dict[str, Any]:
    chosen = once(request)
    return deciding(victim=lambda running, _: next(filter(chosen, running), running[-1]))


def evicting(node: int) -> dict[str, Any]:
    order = type("Mine", (EvictionOrder,), {"key": lambda _, leaf: (leaf.id != node, leaf.last)})
    return {"parts": {"eviction": order()}}


TEN = [
    ("preemption", 20, c.Victim(1), first_victim(1)),
    ("preemption", 20, c.Victim(2), deciding(victim=lambda running, _: running[1])),
    ("preemption", 1, c.Settings(blocks=2), {"max_kv_tokens": 16 * 8}),
    ("preemption", 1, c.Settings(seats=2), {"max_batch_size": 2}),
    ("thirty", 1, c.First(3), deciding(key=lambda one, _: (one.id != 3,))),
    ("thirty", 1, c.First(6), deciding(key=lambda one, _: (one.id != 6,))),
    ("thirty", 2, c.Later(3), deciding(defer=once(3))),
    ("thirty", 1, c.Budget(47), {"budget": (1, 47)}),
    ("eviction", 13, c.Evict(1), evicting(1)),
    ("eviction", 13, c.Evict(3), evicting(3)),
]


def essence(log: EventLog) -> list[Any]:
    """Everything but the header and the keys of policies: each decision and each time."""
    keyed = v.Admitted
    return [msgspec.structs.replace(e, key=[]) if isinstance(e, keyed) else e for e in log[1:]]


def asked(step: int, choice: Any) -> dict[str, Any]:
    return {"seat": "take", "step": step, "choice": msgspec.to_builtins(choice)}


@pytest.mark.parametrize(("name", "step", "choice", "changes"), TEN)
def test_the_board_shows_what_a_rerun_by_hand_does(name, step, choice, changes):
    log = SCENARIOS[name].run()
    [shown] = answers(Seat(log), asked(step, choice))
    happened, board = (EventLog.from_bytes(gzip.decompress(shown[side])) for side in "ab")
    hand = by_hand(log, **changes)
    assert essence(board) == essence(hand)
    assert essence(happened) == essence(log)
    said = shown["consequence"]
    assert list(said["busy_ms"]) == [busy_us(log)[0] / 1000, busy_us(hand)[0] / 1000]
    assert list(said["again"]) == [computed_twice(log), computed_twice(hand)]
    difference = said["busy_ms"][1] - said["busy_ms"][0]
    assert sum(ms for _, _, ms in said["parts"]) == pytest.approx(difference)
    before = essence(log).index(v.StepStarted(step))
    assert essence(board)[:before] == essence(log)[:before]


SMALL = "preemption priority eviction hash_eviction copy_on_write mixed_step speculation".split()


@pytest.mark.parametrize("name", SMALL)
def test_every_candidate_of_every_step_can_be_chosen(name):
    log = SCENARIOS[name].run()
    seat = Seat(log)
    for step in seat.rerun.steps:
        for decision in decisions(log, step):
            assert sum(one.happened for one in decision.candidates) == 1
            for candidate in decision.candidates:
                taken = seat.take(step, candidate.choice)
                taken.log.state()  # the log is one that a reader can fold
                if candidate.happened:
                    assert taken.log.deterministic()[1:] == taken.happened.deterministic()[1:]


def test_what_cannot_be_chosen_says_why():
    log = SCENARIOS["preemption"].run()
    seat = Seat(log)
    taken = seat.take(20, c.Settings(blocks=-1))  # none is free: it is held as soon as one is
    assert [len(hold.blocks) for hold in taken.log.of(v.PrefixHeld)] == [1]
    for step, choice, names in (
        (20, c.First(3), (3, 20)),
        (19, c.Victim(1), (19, "decision")),
        (99, c.Victim(1), (99,)),
        (20, c.Victim(9), (9, "run")),
        (2, c.Settings(blocks=-9), ("memory",)),
    ):
        with raises_naming(c.ChoiceError, *names):
            seat.take(step, choice)
    cut = Seat(part_of(log, 0, 100))  # the future is unknown
    assert (cut.rerun.unfinished, cut.rerun.first_difference) == (3, None)
    assert cut.take(20, c.Victim(1)).consequence.moved
    other = EventLog.from_events([*log[:60], *log[61:]])  # a decision is missing
    with raises_naming(c.ChoiceError, "rerun"):
        Seat(other).decisions(20)
    [answer] = answers(seat, {"seat": "take", "step": 20})
    assert "choice" in answer["error"]


def test_what_would_have_helped_is_measured():
    log = SCENARIOS["thrash"].run()
    *tried, last = answers(Seat(log), {"seat": "helped"})
    assert_names(last["said"], "exact", "732 ms")
    done = invoke("why", "thrash", "--helped")
    for one in last["best"]:
        hand = by_hand(log, **one["settings"])
        mean = fmean(row.e2e_ms for row in read(hand).request_rows)
        assert_names(one["words"], *one["settings"], f"{mean:.0f} ms")
        assert_names(done.stdout, *one["settings"], f"{mean:.0f} ms")
    assert len(last["best"]) == 3
    assert done.stderr.count("tried:") == len(tried) == tried[-1]["tried"]


@pytest.mark.parametrize("run", ["vllm_calm", "vllm_tight", "rotated"])
def test_a_recorded_vllm_is_decided_otherwise_or_says_why(run):
    seat = Seat(read_recording(FIXTURES / f"{run}.jsonl.gz"))
    kinds = set()
    for step in seat.rerun.steps:
        if (first := seat.rerun.first_difference) is not None and step >= first:
            with raises_naming(c.ChoiceError, first):
                seat.decisions(step)
            continue
        for decision in seat.decisions(step):
            kinds.add(decision.kind)
            other = next(one for one in decision.candidates if not one.happened)
            taken = seat.take(step, other.choice)
            assert {-1} >= {token for row in taken.log.of(v.RequestArrived) for token in row.prompt}
    assert kinds >= ({"chunk", "first"} if run == "vllm_calm" else {"victim"})


def test_a_notebook_gets_answers_and_logs_from_a_process_that_it_can_stop(monkeypatch):
    model, sent = LogModel(SCENARIOS["preemption"].run()), Queue[Any]()
    monkeypatch.setattr(LogModel, "send", lambda _, *message: sent.put(message))
    model._answer(None, {"ask": "seat.js"}, None)
    assert b"openSeat" in sent.get(timeout=60)[1][0]
    model._answer(None, {"ask": "seat", "id": "1", "question": asked(20, c.Victim(1))}, None)
    message, logs = sent.get(timeout=60)
    assert message["seat"] == "1" and json.dumps(message["answer"]["consequence"])
    for log in logs:
        assert len(EventLog.from_bytes(gzip.decompress(log)).of(v.Preempted)) == 1
    shape = {"prompt": uniform(40, 80), "output": uniform(40, 80)}
    workload = Workload.generate(150, arrivals=poisson(50), **shape)
    long = LogModel(simulate(workload, cost=CostRunner(10, 0.25)))
    long._answer(None, {"ask": "seat", "id": "2", "question": {"seat": "helped"}}, None)
    told = [sent.get(timeout=60)[0]]
    long._answer(None, {"ask": "stop", "id": "2"}, None)
    long._answer(None, {"ask": "seat", "id": "3", "question": {"seat": "?"}}, None)
    while told[-1]["seat"] != "3":
        told.append(sent.get(timeout=60)[0])
    assert "error" in told.pop()["answer"] and not any(one["answer"]["done"] for one in told)
