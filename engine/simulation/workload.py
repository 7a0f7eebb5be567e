"""A workload as data: the requests, their arrivals and the real lengths of their answers.

There are two sources. `Workload.from_log` extracts an engine's inputs (arrivals, aborts, cache
clears, holds, adopted prefixes) and its answers from a saved log. `Workload.generate` draws a
random workload. `simulate` plays either on a simulated machine.

Each input comes before a given step or at a given time. With steps, two runs can be compared decision
by decision; with times, the machine's speed decides which step a request arrives before.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.state import ROOT
from engine.core.sampling_params import SamplingParams
from engine.extensions.kv_groups import KVGroups
from engine.extensions.kv_transfer import ADOPTING
from engine.extensions.prefix_keys import keyed
from engine.extensions.resumption import Begun
from engine.simulation.cost_runner import US_PER_MS
from engine.simulation.group_memory import GroupMemory, memory_of
from engine.simulation.log_part import LogPart, started_of
from engine.simulation.recorded_drafts import Drafting, drafting_of
from engine.simulation.unknown_tokens import UNKNOWN

ArrivalProcess = Callable[[random.Random, int], list[float]]  # -> arrival times in ms
Length = Callable[[random.Random], int]  # -> tokens


@dataclass(slots=True)
class Answer:
    """The answer of one sample: `length` tokens, of which the first `len(ids)` are known.

    texts   one piece per id
    forced  output position -> number of tokens that a tool or a grammar forced after it
    stopped whether it ended by itself, not at max_tokens
    drafts  output position at which a row began -> its drafts
    """

    length: int
    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    forced: dict[int, int] = field(default_factory=dict)
    stopped: bool = False
    drafts: dict[int, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Input:
    """An input of the engine before step `step`, or at `at_ms` if `step` is None."""

    step: int | None = None
    at_ms: float = 0.0


@dataclass(slots=True)
class Arrival(Input):
    """A request. `answers` has an entry per sample; a sample without one runs to max_tokens.

    `extra_key` is (adapter, digest of the cache salt); see `engine/extensions/prefix_keys.py`. `begun`
    is the output that another replica had generated. `request` is its id; 0 means the next one.
    `way_ms` is how long it is on its way after `at_ms` until it reaches the engine, which counts as
    waiting.
    """

    prompt: list[int] = field(default_factory=list)
    params: SamplingParams = field(default_factory=SamplingParams)
    label: str = ""
    priority: int = 0
    texts: list[str] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)
    extra_key: tuple[str, ...] = ()
    begun: Begun | None = None
    request: int = 0
    way_ms: float = 0.0

    @property
    def keyed_prompt(self) -> list[int]:
        """The prompt with its key, as `Engine.submit` takes it."""
        return keyed(self.prompt, self.extra_key) if self.extra_key else self.prompt


@dataclass(slots=True)
class Abort(Input):
    """A client aborts a request. Ids count from 1 in order of arrival, one per sample."""

    request: int = 0


@dataclass(slots=True)
class Clear(Input):
    """A client clears the prefix cache."""


@dataclass(slots=True)
class Hold(Input):
    """A client holds a prefix. `hold` is its number in the log. The tokens have the prefix's key."""

    hold: int = 0
    tokens: list[int] = field(default_factory=list)
    label: str = ""


@dataclass(slots=True)
class Release(Input):
    """A client releases a hold."""

    hold: int = 0


@dataclass(slots=True)
class Adopt(Input):
    """Another replica's KV of a prefix arrives. `texts` has one piece per token."""

    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    source: str = ""


@dataclass(slots=True)
class Restore(Input):
    """The requests with these ids run, each with so many computed tokens; see `restoring.py`.

    computed  in the order in which they were admitted, with the tokens of their rows in flight
    starts    where these rows start
    memory    with several KV cache groups: all of their blocks
    """

    computed: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    memory: GroupMemory | None = None


@dataclass(slots=True)
class End(Input):
    """The run ends here, whatever is left to do: a part of a longer run is over."""


@dataclass(slots=True)
class Workload:
    """Inputs in order.

    tokenizer  describes the tokenizer of the log they come from, if any
    drafting   how the drafts of the answers are replayed; None if there are none
    kv_groups  of the model in that log, if there are several
    """

    inputs: list[Input]
    tokenizer: dict[str, Any] | None = None
    drafting: Drafting | None = None
    kv_groups: KVGroups | None = None

    @classmethod
    def from_log(cls, log: EventLog, pinned: str = "step") -> "Workload":
        """Extract the inputs of a log, each pinned to its "step" or its "time".

        A request that ended in an error counts as aborted. Raises ValueError for a log whose beginning
        was dropped, because its first arrivals are missing (not in a `LogPart`), and for one without
        token ids.
        """
        if pinned not in ("step", "time"):
            raise ValueError(f'pinned must be "step" or "time", got {pinned!r}')
        if (started := started_of(log)) is None:
            raise ValueError(
                "the log does not begin with run_started: its first arrivals are missing"
            )
        if started.tokenizer.get("trace_text") == "off":
            raise ValueError(
                "the log has no token ids, so it cannot be replayed: record it with --trace-text on"
            )
        inputs = list(_inputs(log))
        if isinstance(log, LogPart):
            last = max((one.step for one in log.each(v.StepFinished)), default=0)
            window = log.window
            inputs.append(End(last + 1, window.end_us / US_PER_MS if window else 0.0))
        has_times = all("at" in event.t for event in log.of(v.RequestArrived))
        if pinned == "time" and not has_times:
            raise ValueError("the log has no times, so its arrivals cannot be pinned to them")
        if pinned == "time":
            for one in inputs:
                one.step = None
            inputs.sort(key=lambda one: one.at_ms)
        groups = msgspec.convert(started.model.get("kv_groups"), KVGroups | None)
        return cls(inputs, started.tokenizer, drafting_of(log), groups)

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
        """Draw `count` requests; the same arguments always give the same workload.

        arrivals       the arrival process: `poisson` or `bursts`
        prompt         length of a prompt without shared tokens: `uniform` or `lognormal`
        output         real length of an answer, in tokens
        groups         the number of groups; each request is labelled with its group (0: none)
        shared_tokens  the length of the common prefix of a group's prompts
        max_tokens     the limit of every request; None: exactly the length of its answer
        """
        rng = random.Random(seed)
        prefixes = [letters(rng, shared_tokens) for _ in range(groups)]
        inputs: list[Input] = []
        for at_ms in sorted(arrivals(rng, count)):
            group = rng.randrange(groups) if groups else -1
            length = output(rng)
            asked = length if max_tokens is None else max_tokens
            inputs.append(
                Arrival(
                    at_ms=at_ms,
                    prompt=(prefixes[group] if groups else []) + letters(rng, prompt(rng)),
                    params=SamplingParams(max_tokens=asked),
                    label=f"group {group + 1}" if groups else "",
                    answers={0: Answer(min(length, asked))},
                )
            )
        return cls(inputs)

    @classmethod
    def agents(
        cls,
        count: int,
        turns: int,
        *,
        away_ms: ArrivalProcess,
        instructions: int,
        prompt: Length,
        output: Length,
        seed: int = 0,
    ) -> "Workload":
        """Draw conversations of agents: each turn repeats all that was said, and adds to it.

        away_ms       when the turns of an agent begin: `poisson(1 / 60)` for one a minute on average
        instructions  tokens with which all agents begin
        prompt        what a turn adds: the result of a tool, or what a person says
        output        length of an answer
        """
        rng = random.Random(seed)
        common, turns_of = letters(rng, instructions), list[Arrival]()
        for agent in range(count):
            said = list(common)
            for at_ms in away_ms(rng, turns):
                said += letters(rng, prompt(rng))
                answer = letters(rng, output(rng))
                turns_of.append(
                    Arrival(
                        at_ms=at_ms,
                        prompt=list(said),
                        params=SamplingParams(max_tokens=len(answer)),
                        label=f"agent {agent + 1}",
                        answers={0: Answer(len(answer), answer, [chr(one) for one in answer])},
                    )
                )
                said += answer
        turns_of.sort(key=lambda one: one.at_ms)
        return cls(list(turns_of))


# Arrival processes


def poisson(per_second: float) -> ArrivalProcess:
    """Independent clients: exponential gaps, on average `per_second` requests per second."""

    def process(rng: random.Random, count: int) -> list[float]:
        at, times = 0.0, list[float]()
        for _ in range(count):
            at += rng.expovariate(per_second) * 1000
            times.append(at)
        return times

    return process


def bursts(size: int, every_ms: float) -> ArrivalProcess:
    """Repeated bursts of `size` requests: a class that presses Enter together."""
    return lambda _, count: [index // size * every_ms for index in range(count)]


# Lengths


def uniform(least: int, most: int) -> Length:
    """Uniform from `least` to `most`, both included."""
    return lambda rng: rng.randint(least, most)


def lognormal(median: float, spread: float, most: int) -> Length:
    """Many short and a few very long ones, as in real traffic, up to `most`. `spread` is sigma."""
    return lambda rng: min(most, max(1, round(median * rng.lognormvariate(0, spread))))


def letters(rng: random.Random, count: int) -> list[int]:
    """Return a prompt of random letters, as the token ids of the byte tokenizer."""
    return [ord("a") + rng.randrange(26) for _ in range(count)]


# Inputs and answers of a log


def _inputs(log: EventLog) -> Iterable[Input]:
    """Yield the inputs in order, each with the step that it came before."""
    answers = answers_of(log)
    step, now = 0, 0.0
    clearing, is_part = False, isinstance(log, LogPart)
    state, own_holds = State(), set[int]()  # holds of the engine itself, while it adopts a prefix
    has_prefixes = any(isinstance(event, v.PrefixHeld | v.PrefixAdopted) for event in log)
    for event in log:
        if has_prefixes:
            state.apply(event)
        match event:
            case v.Keyframe():
                step, now = event.state.step, _begin_ms(log)
                yield from earlier_inputs(log, answers)
            case v.StepStarted():
                step = event.step
            case v.StepFinished():
                now = event.t.get("end", 0) / US_PER_MS
            case v.RequestArrived():
                at_ms = event.t.get("at", 0) / US_PER_MS
                now = max(now, at_ms)
                arrival = arrival_of(event, answers, at_ms, step + 1)
                arrival.request = event.request if is_part else 0
                yield arrival
            case v.RequestFinished() if event.reason in ("abort", "error"):
                yield Abort(step=step + 1, at_ms=now, request=event.request)
            case v.RadixEvicted() | v.BlockEvicted() if event.reason == "cleared" and not clearing:
                yield Clear(step=step + 1, at_ms=now)
            case v.PrefixHeld(label=label) if label == ADOPTING:
                own_holds.add(event.hold)
            case v.PrefixHeld():
                held = keyed(state.prefix_tokens(event.node), tuple(state.prefix_key(event.node)))
                yield Hold(
                    step=step + 1, at_ms=now, hold=event.hold, tokens=held, label=event.label
                )
            case v.PrefixReleased() if event.reason == "released" and event.hold not in own_holds:
                yield Release(step=step + 1, at_ms=now, hold=event.hold)
            case v.PrefixAdopted():
                end = event.nodes[-1]
                tokens, texts = state.prefix_tokens(end), state.prefix_texts(end)
                yield Adopt(step + 1, now, tokens, texts, event.source)
        clearing = isinstance(event, v.RadixEvicted | v.BlockEvicted) and event.reason == "cleared"


def _begin_ms(log: EventLog) -> float:
    """Return when the first step of a log began that has finished; 0 without one."""
    finished = next(log.each(v.StepFinished), None)
    return finished.t.get("start", 0) / US_PER_MS if finished else 0.0


def earlier_inputs(log: EventLog, answers: dict[int, Answer]) -> Iterable[Input]:
    """Yield the inputs that lead to the keyframe with which a part of a run begins.

    First come the cached prefixes, from the one used longest ago to the latest, adopted as if another
    replica had computed them, then the requests that were running, which are restored, and then those
    that waited. With several KV cache groups, the prefixes are restored with the requests.

    Differs from the recorded state without groups: of a block that is cached twice, one copy is there.
    """
    state = State()
    state.apply(log[0])
    step, at_ms = state.step + 1, _begin_ms(log)
    memory = memory_of(log, answers) if isinstance(log, LogPart) else None
    nodes = [one for one in state.nodes.values() if one.id != ROOT and memory is None]
    above = {one.parent for one in nodes}
    leaves = [one for one in nodes if one.id not in above]
    used = {block: at for at, block in enumerate(state.queue)}  # the hash cache's evictable blocks
    leaves.sort(
        key=lambda one: (one.last, max((used.get(b, len(used)) for b in one.blocks), default=0))
    )
    for leaf in leaves:
        tokens = keyed(state.prefix_tokens(leaf.id), tuple(state.prefix_key(leaf.id)))
        yield Adopt(step, at_ms, tokens, state.prefix_texts(leaf.id), "the run before")
    for hold in state.holds.values():
        held = keyed(state.prefix_tokens(hold.last_node), tuple(state.prefix_key(hold.last_node)))
        yield Hold(step, at_ms, hold=hold.id, tokens=held, label=hold.label)
    running, waiting = (
        [state.requests[one] for one in ids] for ids in (state.running, state.waiting)
    )
    yield from _arrived(running, answers, step, at_ms)
    computed = {one.id: min(one.num_computed_tokens, len(one.tokens) - 1) for one in running}
    in_flight = {row.request: row for row in state.plan if row.request in computed}
    computed |= {number: row.start + row.count for number, row in in_flight.items()}
    starts = {number: row.start for number, row in in_flight.items()}
    yield Restore(step, at_ms, computed, starts, memory)
    yield from _arrived(waiting, answers, step, at_ms)


def _arrived(
    live: Sequence[v.RequestState], answers: dict[int, Answer], step: int, at_ms: float
) -> Iterable[Input]:
    """Yield the arrivals of requests that are already there, so that the queue has them in order."""
    # A request with output joins the front of the queue, so the first of them has to come last.
    begun = [one for one in live if len(one.tokens) > one.prompt_length]
    for one in (*(one for one in live if one not in begun), *reversed(begun)):
        prompt, samples = one.tokens[: one.prompt_length], range(one.num_seqs)
        output = one.tokens[one.prompt_length :]
        sampling = one.sampling | {"n": one.num_seqs, "best_of": None}
        yield Arrival(
            step=step,
            at_ms=at_ms,
            prompt=prompt,
            params=msgspec.convert(sampling, SamplingParams, str_keys=True),
            label=one.label,
            priority=one.priority,
            texts=one.texts[: one.prompt_length],
            answers={at: answers[one.id + at] for at in samples if one.id + at in answers},
            extra_key=tuple(one.extra_key),
            begun=Begun(one.sample, output) if output else None,
            request=one.id,
        )


def arrival_of(
    event: v.RequestArrived, answers: dict[int, Answer], at_ms: float, step: int | None = None
) -> Arrival:
    """Return a logged request as an input, with its answers."""
    return Arrival(
        step=step,
        at_ms=at_ms,
        prompt=event.prompt,
        params=msgspec.convert(event.sampling, SamplingParams, str_keys=True),
        label=event.label,
        priority=event.priority,
        texts=event.texts[: len(event.prompt)],
        answers={
            sample: answers[event.request + sample]
            for sample in range(event.n)
            if event.request + sample in answers
        },
        extra_key=tuple(event.extra_key),
        begun=Begun(event.sample, event.output) if event.output else None,
    )


def answers_of(log: EventLog) -> dict[int, Answer]:
    """Return the answer of every request and sample."""
    answers: dict[int, Answer] = {}
    drafts: dict[int, list[int]] = {}  # by request, scheduled but not yet checked
    drafting = drafting_of(log)
    lost = [UNKNOWN] * drafting.length if drafting and drafting.is_vllm else []
    for event in log:
        for one in event.state.requests if isinstance(event, v.Keyframe) else ():
            if output := one.tokens[one.prompt_length :]:
                answers[one.id] = Answer(len(output), output, one.texts[one.prompt_length :])
        if isinstance(event, v.RequestArrived) and event.output:
            begun = list(event.output), event.texts[len(event.prompt) :]
            answers[event.request] = Answer(len(event.output), *begun)
        if isinstance(event, v.StepScheduled):
            drafts |= {row.request: row.drafts for row in event.rows if row.drafts}
        if lost and isinstance(event, v.Preempted) and event.request in answers:
            # Its drafts were not scheduled, so the log lacks them; but it needed memory for them.
            answers[event.request].drafts[answers[event.request].length] = lost
        if isinstance(event, v.RequestFinished) and event.request in answers:
            answers[event.request].stopped = event.reason == "stop"
        for row in event.tokens if isinstance(event, v.StepFinished) else ():
            answer = answers.setdefault(row.request, Answer(0))
            if row.request in drafts:
                answer.drafts[answer.length] = drafts.pop(row.request)
            answer.ids += row.ids
            answer.texts += row.texts
            answer.length = len(answer.ids)
            if row.forced:
                answer.forced[answer.length - row.forced - 1] = row.forced
    return answers
