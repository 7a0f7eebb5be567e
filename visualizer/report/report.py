"""A report of a run: what limited it, since when, the slowest requests, what would have helped."""

from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import nlargest
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.core.config import ConfigError
from engine.core.log import EventLog, LogError
from engine.core.log import vocabulary as v
from visualizer.advice import SHORTER, advise
from visualizer.indexed.known import known_of
from visualizer.reading.reading import read
from visualizer.reading.regimes import regimes_of
from visualizer.reading.summary import percentiles_text, summary
from visualizer.reading.waterfall import RequestTime, Waterfall
from visualizer.reading.waterfall.picture import bars
from visualizer.reading.waterfall.words import headline, helped, in_words
from visualizer.report.blocks import WIDTHS, Block, Heading, Picture, Table, Text
from visualizer.report.timeline import timeline

SLOWEST = 10
REPLAYS = 24


def report(log: EventLog | ClusterLog, name: str, *, replays: bool = True) -> list[Block]:
    """Return a report of a run; of a cluster, the sections of each replica's runs follow each other.

    name     of the log, for the title
    replays  whether to replay the run with other settings, which takes as long as `what-if`
    """
    if isinstance(log, EventLog):
        return [Heading(f"What happened in {name}", 1), *_Report(log).blocks(replays=replays)]
    blocks: list[Block] = [
        Heading(f"What happened in {name}", 1),
        Text(read(log).regimes.sentence),
        _facts(summary(log).split("\n\n")[0]),
    ]
    for part in log.parts:
        blocks.append(Heading(f"Replica {part.name}"))
        for block in _Report(part.log).blocks(replays=False):
            below = isinstance(block, Heading)
            blocks.append(Heading(block.text, 3) if below else block)  # type: ignore[union-attr]
    return blocks


def _facts(text: str) -> Table:
    """The lines of a summary: a word, and what it says."""
    rows = [[line[:13].strip(), line[13:]] for line in text.splitlines() if line[:13].strip()]
    return Table([["", ""], *(row for row in rows if row[0] != "limit")], words=(0, 1))


class _Report:
    """A report of one engine's log."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._known = known_of(log)
        self._regimes = regimes_of(log, self._known)
        self._waterfall: Waterfall = read(log).waterfall
        self._first_tokens: list[tuple[float, int]] = []  # when each request arrived, and its TTFT
        self._worst = nlargest(SLOWEST, self._times(), key=lambda one: (one.total, -one.request))

    def blocks(self, *, replays: bool) -> Iterator[Block]:
        """Yield the parts of the report."""
        yield Text(self._regimes.sentence)
        if self._regimes.limit:
            yield Text(self._when())
        yield _facts(summary(self._log))
        has_picture = self._known.unit == "us" and len(self._regimes) > 0
        if has_picture:
            shows = "The run over time: requests that wait, by cause; seats; KV blocks; preemptions"
            drawn = [timeline(self._regimes, self._known, width) for width in WIDTHS]
            yield Picture("timeline", shows, *drawn)
        yield from self._meanwhile()
        yield from self._slowest()
        if replays:
            yield from self._remedies()

    def _times(self) -> Iterator[RequestTime]:
        for one in self._waterfall.each():
            if one.ttft is not None and one.arrived is not None:
                self._first_tokens.append((one.arrived, one.ttft))
            yield one

    def _meanwhile(self) -> Iterator[Block]:
        """What the limit did to the requests that arrived before it, meanwhile and after it."""
        if not self._regimes.limit:
            return
        yield Heading("Before, meanwhile and after")
        starts, ends = self._span()
        rows = [["requests that arrived", "number", "TTFT"]]
        for words, begin, end in (
            ("before", float("-inf"), starts),
            ("meanwhile", starts, ends),
            ("after", ends, float("inf")),
        ):
            values = [ttft for arrived, ttft in self._first_tokens if begin <= arrived < end]
            if values:
                rows.append([words, f"{len(values):,}", self._percentiles(values)])
        yield Table(rows, words=(0, 2))
        yield Table(
            [
                ["began", "steps", "what limited them", "waited", "in words"],
                *(
                    [
                        self._began_at(one.first),
                        f"{one.first:,} to {one.last:,}",
                        one.kind,
                        in_words(one.waited_in_all, self._waterfall.unit),
                        one.words,
                    ]
                    for one in self._regimes
                ),
            ],
            words=(0, 1, 2, 4),
        )

    def _began_at(self, step: int) -> str:
        """Say when a step began: by the clock, or after how long."""
        time = self._at(step, is_start=True)
        return self._moment(time).rpartition(" ")[2] or in_words(int(time), self._waterfall.unit)

    def _span(self) -> tuple[float, float]:
        """When the limit began and ended, in the log's unit."""
        limit = self._regimes.limit
        return self._at(limit[0].first, is_start=True), self._at(limit[-1].last)

    def _when(self) -> str:
        """Say when the limit began, and when it ended."""
        starts, ends = self._span()
        unit, moment = self._waterfall.unit, self._moment(starts)
        lasted = in_words(int(ends - starts), unit)
        goes_on = self._regimes.limit[-1] is self._regimes[-1]
        return (
            f"It began {f'on {moment} UTC, ' if moment else ''}{in_words(int(starts), unit)} after the "
            f"run began, and {'goes on at the end of the log' if goes_on else 'ended'} {lasted} later."
        )

    def _slowest(self) -> Iterator[Block]:
        times = [one for one in self._worst if one.total]
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

    def _remedies(self) -> Iterator[Block]:
        """What other settings would have done for the mean time of a request."""
        if not sum(self._regimes.waited.values()):
            return
        yield Heading("What would have helped")
        try:
            answer = advise(self._log, [SHORTER], replays=REPLAYS)
        except (LogError, ConfigError, ValueError) as error:
            yield Text(str(error))
            return
        rows = [["change", "how", SHORTER.name, "also better", "costs"]]
        for one in answer.advice:
            mean = str(one.goals[0]).removeprefix(f"{SHORTER.name} ")
            told = ["; ".join(some) or "-" for some in (one.flags, one.gains, one.costs)]
            rows.append([one.words, told[0], mean, *told[1:]])
        if not answer.advice:
            yield Text(
                f"None of {answer.replays} replays with other settings makes requests faster."
            )
        else:
            yield Table(rows, words=(0, 1, 2, 3, 4))
            yield Text(f"{answer.errors} {answer.note}".rstrip())

    def _at(self, number: int, *, is_start: bool = False) -> float:
        """When a step ended, or when it started, in the log's unit."""
        steps, at = self._regimes.columns.steps, 0
        for done in self._known.finished:
            for one, end in zip(done.number, done.end, strict=True):
                if one == number:
                    after = end if self._known.unit == "us" and end is not None else at + 1
                    return after - steps.busy[at] * is_start
                at += 1
        raise LookupError(number)

    def _moment(self, time: float) -> str:
        """Return the date and the time of day at which something was; "" if the log has none."""
        began = next((one.t.get("unix_us") for one in self._log.of(v.RunStarted)), None)
        if began is None or self._known.unit != "us":
            return ""
        return f"{datetime.fromtimestamp((began + time) / 1e6, UTC):%Y-%m-%d at %H:%M:%S}"

    def _percentiles(self, values: list[Any]) -> str:
        if self._waterfall.unit == "us":
            return percentiles_text([one / 1000 for one in values])
        return f"{min(values)} to {max(values)} steps"
