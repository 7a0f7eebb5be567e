"""What an idea saved in a run: time that was not spent, because prompts were found in the prefix cache,
drafts were accepted, or prompts were computed in chunks.

for saving in savings(log):
    print(saving.words)

The run's inputs are replayed without the idea, so nothing is estimated from counts of tokens: a hit
that let another request start sooner counts with all that followed. An idea may also have cost time.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer.reading.busy_time import busy_us
from visualizer.reading.durations import duration
from visualizer.reading.reading import read
from visualizer.reading.rows import RequestRow
from visualizer.reading.why.find import request_names

if TYPE_CHECKING:
    from engine.simulation.facts import Knowledge

MOST_EVENTS = 20_000  # of a log that is replayed before it is shown: well under a second
_OFF: dict[str, dict[str, Any]] = {
    "prefix cache": {"prefix_cache": "off"},
    "speculation": {"drafter": None},
    "chunked prefill": {"chunked_prefill": False},
}


@dataclass(frozen=True)
class Saving:
    """A run with an idea, and without it. Times in microseconds.

    words     what the idea saved or cost, in one sentence
    mark      "recorded" if the log has the prices of its steps; "inferred" if they were fitted to it
    took      how long the steps took, and how long without the idea
    requests  how long a request would have taken from its arrival to its end without the idea
    """

    idea: str
    words: str
    mark: "Knowledge"
    took: tuple[int, int]
    requests: dict[int, int]


def savings(log: EventLog) -> list[Saving]:
    """Return what each idea saved that was on in a run and changed its time.

    A log that cannot be replayed, because its beginning or a part of its engine is unknown, has none;
    nor has one of more than MOST_EVENTS events.
    """
    used = _used(log) if len(log) <= MOST_EVENTS else []
    return [saving for idea in used if (saving := _saving(log, idea)) is not None]


def _used(log: EventLog) -> list[str]:
    """Return the ideas that had an effect in a run."""
    prompts = {event.request: len(event.prompt) for event in log.of(v.RequestArrived)}
    rows = [row for event in log.of(v.StepScheduled) for row in event.rows]
    used = {
        "prefix cache": any(event.blocks for event in log.of(v.Admitted)),
        "speculation": any(row.drafts for row in rows),
        "chunked prefill": any(
            row.start + row.count < prompts.get(row.request, 0) for row in rows if row.count > 1
        ),
    }
    return [idea for idea, is_used in used.items() if is_used]


def _saving(log: EventLog, idea: str) -> Saving | None:
    from engine.core.config import ConfigError
    from engine.simulation.what_if import what_if
    from visualizer.comparing.same_machine import fit_record, retime

    try:
        without = what_if(log, pinned="time", **_OFF[idea])
    except (ConfigError, ValueError):
        return None
    is_fitted = fit_record(without, log) is not None
    run = retime(log, without) if is_fitted else log
    took = busy_us(run)[0], busy_us(without)[0]
    rows = list(zip(read(run).request_rows, read(without).request_rows, strict=False))
    known = [(one, other) for one, other in rows if one.e2e_ms and other.e2e_ms]
    if not all(took) or not known or took[0] == took[1]:
        return None
    return Saving(
        idea=idea,
        words=_words(idea, took, known, request_names(log)),
        mark="inferred" if is_fitted else "recorded",
        took=took,
        requests={one.request: round(1000 * (other.e2e_ms or 0)) for one, other in known},
    )


def _words(
    idea: str,
    took: tuple[int, int],
    rows: list[tuple[RequestRow, RequestRow]],
    names: dict[int, str],
) -> str:
    """Say how long the steps would have taken, and which request or gap the idea changed most."""
    name = (
        "speculation" if idea == "speculation" else f"the {idea}".replace("the chunked", "chunked")
    )
    said = [f"the steps of this run would take {_instead(took[1] / 1000, took[0] / 1000)}"]
    if idea == "chunked prefill":
        gaps = [
            max((row.itl_max_ms or 0.0 for row in side), default=0.0)
            for side in zip(*rows, strict=True)
        ]
        if gaps[0] != gaps[1]:
            said.append(f"the longest time between two tokens {_instead(gaps[1], gaps[0])}")
    else:
        one, other = max(
            rows, key=lambda pair: _change(pair) if took[1] > took[0] else -_change(pair)
        )
        if _change((one, other)):
            said.append(f"{names[one.request]} {_instead(other.e2e_ms or 0, one.e2e_ms or 0)}")
    return f"Without {name}, {', and '.join(said)}."


def _change(pair: tuple[RequestRow, RequestRow]) -> float:
    return (pair[1].e2e_ms or 0.0) - (pair[0].e2e_ms or 0.0)


def _instead(without: float, with_it: float) -> str:
    return f"{duration(without)} instead of {duration(with_it)}"
