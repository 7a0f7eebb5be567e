"""What `advise` answers: changes with their predictions, what they cost, and how far to trust them."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from engine.simulation.measures import percent_change
from engine.simulation.step_times import KindError
from visualizer.advice.goal import THROUGHPUT, Goal, in_unit
from visualizer.advice.moves import HARDWARE, value_words

ENGINES = {"": "Underglass", "vllm": "vLLM", "sglang": "SGLang"}
TOLD = 0.1  # another measure that changes by more than this is told


class Predicted(msgspec.Struct, frozen=True):
    """A measure of an advice: recorded, predicted, and the lowest and the highest prediction."""

    measure: str
    recorded: float | None
    predicted: float
    low: float
    high: float
    limit: float | None = None

    @property
    def worse(self) -> float:
        """How much worse the measure gets, relative; below 0: better."""
        change = self.predicted / self.recorded - 1 if self.recorded else 0.0
        return -change if self.measure == THROUGHPUT else change

    def meets(self, *, surely: bool = False) -> bool:
        """Whether the prediction meets the limit, if there is one; `surely`: with its whole range."""
        if self.limit is None:
            return True
        if self.measure == THROUGHPUT:
            return (self.low if surely else self.predicted) >= self.limit
        return (self.high if surely else self.predicted) <= self.limit

    def __str__(self) -> str:
        was, now, error = (
            in_unit(self.measure, one)
            for one in (self.recorded, self.predicted, (self.high - self.low) / 2)
        )
        error = f" ± {error}" if self.high > self.low else ""
        change = f" ({percent_change(self.predicted / self.recorded - 1)})" if self.recorded else ""
        if self.limit is not None:
            change += (
                ": meets the goal"
                if self.meets(surely=True)
                else ": meets the goal, but not surely"
                if self.meets()
                else ": not enough"
            )
        return f"{self.measure} {was} -> {now}{error}{change}"


class Advice(msgspec.Struct, frozen=True):
    """Changed settings, and what they do.

    goals   the measures of the goals
    others  other measures
    steps, preemptions  recorded and predicted
    how     how to set the changes, by engine; "" is this one
    unseen  which steps are far larger than any recorded one, in words
    """

    changes: dict[str, Any]
    before: dict[str, Any]
    goals: list[Predicted]
    others: list[Predicted]
    steps: tuple[int, float]
    preemptions: tuple[int, float]
    how: dict[str, str]
    unseen: str = ""

    @property
    def meets(self) -> bool:
        """Whether the prediction meets each goal."""
        return all(one.meets() for one in self.goals)

    @property
    def surely(self) -> bool:
        """Whether the whole range of the prediction meets each goal."""
        return all(one.meets(surely=True) for one in self.goals)

    @property
    def flags(self) -> list[str]:
        """How to set the changes."""
        return [f"{ENGINES[engine]}: {flags}" for engine, flags in self.how.items()]

    @property
    def gains(self) -> list[str]:
        """Which other measures get better."""
        return [str(one) for one in self.others if one.worse < -TOLD]

    @property
    def costs(self) -> list[str]:
        """What gets worse."""
        costs = [str(one) for one in self.others if one.worse > TOLD]
        recorded, predicted = self.preemptions
        if predicted > (1 + TOLD) * recorded + 1:
            costs.append(f"{predicted:.0f} preemptions instead of {recorded}")
        for name in sorted(HARDWARE & self.changes.keys()):
            more = self.changes[name] / self.before[name]
            costs.append(
                f"{more:.3g} times the machines"
                if name == "replicas"
                else f"{more - 1:.0%} more KV memory, which is hardware"
            )
        return costs

    @property
    def words(self) -> str:
        """The changes."""
        return in_words(self.changes, self.before)

    @property
    def line(self) -> str:
        """The changes with what they do to the first goal, and what gets worse."""
        costs = f"; costs {', '.join(self.costs)}" if self.costs else ""
        return f"{self.words}: {self.goals[0]}{costs}"

    def lines(self) -> Iterator[str]:
        """Yield the advice as lines of text."""
        yield self.words
        yield from self.flags
        yield from map(str, self.goals)
        yield f"also better: {'; '.join(self.gains) or 'nothing by more than a tenth'}"
        yield f"costs: {'; '.join(self.costs) or 'no other measure gets worse by more than a tenth'}"
        steps, preemptions = self.steps, self.preemptions
        yield (
            f"steps {steps[0]:,} -> {steps[1]:,.0f}, "
            f"preemptions {preemptions[0]:,} -> {preemptions[1]:,.0f}"
        )
        if self.unseen:
            yield self.unseen


def in_words(changes: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """Return changed settings in words."""
    return ", ".join(
        f"{name}={value_words(value)} instead of {value_words(before[name])}"
        for name, value in changes.items()
    )


class Errors(msgspec.Struct, frozen=True):
    """How far predictions are off on the recording, relative.

    held_back, unexplained, drift  of the goal's measure; see `advise.py`
    measures  of others: the recorded schedule with times from other parts, and the unchanged replay
    kinds     of steps, held back; none if the machine is simulated, which makes predictions exact
    """

    held_back: float
    unexplained: float
    drift: float
    measures: dict[str, tuple[float, float]]
    kinds: list[KindError]

    def __str__(self) -> str:
        if not self.kinds:
            return "The log names the prices of its simulated machine, so predictions are exact."
        told = [
            f"{name} {', '.join(percent_change(error, 1) for error in errors)}"
            for name, errors in self.measures.items()
        ]
        return (
            f"On this recording, the recorded schedule with times that were predicted from other parts"
            f" of it is off by {percent_change(self.held_back, 1)}; a replay without a change leaves "
            f"{percent_change(self.unexplained, 1)} unexplained; the machine's speed varied by "
            f"{self.drift:.1%}. After ± stands half the range of replays with other draws, speeds and "
            "prices.\n"
            f"The same two errors of other measures: {'; '.join(told)}."
        )


class Advised(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    met       whether the recording meets its goals: then there is no advice
    advice    at most three, the best first; if none meets the goals, what comes closest
    errors    of the predictions on this recording
    requests  how many requests the measures are made of
    replays   how many there were
    """

    goals: list[Goal]
    recorded: list[float | None]
    met: bool
    requests: int
    advice: list[Advice] = []
    errors: Errors | None = None
    replays: int = 0
    note: str = ""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    @property
    def summary(self) -> str:
        """How many replays there were, and what was recorded."""
        goal, value = self.goals[0], self.recorded[0]
        was = f"{self.replays} replays of the log. Its {goal.name} is {in_unit(goal.name, value)}."
        exact = str(self.errors) if self.errors and not self.errors.kinds else ""
        return " ".join(filter(None, (was, exact, self.note)))

    def lines(self) -> Iterator[str]:
        """Yield what was found as lines of text."""
        for goal, value in zip(self.goals, self.recorded, strict=True):
            was = in_unit(goal.name, value)
            yield f"Goal: {goal}. Recorded: {was}, with {self.requests:,} requests."
        if self.met:
            yield f"The goal is already met: nothing has to change. {self.note}".strip()
            return
        if not self.advice:
            yield f"None of {self.replays} replays with other settings comes closer to it."
        elif not self.advice[0].meets:
            yield "No change of settings meets it. What comes closest:"
        for number, one in enumerate(self.advice, 1):
            first, *others = one.lines()
            yield f"\n{number}. {first}"
            yield from (f"   {line}" for line in others)
        yield f"\n{self.errors}\n{self.note}".rstrip()
