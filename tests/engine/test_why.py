"""Answers in words: the lessons' sentences, and every number held against the live objects."""

import re
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import vocabulary as v
from engine.events.log import EventLog
from engine.part_errors import PolicyError
from engine.scheduling.policies import Fcfs
from engine.scheduling.sampling_params import SamplingParams
from engine.simulation.cost_runner import CostRunner
from engine.why import WhyError, why
from tests.engine.storyboard import simulate
from tests.engine.test_storyboard import DOCUMENTS, FIRST_LOOK, FIRST_LOOK_CONFIG, FULL_MEMORY
from tests.engine.witness import Seen, Witness, starts_with, watched_engine
from tests.engine.workloads import play, random_workload


def full_memory():
    config = EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=14 * 8, block_size=8)
    engine, requests = simulate(config, FULL_MEMORY)
    return engine, {name: request.id for name, request in requests.items()}


def test_00_eva_waits_for_a_place() -> None:
    engine, requests = simulate(EngineConfig(**FIRST_LOOK_CONFIG), FIRST_LOOK)
    eva = requests["Eva"].id
    waits = engine.why(eva, step=8)
    assert waits.startswith("Step 8: Eva (r5) waits. No place in the batch: Eva (r5) needs 1, ")
    assert "has 0 of 4 places. In the batch: Ada (r1), Bo (r2), Cleo (r3), Dev (r4)." in waits
    starts = engine.why(requests["Eva"], step=10)
    assert "starts with 16 of 26 tokens found. Shared with Ada (r1), Cleo (r3)." in starts
    assert "It computes 10 tokens from position 16; its prompt has 26." in starts


def test_09_why_the_victim_gave_way_and_why_it_is_not_back_at_once() -> None:
    engine, ids = full_memory()
    preempted = engine.why(ids["r3"], step=20)
    assert "is preempted: it gives way to r2, which needed blocks" in preempted
    assert "Of its 6 blocks others keep 2, the cache keeps 3, 1 fell free." in preempted
    waits = engine.why(ids["r3"], step=21)
    assert "needs 1, free 0, evictable 3, all 3 part of its own match" in waits
    assert "With 1 more free block it would have started." in waits
    assert "resumes with 40 of 45 tokens found" in engine.why(ids["r3"], step=27)


def test_07_a_miss_names_the_eviction() -> None:
    config = EngineConfig(token_budget=64, max_kv_tokens=12 * 8, block_size=8)
    engine, requests = simulate(config, DOCUMENTS)
    answer = engine.why(requests["B2"].id, step=19)
    assert "starts with 0 of 27 tokens found" in answer
    assert "Once 24 tokens of it were cached" in answer
    assert "evicted in step 13, to make room for D1 (r5)." in answer


def test_who_is_not_there_is_said() -> None:
    engine, ids = full_memory()
    assert "has not arrived yet" in engine.why(ids["r3"], step=2)
    assert "has ended, with reason length" in engine.why(ids["r2"], step=engine.step_count)


def test_what_the_log_does_not_know_is_an_error() -> None:
    engine, ids = full_memory()
    with pytest.raises(WhyError, match="request: 99 is not in this log; its requests are 1 to 3"):
        engine.why(99)
    with pytest.raises(WhyError, match="step: 0 is not in this log; its steps are 1 to 31"):
        engine.why(ids["r1"], step=0)


def test_a_window_of_a_log_is_enough() -> None:
    engine, ids = full_memory()
    window = EventLog(window=60)
    for event in engine.log:
        window.append(event)
    assert isinstance(window[0], v.Keyframe)
    step = engine.step_count
    assert why(window, ids["r3"], step) == engine.why(ids["r3"], step)


def test_a_sample_that_has_not_forked_off_is_known_by_its_id() -> None:
    config = EngineConfig(token_budget=2, max_kv_tokens=64, block_size=4)
    engine = Engine(CostRunner(1, 1), config)
    first = engine.submit(b"abcdef", SamplingParams(n=2), label="Ada")
    second = engine.submit(b"xyz", SamplingParams(n=2))
    for _ in range(3):
        engine.step()
    assert engine.why(2, step=2) == (
        "Step 2: Ada (r2) does not exist yet: it is sample 1 of Ada (r1) and forks off when the "
        "prompt is complete."
    )
    assert "for each of 2 samples" in engine.why(first, step=3)
    engine.abort(second.id)
    engine.step()
    assert "never came to be: it is sample 1 of r3, which ended" in engine.why(4)


def test_the_policy_is_named_by_the_class_that_ran() -> None:
    class Mine(Fcfs):
        pass

    config = EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=14 * 8, block_size=8)
    engine, requests = simulate(config, FULL_MEMORY, policy=Mine())
    preempted = engine.why(requests["r3"], step=20)
    assert "The victim is the choice of the policy (Mine)." in preempted


def test_a_step_that_a_part_spoiled_is_said_to_have_decided_nothing() -> None:
    class FailsOnce(Fcfs):
        failed = False

        def defer(self, request, tree, computing):
            first, self.failed = not self.failed, True
            if first:
                raise RuntimeError("planted")
            return False

    engine = Engine(CostRunner(1, 1), EngineConfig(max_kv_tokens=256), policy=FailsOnce())
    for _ in range(2):
        engine.submit([97, 98], SamplingParams())
    with pytest.raises(PolicyError):
        engine.step()
    engine.step()
    with pytest.raises(WhyError, match="step: 1 decided nothing, because a part failed"):
        engine.why(1, step=1)
    assert engine.why(2).startswith("Step 2: r2 starts")


def test_whom_the_policy_puts_off_hears_its_name() -> None:
    config = EngineConfig(max_kv_tokens=512, policy="lpm")
    engine = Engine(CostRunner(1, 1), config)
    prompt = list(range(40, 96))
    for last in (1, 2):
        engine.submit([*prompt, last], SamplingParams())
    engine.submit([1], SamplingParams())
    engine.step()
    put_off = "Step 1: r2 waits. The policy (LongestPrefixMatch) put it off and asked the next."
    assert engine.why(2) == put_off
    assert engine.why(3).startswith("Step 1: r3 starts")


def test_a_larger_budget_first_serves_those_who_run() -> None:
    """The prompt that is being computed takes what is added, until it is complete."""
    config = EngineConfig(token_budget=4, max_kv_tokens=256, block_size=4)
    engine = Engine(CostRunner(1, 1), config)
    engine.submit(list(range(97, 107)), SamplingParams())
    waiting = engine.submit([97], SamplingParams())
    engine.step()
    answer = engine.why(waiting)
    assert "r2 needs 1, has 0 of 4 tokens. The others took: r1 4." in answer
    assert "With 7 more tokens in the budget it would have started." in answer


def test_a_prompt_that_is_scored_is_said_to_be_computed_whole() -> None:
    engine = Engine(CostRunner(1, 1), EngineConfig(max_kv_tokens=256, block_size=4))
    for params in (SamplingParams(max_tokens=1), SamplingParams(max_tokens=1, prompt_logprobs=0)):
        engine.submit(list(range(97, 107)), params)
        engine.step()
    assert "starts with 0 of 10 tokens found. Its prompt is scored" in engine.why(2)


def test_every_answer_is_true_of_the_live_objects(soak: bool, first_seed: int) -> None:
    """For every request and step of random workloads; and what would have helped, helps."""
    told: set[str] = set()
    for seed in range(first_seed, first_seed + (1000 if soak else 20)):
        workload = random_workload(seed)
        engine, witness = watched_engine(workload)
        play(engine, workload)
        for step, seen in witness.seen.items():
            for request in range(1, engine._next_id):
                answer = without_labels(why(witness, request, step), witness)
                try:
                    told |= check(answer, witness, seen, step, request)
                except Exception as error:
                    raise AssertionError(f"seed {seed}, untrue: {answer}") from error
    assert told >= {"gone", "unborn", "waits", "free block", "place", "token in the budget"}
    assert told >= {"preempted", "found", "lost", "differs", "sharers", "after_preemption"}
    assert told >= {"reserved_blocks", "static_batch", "skipped", "drafts"}


def without_labels(answer: str, witness: Witness) -> str:
    """ "Ada (r1)" becomes "r1"; every label must be the one that was submitted."""
    for label, id_ in re.findall(r"(\w+) \(r(\d+)\)", answer):
        sent = [e for e in witness.of(v.RequestArrived) if 0 <= int(id_) - e.request < e.n]
        assert [event.label for event in sent] == [label]
    return re.sub(r"\w+ \((r\d+)\)", r"\1", answer)


def numbers(pattern: str, answer: str) -> tuple[int, ...] | None:
    found = re.search(pattern, answer)
    return found and tuple(int(number or 0) for number in found.groups())


def listed(pattern: str, answer: str) -> list[tuple[int, ...]]:
    """The requests that a sentence names, each with the number behind it, if there is one."""
    [names] = re.search(pattern, answer).groups()
    parts = re.findall(r"r(\d+)(?: (\d+))?", names)
    return [tuple(int(number) for number in part if number) for part in parts]


def check(answer: str, witness: Witness, seen: Seen, step: int, request: int) -> set[str]:
    """Hold an answer against what the live objects said; returns what it was about."""
    assert answer.startswith(f"Step {step}: r{request} ")
    if request not in seen.waiting and request not in seen.running:
        return check_absent(answer, witness, step, request)
    rows = {row.request: row for row in seen.event.rows}
    about: set[str] = set()
    assert ("is preempted" in answer) == (request in seen.victims)
    if request in seen.victims:
        about.add("preempted")
        gave = seen.victims[request]
        assert numbers(r"free (\d+), evictable (\d+)", answer) == (gave["free"], gave["evictable"])
        fates = r"its (\d+) blocks? others keep (\d+), the cache keeps (\d+), (\d+) fell free"
        assert numbers(fates, answer) == tuple(
            gave[name] for name in ("held", "shared", "cached", "freed")
        )
    waits = request in seen.waiting and request not in seen.victims
    assert ("waits. " in answer or "waits behind" in answer) == waits
    if waits:
        about |= {"waits"} | check_reason(answer, witness, seen, request)
    assert (" tokens found" in answer or "token found" in answer) == (request in seen.admitted)
    if request in seen.admitted:
        about |= {"found"} | check_found(answer, seen.admitted[request])
    if request in rows:
        row = rows[request]
        computes = r"computes (\d+) tokens? from position (\d+)(?:, (\d+) drafts?)?"
        assert numbers(computes, answer) == (row.count, row.start, len(row.drafts))
        about |= {"drafts"} if row.drafts else set()
    elif request in seen.running:
        about.add("skipped")
        assert sum(row.count for row in rows.values()) == witness.engine.config.token_budget
        took = [(row.request, row.count) for row in rows.values()]
        assert listed(r"used up by those before it \((.*)\)", answer) == took
    return about


def check_absent(answer: str, witness: Witness, step: int, request: int) -> set[str]:
    first, ended = witness.first_step.get(request), witness.ended.get(request)
    if ended and ended[0] < step:
        assert answer.endswith(f"it has ended, with reason {ended[1]}.")
        return {"gone"}
    if found := numbers(r"it is sample (\d+) of r(\d+)", answer):
        assert found[0] + found[1] == request
        over = witness.ended.get(found[1], (step,))[0] < step
        assert ("never came to be" in answer) == (over and first is None)
        return {"unborn"}
    assert "has not arrived yet" in answer
    assert first is None or first > step
    return set()


def check_found(answer: str, came: dict[str, Any]) -> set[str]:
    counted = numbers(r"with (\d+) of (\d+) tokens? found", answer)
    assert counted == (came["found"], came["tokens"])
    assert ("Its prompt is scored" in answer) == came["scored"]
    if "cache is off" in answer or came["scored"]:
        assert came["found"] == 0
        return set()
    sharers = listed(r"Shared with (.*?)\. ", answer) if "Shared with" in answer else []
    assert {id_ for (id_,) in sharers} == came["sharers"]
    differs = numbers(r"agrees with it for (\d+) token", answer)
    whole = "all there could be" in answer
    assert whole == (came["found"] + came["size"] > came["tokens"] - 1)
    assert differs == (None if whole or came["agree"] == came["found"] else (came["agree"],))
    lost = numbers(r"Once (\d+) tokens? .* evicted in step (\d+), to make room for r(\d+)", answer)
    assert lost == (None if whole else came["lost"])
    marks = {"differs": differs, "lost": lost, "sharers": sharers}
    return {name for name, value in marks.items() if value}


def check_reason(answer: str, witness: Witness, seen: Seen, request: int) -> set[str]:
    if (request, "policy") in seen.event.skipped:
        assert f"The policy ({type(witness.engine.policy).__name__}) put it off" in answer
        return {"put off"}
    blocked, config = seen.event.blocked, witness.engine.config
    assert blocked is not None
    head, running = blocked.request, list(seen.running)
    who = "it" if head == request else f"r{head}"
    if head != request:
        assert f"waits behind r{head}, " in answer
        behind = (
            len(seen.waiting) - 1 - len([1 for _, why_ in seen.event.skipped if why_ == "policy"])
        )
        assert numbers(r"and (\d+) requests? (?:is|are) behind", answer) == (behind,)
    took = [(row.request, row.count) for row in seen.event.rows]
    assert (blocked.need, blocked.have) == (seen.need, seen.have)
    counted = numbers(rf"r{head} needs (\d+), has (-?\d+)", answer)
    match blocked.reason:
        case "batch_full":
            assert counted == (seen.need, seen.have)
            assert f"of {config.max_batch_size} place" in answer
            assert listed(r"In the batch: (.*?)\.", answer) == [(id_,) for id_ in running]
        case "token_budget":
            assert counted == (seen.need, seen.have)
            assert f"of {config.token_budget} token" in answer
            assert listed(r"The others took: (.*?)\.", answer) == took
        case "no_free_blocks":
            room = rf"r{head} needs (\d+), free (\d+), evictable (\d+)(?:, (?:all )?(\d+))?"
            expected = (seen.need, seen.free, seen.evictable, seen.unlocked)
            assert numbers(room, answer) == expected
            assert listed(r"counted for each: (.*?)\.", answer) == list(seen.running.items())
        case "reserved_blocks":
            assert counted == (seen.need, seen.have)
            assert listed(r"promised to (.*?) nor", answer) == [(id_,) for id_ in running]
        case "after_preemption":
            assert listed(r"admits nobody: preempted (.*?)\.", answer) == [
                (id_,) for id_ in seen.victims
            ]
        case "static_batch":
            assert listed(r"Running: (.*?)\.", answer) == [(id_,) for id_ in running]
    helps = re.search(
        rf"With (\d+) more (.*?)(s?)( in the budget)? {who} would have started", answer
    )
    if helps is None:
        return {blocked.reason}
    more, unit = int(helps[1]), helps[2] + (helps[4] or "")
    assert (more > 1) == bool(helps[3])
    assert starts_with(seen.twin, head, unit, more), "that would not have been enough"
    assert not starts_with(seen.twin, head, unit, more - 1), "less would have been enough"
    return {blocked.reason, unit}
