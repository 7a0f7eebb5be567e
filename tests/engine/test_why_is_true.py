"""The facts behind an answer equal the live objects', and the answer names them."""

import re
from collections.abc import Iterable
from typing import Any

from engine.core.log import vocabulary as v
from tests.engine.explanations import Explanation, explain
from tests.engine.witness import Seen, Witness, starts_with, watched_engine
from tests.engine.workloads import Workload, play, random_workload, sliding_workload
from tests.facts import assert_names
from visualizer.reading.why.facts import Admission

# A prompt of one token has nothing to be scored; a request behind one that preempts itself.
ONCE_UNTRUE = (1110, 47)


def test_every_answer_of_random_workloads_is_true_of_the_live_objects(
    soak: bool, first_seed: int
) -> None:
    """Ask about every live request in every step, and sometimes about requests that are not there."""
    about: set[str] = set()
    for seed in (*ONCE_UNTRUE, *range(first_seed, first_seed + (1000 if soak else 12))):
        about |= check_workload(seed, random_workload(seed))
    assert about >= {"gone", "unborn", "waits", "free block", "seat", "token"}
    assert about >= {"preempted", "found", "lost", "differs", "sharers", "after_preemption"}
    assert about >= {"reserved_blocks", "static_batch", "skipped", "drafts", "whole_sequence"}


def test_every_answer_is_true_with_sliding_layers(soak: bool, first_seed: int) -> None:
    about: set[str] = set()
    for seed in (2, *range(first_seed, first_seed + (500 if soak else 8))):
        workload = sliding_workload(seed)
        if not workload.config.async_scheduling:
            about |= check_workload(seed, workload)
    assert "no window" in about


def check_workload(seed: int, workload: Workload) -> set[str]:
    """Ask about every live request in every step; return the answers' subjects."""
    about: set[str] = set()
    engine, witness = watched_engine(workload)
    play(engine, workload)
    for step, seen in witness.seen.items():
        for request in range(1, engine._next_id):
            live = request in seen.waiting or request in seen.running
            if not live and (step + request) % 5:
                continue
            told = explain(witness, request, step)
            try:
                about |= check(told, witness, seen, request)
            except Exception as error:
                raise AssertionError(f"seed {seed}, untrue: {told.text}") from error
    return about


def check_labels(text: str, witness: Witness) -> None:
    """Each label is followed by the id of the request that was submitted with it."""
    for label, id_ in re.findall(r"(\w+) \(r(\d+)\)", text):
        sent = [e for e in witness.of(v.RequestArrived) if 0 <= int(id_) - e.request < e.n]
        assert [event.label for event in sent] == [label]


def said(*numbers: int) -> list[int | str]:
    """Numbers as the sentences have them: a 0 may be "none"."""
    return [number or "none" for number in numbers]


def ids(requests: Iterable[int]) -> list[str]:
    return [f"r{request}" for request in requests]


def check(told: Explanation, witness: Witness, seen: Seen, request: int) -> set[str]:
    """Compare an answer with the live objects; return its subject."""
    facts, text = told.facts, told.text
    assert_names(text, told.step, f"r{request}")
    check_labels(text, witness)
    assert facts.event == seen.event
    if request not in seen.waiting and request not in seen.running:
        return check_absent(told, witness, request)
    rows = {row.request: row for row in seen.event.rows}
    about: set[str] = set()
    assert (facts.preemption is not None) == (request in seen.victims)
    if facts.preemption is not None:
        about.add("preempted")
        gave = seen.victims[request]
        assert {name: getattr(facts.preemption, name) for name in gave} == gave
        needed_by = facts.preemption.event.needed_by
        free, evictable, *blocks = gave.values()
        assert_names(text, f"r{needed_by}", *said(free, evictable), *blocks)
    waits = request in seen.waiting and request not in seen.victims
    assert (request in facts.state.waiting and facts.preemption is None) == waits
    if waits:
        about |= {"waits"} | check_reason(told, witness, seen, request)
    assert (facts.admission is not None) == (request in seen.admitted)
    if facts.admission is not None:
        about |= {"found"} | check_found(told, facts.admission, seen.admitted[request])
    if request in rows:
        row = rows[request]
        end = row.start + row.count - len(row.drafts)
        if row.start < facts.state.requests[request].prompt_length:
            assert_names(text, *{min(row.start + 1, end), end})
        if row.drafts:
            assert_names(text, len(row.drafts))
            about.add("drafts")
    elif request in seen.running:
        about.add("skipped")
        assert_names(text, *ids(rows), *(row.count for row in rows.values()))
        if dict(seen.event.skipped)[request] == "token_budget":
            budget = witness.engine.config.token_budget
            assert sum(row.count for row in rows.values()) == budget
            assert_names(text, budget)
        else:
            assert seen.victims, "it comes after a request that preempted itself"
    return about


def check_absent(told: Explanation, witness: Witness, request: int) -> set[str]:
    span, at = told.span, told.log_index.steps[told.step]
    first, ended = witness.first_step.get(request), witness.ended.get(request)
    assert request not in told.facts.state.requests
    if ended and ended[0] < told.step:
        assert span.end < at
        assert span.reason == ended[1]
        assert_names(told.text, ended[1])
        return {"gone"}
    if span.parent is not None:
        assert span.parent + span.sample == request
        assert_names(told.text, span.sample, f"r{span.parent}")
        over = witness.ended.get(span.parent, (told.step,))[0] < told.step
        assert (told.log_index.spans[span.parent].end < at) == (over and first is None)
        return {"unborn"}
    assert span.begin is not None and span.begin > at
    assert first is None or first > told.step
    return set()


def check_found(told: Explanation, admission: Admission, came: dict[str, Any]) -> set[str]:
    assert (admission.found, admission.tokens) == (came["found"], came["tokens"])
    assert_names(told.text, *said(admission.found), admission.tokens)
    cached = told.facts.config.prefix_cache != "off"
    assert (admission.scored and cached) == came["scored"]
    if not cached or came["scored"]:
        assert came["found"] == 0
        return set()
    assert set(admission.sharers) == came["sharers"]
    assert_names(told.text, *ids(admission.sharers))
    about = {"sharers"} if admission.sharers else set()
    whole = admission.found == admission.most
    assert whole == (came["found"] + came["size"] > came["tokens"] - 1)
    if whole:
        return about
    assert admission.agree == came["agree"]
    if admission.agree > admission.found:
        in_cache = min(admission.agree, admission.tokens - 1) // came["size"] * came["size"]
        is_cut = in_cache > admission.found  # by sliding layers
        assert_names(told.text, in_cache if is_cut else admission.agree)
        about.add("no window" if is_cut else "differs")
    lost = admission.lost
    assert (lost is None) == (came["lost"] is None)
    if lost is not None:
        usable = lost.usable(admission, came["size"])
        assert (usable, lost.step, lost.event.needed_by) == came["lost"]
        assert_names(told.text, usable, lost.step)
        if lost.event.reason == "room":
            assert_names(told.text, f"r{lost.event.needed_by}")
        about.add("lost")
    return about


def check_reason(told: Explanation, witness: Witness, seen: Seen, request: int) -> set[str]:
    facts, text, config = told.facts, told.text, witness.engine.config
    if (request, "policy") in seen.event.skipped:
        assert_names(text, type(witness.engine.policy).__name__)
        return {"put off"}
    blocked = facts.event.blocked
    assert blocked is not None
    head = blocked.request
    behind = len(seen.waiting) - 1 - len([1 for _, why in seen.event.skipped if why == "policy"])
    assert blocked.behind == behind
    if head != request:
        assert_names(text, f"r{head}", behind)
    assert facts.state.running == list(seen.running)
    match blocked.reason:
        case "batch_full":
            assert_names(text, blocked.need, *said(blocked.have), config.max_batch_size)
            assert_names(text, *ids(seen.running))
        case "token_budget":
            rows = seen.event.rows
            assert_names(text, blocked.need, *said(blocked.have), config.token_budget)
            assert_names(
                text,
                *ids(row.request for row in rows),
                *(row.count - len(row.drafts) for row in rows),
            )
        case "no_free_blocks" | "whole_sequence":
            state, own = facts.state, told.head_prefix.unlocked
            free, evictable = state.free_before_drafts(seen.event.rows), state.evictable
            assert (free, evictable, own) == (seen.free, seen.evictable, seen.unlocked)
            tables = {id_: len(state.requests[id_].block_table) for id_ in state.running}
            assert tables == seen.running
            assert_names(text, blocked.need, *said(free, evictable - own), *([own] if own else []))
            assert_names(text, *ids(tables), *tables.values())
        case "reserved_blocks":
            assert_names(text, blocked.need, *said(max(0, blocked.have)), *ids(seen.running))
        case "after_preemption":
            assert facts.victims == list(seen.victims)
            assert_names(text, *ids(facts.victims))
        case "static_batch":
            assert_names(text, *ids(seen.running))
    helps = told.shortfall
    if helps is None:
        return {blocked.reason}
    assert_names(text, helps.more)
    assert starts_with(seen.twin, head, helps.unit, helps.more), "that would not have been enough"
    assert not starts_with(seen.twin, head, helps.unit, helps.more - 1), "less would be enough"
    return {blocked.reason, helps.unit}
