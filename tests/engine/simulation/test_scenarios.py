"""Each scenario's caption is true: its claims, recounted from the log."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import visualizer
from engine.core.log import EventLog, State
from engine.core.log import vocabulary as v
from engine.simulation.scenarios import SCENARIOS, Recipe, scenario, write
from engine.simulation.speakers import Speaker
from tests.facts import assert_names, raises_naming
from visualizer import read
from visualizer.reading.rows.requests import RequestRow
from visualizer.reading.story import Story
from visualizer.reading.why import why
from visualizer.scenario import RECORDED

Claim = Callable[["Told"], None]


class Told:
    """A scenario's log, with queries in the words of a caption."""

    def __init__(self, one: Recipe, **changes) -> None:
        self.scenario = one
        self.log = one.run(**changes)
        self.id_of = one.id_of
        self.steps = read(self.log).step_rows
        self.at: dict[int, list[v.Event]] = {}
        step = 0
        for event in self.log:
            step = event.step if isinstance(event, v.StepStarted) else step
            self.at.setdefault(step, []).append(event)

    def __getitem__(self, name: str) -> RequestRow:
        return read(self.log).request(name)

    def events(self, step: int, kind: type[v.Event]) -> list:
        return [event for event in self.at[step] if isinstance(event, kind)]

    def rows(self, step: int) -> dict[int, v.ScheduledRow]:
        [plan] = self.events(step, v.StepScheduled)
        return {row.request: row for row in plan.rows}

    def counts(self, step: int) -> list[int]:
        return [row.count for row in self.rows(step).values()]

    def row(self, name: str, step: int) -> tuple[int, int]:
        row = self.rows(step)[self.id_of(name)]
        return row.start, row.count

    def queue(self, step: int) -> tuple[str, int]:
        """Return the reason why the queue waits, and its length."""
        [plan] = self.events(step, v.StepScheduled)
        return plan.blocked.reason, plan.blocked.behind + 1

    def hits(self, step: int) -> list[list[int]]:
        return [event.blocks for event in self.events(step, v.Admitted)]

    def state_before(self, wanted: v.Event) -> State:
        state = State()
        for event in self.log:
            if event is wanted:
                return state
            state.apply(event)
        raise AssertionError("no such event")

    def state_after(self, step: int) -> State:
        return self.state_before(self.events(step + 1, v.StepStarted)[0])

    def preemptions(self) -> list[tuple[int, int, int]]:
        return [
            (step, event.request, event.needed_by)
            for step in self.at
            for event in self.events(step, v.Preempted)
        ]

    def computed(self) -> int:
        return sum(row.tokens for row in self.steps)


CLAIMS: dict[str, Claim] = {}


def claims(check: Claim) -> Claim:
    CLAIMS[check.__name__] = check
    return check


@claims
def first_look(told: Told) -> None:
    blocked = [told.events(step, v.StepScheduled)[0].blocked for step in range(6, 10)]
    assert {(b.request, b.reason) for b in blocked} == {(told.id_of("Eva"), "batch_full")}
    assert (told["Eva"].admitted_step, told["Bo"].finished_step) == (10, 9)
    assert told.row("Eva", 10) == (16, 10)
    assert sorted(told.counts(10)) == [1, 1, 1, 10]


@claims
def hit(told: Told) -> None:
    assert told["Ada"].admitted_step == 1
    assert told.row("Bo", 2) == (48, 14)
    assert [len(blocks) for blocks in told.hits(2)] == [3, 3, 3]


@claims
def full_prefix_hit(told: Told) -> None:
    ada, bo = told.log.of(v.RequestArrived)
    assert ada.prompt == bo.prompt
    assert told.row("Bo", 4) == (32, 16)
    assert [len(blocks) for blocks in told.hits(4)] == [2]


@claims
def in_batch_sharing(told: Told) -> None:
    speakers = [(s.shared, s.own) for s in scenario("hit").speakers]
    assert [(s.shared, s.own) for s in told.scenario.speakers] == speakers
    assert all(row.start == 0 for row in told.rows(1).values())
    joined = told.events(1, v.RadixJoined)
    assert [event.blocks for event in joined] == [[0, 1, 2]] * 3
    before, after = told.state_before(joined[0]), told.state_after(1)
    assert len(after.free) == len(before.free) + 9
    assert {tuple(request.block_table[:3]) for request in after.requests.values()} == {(0, 1, 2)}


@claims
def hash_sharing(told: Told) -> None:
    radix = Told(scenario("in_batch_sharing"))
    assert told.scenario.speakers == radix.scenario.speakers
    assert told.hits(1) == [[], *[[0, 1, 2]] * 3]
    assert (told.computed(), radix.computed()) == (121, 265)


@claims
def split(told: Told) -> None:
    [split] = told.events(4, v.RadixSplit)
    before, ada = told.state_before(split), told.id_of("Ada")
    assert (len(before.nodes[split.node].blocks), split.at) == (5, 3)
    assert told.state_after(4).requests[ada].block_table[:5] == before.requests[ada].block_table[:5]
    assert not told.log.of(v.BlockCopied)


@claims
def eviction(told: Told) -> None:
    [evicted] = told.events(13, v.RadixEvicted)
    dev, bo = told.id_of("Dev"), told.id_of("Bo")
    assert evicted.needed_by == dev
    assert len(told.state_before(evicted).free) == 3
    assert len(told.state_after(13).requests[dev].block_table) == 5
    [inserted] = told.events(4, v.RadixInserted)
    assert (inserted.node, inserted.request) == (evicted.node, bo)
    assert told["Bo"].finished_step == 6
    assert told.hits(10)[0] and told.hits(19) == [[]]
    clock, again = (told.log.of(v.RequestArrived)[i].prompt[:24] for i in (1, 6))
    assert clock == again


@claims
def hash_eviction(told: Told) -> None:
    assert told.scenario.speakers == scenario("eviction").speakers
    bo = told.id_of("Bo")
    [clock] = [event.blocks for event in told.events(4, v.BlocksStored) if event.request == bo]
    evicted = [(event.block, event.needed_by) for event in told.events(13, v.BlockEvicted)]
    assert evicted == [(block, told.id_of("Dev")) for block in clock[:0:-1]]
    assert (len(clock), told.hits(19)) == (3, [clock[:1]])


@claims
def copy_on_write(told: Told) -> None:
    assert [(copy.index, copy.source) for copy in told.events(2, v.BlockCopied)] == [(2, 2)] * 2
    assert len(told.rows(2)) == 3
    assert {tuple(r.block_table) for r in told.state_after(1).requests.values()} == {(0, 1, 2)}
    assert told["Ada"].prompt_tokens == 20
    even = (Speaker("Ada", 1, own=24, output=10, n=3),)
    assert not replace(told.scenario, speakers=even).run().of(v.BlockCopied)


@claims
def preemption(told: Told) -> None:
    assert told.preemptions() == [(20, told.id_of("Cleo"), told.id_of("Bo"))]
    assert not told.state_before(told.events(20, v.Preempted)[0]).free
    assert (len(told.rows(19)), told.row("Cleo", 27)) == (3, (40, 5))


@claims
def thrash(told: Told) -> None:
    assert told.scenario.config.blocks_for(80) == 10
    lost = [step for step, victim, _ in told.preemptions() if victim == told.id_of("Lea")]
    assert 10 in lost and len(lost) == told["Lea"].preemptions == 14
    assert [told.row("Lea", step)[1] for step in (8, 9)] == [30, 30]
    assert told.row("Lea", 11)[0] == 0
    assert told["Lea"].finished_step > lost[-1]
    assert (told.computed(), Told(told.scenario, admission="whole").computed()) == (989, 372)


@claims
def priority(told: Told) -> None:
    ada, bo, cleo, dev = map(told.id_of, ("Ada", "Bo", "Cleo", "Dev"))
    assert told.preemptions() == [(10, cleo, ada), (18, bo, ada)]
    fcfs = Told(told.scenario, policy="fcfs")
    assert fcfs.preemptions()[0][:2] == (10, dev)
    assert (told["Dev"].finished_step, fcfs["Dev"].finished_step) == (21, 36)


@claims
def static_batching(told: Told) -> None:
    assert (len(told.rows(20)), *told.queue(20)) == (1, "static_batch", 8)
    continuous = Told(scenario("continuous_batching"))
    assert (told["Eva"].first_token_step, continuous["Eva"].first_token_step) == (25, 5)


@claims
def continuous_batching(told: Told) -> None:
    static = Told(scenario("static_batching"))
    assert told.scenario.speakers == static.scenario.speakers
    assert (len(told.steps), len(static.steps)) == (40, 72)
    assert (told["Ada"].finished_step, told["Eva"].admitted_step) == (4, 5)
    assert sorted(told.counts(5)) == [1, 1, 1, 8]


CHATS = ("Ada", "Bo", "Cleo", "Dev")


@claims
def mixed_step(told: Told) -> None:
    assert told.counts(8) == [1, 1, 1, 1, 60]
    assert {told[name].itl_max_ms for name in CHATS} == {26}
    assert told["Eva"].first_token_step == 8 + 7 - 1


@claims
def chunk_budget(told: Told) -> None:
    assert told.scenario.speakers == scenario("mixed_step").speakers
    assert told.scenario.config.chunked_prefill
    assert told.row("Eva", 8) == (0, 400)
    assert {told[name].itl_max_ms for name in CHATS} == {111}
    assert Told(told.scenario, chunked_prefill=False)["Ada"].itl_max_ms == 111


@claims
def overload(told: Told) -> None:
    assert [row.arrived for row in told.steps[:26]] == [1] * 26
    assert (told.queue(26)[1], sum(row.admitted for row in told.steps[:26])) == (18, 8)
    assert told["Zoe"].admitted_step == 90


@claims
def fairness(told: Told) -> None:
    adas = [row.request for row in read(told.log).request_rows if row.label == "Ada"]
    first, second = told.events(13, v.Admitted)
    assert len(adas) == 6 and max(adas) < told.id_of("Bo") == first.request
    assert first.key < second.key
    assert Told(told.scenario, policy="fcfs")["Bo"].admitted_step == 37


@claims
def speculation(told: Told) -> None:
    ada = told.id_of("Ada")
    drafts = told.rows(4)[ada].drafts
    [row] = [row for row in told.events(4, v.StepFinished)[0].tokens if row.request == ada]
    assert (len(drafts), row.accepted, len(row.ids)) == (4, 2, 3)
    assert row.ids[:2] == drafts[:2] and row.ids[2] != drafts[2]
    assert (told["Ada"].finished_step, told["Bo"].finished_step) == (9, 24)
    assert told["Bo"].drafted_tokens == 0
    assert {speaker.output for speaker in told.scenario.speakers} == {24}


@claims
def experts(told: Told) -> None:
    loads, before = read(told.log).expert_loads(8), read(told.log).expert_loads(7)
    assert [len(layer) for layer in loads.layers] == [16] * 8
    assert {sum(layer) for layer in loads.layers} == {2 * 61}
    assert {sum(layer) for layer in before.layers} == {2 * 3}
    assert told.row("Eva", 8) == (0, 58)
    assert (*loads.busiest[:3], round(loads.busiest.times_mean)) == (7, 9, 31, 4)
    assert [one.experts - one.idle for one in (loads, before)] == [127, 38]


@claims
def adapters(told: Told) -> None:
    [change] = told.events(7, v.AdapterChanged)
    assert (change.adapter, change.evicted, change.request) == ("sql", "chat", told.id_of("Dev"))
    skipped = [told.events(step, v.StepScheduled)[0].skipped for step in range(4, 17)]
    dev, gus = ([(told.id_of(name), "adapter_slot")] for name in ("Dev", "Gus"))
    assert skipped == [dev] * 3 + [gus] * 10
    assert len({tuple(one.prompt[:24]) for one in told.log.of(v.RequestArrived)}) == 1
    assert (told["Bo"].finished_step, told.row("Dev", 7)) == (6, (0, 31))
    assert (told["Dev"].finished_step, told.row("Gus", 17)) == (16, (24, 6))
    assert_names(why(told.log, dev[0][0], 5), "sql", "legal", "Ada", "Eva", "chat", "Bo")
    for said in (Story(told.log, 7).fate(dev[0][0])[0], why(told.log, dev[0][0], 7)):
        assert_names(said, "sql", "slot 1", "chat")
    # With less memory, only KV of its own adapter is KV that a request has lost.
    tight = told.scenario.run(max_kv_tokens=12 * 8)
    assert "evicted" not in why(tight, dev[0][0], 19)
    assert_names(why(tight, gus[0][0], 29), "node 2", "evicted", "step 7")


@claims
def thirty(told: Told) -> None:
    assert [row.admitted for row in told.steps[:2]] == [2, 6]
    assert {row.arrived_step for row in read(told.log).request_rows} == {1}
    assert {len(blocks) * 8 for blocks in told.hits(2)} == {24}
    assert (told.queue(2)[1], told["Dora"].admitted_step) == (22, 47)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_caption_is_true_and_the_log_the_same_every_time(name: str) -> None:
    """It opens at an event of a request that the caption names, and ends."""
    one = SCENARIOS[name]
    told = Told(one)
    CLAIMS[name](told)
    [plan] = told.events(one.step, v.StepScheduled)
    waiting = told.state_before(plan).requests.keys() - told.rows(one.step).keys()
    assert one.request in told.rows(one.step).keys() | waiting
    assert one.select in one.caption
    assert 2 <= len(re.findall(r"[.!?](?: |$)", one.caption)) <= 4
    log = told.log.to_bytes()
    assert log == one.run().to_bytes() == EventLog.from_bytes(log).to_bytes()
    assert told.log.state().requests == {}


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
