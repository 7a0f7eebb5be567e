"""A test bench for schedulers: policies on the same arrivals, and which differences are not noise.

    result = bench([candidate("fcfs"), candidate("lcf")], [read_trace("azure_conv")], loads=[0.7])
    print(result)

Each candidate is compared with the first one. A trace is cut into windows of consecutive requests, and
in a window all candidates get the same requests at the same times (common random numbers), so the
difference between two of them owes nothing to the luck of the arrivals. The windows are the sample: the
interval is Student's, of the paired differences of all windows. The requests of a window wait for each
other, so an interval that resamples them as if they were independent is too narrow, and so is a
bootstrap of five windows.

Source: Law, Simulation Modeling and Analysis, 10.2 (paired-t confidence intervals) and 11.2 (common
random numbers).

A load of 1 is the rate at which the first candidate answers if all requests of a window are there from
the beginning; it depends on trace and machine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

from engine.core.config import ConfigError, EngineConfig
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.core.scheduling.admission import RequestError
from engine.core.scheduling.policy import Policy
from engine.models.configurations import CONFIGURATIONS
from engine.simulation.capacity.load import Load
from engine.simulation.capacity.point import Point
from engine.simulation.capacity.served import served_in
from engine.simulation.capacity.slo import Slo
from engine.simulation.cost_runner import US_PER_MS, Cost, CostRunner
from engine.simulation.devices import PCIE, Device, DeviceRunner, Division, Machine
from engine.simulation.measures import percent_change
from engine.simulation.proposals import KNOWN
from engine.simulation.quantile import quantile
from engine.simulation.simulate import simulate
from engine.simulation.study import in_columns
from engine.simulation.traces import MAX_TOKENS, Trace
from engine.simulation.workload import Arrival, Workload

# NVIDIA A10, data sheet: 24 GB, 600 GB/s, 125 TFLOPS in bfloat16 without sparsity.
A10 = Device("A10", 24, 600, 125)
MODEL = "Llama 3.1 8B"
SLO = "ttft<10s, itl<500ms"
LOADS = (0.7, 1.0, 1.3)
_AT_ONCE = 1e6  # requests per second
# Two-sided 95% quantiles of Student's t for 1 to 30 degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
    2.045, 2.042,
)  # fmt: skip
MAX_WINDOWS = len(_T) + 1
_FEWEST_ALIKE = 6  # equal differences, of which a sign test says with 95% that they are no chance


class Column(NamedTuple):
    """A measure of a run. `sign` is 1 if more of it is better, else -1."""

    name: str
    sign: int


COLUMNS = (
    Column("goodput, 1/s", 1),
    Column("TTFT p50, ms", -1),
    Column("TTFT p99, ms", -1),
    Column("ITL p50, ms", -1),
    Column("ITL p99, ms", -1),
    Column("tokens/s", 1),
    Column("preemptions", -1),
    Column("recomputed, %", -1),
    Column("slowdown p99", -1),
    Column("fairness", 1),
)


@dataclass(frozen=True)
class Candidate:
    """What is judged: a policy, and settings of its own. `make` returns a new policy for each run."""

    name: str
    make: Callable[[], Policy]
    settings: Mapping[str, Any] = field(default_factory=dict)


def candidate(word: str, settings: Mapping[str, Any] | None = None) -> Candidate:
    """Return a candidate by its word: a name in `KNOWN`, `file.py:Class` or `module:Class`.

    Raises ConfigError for an unknown name or a class that cannot be imported.
    """
    policy = KNOWN.get(word)
    if policy is None:
        place, colon, name = word.rpartition(":")
        if not colon:
            raise ConfigError(
                f"{word} is not a policy; there are {', '.join(KNOWN)}, or your own: file.py:Class"
            )
        try:
            policy = getattr(_module(place), name)
        except Exception as error:  # anything may go wrong in a user's file
            raise ConfigError(f"{word} cannot be imported: {error!r}") from error
        if not (isinstance(policy, type) and issubclass(policy, Policy)):
            raise ConfigError(f"{word} must be a subclass of engine.Policy, got {policy!r}")
    changes = "".join(f"+{key}={value}" for key, value in (settings or {}).items())
    return Candidate(word.rpartition(":")[2] + changes, policy, settings or {})


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        return import_module(place)
    spec = spec_from_file_location("candidate", place)
    assert spec is not None and spec.loader is not None, "a file with the ending .py has a loader"
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Target:
    """The machine and the settings that the candidates share. `cost` makes a machine for one run."""

    name: str
    config: EngineConfig
    cost: Callable[[], Cost | CostRunner]


def gpu(**settings: Any) -> Target:
    """Return the default target: Llama 3.1 8B on an A10, with vLLM's settings for such a GPU.

    Weights leave memory for 42,256 tokens of KV, so a batch of long answers does not fit.
    """
    machine = Machine(CONFIGURATIONS[MODEL].entries, Division(), A10, PCIE)
    sizes = {
        "token_budget": 2048,
        "max_batch_size": 256,
        "block_size": 16,
        "max_kv_tokens": machine.kv_tokens // 16 * 16,
    }
    config = EngineConfig.like("vllm", **(sizes | settings))
    return Target(f"{MODEL} on one {A10.name}", config, lambda: DeviceRunner(machine))


class Interval(NamedTuple):
    """A mean paired difference and its 95% interval, relative to the first candidate's mean."""

    change: float
    low: float
    high: float

    @property
    def is_told(self) -> bool:
        """Whether the interval does not contain 0: the difference is told from noise."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.change:+.1%} [{self.low:+.1%}, {self.high:+.1%}]"


@dataclass(frozen=True)
class Cell:
    """One trace at one load: for each candidate and window the measures, in the order of `COLUMNS`."""

    trace: str
    load: float
    rate: float
    runs: dict[str, list[list[float]]]

    def mean(self, name: str, column: int) -> float:
        """Return the mean of a measure over the windows."""
        return fmean(run[column] for run in self.runs[name])

    def against_first(self, name: str, column: int) -> Interval | None:
        """Return the difference of a measure to the first candidate's; None without a base."""
        first = next(iter(self.runs))
        base = self.mean(first, column)
        pairs = zip(self.runs[name], self.runs[first], strict=True)
        found = [one[column] - other[column] for one, other in pairs]
        if not base:
            return None if any(found) else Interval(0.0, 0.0, 0.0)
        mean, half = fmean(found), _T[len(found) - 2] * stdev(found) / sqrt(len(found))
        if not half and len(found) < _FEWEST_ALIKE:  # as a count may be by chance
            half = abs(mean)
        # No measure is negative, so none can lose more than all of it.
        return Interval(mean / base, max(-1.0, (mean - half) / base), (mean + half) / base)


@dataclass(frozen=True)
class Bench:
    """The judgement: a cell for each trace and load."""

    target: Target
    slo: Slo
    windows: int
    requests: int
    cells: list[Cell]

    def __str__(self) -> str:
        lines = list[str]()
        for cell in self.cells:
            lines += [self.title(cell), *in_columns(self.table(cell)), *self.verdicts(cell), ""]
        return "\n".join([*lines, *self.statements()])

    def title(self, cell: Cell) -> str:
        """Return what a table is about."""
        return f"{cell.trace} at {cell.load:g} of the capacity, {cell.rate:.3g} requests/s"

    def table(self, cell: Cell) -> list[list[str]]:
        """Return a cell's table as texts: the heads, then a line for each measure."""
        table = [["", *cell.runs]]
        for at, column in enumerate(COLUMNS):
            line = [column.name]
            for name in cell.runs:
                told = cell.against_first(name, at)
                change = ""
                if told is not None and told.change:
                    change = f" ({'' if told.is_told else '~'}{percent_change(told.change)})"
                line.append(_figure(cell.mean(name, at)) + change)
            table.append(line)
        return table

    def verdicts(self, cell: Cell) -> list[str]:
        """Return a sentence for each candidate but the first."""
        first, *others = cell.runs
        return [_verdict(cell, name, first) for name in others]

    def statements(self) -> list[str]:
        """Return what the numbers are worth."""
        return [
            f"{self.target.name}; means of {self.windows} windows of {self.requests} requests; "
            f"goodput counts requests with {_goals(self.slo)}.",
            "~: the 95% interval of the paired differences contains 0. Of twenty differences that do "
            "not exist, one is told on average.",
            "Arrivals and lengths are recorded; decisions and times are simulated.",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        cells = []
        for cell in self.cells:
            against = {
                name: {
                    column.name: told._asdict()
                    for at, column in enumerate(COLUMNS)
                    if (told := cell.against_first(name, at)) is not None
                }
                for name in cell.runs
            }
            cells.append(asdict(cell) | {"against_first": against})
        return {
            "target": self.target.name,
            "slo": self.slo.limits,
            "requests": self.requests,
            "measures": [column.name for column in COLUMNS],
            "cells": cells,
        }


def bench(
    candidates: Sequence[Candidate],
    traces: Sequence[Trace],
    *,
    loads: Sequence[float] = LOADS,
    windows: int = 10,
    requests: int = 100,
    slo: str | Slo = SLO,
    target: Target | None = None,
    max_tokens: int | None = MAX_TOKENS,
    progress: Callable[[int, int, str], object] = lambda *_: None,
) -> Bench:
    """Serve windows of the traces with each candidate, at each load.

    windows     consecutive parts of a trace, with so many `requests` each
    max_tokens  what clients ask for; None: the length of the answer, which policies then know
    progress    called before each run with the number of ended runs, that of all runs, and words

    Raises ConfigError for a setting that is wrong or too small for a request, and ValueError for a
    trace that is too short.
    """
    target = target or gpu()
    goals = Slo.parse(slo) if isinstance(slo, str) else slo
    if len({one.name for one in candidates}) < len(candidates) or not candidates:
        raise ConfigError("name at least one candidate, and each of them once")
    if not 2 <= windows <= MAX_WINDOWS or requests < 2:
        raise ValueError(f"windows must be 2 to {MAX_WINDOWS}, and requests at least 2")
    if not loads or not all(0 < one < float("inf") for one in loads):
        raise ValueError(f"loads must be numbers above 0, got {list(loads)}")
    for trace in traces:
        if len(trace.requests) < windows * requests:
            raise ValueError(
                f"{trace.name} has {len(trace.requests)} requests, too few for {windows} windows of "
                f"{requests}: ask for fewer"
            )
    cells, ended = list[Cell](), 0
    runs = len(traces) * (1 + len(loads) * windows * len(candidates))
    for trace in traces:
        parts = list(_windows(trace, windows, requests, max_tokens))
        progress(ended, runs, f"{trace.name}: capacity")
        log = serve(candidates[0], parts[0], _AT_ONCE, target)
        capacity = Point(_AT_ONCE, served_in(log, _AT_ONCE)).requests_per_s
        ended += 1
        for load in loads:
            cell = Cell(trace.name, load, load * capacity, {one.name: [] for one in candidates})
            for part in parts:
                alone = [alone_ms(one, target) for one in arrivals(part)]
                for one in candidates:
                    progress(ended, runs, f"{trace.name} at {load:g}: {one.name}")
                    log = serve(one, part, cell.rate, target)
                    cell.runs[one.name].append(measured(log, cell.rate, goals, alone))
                    ended += 1
            cells.append(cell)
    return Bench(target, goals, windows, requests, cells)


def parting(
    judged: Bench,
    cell: Cell,
    trace: Trace,
    pair: Sequence[Candidate],
    max_tokens: int | None = MAX_TOKENS,
) -> list[EventLog]:
    """Serve the window in which two candidates recompute most differently again; return both logs."""
    at = [column.name for column in COLUMNS].index("recomputed, %")
    one, other = (cell.runs[candidate.name] for candidate in pair)
    window = max(range(len(one)), key=lambda window: abs(one[window][at] - other[window][at]))
    part = trace.workload(window * judged.requests, judged.requests, max_tokens=max_tokens)
    return [serve(candidate, part, cell.rate, judged.target) for candidate in pair]


def _windows(
    trace: Trace, windows: int, requests: int, max_tokens: int | None
) -> Iterator[Workload]:
    for window in range(windows):
        yield trace.workload(window * requests, requests, max_tokens=max_tokens)


def serve(one: Candidate, window: Workload, rate: float, target: Target) -> EventLog:
    """Return the log of a window at a rate. Raises ConfigError for a request that never fits."""
    workload = Load(recorded=window, requests=len(window.inputs), seconds=0).at(rate)
    config = target.config.changed(**one.settings)
    try:
        return simulate(workload, config, cost=target.cost(), policy=one.make())
    except RequestError as error:
        raise ConfigError(
            f"with {one.name}, a request of the trace is rejected: {error}"
        ) from error


def measured(log: EventLog, rate: float, slo: Slo, alone: Sequence[float]) -> list[float]:
    """Return a run's measures in the order of `COLUMNS`.

    slowdown  of a request: its time from arrival to the last token, divided by that on an idle machine
              (Feitelson and others, 1997; "stretch" in the theory of scheduling)
    fairness  Jain's index of the groups' mean speed, where a speed is 1 / slowdown: 1 if all are
              slowed down alike, 1/n if one of n groups has the machine for itself (Jain, Chiu and Hawe,
              DEC TR-301, 1984). The groups are the tenants or, without tenants, thirds of the
              requests by length. What a group gets in all is no measure: it is what it asked for
    """
    rows = served_in(log, rate)
    point = Point(rate, rows, slo)
    computed, recomputed = computed_tokens(log)
    slowdowns = [row.latency("e2e") / ms for row, ms in zip(rows, alone, strict=True)]
    labels = [event.label for event in log.of(v.RequestArrived)]
    if len({*labels}) < 2:
        order = sorted(
            range(len(rows)), key=lambda at: rows[at].prompt_tokens + rows[at].output_tokens
        )
        for place, at in enumerate(order):
            labels[at] = str(3 * place // len(order))
    groups: dict[str, list[float]] = {}
    for label, slowdown in zip(labels, slowdowns, strict=True):
        groups.setdefault(label, []).append(1 / slowdown)
    percentiles = [
        point.percentile(name, share) or 0.0 for name in ("ttft", "itl") for share in (0.5, 0.99)
    ]
    return [
        point.goodput,
        *percentiles,
        point.tokens_per_s,
        len(log.of(v.Preempted)),
        100 * recomputed / max(1, computed),
        quantile(slowdowns, 0.99),
        jain([fmean(speeds) for speeds in groups.values()]),
    ]


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index of fairness."""
    return sum(shares) ** 2 / (len(shares) * sum(one * one for one in shares))


def computed_tokens(log: EventLog) -> tuple[int, int]:
    """Return how many tokens a run computed, and how many of them it had computed before."""
    ends: dict[int, int] = {}  # request -> how far it was computed
    computed = recomputed = 0
    for event in log.of(v.StepScheduled):
        for row in event.rows:
            end = ends.get(row.request, 0)
            computed += row.count
            recomputed += max(0, min(end, row.start + row.count) - row.start)
            ends[row.request] = max(end, row.start + row.count)
    return computed, recomputed


def arrivals(window: Workload) -> list[Arrival]:
    """Return a workload's requests."""
    return [one for one in window.inputs if isinstance(one, Arrival)]


def alone_ms(one: Arrival, target: Target) -> float:
    """Return how long a request takes on an idle machine.

    Decode steps get longer linearly with the context, so the first and the last say enough.
    """
    budget, prompt = target.config.token_budget, len(one.prompt)
    chunks = [(start, min(budget, prompt - start)) for start in range(0, prompt, budget)]
    total = sum(_step_ms(*chunk, target) for chunk in chunks)
    if (decodes := one.answers[0].length - 1) > 0:
        ends = _step_ms(prompt, 1, target), _step_ms(prompt + decodes - 1, 1, target)
        total += decodes * fmean(ends)
    return total


def _step_ms(start: int, count: int, target: Target) -> float:
    cost = target.cost()
    runner = cost if isinstance(cost, CostRunner) else CostRunner(**asdict(cost))
    row: Any = v.ScheduledRow(1, start, count, [])
    return runner.step_ms([row], woken=False) + runner.clock.cpu_us / US_PER_MS


def _verdict(cell: Cell, name: str, first: str) -> str:
    if cell.runs[name] == cell.runs[first]:
        return f"{name} against {first}: equal in every measure."
    told: dict[bool, list[str]] = {True: [], False: []}
    for at, column in enumerate(COLUMNS):
        found = cell.against_first(name, at)
        if found is not None and found.is_told:
            told[found.change * column.sign > 0].append(f"{column.name.split(',')[0]} {found}")
    words = [
        f"{word} in {', '.join(told[is_better])}"
        for word, is_better in (("better", True), ("worse", False))
        if told[is_better]
    ]
    return f"{name} against {first}: {'; '.join(words) or 'no difference is told from noise'}."


def _goals(slo: Slo) -> str:
    return (
        ", ".join(f"{name} < {limit / 1000:g} s" for name, limit in slo.limits.items()) or "an end"
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
