"""Each scenario's caption is true: its claims, recounted from the log."""

import gzip
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import visualizer
from engine.events import EventLog, State
from engine.events import vocabulary as v
from engine.simulation.scenarios import SCENARIOS, Scenario, scenario, write
from engine.simulation.speakers import Speaker, workload_of
from tests.facts import raises_naming
from visualizer.named_logs import RECORDED

Claim = Callable[["Told"], None]


class Told:
    """A scenario's log, with queries in the words of a caption."""

    def __init__(self, one: Scenario, **changes) -> None:
        self.scenario = one
        self.log = one.run(**changes)
        self.at: dict[int, list[v.Event]] = {}
        step = 0
        for event in self.log:
            step = event.step if isinstance(event, v.StepStarted) else step
            self.at.setdefault(step, []).append(event)

    def events(self, step: int, kind: type[v.Event]) -> list:
        return [event for event in self.at[step] if isinstance(event, kind)]

    def rows(self, step: int) -> dict[int, v.ScheduledRow]:
        [plan] = self.events(step, v.StepScheduled)
        return {row.request: row for row in plan.rows}

    def count(self, name: str, step: int) -> int:
        return self.rows(step)[self.scenario.id_of(name)].count

    def admitted(self, name: str, nth: int = 0) -> int:
        """Return the step in which a request left the queue, the nth time."""
        who = self.scenario.id_of(name)
        return [
            step
            for step, events in self.at.items()
            for event in events
            if isinstance(event, v.Admitted) and event.request == who
        ][nth]

    def first_token(self, name: str) -> int:
        return self.token_steps(name)[0]

    def token_steps(self, name: str) -> list[int]:
        who = self.scenario.id_of(name)
        return [
            step
            for step, events in self.at.items()
            for event in events
            if isinstance(event, v.StepFinished)
            for row in event.tokens
            if row.request == who
        ]

    def state_before(self, wanted: v.Event) -> State:
        state = State()
        for event in self.log:
            if event is wanted:
                return state
            state.apply(event)
        raise AssertionError("no such event")

    def preemptions(self) -> list[tuple[int, int, int]]:
        return [
            (step, event.request, event.needed_by)
            for step in self.at
            for event in self.events(step, v.Preempted)
        ]

    @property
    def steps(self) -> int:
        return max(self.at)


CLAIMS: dict[str, Claim] = {}


def claims(name: str) -> Callable[[Claim], Claim]:
    def note(check: Claim) -> Claim:
        CLAIMS[name] = check
        return check

    return note


@claims("first_look")
def _(told: Told) -> None:
    eva = told.scenario.id_of("Eva")
    blocked = [told.events(step, v.StepScheduled)[0].blocked for step in range(6, 10)]
    assert {(b.request, b.reason) for b in blocked} == {(eva, "batch_full")}
    assert told.admitted("Eva") == 10
    assert told.events(9, v.RequestFinished)[0].request == told.scenario.id_of("Bo")
    assert (told.rows(10)[eva].start, told.count("Eva", 10)) == (16, 10)
    assert [row.count for row in told.rows(10).values() if row.request != eva] == [1, 1, 1]


@claims("hit")
def _(told: Told) -> None:
    assert told.admitted("Ada") == 1
    bo = told.rows(2)[told.scenario.id_of("Bo")]
    assert (bo.start, bo.count) == (48, 14)
    assert [len(event.blocks) for event in told.events(2, v.Admitted)] == [3, 3, 3]


@claims("full_prefix_hit")
def _(told: Told) -> None:
    ada, bo = told.log.of(v.RequestArrived)
    assert ada.prompt == bo.prompt
    assert len(ada.prompt) == 48
    assert told.count("Bo", 4) == 16
    assert len(told.events(4, v.Admitted)[0].blocks) == 2


@claims("in_batch_sharing")
def _(told: Told) -> None:
    speakers = [(s.shared, s.own) for s in scenario("hit").speakers]
    assert [(s.shared, s.own) for s in told.scenario.speakers] == speakers
    assert all(row.start == 0 for row in told.rows(1).values())
    joined = told.events(1, v.RadixJoined)
    assert [event.blocks for event in joined] == [[0, 1, 2]] * 3
    before = told.state_before(joined[0])
    after = told.state_before(told.events(2, v.StepStarted)[0])
    assert len(after.free) == len(before.free) + 9
    assert {tuple(request.table[:3]) for request in after.requests.values()} == {(0, 1, 2)}


@claims("hash_sharing")
def _(told: Told) -> None:
    radix = Told(scenario("in_batch_sharing"))
    assert told.scenario.speakers == radix.scenario.speakers
    assert {row.start for row in told.rows(1).values()} == {0, 48}
    assert [event.blocks for event in told.events(1, v.Admitted)] == [[], *[[0, 1, 2]] * 3]
    assert [one.log.steps.tokens.sum() for one in (told, radix)] == [121, 265]


@claims("split")
def _(told: Told) -> None:
    [split] = told.events(4, v.RadixSplit)
    before = told.state_before(split)
    assert len(before.nodes[split.node].blocks) == 5
    assert split.at == 3
    ada = told.scenario.id_of("Ada")
    table = before.requests[ada].table[:5]
    assert told.state_before(told.events(5, v.StepStarted)[0]).requests[ada].table[:5] == table
    assert not told.log.of(v.BlockCopied)


@claims("eviction")
def _(told: Told) -> None:
    [evicted] = told.events(13, v.RadixEvicted)
    dev, bo = told.scenario.id_of("Dev"), told.scenario.id_of("Bo")
    assert evicted.needed_by == dev
    assert len(told.state_before(evicted).free) == 3
    assert len(told.state_before(told.events(14, v.StepStarted)[0]).requests[dev].table) == 5
    [inserted] = told.events(4, v.RadixInserted)
    assert (inserted.node, inserted.request) == (evicted.node, bo)
    assert told.token_steps("Bo")[-1] == 6
    assert told.events(10, v.Admitted)[0].blocks
    clock, again = (told.log.of(v.RequestArrived)[i].prompt[:24] for i in (1, 6))
    assert clock == again
    assert told.events(19, v.Admitted)[0].blocks == []


@claims("hash_eviction")
def _(told: Told) -> None:
    assert told.scenario.speakers == scenario("eviction").speakers
    evicted = told.events(13, v.BlockEvicted)
    dev, bo = told.scenario.id_of("Dev"), told.scenario.id_of("Bo")
    assert {event.needed_by for event in evicted} == {dev}
    [clock] = [event.blocks for event in told.events(4, v.BlocksStored) if event.request == bo]
    assert len(clock) == 3
    assert [event.block for event in evicted] == [clock[2], clock[1]]
    [kim] = told.events(19, v.Admitted)
    assert kim.blocks == [clock[0]]


@claims("copy_on_write")
def _(told: Told) -> None:
    copies = told.events(2, v.BlockCopied)
    assert [(copy.index, copy.source) for copy in copies] == [(2, 2)] * 2
    assert len(told.rows(2)) == 3
    [start] = told.events(2, v.StepStarted)
    assert {tuple(r.table) for r in told.state_before(start).requests.values()} == {(0, 1, 2)}
    [ada] = told.scenario.speakers
    even = [Speaker("Ada", 1, own=24, output=10, n=3)]
    assert (ada.own, len(workload_of(even).inputs[0].prompt)) == (20, 24)
    whole = Scenario(
        name="", caption="", speakers=tuple(even), config=told.scenario.config, step=2, select="Ada"
    )
    assert not whole.run().of(v.BlockCopied)


@claims("preemption")
def _(told: Told) -> None:
    bo, cleo = told.scenario.id_of("Bo"), told.scenario.id_of("Cleo")
    assert told.preemptions() == [(20, cleo, bo)]
    assert not told.state_before(told.events(20, v.Preempted)[0]).free
    assert len(told.rows(19)) == 3
    assert told.admitted("Cleo", 1) == 27
    row = told.rows(27)[cleo]
    assert (row.start + row.count, row.count) == (45, 5)


@claims("thrash")
def _(told: Told) -> None:
    lea = told.scenario.id_of("Lea")
    assert told.scenario.config.blocks_for(80) == 10
    lost = [step for step, victim, needed_by in told.preemptions() if victim == lea]
    assert 10 in lost and len(lost) == 14
    assert [told.count("Lea", step) for step in (8, 9)] == [30, 30]
    assert told.rows(11)[lea].start == 0
    assert not [step for step in told.token_steps("Lea") if lost[0] <= step <= lost[-1]]
    whole = Told(told.scenario, admission="whole")
    assert [one.log.steps.tokens.sum() for one in (told, whole)] == [989, 372]


@claims("priority")
def _(told: Told) -> None:
    ada, bo, cleo, dev = map(told.scenario.id_of, ("Ada", "Bo", "Cleo", "Dev"))
    assert told.preemptions() == [(10, cleo, ada), (18, bo, ada)]
    assert told.token_steps("Dev")[-1] == 21
    fcfs = Told(told.scenario, policy="fcfs")
    assert fcfs.preemptions()[0][:2] == (10, dev)
    assert fcfs.token_steps("Dev")[-1] == 36


@claims("static_batching")
def _(told: Told) -> None:
    assert len(told.rows(20)) == 1
    [plan] = told.events(20, v.StepScheduled)
    assert (plan.blocked.reason, plan.blocked.behind + 1) == ("static_batch", 8)
    assert told.first_token("Eva") == 25
    assert Told(scenario("continuous_batching")).first_token("Eva") == 5


@claims("continuous_batching")
def _(told: Told) -> None:
    static = Told(scenario("static_batching"))
    assert told.scenario.speakers == static.scenario.speakers
    assert (told.steps, static.steps) == (40, 72)
    assert told.events(4, v.RequestFinished)[0].request == told.scenario.id_of("Ada")
    assert told.admitted("Eva") == 5
    assert sorted(row.count for row in told.rows(5).values()) == [1, 1, 1, 8]


def worst_gap_ms(told: Told, name: str) -> float:
    ends = {step: told.events(step, v.StepFinished)[0].t["end"] for step in told.at if step}
    times = [ends[step] for step in told.token_steps(name)]
    return max(after - before for before, after in pairwise(times)) / 1000


@claims("mixed_step")
def _(told: Told) -> None:
    assert told.count("Eva", 8) == 60
    assert [row.count for row in told.rows(8).values()] == [1, 1, 1, 1, 60]
    assert {worst_gap_ms(told, name) for name in ("Ada", "Bo", "Cleo", "Dev")} == {26}
    assert told.first_token("Eva") == 8 + 7 - 1


@claims("chunk_budget")
def _(told: Told) -> None:
    assert told.scenario.speakers == scenario("mixed_step").speakers
    assert told.scenario.config.chunked_prefill
    assert told.count("Eva", 8) == 400
    assert {worst_gap_ms(told, name) for name in ("Ada", "Bo", "Cleo", "Dev")} == {111}
    assert worst_gap_ms(Told(told.scenario, chunked_prefill=False), "Ada") == 111


@claims("overload")
def _(told: Told) -> None:
    assert [len(told.events(step, v.RequestArrived)) for step in range(26)] == [1] * 26
    [plan] = told.events(26, v.StepScheduled)
    assert plan.blocked.behind + 1 == 18
    assert sum(len(told.events(step, v.Admitted)) for step in range(1, 27)) == 8
    assert told.admitted("Zoe") == 90


@claims("fairness")
def _(told: Told) -> None:
    adas = [event.request for event in told.log.of(v.RequestArrived) if event.label == "Ada"]
    assert len(adas) == 6
    bo = told.scenario.id_of("Bo")
    assert max(adas) < bo
    first, second = told.events(13, v.Admitted)
    assert first.request == bo
    assert first.key < second.key
    assert Told(told.scenario, policy="fcfs").admitted("Bo") == 37


@claims("speculation")
def _(told: Told) -> None:
    ada, bo = told.scenario.id_of("Ada"), told.scenario.id_of("Bo")
    assert len(told.rows(4)[ada].drafts) == 4
    [row] = [row for row in told.events(4, v.StepFinished)[0].tokens if row.request == ada]
    assert (row.accepted, len(row.ids)) == (2, 3)
    assert row.ids[:2] == told.rows(4)[ada].drafts[:2]
    assert row.ids[2] != told.rows(4)[ada].drafts[2]
    assert (told.token_steps("Ada")[-1], told.token_steps("Bo")[-1]) == (9, 24)
    assert all(not plan.drafts for step in range(1, 25) for plan in [told.rows(step)[bo]])
    assert {speaker.output for speaker in told.scenario.speakers} == {24}


@claims("experts")
def _(told: Told) -> None:
    loads, before = told.log.expert_loads(8), told.log.expert_loads(7)
    assert [len(layer) for layer in loads.layers] == [16] * 8
    assert {sum(layer) for layer in loads.layers} == {2 * 61}
    assert {sum(layer) for layer in before.layers} == {2 * 3}
    assert told.count("Eva", 8) == 58
    assert loads.experts - loads.idle == 127
    assert loads.busiest[:3] == (7, 9, 31)
    assert round(loads.busiest.times_mean) == 4
    assert before.experts - before.idle == 38


@claims("thirty")
def _(told: Told) -> None:
    assert [len(told.events(step, v.RequestArrived)) for step in (0, 1)] == [30, 0]
    assert [len(told.events(step, v.Admitted)) for step in (1, 2)] == [2, 6]
    assert {len(event.blocks) * 8 for event in told.events(2, v.Admitted)} == {24}
    [plan] = told.events(2, v.StepScheduled)
    assert plan.blocked.behind + 1 == 22
    assert told.admitted("Dora") == 47


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_the_caption_says_is_in_the_log(name: str) -> None:
    CLAIMS[name](Told(SCENARIOS[name]))


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_opens_at_an_event_of_a_request_that_the_caption_names(name: str) -> None:
    one = SCENARIOS[name]
    told = Told(one)
    assert one.step in told.at
    [plan] = told.events(one.step, v.StepScheduled)
    # In a step of their own, or in the queue.
    present = {row.request for row in plan.rows} | {
        request.id
        for request in told.state_before(plan).requests.values()
        if request.id not in told.rows(one.step)
    }
    assert one.request in present
    assert one.select in one.caption
    assert 2 <= len(re.findall(r"[.!?](?: |$)", one.caption)) <= 4


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_and_gives_the_same_log_every_time(name: str) -> None:
    one = SCENARIOS[name]
    log = one.run()
    assert log.to_bytes() == one.run().to_bytes()
    assert EventLog.from_bytes(log.to_bytes()).to_bytes() == log.to_bytes()
    assert log.state().requests == {}


def test_an_unknown_name_is_answered_with_the_names_and_the_nearest() -> None:
    with raises_naming(LookupError, "preemtion", "preemption", *SCENARIOS):
        scenario("preemtion")


def test_what_the_visualizer_shows_is_what_the_scenarios_are(tmp_path: Path) -> None:
    """Stale? `python -m engine.simulation.scenarios visualizer/scenarios`."""
    committed = Path(visualizer.__file__).parent / "scenarios"
    write(SCENARIOS.values(), tmp_path)
    recorded = {f"{name}.jsonl.gz" for name in json.loads(RECORDED.read_text())} | {RECORDED.name}
    written = {p.name for p in tmp_path.iterdir()}
    assert {p.name for p in committed.iterdir()} == written | recorded
    for path in tmp_path.glob("*.gz"):  # unpacked: another zlib packs into other bytes
        theirs = (committed / path.name).read_bytes()
        assert gzip.decompress(theirs) == gzip.decompress(path.read_bytes()), path.name
    assert (committed / "gallery.json").read_text() == (tmp_path / "gallery.json").read_text()


def test_speakers_share_exactly_the_requested_prefix() -> None:
    speakers = [Speaker(name, shared=20, own=9, output=5) for name in ("Ada", "Bo", "Cleo")]
    prompts = [one.prompt for one in workload_of(speakers).inputs]
    assert [len(prompt) for prompt in prompts] == [29] * 3
    assert len({tuple(prompt[:20]) for prompt in prompts}) == 1
    assert len({prompt[20] for prompt in prompts}) == 3


def test_an_answer_shorter_than_what_was_asked_for_ends_by_itself() -> None:
    one = Scenario(
        name="",
        caption="",
        speakers=(Speaker("Ada", own=4, output=3, max_tokens=9), Speaker("Bo", own=4, output=3)),
        config=scenario("hit").config,
        step=1,
        select="Ada",
    )
    assert one.run().requests.finish_reason.tolist() == ["stop", "length"]
    assert one.run().requests.output_tokens.tolist() == [3, 3]
