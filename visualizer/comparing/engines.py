"""Compare the logs of different engines: match their requests, and say which facts they share.

In two logs of this engine, equal requests have equal labels and prompts. Another engine labels requests
in its own way and may not record their tokens, so its requests are matched by label or, if no label is
in both logs, by order of arrival.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.simulation.facts import FACTS, Fact
from visualizer import read
from visualizer.reading.knowledge import WORDS


class Arrival(NamedTuple):
    """A request, its label, its prompt's token ids and its number of samples."""

    request: int
    label: str
    prompt: tuple[int, ...]
    n: int


def is_foreign(*logs: EventLog) -> bool:
    """Return whether another engine wrote at least one of the logs."""
    return any(read(log).knowledge.source for log in logs)


def match_foreign(a: EventLog, b: EventLog) -> list[tuple[Arrival, Arrival]]:
    """Return pairs of requests with the same label or, if no label is in both, in order of arrival."""
    shared = _shared_labels(a, b)
    if not shared:
        return list(zip(_arrivals(a), _arrivals(b), strict=False))
    labelled = {one.label: one for one in _arrivals(b)}
    return [(one, labelled[one.label]) for one in _arrivals(a) if one.label in shared]


def match_equal(a: EventLog, b: EventLog) -> list[tuple[Arrival, Arrival]]:
    """Return pairs of requests with the same label and prompt, in order of arrival."""
    known: defaultdict[tuple[str, tuple[int, ...]], deque[Arrival]] = defaultdict(deque)
    for one in _arrivals(b):
        known[one.label, one.prompt].append(one)
    pairs = [(one, known[one.label, one.prompt]) for one in _arrivals(a)]
    return [(one, same.popleft()) for one, same in pairs if same]


def _shared_labels(a: EventLog, b: EventLog) -> set[str]:
    """Return the labels that both logs have, or none if one of the logs uses a label twice."""
    labels = [[one.label for one in _arrivals(log)] for log in (a, b)]
    if any(len(set(some)) < len(some) for some in labels):
        return set()
    return set(labels[0]).intersection(labels[1]) - {""}


def _arrivals(log: EventLog) -> Iterator[Arrival]:
    for event in log:
        if isinstance(event, v.RequestArrived):
            yield Arrival(event.request, event.label, tuple(event.prompt), event.n)
        elif isinstance(event, v.Keyframe):
            for one in event.state.requests:
                prompt = tuple(one.tokens[: one.prompt_length])
                yield Arrival(one.id, one.label, prompt, max(1, one.num_seqs))


def engines_note(a: EventLog, b: EventLog, names: tuple[str, str]) -> str:
    """Say how the requests of two engines were matched, and which facts only one of the logs has."""
    matched = "label" if _shared_labels(a, b) else "order of arrival"
    sentences = [f"The requests are matched by {matched}."]
    knows = read(a).knowledge, read(b).knowledge
    engines = [one.source.get("engine", "Underglass") for one in knows]
    if engines[0] != engines[1]:
        on = [re.sub("^simulation of", "a simulation of", engine) for engine in engines]
        sentences.insert(0, f"{names[0]} ran on {on[0]}, {names[1]} on {on[1]}.")
    for side, other in ((0, 1), (1, 0)):
        alone: list[Fact] = [
            fact for fact in FACTS if knows[side].lacks(fact) and not knows[other].lacks(fact)
        ]
        if alone:
            sentences.append(f"Unknown in {names[side]}, so not compared: {_listed(alone)}.")
    for name, log in zip(names, knows, strict=True):
        inferred, recorded = log.facts("inferred"), log.facts("recorded")
        if 0 < len(recorded) < len(inferred):
            sentences.append(f"Inferred in {name}: all facts except {_listed(recorded)}.")
        elif inferred:
            sentences.append(f"Inferred in {name}: {_listed(inferred)}.")
    return " ".join(sentences)


def _listed(facts: Sequence[Fact]) -> str:
    return ", ".join(WORDS["facts"][fact] for fact in facts)
