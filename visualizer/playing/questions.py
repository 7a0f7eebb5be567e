"""The playground's questions: goals for a run of one workload, each of which some settings reach.

A question says what to reach and never how: a test searches the controls for settings that reach it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from engine.core.log import EventLog
from engine.core.log.vocabulary import RunStarted
from visualizer import read
from visualizer.playing.rerun import EngineConfig, Setup, seven_people
from visualizer.reading.messages import count


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    label      its name, before the number
    unit       "ms", "tokens/s", a noun in the singular, which is counted, or empty
    of         returns it; None if the run has no such number
    more       whether more is better
    grew       how a change for the worse begins
    """

    label: str
    unit: str
    of: Callable[[EventLog], float | None]
    more: bool = False
    grew: str = "grew"

    def words(self, value: float | None) -> str:
        """Return the value with its unit."""
        if value is None:
            return "none yet"
        if self.unit in ("ms", "tokens/s"):
            return f"{value:,.0f} {self.unit}"
        return count(round(value), self.unit) if self.unit else f"{value:,.0f}"


@dataclass(frozen=True)
class Goal:
    """A measure and the limit that it has to keep; None: a number without a goal."""

    measure: Measure
    limit: float | None = None

    def is_reached(self, value: float | None) -> bool:
        """Whether a run with this value reaches the goal."""
        if self.limit is None or value is None:
            return self.limit is None
        return value >= self.limit if self.measure.more else value <= self.limit


@dataclass(frozen=True)
class Question:
    """What to reach, the person of the sentence (empty: the one that waits longest), and a start."""

    text: str
    goals: tuple[Goal, ...]
    focus: str
    setup: Setup


def first_token_of(label: str) -> Measure:
    """Return the measure of one person's first token."""

    def found(log: EventLog) -> float | None:
        return next((row.ttft_ms for row in read(log).request_rows if row.label == label), None)

    return Measure(f"{label}’s first token after", "ms", found)


def _first_tokens(log: EventLog) -> list[float]:
    return [row.ttft_ms for row in read(log).request_rows if row.ttft_ms is not None]


def _throughput(log: EventLog) -> float | None:
    rows = read(log).step_rows
    start, last, took = rows[0].start_ms, rows[-1].start_ms, rows[-1].duration_ms
    assert start is not None and last is not None and took is not None, "a playground has times"
    return sum(row.sampled_tokens or 0 for row in rows) / (last + took - start) * 1000


def _pause(log: EventLog) -> float | None:
    return max((row.gap_ms for row in read(log).token_rows if row.gap_ms is not None), default=None)


def _started(log: EventLog) -> RunStarted:
    started = log[0]
    assert isinstance(started, RunStarted), "a playground's log has all of its run"
    return started


def _memory(log: EventLog) -> float | None:
    return float(_started(log).settings["num_blocks"])


THROUGHPUT = Measure("Throughput", "tokens/s", _throughput, more=True, grew="fell")
MEDIAN = Measure(
    "Median first token", "ms", lambda log: median(found) if (found := _first_tokens(log)) else None
)
WORST = Measure("Latest first token after", "ms", lambda log: max(_first_tokens(log), default=None))
PAUSE = Measure("Longest pause between two tokens", "ms", _pause)
PREEMPTIONS = Measure(
    "Preemptions", "", lambda log: sum(row.preempted or 0 for row in read(log).step_rows)
)
MEMORY = Measure("Memory", "block", _memory)
MEASURES = (WORST, MEDIAN, PAUSE, THROUGHPUT, PREEMPTIONS)  # of which the worst change is the cost


def _start(seats: int, budget: int, blocks: int) -> Setup:
    config = EngineConfig(
        token_budget=budget, max_batch_size=seats, max_kv_tokens=16 * blocks, block_size=16
    )
    return Setup(workload=seven_people(), config=config)


QUESTIONS = (
    Question(
        "Bring Ada’s first token below 300 ms, without losing throughput.",
        (Goal(first_token_of("Ada"), 300), Goal(THROUGHPUT, 222)),
        "Ada",
        _start(seats=4, budget=64, blocks=64),
    ),
    Question(
        "Never pause longer than 30 ms between two tokens, and still begin Ada’s answer within 300 ms.",
        (Goal(PAUSE, 30), Goal(first_token_of("Ada"), 300)),
        "Ada",
        _start(seats=4, budget=256, blocks=64),
    ),
    Question(
        "Serve all seven in 40 blocks: preempt no request, and begin each answer within 480 ms.",
        (Goal(MEMORY, 40), Goal(PREEMPTIONS, 0), Goal(WORST, 480)),
        "Ada",
        _start(seats=7, budget=64, blocks=28),
    ),
    Question(
        "Your own traffic, without a goal: change what you like.",
        (Goal(MEDIAN), Goal(PAUSE), Goal(THROUGHPUT)),
        "",
        Setup(),
    ),
)
