"""What would have helped: the run again with one setting changed at a time, and the best of them.

Nothing is guessed: each change is a rerun of the log's own workload by the real scheduler, with every
request at its recorded time. The measure is the mean time from a request's arrival to its end. A change
that helps by making something else worse shows both.
"""

from collections.abc import Iterator
from statistics import fmean
from typing import Any

import msgspec

from engine.core.config import ConfigError, EngineConfig
from engine.core.log import EventLog
from engine.simulation.choice import ChoiceError
from engine.simulation.rerun import Rerun
from visualizer.comparing.run_totals import US_PER_MS, computed_twice
from visualizer.reading.busy_time import busy_us
from visualizer.reading.durations import duration
from visualizer.reading.messages import count
from visualizer.reading.rows.requests import request_rows

BEST = 3
LEAST = 0.005  # a smaller share of the mean time is no help


class Numbers(msgspec.Struct, frozen=True):
    """The measures of a run: means and the worst of its requests, in ms, and tokens computed again."""

    mean_ms: float
    worst_ttft_ms: float
    busy_ms: float
    again: int


class Change(msgspec.Struct, frozen=True):
    """A changed setting, in words and as a field of EngineConfig, with the measures of its rerun.

    failed  why it cannot be run, or ""
    """

    words: str
    settings: dict[str, Any]
    numbers: Numbers | None
    failed: str = ""


class Helped(msgspec.Struct, frozen=True):
    """The changes that help most, best first, out of `tried`.

    error  the median error of a predicted step, or None if the times are exact
    """

    as_it_was: Numbers
    best: list[Change]
    tried: list[Change]
    error: float | None

    def __str__(self) -> str:
        was = self.as_it_was
        trust = (
            ""
            if self.error is None
            else f" The times are predicted (median error {self.error:.0%})."
        )
        lead = (
            f"{count(len(self.tried), 'change')} tried, each by running the whole log again. As it "
            f"was, a request took {duration(was.mean_ms)} on average.{trust}"
        )
        if not self.best:
            return f"{lead}\nNone of them makes that shorter."
        return "\n".join([lead, *(f"  {line(one, was)}" for one in self.best)])


def line(change: Change, was: Numbers) -> str:
    """Return a change with the numbers that it changes, as one line."""
    now = change.numbers
    assert now is not None
    less = 100 * (1 - now.mean_ms / was.mean_ms)
    said = [f"{change.words}: {duration(now.mean_ms)} on average, {less:.0f} % less"]
    for lead, before, after in (
        ("the worst first token after ", duration(was.worst_ttft_ms), duration(now.worst_ttft_ms)),
        ("busy for ", duration(was.busy_ms), duration(now.busy_ms)),
        ("", f"{was.again:,}", f"{count(now.again, 'token')} computed again"),
    ):
        if before != after and (lead or was.again != now.again):
            said.append(f"{lead}{after} instead of {before}")
    return ", ".join(said)


def helped(rerun: Rerun) -> Iterator[Change | Helped]:
    """Yield each change after its rerun, and at the end the best of them.

    A reader who has seen enough stops iterating. Raises ChoiceError for a log that is not run again as
    it was.
    """
    if (first := rerun.first_difference) is not None:
        raise ChoiceError(
            f"what would have helped is unknown: a rerun of the log's inputs decides step {first} "
            "differently, so it is no measure of this run"
        )
    was = numbers(rerun.happened)
    tried = list[Change]()
    for words, settings in changes(rerun.config, own=not rerun.is_foreign):
        try:
            change = Change(words, settings, numbers(rerun.changed(**settings)))
        except (ConfigError, ChoiceError) as error:
            change = Change(words, settings, None, str(error))
        tried.append(change)
        yield change
    yield Helped(was, best(was, tried), tried, rerun.error)


def best(was: Numbers, tried: list[Change]) -> list[Change]:
    """Return the changes that make the mean time shorter, one of each setting."""
    limit = was.mean_ms * (1 - LEAST)
    means = [(one.numbers.mean_ms, at) for at, one in enumerate(tried) if one.numbers is not None]
    found: dict[str, Change] = {}
    for mean, at in sorted(means):
        if mean < limit:
            found.setdefault(" ".join(tried[at].settings), tried[at])
    return list(found.values())[:BEST]


def changes(config: EngineConfig, *, own: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changed settings worth a try, with their words.

    own  whether the log is this engine's; another engine's scheduler has fewer settings to change
    """
    seats, budget, size = config.max_batch_size, config.token_budget, config.block_size
    for value in (round(1.5 * seats), 2 * seats, seats // 2):
        if value:
            yield f"{value} seats instead of {seats}", {"max_batch_size": value}
    for blocks in (round(1.25 * config.num_blocks), 2 * config.num_blocks):
        words = f"{blocks} KV blocks instead of {config.num_blocks}"
        yield words, {"max_kv_tokens": blocks * size}
    for value in (budget // 2, 2 * budget):
        if value:
            yield f"a budget of {value} tokens instead of {budget}", {"token_budget": value}
    for name, words, values in _OWN if own else _ANY:
        now = getattr(config, name)
        for one in values:
            if one != now:
                yield words.format(one, now), {name: one}


# Settings of our own scheduler that are worth a try, and those that another engine has, too.
_Values = tuple[tuple[str, str, tuple[Any, ...]], ...]
_ANY: _Values = (("chunked_prefill", "chunked prefill", (True,)),)
_OWN: _Values = (
    *_ANY,
    ("batching", "{} instead of {} batching", ("continuous",)),
    ("policy", "the policy {} instead of {}", ("fcfs", "sjf", "lpm", "priority", "fair")),
    ("prefix_cache", "the prefix cache {} instead of {}", ("radix", "hash")),
    ("admission", "the admission {} instead of {}", ("whole", "first_chunk")),
)


def numbers(log: EventLog) -> Numbers:
    """Return the measures of a run."""
    rows = list(request_rows(log))
    whole = [row.e2e_ms for row in rows if row.e2e_ms is not None]
    first = [row.ttft_ms for row in rows if row.ttft_ms is not None]
    return Numbers(
        mean_ms=fmean(whole) if whole else 0.0,
        worst_ttft_ms=max(first, default=0.0),
        busy_ms=busy_us(log)[0] / US_PER_MS,
        again=computed_twice(log),
    )
