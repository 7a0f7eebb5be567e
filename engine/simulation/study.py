"""What if, on your trace: the recorded run, its replay, and replays with other settings, side by side.

    print(study(log, {"token_budget": [32, 64]}))

A replay predicts. How far can it be trusted? Each number comes with two answers:

1. *Held back*: the recorded schedule, with the time of each step predicted by prices that were fitted
   without that step. The difference to the recorded number is the cost model's error in that number.
2. *Replayed unchanged*: the same arrivals with the recorded settings. The difference to the recorded
   number is everything that the replay gets wrong, decisions included.

A change that is smaller than either is marked with "~": it may be an error of the model.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from engine.core.config import ConfigError
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.fit import HeldBack, fit, held_back
from engine.simulation.log_part import LogPart, started_of, unended_requests
from engine.simulation.measures import Measure, measures, percent_change
from engine.simulation.recorded_drafts import LOOKAHEAD, NUM_DRAFTS, SLOTS, Drafting, drafting_of
from engine.simulation.replayable import has_unknown
from engine.simulation.reproduced import Reproduced, reproduced
from engine.simulation.what_if import error_record, what_if

VAGUE = 0.5  # median held-back error above which the times are of no use
MAX_RUNS = 24


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of all runs.

    is_time    whether it depends on the machine's speed; else it is a count
    changed    its value in each changed run
    error      the relative error that the cost model makes in it on held-back steps; None if unknown,
               and for a count, which has no time
    off        how far the unchanged replay is off, relative to the recorded value; None if unknown
    is_within  for each changed run, whether the change is within the errors
    """

    name: str
    is_time: bool
    recorded: float | None
    replayed: float | None
    changed: list[float | None]
    error: float | None
    off: float | None
    is_within: list[bool]


@dataclass(frozen=True, slots=True)
class Study:
    """The runs, and what their numbers are worth.

    replayed    the recorded arrivals with the recorded settings
    changed     the changed settings in words, such as "token_budget=32"
    first       the run with the first of them; of the others, only the measures are kept
    error       the cost model's error on held-back steps; None: too few steps
    reproduced  how many steps an unchanged replay decides alike if arrivals are pinned to steps
    notes       what was inferred, a sentence each
    """

    recorded: EventLog
    replayed: EventLog
    changed: list[str]
    first: EventLog
    error: HeldBack | None
    reproduced: Reproduced
    notes: list[str]
    rows: list[Row]

    def table(self) -> list[list[str]]:
        """Return the table as texts: the heads, then a line for each measure."""
        heads = ["", "held-back error", "recorded", "replayed", *self.changed]
        return [heads, *(_line(row) for row in self.rows)]

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the logs as JSON values."""
        return {
            "held_back": error_record(self.error),
            "reproduced": {
                "equal": self.reproduced.equal,
                "steps": self.reproduced.steps,
                "first_difference": self.reproduced.first,
            },
            "notes": self.notes,
            "measures": [
                {
                    "name": row.name,
                    "recorded": row.recorded,
                    "replayed": row.replayed,
                    "changed": dict(zip(self.changed, row.changed, strict=True)),
                    "held_back_error": row.error,
                    "replay_off_by": row.off,
                    "within_error": dict(zip(self.changed, row.is_within, strict=True)),
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        return "\n".join([*in_columns(self.table()), "", *self.statements()])

    def statements(self) -> list[str]:
        """Return what the numbers are worth: a sentence for each thing to know."""
        is_vague = self.error is not None and self.error.median > VAGUE
        return [
            *(
                ["Do not rely on the times: half of all steps are mispredicted by more than half."]
                * is_vague
            ),
            f"{error_record(self.error)['text']}.",
            f"If each request arrives before its recorded step, {self.reproduced}.",
            "Beside a count stands how far the unchanged replay is off.",
            "~: the change is not larger than the error, or than what the unchanged replay is off by.",
            *self.notes,
        ]


def study(
    log: EventLog,
    settings: Mapping[str, Sequence[Any]],
    *,
    pinned: str = "time",
    told: Callable[[int], None] = lambda _runs: None,
) -> Study:
    """Replay a log's arrivals unchanged and with every combination of some settings.

    settings  name -> values, as for `what_if`
    pinned    "time": requests arrive at the recorded times; "step": before the recorded steps
    told      is called after each replay with the number of those that are left

    Raises what `what_if` raises, and ConfigError for more than 24 combinations.
    """
    combinations = [dict(zip(settings, one, strict=True)) for one in product(*settings.values())]
    if not 1 <= len(combinations) <= MAX_RUNS:
        raise ConfigError(
            f"a sweep has 1 to {MAX_RUNS} runs, and these settings give {len(combinations)}"
        )
    window = log.window if isinstance(log, LogPart) else None
    measured = partial(measures, cut=set() if window else unended_requests(log), window=window)
    replayed, first, found = what_if(log, pinned=pinned), None, list[list[Measure]]()
    for left, one in zip(range(len(combinations), 0, -1), combinations, strict=True):
        told(left)
        run = what_if(log, pinned=pinned, **one)
        found.append(measured(run))
        first = first or run
        gc.collect()  # an engine and its requests refer to each other
    assert first is not None
    told(0)
    by_step = replayed if pinned == "step" else what_if(log, pinned="step", cost=fit(log).cost)
    error, recorded = held_back(log), measured(log)
    return Study(
        recorded=log,
        replayed=replayed,
        changed=[_words(one) for one in combinations],
        first=first,
        error=error,
        reproduced=reproduced(log, by_step),
        notes=_notes(log, pinned),
        rows=[
            _row(one, held, again, changed)
            for one, held, again, *changed in zip(
                recorded,
                measured(log, error.predicted_at) if error else [None] * len(recorded),
                measured(replayed),
                *found,
                strict=True,
            )
        ],
    )


def _row(recorded: Measure, held: Measure | None, again: Measure, changed: list[Measure]) -> Row:
    error = _relative(held.value, recorded.value) if recorded.is_time and held else None
    off = _relative(again.value, recorded.value)
    known = [abs(one) for one in (error, off) if one is not None]
    margin = max(known) if len(known) == 1 + recorded.is_time else None

    def is_within(value: float | None) -> bool:
        change = _relative(value, again.value)
        return change is not None and change != 0 and (margin is None or abs(change) <= margin)

    values = [one.value for one in changed]
    within = [is_within(value) for value in values]
    return Row(
        recorded.name, recorded.is_time, recorded.value, again.value, values, error, off, within
    )


def _relative(value: float | None, base: float | None) -> float | None:
    if value is None or base is None:
        return None
    if base == 0:
        return 0.0 if value == 0 else None
    return value / base - 1


def _notes(log: EventLog, pinned: str) -> list[str]:
    started = started_of(log)
    assert started is not None
    arrive = "at the recorded times" if pinned == "time" else "before the recorded steps"
    notes = [
        f"Recorded: arrivals, lengths and settings. Simulated: all decisions and times of a replay; "
        f"requests arrive {arrive}."
    ]
    if isinstance(first := log[0], v.Keyframe):
        notes.append(
            f"This is a part of the run, from step {first.state.step + 1:,} on. It begins with the "
            f"cache and {_count(len(first.state.requests), 'request')} from before, which count from "
            "there on, but not in the hit rate. What had not ended at its end counts until then."
        )
    if has_unknown(log):
        notes.append(
            "Inferred: which prompts share a prefix, from cached blocks that the log shows as equal."
        )
        if not any(log.of(v.BlocksStored, v.RadixInserted)):
            notes.append(
                "The log shows no cached block, so no replay finds a prefix, whatever its cache."
            )
    groups = started.source.get("groups")
    if groups and "kv_groups" not in started.model:
        notes.append(
            f"The recorded run shared its memory among {len(groups)} KV cache groups; the replays give "
            f"all of it to {groups[0]}. Where memory was short, they wait, preempt and compute too "
            "little, and all times and prefix hits that depend on it are too good."
        )
    drafted = {NUM_DRAFTS, LOOKAHEAD, SLOTS} if drafting_of(log) else set[str]()
    others = started.source.get("others", {})
    if others := {name: one for name, one in others.items() if name not in drafted}:
        named = ", ".join(f"{name.partition('.')[2]}={_value(one)}" for name, one in others.items())
        notes.append(f"Replayed without {named}, which this engine does not have.")
    ended = {event.request for event in log.of(v.RequestFinished)}
    if started.source and (left := len({row.request for row in log.of(v.RequestArrived)} - ended)):
        notes.append(
            f"{_count(left, 'request')} had not ended when the recording did; replays end there, too."
        )
    if any(row.drafts for event in log.of(v.StepScheduled) for row in event.rows):
        notes.append(_about_drafts(drafting_of(log)))
    if gaps := len(log.of(v.EventsMissing)):
        notes.append(
            f"The recording has {_count(gaps, 'gap')}; the replays know nothing of what they hide."
        )
    return notes


def _about_drafts(drafting: Drafting | None) -> str:
    if drafting is None:
        return (
            "The recorded run had drafts (speculative decoding); the replays have none: with "
            "asynchronous scheduling or SGLang's scheduler, drafts are not replayed."
        )
    return (
        "Recorded: the drafts, and which were accepted. Assumed where a changed replay schedules "
        "a request at other tokens: a draft that follows accepted ones, and that was not recorded, is "
        "right, too; and where the recorded step had no drafts, there are none. The time that the "
        "drafter took stays in the price of a step, with any number of drafts."
    )


def _words(changes: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in changes.items()) or "unchanged"


def _value(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _line(row: Row) -> list[str]:
    changed = [
        _figure(value) + _change(value, row.replayed, is_within=within)
        for value, within in zip(row.changed, row.is_within, strict=True)
    ]
    return [row.name, _error(row), _figure(row.recorded), _figure(row.replayed), *changed]


def _error(row: Row) -> str:
    """Return the error beside a row's numbers: on held-back steps or, for a count, of the replay."""
    if row.error is not None:
        return percent_change(row.error, 1)
    if row.off is not None and not row.is_time:
        return "exact" if row.off == 0 else f"off {percent_change(row.off, 1)}"
    return "unknown"


def _change(value: float | None, base: float | None, *, is_within: bool) -> str:
    change = _relative(value, base)
    if change is None or change == 0:
        return ""
    return f" ({'~' if is_within else ''}{percent_change(change)})"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def in_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Return a table's lines as text: the first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
