"""A report of a run: what limited it, since when, the slowest requests, what would have helped."""

from array import array
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.core.config import ConfigError
from engine.core.log import EventLog, LogError
from engine.core.log import vocabulary as v
from visualizer.advice import SHORTER, advise
from visualizer.indexed.indexed_log import answer_of
from visualizer.indexed.known import known_of
from visualizer.reading.reading import read
from visualizer.reading.regimes import regimes_of
from visualizer.reading.summary import percentiles_text, summary
from visualizer.reading.waterfall.picture import bars
from visualizer.reading.waterfall.words import headline, helped, in_words
from visualizer.report.blocks import WIDTHS, Block, Heading, Picture, Table, Text
from visualizer.report.timeline import timeline

SLOWEST = 10
REPLAYS = 24
STEPS = 3000  # of a longer log, replays are made of so many
_SECTIONS = 4
_RANGES = 20  # replays for the ranges of the predictions, at most about so many


def report(
    log: EventLog | ClusterLog,
    name: str,
    *,
    replays: bool = True,
    on_part: Callable[[int], object] = lambda _: None,
) -> list[Block]:
    """Return a report of a run; of a cluster, the sections of each replica's runs follow each other.

    name     of the log, for the title
    replays  whether to replay the run with other settings, which takes as long as `what-if`
    on_part  called after each section of an engine's report and after each replay, with their number;
             see `parts_of`
    """
    title = Heading(f"What happened in {name}", 1)
    told, *of_parts = str(answer_of(log, "summary", lambda: summary(log))).split("\n\n")
    if isinstance(log, EventLog):
        drawn = _Report(log, told, on_part)
        found = [title, *drawn.blocks()]
        has_waits = drawn.has_waits
        del drawn  # a long log's steps are not kept while others are replayed
        return [*found, *_remedies(log, on_part)] if replays and has_waits else found
    blocks: list[Block] = [title, Text(read(log).regimes.sentence), _facts(told)]
    for part, its in zip(log.parts, of_parts, strict=True):
        blocks.append(Heading(f"Replica {part.name}"))
        told = its.partition("\n")[2]  # without its name
        for block in _Report(part.log, told, on_part).blocks():
            below = isinstance(block, Heading)
            blocks.append(Heading(block.text, 3) if below else block)  # type: ignore[union-attr]
    return blocks


def parts_of(log: EventLog | ClusterLog, *, replays: bool) -> int:
    """Return how often `report` calls `on_part`, or a few times more."""
    if isinstance(log, ClusterLog):
        return _SECTIONS * len(log.parts)
    return _SECTIONS + (REPLAYS + _RANGES) * replays


def _facts(text: str) -> Table:
    """The lines of a summary: a word, and what it says."""
    rows = [[line[:13].strip(), line[13:]] for line in text.splitlines() if line[:13].strip()]
    return Table([["", ""], *(row for row in rows if row[0] != "limit")], words=(0, 1))


class _Report:
    """A report of one engine's log."""

    def __init__(self, log: EventLog, told: str, on_part: Callable[[int], object]) -> None:
        """`told` is its summary."""
        self._log, self._told, self._on_part = log, told, on_part
        self._known = known_of(log)
        self._regimes = regimes_of(log, self._known)
        self._unit = self._known.unit
        ends = array("d", (end or 0 for some in self._known.finished for end in some.end))
        self._ends = ends if self._unit == "us" else range(1, len(ends) + 1)
        self._began: int | None = None  # in microseconds since 1970
        for event in log[:1]:
            if isinstance(event, v.RunStarted) and self._unit == "us":
                self._began = event.t.get("unix_us")

    @property
    def has_waits(self) -> bool:
        """Whether a request ever waited."""
        return any(self._regimes.waited.values())

    def blocks(self) -> Iterator[Block]:
        """Yield the parts of the report."""
        sections = self._limit, self._timeline, self._meanwhile, self._slowest
        for number, section in enumerate(sections, 1):
            yield from section()
            self._on_part(number)

    def _limit(self) -> Iterator[Block]:
        """What limited the run, and the figures of its summary."""
        yield Text(self._regimes.sentence)
        if self._regimes.limit:
            yield Text(self._when())
        yield _facts(self._told)

    def _timeline(self) -> Iterator[Block]:
        if self._unit == "us" and len(self._regimes) > 0:
            shows = "The run over time: requests that wait, by cause; seats; KV blocks; preemptions"
            drawn = timeline(self._regimes, self._known, self._ends, WIDTHS)
            yield Picture("timeline", shows, *drawn)

    def _meanwhile(self) -> Iterator[Block]:
        """What the limit did to the requests that arrived before it, meanwhile and after it."""
        if not self._regimes.limit:
            return
        starts, ends = self._span()
        first_tokens = list(self._first_tokens())
        rows = [["requests that arrived", "number", "TTFT"]]
        for words, begin, end in (
            ("before", float("-inf"), starts),
            ("meanwhile", starts, ends),
            ("after", ends, float("inf")),
        ):
            values = [ttft for arrived, ttft in first_tokens if begin <= arrived < end]
            if values:
                rows.append([words, f"{len(values):,}", self._percentiles(values)])
        if len(rows) > 2:  # else there is nothing to compare
            yield Heading("Before, meanwhile and after")
            yield Table(rows, words=(0, 2))
        else:
            yield Heading("What limited it, and how long")
        yield Table(
            [
                ["began", "steps", "what limited them", "waited", "in words"],
                *(
                    [
                        self._began_at(one.first),
                        f"{one.first:,} to {one.last:,}",
                        one.kind,
                        in_words(one.waited_in_all, self._unit),
                        one.words,
                    ]
                    for one in self._regimes
                ),
            ],
            words=(0, 1, 2, 4),
        )

    def _first_tokens(self) -> Iterator[tuple[float, float]]:
        """When each request arrived that has a first token, and its TTFT, in the log's unit."""
        paused: Any = self._known.paused
        for one in self._known.each_request():
            arrived = one.arrived_at if self._unit == "us" else one.begins_at
            if one.arrived is not None and arrived is not None and one.first_token is not None:
                end = self._ends[one.first_token]
                yield arrived, end - arrived - paused.between(arrived, end)

    def _began_at(self, step: int) -> str:
        """Say when a step began: by the clock, or after how long."""
        time = self._at(step, is_start=True)
        return self._moment(time).rpartition(" ")[2] or in_words(int(time), self._unit)

    def _span(self) -> tuple[float, float]:
        """When the limit began and ended, in the log's unit."""
        limit = self._regimes.limit
        return self._at(limit[0].first, is_start=True), self._at(limit[-1].last)

    def _when(self) -> str:
        """Say when the limit began, and when it ended."""
        starts, ends = self._span()
        unit, moment = self._unit, self._moment(starts)
        lasted = in_words(int(ends - starts), unit)
        goes_on = self._regimes.limit[-1] is self._regimes[-1]
        return (
            f"It began {f'on {moment} UTC, ' if moment else ''}{in_words(int(starts), unit)} after the "
            f"run began, and {'goes on at the end of the log' if goes_on else 'ended'} {lasted} later."
        )

    def _slowest(self) -> Iterator[Block]:
        times = [one for one in read(self._log).waterfall.slowest(SLOWEST) if one.total]
        if not times:
            return
        yield Heading(
            f"The {len(times)} slowest requests" if len(times) > 1 else "The slowest request"
        )
        drawn = [bars(times, width) for width in WIDTHS]
        yield Picture("slowest", "Where the time of the slowest requests went", *drawn)
        for one in times:
            advice = helped(one)
            yield Text(f"{headline(one)} {advice}{'.' * bool(advice)}".strip())

    def _at(self, number: int, *, is_start: bool = False) -> float:
        """When a step ended, or when it started, in the log's unit."""
        steps = self._regimes.columns.steps
        at = steps.number.index(number)
        return self._ends[at] - steps.busy[at] * is_start

    def _moment(self, time: float) -> str:
        """Return the date and the time of day at which something was; "" if the log has none."""
        if self._began is None:
            return ""
        return f"{datetime.fromtimestamp((self._began + time) / 1e6, UTC):%Y-%m-%d at %H:%M:%S}"

    def _percentiles(self, values: list[Any]) -> str:
        if self._unit == "us":
            return percentiles_text([one / 1000 for one in values])
        return f"{min(values)} to {max(values)} steps"


def _remedies(log: EventLog, on_part: Callable[[int], object]) -> Iterator[Block]:
    """What other settings would have done for the mean time of a request."""
    yield Heading("What would have helped")
    try:
        answer = advise(log, [SHORTER], replays=REPLAYS, steps=STEPS, on_replay=on_part)
    except (LogError, ConfigError, ValueError) as error:
        yield Text(str(error))
        return
    rows = [["change", "how", SHORTER.name, "also better", "costs"]]
    for one in answer.advice:
        mean = str(one.goals[0]).removeprefix(f"{SHORTER.name} ")
        told = ["; ".join(some) or "-" for some in (one.flags, one.gains, one.costs)]
        rows.append([one.words, told[0], mean, *told[1:]])
    if not answer.advice:
        yield Text(f"None of {answer.replays} replays with other settings makes requests faster.")
    else:
        yield Table(rows, words=(0, 1, 2, 3, 4))
        yield Text(f"{answer.errors} {answer.note}".rstrip())
