"""Choose questions about what the engine will do next, from any log.

A question is asked before a step and can be answered from earlier events. Instructive moments
(preemptions, hits, evictions, a blocked request) are preferred, and the questions are spread over the
log and over the kinds of question. A given seed always selects the same questions.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from engine.core.log import EventLog, State
from engine.core.log import vocabulary as v
from visualizer.predicting.asking import KINDS, Question, ask, evictable_leaves

MOST_CHOICES = 10  # requests to choose from
_LACKS_MEMORY = ("no_free_blocks", "whole_sequence")
_TRIES = 12  # candidates to try in each stretch of the log, since some questions would be unfair


class _Candidate(NamedTuple):
    step: int
    kind: str
    weight: float


def questions(
    log: EventLog, most: int = 5, seed: int = 0, kinds: Sequence[str] = KINDS
) -> list[Question]:
    """Return at most `most` questions in log order, or none if the log has nothing to ask about.

    Raises ValueError for an unknown kind.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"kinds must be among {', '.join(KINDS)}, got {kind!r}")
    if most < 1:
        raise ValueError(f"questions must be at least 1, got {most}")
    found = [one for one in _candidates(log) if one.kind in kinds]
    return _spread(log, found, most, random.Random(seed)) if found else []


def _spread(
    log: EventLog, found: list[_Candidate], most: int, rng: random.Random
) -> list[Question]:
    """Choose the best candidate in each stretch of the log, preferring kinds not used yet."""
    first, steps = found[0].step, found[-1].step - found[0].step + 1
    stretches: list[list[_Candidate]] = [[] for _ in range(most)]
    for one in found:
        stretches[(one.step - first) * most // steps].append(one)
    used: Counter[str] = Counter()
    chosen: dict[int, Question] = {}

    def choose(pool: list[_Candidate]) -> bool:
        scores = {one: one.weight - 1.5 * used[one.kind] + rng.random() for one in pool}
        best = sorted(pool, key=lambda one: -scores[one])[:_TRIES]
        for one in best:
            if one.step not in chosen and (question := ask(log, one.step, one.kind)):
                used[one.kind] += 1
                chosen[one.step] = question
                return True
        return False

    for stretch in stretches:
        choose(stretch)
    while len(chosen) < most and choose([one for one in found if one.step not in chosen]):
        pass
    return [chosen[step] for step in sorted(chosen)]


def _candidates(log: EventLog) -> Iterator[_Candidate]:
    """Yield every possible question with its weight, in one pass."""
    state, step = State(), 0
    waiting, running, blocked = 0, 0, ""
    events: list[v.Event] = []
    for event in log:
        if isinstance(event, v.StepStarted):
            step, events = event.step, []
            waiting, running = len(state.waiting), len(state.running)
        elif isinstance(event, v.Preempted | v.Admitted | v.RadixEvicted | v.BlockEvicted):
            events.append(event)
            evicted = isinstance(event, v.RadixEvicted) and event.reason == "room"
            if evicted and len([*islice(evictable_leaves(state), 2)]) == 2:
                yield _Candidate(step, "evicted", 2.5)
        elif isinstance(event, v.StepScheduled) and step:
            reason = event.blocked.reason if event.blocked else ""
            for kind, weight in _weights(event, events, waiting, running, new=reason != blocked):
                if kind != "hit" or state.settings["prefix_cache"] != "off":
                    yield _Candidate(step, kind, weight)
            blocked = reason
        state.apply(event)


def _weights(
    plan: v.StepScheduled, events: list[v.Event], waiting: int, running: int, *, new: bool
) -> Iterator[tuple[str, float]]:
    victims = sum(isinstance(event, v.Preempted) for event in events)
    admitted = [event for event in events if isinstance(event, v.Admitted)]
    if victims and running > 1:
        yield "preempted", 3
    if any(event.blocks for event in admitted):
        yield "hit", 2.5
    if plan.blocked and new and running:
        yield "blocked", 2.5 if victims or plan.blocked.reason in _LACKS_MEMORY else 2
    elif admitted and running and waiting:
        yield "blocked", 0.5
    if admitted and 1 < waiting <= MOST_CHOICES:
        yield "admitted", 2 if len(admitted) < waiting else 1
    if 2 < waiting + running <= MOST_CHOICES:
        partly = len(plan.rows) < waiting + running
        yield "scheduled", 1.5 if partly and new else 0.2
    if any(row.count > 1 for row in plan.rows):
        yield "tokens", 2 if sum(row.count > 1 for row in plan.rows) > 1 else 1
