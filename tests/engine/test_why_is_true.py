"""Every number and name in an answer is what the live objects said; what would have helped, helps."""

import re
from typing import Any

from engine.events import vocabulary as v
from engine.why import why
from tests.engine.witness import Seen, Witness, starts_with, watched_engine
from tests.engine.workloads import play, random_workload

ONCE_UNTRUE = (1110,)  # a prompt of one token has nothing to be scored


def test_every_answer_of_random_workloads_is_true_of_the_live_objects(
    soak: bool, first_seed: int
) -> None:
    """For every live request and step; for those who are not there, now and then."""
    told: set[str] = set()
    for seed in (*ONCE_UNTRUE, *range(first_seed, first_seed + (1000 if soak else 20))):
        workload = random_workload(seed)
        engine, witness = watched_engine(workload)
        play(engine, workload)
        for step, seen in witness.seen.items():
            for request in range(1, engine._next_id):
                live = request in seen.waiting or request in seen.running
                if not live and (step + request) % 5:
                    continue
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
    took = [(row.request, row.count - len(row.drafts)) for row in seen.event.rows]
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
