"""A workload as data: who asks what and when, and how long the answers really are.

Two sources: `Workload.from_log` takes what happened to an engine from outside (arrivals, aborts,
clearings of the cache) out of a saved log, with the answers that were given; `Workload.generate`
draws one. `simulate` plays either on a pretend machine.

An input comes before a step, or at a time. Steps make a run comparable decision by decision; times
let the machine's speed decide which step somebody arrives in.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.events import vocabulary as v
from engine.events.fold import State
from engine.events.log import EventLog
from engine.events.state import ROOT
from engine.scheduling.sampling_params import SamplingParams
from engine.simulation.cost_runner import US_PER_MS

ArrivalProcess = Callable[[random.Random, int], list[float]]  # -> when each comes, in ms
Length = Callable[[random.Random], int]  # -> tokens


@dataclass(slots=True)
class Answer:
    """What one sample says: the first `len(ids)` tokens as they were, `length` tokens in all.

    texts   one piece per id
    forced  output position after which a tool's tokens were forced -> how many
    """

    length: int
    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    forced: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Input:
    """Something from outside: before step `step`, or where that is None, at `at_ms`."""

    step: int | None = None
    at_ms: float = 0.0


@dataclass(slots=True)
class Arrival(Input):
    """A request. `answers` has one entry per sample; a missing one goes on to max_tokens."""

    prompt: list[int] = field(default_factory=list)
    params: SamplingParams = field(default_factory=SamplingParams)
    label: str = ""
    priority: int = 0
    texts: list[str] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)


@dataclass(slots=True)
class Abort(Input):
    """The client of a request left. Ids count from 1 in order of arrival, one per sample."""

    request: int = 0


@dataclass(slots=True)
class Clear(Input):
    """Somebody cleared the prefix cache."""


@dataclass(slots=True)
class Hold(Input):
    """Somebody had a prefix held; `hold` is the log's number of it."""

    hold: int = 0
    tokens: list[int] = field(default_factory=list)
    label: str = ""


@dataclass(slots=True)
class LetGo(Input):
    """Somebody let go of what they had held."""

    hold: int = 0


@dataclass(slots=True)
class Workload:
    """Inputs in order. `tokenizer` describes that of the log they come from, if they do."""

    inputs: list[Input]
    tokenizer: dict[str, Any] | None = None

    @classmethod
    def from_log(cls, log: EventLog, pinned: str = "step") -> "Workload":
        """Everything that came from outside in a log, pinned to its "step" or its "time".

        A request that ended in an error is taken for one that was aborted then. Raises ValueError
        for a log whose beginning was dropped, because arrivals are missing from it.
        """
        if pinned not in ("step", "time"):
            raise ValueError(f'pinned must be "step" or "time", got {pinned!r}')
        if not len(log) or not isinstance(log[0], v.RunStarted):
            raise ValueError(
                "the log does not begin with run_started: arrivals are missing from it"
            )
        started: v.RunStarted = log[0]
        inputs = list(_inputs(log))
        for one in inputs:
            if pinned == "time":
                one.step = None
        if pinned == "time":
            inputs.sort(key=lambda one: one.at_ms)
        return cls(inputs, started.tokenizer)

    @classmethod
    def generate(
        cls,
        count: int,
        *,
        arrivals: ArrivalProcess,
        prompt: Length,
        output: Length,
        groups: int = 0,
        shared_tokens: int = 0,
        max_tokens: int | None = None,
        seed: int = 0,
    ) -> "Workload":
        """Draw `count` requests; equal arguments give equal workloads.

        arrivals       when they come: `poisson`, `bursts` or `at_once`
        prompt         own tokens of a prompt: `fixed`, `uniform` or `lognormal`
        output         real length of an answer, in tokens
        groups         each request belongs to one of so many groups (0: none), which is its label;
        shared_tokens  the prompts of a group begin with so many equal tokens
        max_tokens     what every request asks for at most; None: exactly what it needs
        """
        rng = random.Random(seed)
        stems = [_letters(rng, shared_tokens) for _ in range(groups)]
        inputs: list[Input] = []
        for at_ms in sorted(arrivals(rng, count)):
            group = rng.randrange(groups) if groups else -1
            length = output(rng)
            asked = length if max_tokens is None else max_tokens
            inputs.append(
                Arrival(
                    at_ms=at_ms,
                    prompt=(stems[group] if groups else []) + _letters(rng, prompt(rng)),
                    params=SamplingParams(max_tokens=asked),
                    label=f"group {group + 1}" if groups else "",
                    answers={0: Answer(min(length, asked))},
                )
            )
        return cls(inputs)


# When requests come


def poisson(per_second: float) -> ArrivalProcess:
    """Independent clients: gaps are exponential, `per_second` requests a second on average."""

    def process(rng: random.Random, count: int) -> list[float]:
        at, times = 0.0, list[float]()
        for _ in range(count):
            at += rng.expovariate(per_second) * 1000
            times.append(at)
        return times

    return process


def bursts(size: int, every_ms: float) -> ArrivalProcess:
    """`size` requests together, again and again: a class that presses Enter on command."""
    return lambda _, count: [index // size * every_ms for index in range(count)]


def at_once() -> ArrivalProcess:
    """Everybody at time 0."""
    return lambda _, count: [0.0] * count


# How long things are


def fixed(tokens: int) -> Length:
    """Always the same."""
    return lambda _: tokens


def uniform(least: int, most: int) -> Length:
    """Anything from `least` to `most`, equally often."""
    return lambda rng: rng.randint(least, most)


def lognormal(median: float, spread: float, most: int) -> Length:
    """Many short, a few very long, as in real traffic; cut at `most`. `spread` is sigma."""
    return lambda rng: min(most, max(1, round(median * rng.lognormvariate(0, spread))))


def _letters(rng: random.Random, count: int) -> list[int]:
    return [ord("a") + rng.randrange(26) for _ in range(count)]


# What a log tells


def _inputs(log: EventLog) -> Iterable[Input]:
    """The inputs in order of their events, with the step before which each came."""
    answers = _answers(log)
    step, now = 0, 0.0
    clearing = False
    state = State()
    has_holds = any(isinstance(event, v.PrefixHeld) for event in log)
    for event in log:
        if has_holds:
            state.apply(event)
        match event:
            case v.StepStarted():
                step = event.step
            case v.StepFinished():
                now = event.t["end"] / US_PER_MS
            case v.RequestArrived():
                now = max(now, event.t["at"] / US_PER_MS)
                yield Arrival(
                    step=step + 1,
                    at_ms=event.t["at"] / US_PER_MS,
                    prompt=event.prompt,
                    params=msgspec.convert(event.sampling, SamplingParams, str_keys=True),
                    label=event.label,
                    priority=event.priority,
                    texts=event.texts,
                    answers={
                        sample: answers[event.request + sample]
                        for sample in range(event.n)
                        if event.request + sample in answers
                    },
                )
            case v.RequestFinished() if event.reason in ("abort", "error"):
                yield Abort(step=step + 1, at_ms=now, request=event.request)
            case v.RadixEvicted() if event.reason == "cleared" and not clearing:
                yield Clear(step=step + 1, at_ms=now)
            case v.PrefixHeld():
                tokens = _spelled(state, event.node)
                yield Hold(
                    step=step + 1, at_ms=now, hold=event.hold, tokens=tokens, label=event.label
                )
            case v.PrefixReleased() if event.reason == "released":
                yield LetGo(step=step + 1, at_ms=now, hold=event.hold)
        clearing = isinstance(event, v.RadixEvicted) and event.reason == "cleared"


def _spelled(state: State, node: int) -> list[int]:
    """The tokens on the path to a node."""
    tokens: list[int] = []
    while node != ROOT:
        tokens = state.nodes[node].tokens + tokens
        node = state.nodes[node].parent
    return tokens


def _answers(log: EventLog) -> dict[int, Answer]:
    """What every request and sample said."""
    answers: dict[int, Answer] = {}
    for event in log.of(v.StepFinished):
        assert isinstance(event, v.StepFinished)
        for row in event.tokens:
            answer = answers.setdefault(row.request, Answer(0))
            answer.ids += row.ids
            answer.texts += row.texts
            answer.length = len(answer.ids)
            if row.forced:
                answer.forced[answer.length - row.forced - 1] = row.forced
    return answers
