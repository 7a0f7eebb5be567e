"""What an idea saved in a run: time that was not spent, because prompts were found in the prefix cache,
drafts were accepted, or prompts were computed in chunks.

for saving in savings(log):
    print(saving.words)

The run's inputs are replayed without the idea, so nothing is estimated from counts of tokens: a hit
that let another request start sooner counts with all that followed. An idea may also have cost time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer.reading.busy_time import busy_us
from visualizer.reading.durations import duration
from visualizer.reading.reading import read
from visualizer.reading.rows import RequestRow
from visualizer.reading.why.find import request_names

MOST_EVENTS = 5_000  # of a log that is replayed before it is shown: about a third of a second
_LEAST = 0.01  # a smaller change of the whole run is not worth a sentence
_OFF: dict[str, dict[str, Any]] = {
    "prefix cache": {"prefix_cache": "off"},
    "speculation": {"draft_length": 0},
    "chunked prefill": {"chunked_prefill": False},
}


@dataclass(frozen=True)
class Saving:
    """A run with an idea, and without it. Times in microseconds.

    Both runs are replays on the prices of the log's machine or, of a measured log, on prices of a step
    that were fitted to it, so that a wrong price does not look like an effect.

    words     what the idea saved or cost, in one sentence
    took      how long the steps take, and how long without the idea
    requests  how much longer each request would take from its arrival to its end without it
    """

    idea: str
    words: str
    took: tuple[int, int]
    requests: dict[int, int]


def savings(log: EventLog) -> list[Saving]:
    """Return what each idea saved that was on in a run and changed its time.

    A log that cannot be replayed, because its beginning or a part of its engine is unknown, has none;
    nor has one without times, or of more than MOST_EVENTS events.
    """
    if len(log) > MOST_EVENTS or not all(event.t for event in log.of(v.StepFinished)):
        return []
    used = _used(log)
    return [*_found(log, used)] if used else []


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


def _found(log: EventLog, ideas: list[str]) -> Iterator[Saving]:
    from engine.core.config import ConfigError
    from engine.simulation.fit import fit
    from engine.simulation.rerun import recorded_cost
    from engine.simulation.what_if import what_if

    try:
        cost = recorded_cost(log) or fit(log).cost
        run = what_if(log, pinned="time", cost=cost)
    except (ConfigError, ValueError):
        return
    names, own_rows, run_rows = request_names(log), _by_sample(log), _by_sample(run)
    for idea in ideas:
        try:
            without = what_if(log, pinned="time", cost=cost, **_OFF[idea])
        except (ConfigError, ValueError):
            continue
        took = busy_us(run)[0], busy_us(without)[0]
        rows_without = _by_sample(without)
        rows = [(own, run_rows.get(key), rows_without.get(key)) for key, own in own_rows.items()]
        known = [(own, a, b) for own, a, b in rows if a and b and a.e2e_ms and b.e2e_ms]
        if all(took) and known and took[0] != took[1]:
            requests = {own.request: round(1000 * _change(one, other)) for own, one, other in known}
            yield Saving(idea, _words(idea, took, known, names), took, requests)


def _by_sample(log: EventLog) -> dict[tuple[int, int], RequestRow]:
    """Return the requests by the place of their prompt in the order of arrival, and by sample.

    A replay may have other ids.
    """
    rows = read(log).request_rows
    order = {root: index for index, root in enumerate(dict.fromkeys(row.root for row in rows))}
    return {(order[row.root], row.sample): row for row in rows}


def _words(
    idea: str,
    took: tuple[int, int],
    rows: list[tuple[RequestRow, RequestRow, RequestRow]],
    names: Mapping[int, str],
) -> str:
    """Say how long the steps would have taken, and which request or gap the idea changed most."""
    said = list[str]()
    if abs(took[1] - took[0]) >= _LEAST * took[0]:
        said.append(f"the steps of this run would take {_instead(took[1] / 1000, took[0] / 1000)}")
    _, with_it, without = zip(*rows, strict=True)
    gaps = [max(row.itl_max_ms or 0.0 for row in side) for side in (without, with_it)]
    own, one, other = max(rows, key=lambda row: abs(_change(*row[1:])))
    if idea == "chunked prefill" and gaps[0] != gaps[1]:
        verb = " would be" * (not said)
        said.append(f"the longest time between two tokens{verb} {_instead(*gaps)}")
    elif idea != "chunked prefill" and _change(one, other):
        name = names[own.request] + " would take" * (not said)
        said.append(f"{name} {_instead(other.e2e_ms or 0.0, one.e2e_ms or 0.0)}")
    lead = f"Without {'the ' * (idea == 'prefix cache')}{idea}"
    return f"{lead}, {', and '.join(said) or 'the steps of this run would take as long'}."


def _change(one: RequestRow, other: RequestRow) -> float:
    return (other.e2e_ms or 0.0) - (one.e2e_ms or 0.0)


def _instead(without: float, with_it: float) -> str:
    return f"{duration(without)} instead of {duration(with_it)}"
