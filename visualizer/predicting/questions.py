"""Questions about what the engine will do next, drawn from any log.

A question is put before a step: it may be answered from everything that happened until then. Telling
moments come first (preemptions, hits, evictions, somebody who cannot start), spread over the log, with
as many kinds as there are; equal seeds give equal questions.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.events import EventLog, State
from engine.events import vocabulary as v
from engine.events.state import ROOT
from visualizer.predicting.asking import KINDS, Question, ask

MOST_CHOICES = 10  # requests that one can still choose from
_TRIES = 12  # candidates of a stretch; some cannot be asked fairly


class _Candidate(NamedTuple):
    step: int
    kind: str
    weight: float


def questions(
    log: EventLog, most: int = 5, seed: int = 0, kinds: Sequence[str] = KINDS
) -> list[Question]:
    """At most `most` questions, in the log's order; none if nothing in it can be asked.

    Raises ValueError for an unknown kind.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"kinds: there is no {kind!r}; there are {', '.join(KINDS)}")
    if most < 1:
        raise ValueError(f"questions must be at least 1, got {most}")
    found = [one for one in _candidates(log) if one.kind in kinds]
    return _spread(log, found, most, random.Random(seed)) if found else []


def _spread(
    log: EventLog, found: list[_Candidate], most: int, rng: random.Random
) -> list[Question]:
    """One of each stretch of the log, the most telling, of kinds that were not asked for so often."""
    first, steps = found[0].step, found[-1].step - found[0].step + 1
    stretches: list[list[_Candidate]] = [[] for _ in range(most)]
    for one in found:
        stretches[(one.step - first) * most // steps].append(one)
    used: Counter[str] = Counter()
    chosen: dict[int, Question] = {}

    def take(pool: list[_Candidate]) -> bool:
        scores = {one: one.weight - 1.5 * used[one.kind] + rng.random() for one in pool}
        best = sorted(pool, key=lambda one: -scores[one])[:_TRIES]
        for one in best:
            if one.step not in chosen and (question := ask(log, one.step, one.kind)):
                used[one.kind] += 1
                chosen[one.step] = question
                return True
        return False

    for stretch in stretches:
        take(stretch)
    while len(chosen) < most and take([one for one in found if one.step not in chosen]):
        pass
    return [chosen[step] for step in sorted(chosen)]


def _candidates(log: EventLog) -> Iterator[_Candidate]:
    """Every step with something to ask about, and how telling it is. One pass."""
    state, step = State(), 0
    waiting, running, blocked = 0, 0, ""
    events: list[v.Event] = []
    for event in log:
        if isinstance(event, v.StepStarted):
            step, events = event.step, []
            waiting, running = len(state.waiting), len(state.running)
        elif isinstance(event, v.Preempted | v.Admitted | v.RadixEvicted):
            events.append(event)
            if isinstance(event, v.RadixEvicted) and event.reason == "room" and _choosable(state):
                yield _Candidate(step, "evicted", 2.5)
        elif isinstance(event, v.StepScheduled) and step:
            reason = event.blocked.reason if event.blocked else ""
            for kind, weight in _weights(event, events, waiting, running, new=reason != blocked):
                if kind != "hit" or state.settings["prefix_cache"]:
                    yield _Candidate(step, kind, weight)
            blocked = reason
        state.apply(event)


def _weights(
    plan: v.StepScheduled, events: list[v.Event], waiting: int, running: int, *, new: bool
) -> Iterator[tuple[str, float]]:
    victims = sum(isinstance(event, v.Preempted) for event in events)
    came = [event for event in events if isinstance(event, v.Admitted)]
    if victims and running > 1:
        yield "preempted", 3
    if any(event.blocks for event in came):
        yield "hit", 2.5
    if plan.blocked and new and running:
        yield "blocked", 2.5 if victims or plan.blocked.reason == "no_free_blocks" else 2
    elif came and running and waiting:
        yield "blocked", 0.5
    if came and 1 < waiting <= MOST_CHOICES:
        yield "admitted", 2 if len(came) < waiting else 1
    if 2 < waiting + running <= MOST_CHOICES:
        partly = len(plan.rows) < waiting + running
        yield "scheduled", 1.5 if partly and new else 0.2
    if any(row.count > 1 for row in plan.rows):
        yield "tokens", 2 if sum(row.count > 1 for row in plan.rows) > 1 else 1


def _choosable(state: State) -> bool:
    """Are there two leaves at least that could be evicted?"""
    found = 0
    for node in state.nodes.values():
        found += node.id != ROOT and not node.lock and not node.children
        if found > 1:
            return True
    return False
