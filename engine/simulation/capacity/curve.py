"""A measured sweep: its points, what they say, its file, and its comparison with another one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from engine.simulation.capacity.point import SHARES, Point
from engine.simulation.capacity.rates import is_saturated, knee, usable
from engine.simulation.capacity.served import Served
from engine.simulation.capacity.slo import Slo
from engine.simulation.measures import percent_change

COMPARED = tuple((name, share) for name in ("ttft", "itl", "e2e") for share in SHARES)


class SweepError(ValueError):
    """A file is not a sweep, or a target answered nothing."""


class Header(msgspec.Struct, kw_only=True):
    """The first line of a sweep's file.

    alone_ms  how long an undisturbed request took
    load      what was asked, in words by name
    """

    sweep: int = 1  # the version of the file
    name: str = ""
    slo: Slo = Slo()
    alone_ms: float = 0.0
    load: dict[str, Any] = {}


@dataclass
class Sweep:
    """The points of a sweep, by rising rate."""

    header: Header
    points: list[Point] = field(default_factory=list)
    was_interrupted: bool = False

    def add(self, rate: float, rows: Sequence[Served]) -> Point:
        """Add the rows of a rate."""
        point = Point(rate, rows, self.header.slo)
        self.points = sorted([*self.points, point], key=attrgetter("rate"))
        return point

    @property
    def knee(self) -> Point | None:
        """The point of the highest power: throughput divided by mean latency."""
        return knee(self.points)

    @property
    def usable(self) -> Point | None:
        """The highest rate at which the SLO is met, as at all lower ones; None without an SLO, too."""
        return usable(self.points) if self.header.slo.limits else None

    @property
    def nominal(self) -> Point | None:
        """The point of the highest throughput."""
        return max(self.points, key=lambda one: one.requests_per_s, default=None)

    def is_saturated(self, point: Point) -> bool:
        """Whether requests came faster than they left."""
        return is_saturated(point, self.header.alone_ms)

    def with_slo(self, slo: str | Slo, share: float = 0.99) -> "Sweep":
        """Return the same measurement judged by other goals; nothing is measured again."""
        goals = Slo.parse(slo, share) if isinstance(slo, str) else slo
        return Sweep(
            msgspec.structs.replace(self.header, slo=goals),
            [Point(one.rate, one.rows, goals) for one in self.points],
            self.was_interrupted,
        )

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the file: the header, then a row for each request."""
        yield msgspec.json.encode(self.header) + b"\n"
        for point in self.points:
            yield from map(line_of, point.rows)

    def save(self, path: str | Path) -> None:
        """Write the raw rows as JSON Lines, all of them or, if the disk is full, none."""
        whole = Path(path)
        part = whole.with_name(f"{whole.name}.part")
        part.write_bytes(b"".join(self.lines()))
        part.replace(whole)

    @classmethod
    def load(cls, path: str | Path) -> "Sweep":
        """Read a file that `save` or the command wrote. Raises SweepError, and OSError."""
        first, *lines = Path(path).read_bytes().splitlines() or [b""]
        rows, number = list[Served](), 1
        try:
            if not first.startswith(b'{"sweep"'):
                raise ValueError(
                    "its first line does not begin as `underglass sweep --out` writes it"
                )
            found = cls(msgspec.json.decode(first, type=Header))
            for number, line in enumerate(lines, start=2):  # noqa: B007 (an error names the line)
                rows.append(_decoder.decode(line))
        except (msgspec.DecodeError, ValueError) as error:
            raise SweepError(f"{path}, line {number}: this is not a sweep: {error}") from error
        for rate, own in groupby(sorted(rows, key=attrgetter("rate")), key=attrgetter("rate")):
            found.add(rate, list(own))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the figures, without the raw rows, as JSON values."""
        marks = {"nominal": self.nominal, "knee": self.knee, "usable": self.usable}
        return {
            **msgspec.to_builtins(self.header),
            **{f"{name}_rate": point and point.rate for name, point in marks.items()},
            "interrupted": self.was_interrupted,
            "points": [
                {
                    "rate": point.rate,
                    "requests": len(point.rows),
                    "failed": point.failed,
                    "saturated": self.is_saturated(point),
                    "requests_per_s": point.requests_per_s,
                    "tokens_per_s": point.tokens_per_s,
                    "goodput": point.goodput,
                    "attained": point.attained,
                    "in_system": point.in_system,
                    "late_p99_ms": point.late_ms,
                    **{
                        f"{name}_p{100 * at:.0f}_ms": point.percentile(name, at)
                        for name, at in COMPARED
                    },
                }
                for point in self.points
            ],
        }

    def table(self) -> list[list[str]]:
        """Return the heads, and a line of texts for each rate."""
        heads = ["rate/s", "req/s", "tokens/s", *(f"{name} p50/p90/p99 ms" for name in _SHOWN)]
        heads += ["in system", "meet SLO", "goodput/s", ""]
        return [heads, *(self._line(point) for point in self.points)]

    def _line(self, point: Point) -> list[str]:
        return [
            f"{point.rate:g}",
            f"{point.requests_per_s:.3g}",
            f"{point.tokens_per_s:,.0f}",
            *(
                " / ".join(_figure(point.percentile(name, share)) for share in SHARES)
                for name in _SHOWN
            ),
            f"{point.in_system:.3g}",
            f"{point.attained:.1%}" if self.header.slo.limits else "-",
            f"{point.goodput:.3g}" if self.header.slo.limits else "-",
            ", ".join(self._marks(point)),
        ]

    def _marks(self, point: Point) -> Iterator[str]:
        if point is self.knee:
            yield "knee"
        if point is self.usable:
            yield "usable"
        if self.is_saturated(point):
            yield "saturated"
        if point.failed:
            yield f"{point.failed} failed"

    def statements(self) -> list[str]:
        """Return what the curve says, and what to know about it, a sentence each."""
        said = []
        if (nominal := self.nominal) is not None:
            said.append(
                f"Nominal capacity: {nominal.requests_per_s:.3g} requests/s "
                f"({nominal.tokens_per_s:,.0f} output tokens/s), at {nominal.rate:g} offered."
            )
        if (bend := self.knee) is not None:
            said.append(
                f"Knee: {bend.rate:g} requests/s, where throughput divided by mean latency is "
                f"highest; TTFT p99 is {_figure(bend.percentile('ttft', 0.99))} ms there."
            )
        if self.header.slo.limits:
            best = self.usable
            rate = f"{best.rate:g} requests/s" if best else "no measured rate"
            said.append(f"Usable capacity: {rate} with {self.header.slo}.")
        if self.points and not any(map(self.is_saturated, self.points)):
            said.append("No rate was past saturation, so the capacities may be higher.")
        late = max((point.late_ms for point in self.points), default=0.0)
        if late > LATE_MS:
            said.append(
                f"The client itself sent up to {late:.3g} ms late (p99): it shares the machine, or has "
                "too little of it. The latencies include this time."
            )
        few = [f"{point.rate:g}" for point in self.points if len(point.rows) < 100]
        if few:
            said.append(
                f"Rates with fewer than 100 requests, whose p99 is a guess: {', '.join(few)}."
            )
        if self.was_interrupted:
            said.append(
                "Interrupted: the rate that was being measured is left out, because its slow requests "
                "had not ended."
            )
        return said

    def __str__(self) -> str:
        return "\n".join([self.header.name, *aligned(self.table()), "", *self.statements()])


LATE_MS = 5.0
_SHOWN = ("ttft", "itl")
_decoder = msgspec.json.Decoder(Served)


def line_of(row: Served) -> bytes:
    """Return a row as a line, with its times in whole microseconds."""
    return msgspec.json.encode(_rounded(msgspec.to_builtins(row))) + b"\n"


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 3)
        case dict():
            return {key: _rounded(one) for key, one in value.items()}
        case list():
            return [_rounded(one) for one in value]
    return value


# Comparison


def relative_errors(measured: Sweep, other: Sweep) -> list[tuple[float, dict[str, float]]]:
    """Return, for each rate of both sweeps, by how much `other` is off, by percentile.

    0.1 means that the other sweep's value is a tenth larger.
    """
    rates = {point.rate: point for point in other.points}
    rows = []
    for point in measured.points:
        if (same := rates.get(point.rate)) is None:
            continue
        errors: dict[str, float] = {}
        for name, share in COMPARED:
            ours, theirs = point.percentile(name, share), same.percentile(name, share)
            if ours and theirs is not None:
                errors[f"{name} p{100 * share:.0f}"] = theirs / ours - 1
        rows.append((point.rate, errors))
    return rows


def compared(first: Sweep, second: Sweep) -> str:
    """Return two sweeps side by side: the capacities, and the difference of each percentile."""
    names = [first.header.name or "first", second.header.name or "second"]
    lines = [["", *names, "second against first"]]
    for label, attribute, value in (
        ("nominal, req/s", "nominal", "requests_per_s"),
        ("knee, req/s", "knee", "rate"),
        ("usable, req/s", "usable", "rate"),
    ):
        points = [getattr(one, attribute) for one in (first, second)]
        values = [None if point is None else getattr(point, value) for point in points]
        before, after = values
        change = percent_change(after / before - 1) if before and after else "-"
        lines.append([label, *map(_figure, values), change])
    rows = relative_errors(first, second)
    said = aligned(lines)
    if not rows:
        return "\n".join(
            [*said, "", "The sweeps have no rate in common, so no percentile is compared."]
        )
    heads = [f"{name} p{100 * share:.0f}" for name, share in COMPARED]
    errors = [["rate/s", *heads]]
    errors += [
        [f"{rate:g}", *(percent_change(row[head]) if head in row else "-" for head in heads)]
        for rate, row in rows
    ]
    below = [row for rate, row in rows if not first.is_saturated(_point(first, rate))]
    medians = [
        f"{median(abs(row[head]) for row in below):.0%}"
        if below and all(head in row for row in below)
        else "-"
        for head in heads
    ]
    errors.append(["median", *medians])
    note = "Median: of the differences' sizes, over the rates at which the first is not saturated."
    return "\n".join([*said, "", *aligned(errors), "", note])


def _point(found: Sweep, rate: float) -> Point:
    return next(point for point in found.points if point.rate == rate)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
