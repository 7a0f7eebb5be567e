"""The parts of a request's time: all spans with one cause, and how the log knows that cause."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.simulation.facts import Fact, Knowledge, knowledge
from visualizer.reading.waterfall.causes import LOST, WAITING, WORK
from visualizer.reading.waterfall.spans import Span

# The facts that a log must know before a cause is known; "waiting" stands for all reasons of the
# scheduler's.
_FACTS: dict[str, list[Fact]] = json.loads(
    Path(__file__).with_name("cause_facts.json").read_text("utf-8")
)
_INFERRED = ("others_prefill",)


@dataclass(slots=True)
class Part:
    """All spans of a request with one cause; waiting behind others is a part of its own.

    time   in the waterfall's unit; the times of all parts add up to the request's `total`
    steps  the steps with that cause
    about  other requests that it is about, in order: see `Span.about`
    mark   whether the log recorded the cause, or it is inferred or unknown
    words  what the time was spent on
    """

    cause: str
    is_behind: bool
    time: int = 0
    steps: list[int] = field(default_factory=list)
    about: list[int] = field(default_factory=list)
    mark: Knowledge = "recorded"
    words: str = ""


def parts_of(spans: list[Span], source: Mapping[str, Any]) -> list[Part]:
    """Return one part per cause: work, then what was lost, then waiting, then the engine's.

    source  as in `run_started`; it says how a foreign log knows each fact
    """
    parts: dict[tuple[str, bool], Part] = {}
    for span in spans:
        is_behind = span.about is not None and span.cause in WAITING
        part = parts.setdefault((span.cause, is_behind), Part(span.cause, is_behind))
        part.mark = mark_of(span.cause, source)
        part.time += span.duration
        if span.step not in part.steps[-1:]:
            part.steps.append(span.step)
        if span.about is not None and span.about not in part.about:
            part.about.append(span.about)
    order = (*WORK, *LOST, *WAITING)
    return sorted(
        parts.values(), key=lambda part: order.index(part.cause) if part.cause in order else 99
    )


def mark_of(cause: str, source: Mapping[str, Any]) -> Knowledge:
    """Return how a log with this `run_started.source` knows that time had this cause."""
    if cause == "unknown":
        return "unknown"
    known = {knowledge(source, fact) for fact in _FACTS.get(cause, _FACTS["waiting"])}
    if "unknown" in known:
        return "unknown"
    return "inferred" if "inferred" in known or cause in _INFERRED else "recorded"
