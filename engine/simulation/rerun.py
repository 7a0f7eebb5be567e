"""Run a log again up to one of its steps, decide once otherwise, and let the real scheduler go on.

    rerun = Rerun(log)
    log = rerun.take(20, Victim(1))     # equal to rerun.happened before step 20

The exact state of a step is reached by repeating the log's inputs: arrivals, prompts, answers and
settings. Before a choice counts, the rerun must have decided every earlier step as the log did; `check`
says where it did not. Requests arrive at the same times and get the same answers, whatever is chosen.

How the answer of a request that had not ended when the log did goes on is unknown: it gets one more
token than the log has, and ends.

A log of a simulated machine has the prices of its steps, so its rerun has the very times of the log.
For a measured log, prices are fitted, and both the rerun and the choice are timed with them.

Unlike `what_if`, which changes a whole run, this changes one decision in the middle of it.
"""

from dataclasses import asdict, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import msgspec

from engine.core.config import ConfigError
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog, without_measured
from engine.core.loop import StepOutput
from engine.core.scheduling.admission import RequestError
from engine.extensions.holds import Hold
from engine.simulation.choice import CUT, Choice, ChoiceError, Settings
from engine.simulation.choosing_scheduler import choosing
from engine.simulation.cost_runner import US_PER_MS, Cost, CostRunner
from engine.simulation.fit import fit
from engine.simulation.log_part import started_of
from engine.simulation.replayable import replayable, replayed_steps
from engine.simulation.simulate import ReplayEngine, play
from engine.simulation.unknown_tokens import with_unknown_tokens
from engine.simulation.what_if import changed_config, check_parts, fit_entry, simulation_of
from engine.simulation.workload import Arrival, Input, Workload

MOST_EVENTS = 150_000  # of a log that is run again; a choice takes about 25 s then
_SPARE_STEPS = 1000  # a run that takes longer than three times the recorded one does not end
TAKEN = "taken away"  # the label of blocks that are held so that no request gets them


class Rerun:
    """A log's inputs, settings and prices.

    log     the log
    cost    the prices of a step
    is_exact  whether the prices are the log's own, so that the times of the rerun are those of the log
    is_foreign  whether the log is another engine's
    unfinished  how many requests had not ended when the log did
    """

    def __init__(self, log: EventLog, cost: Cost | None = None, **parts: Any) -> None:
        """Raise ChoiceError for a log whose inputs are unknown, or that is too long.

        cost   the prices of a step; None: the log's own, or the best fit
        parts  parts of the logged run that cannot be made from their names: policy, pool, drafter
        """
        if len(log) > MOST_EVENTS:
            raise ChoiceError(
                f"the log has {len(log):,} events, and at most {MOST_EVENTS:,} are run again: cut it"
            )
        self.log = log
        own = recorded_cost(log)
        try:
            inputs = replayable(log)
            self._is_known = inputs is log
            self.is_exact = cost is None and own is not None and self._is_known
            self._workload = Workload.from_log(inputs, "time" if self.is_exact else "step")
            self.unfinished = _end_with_the_log(self._workload.inputs, log)
            started = log[0]
            assert isinstance(started, v.RunStarted)
            if CUT in started.t:
                raise ValueError(f"what comes after step {started.t[CUT]} is for you to predict")
            self._started = started
            self.is_foreign = bool(started.source)
            self.config = changed_config(started, {})
            check_parts(started, self.config, parts, {})
            self.cost = cost or own or fit(log).cost
            is_fitted = cost is None and own is None
            self._fitted = fit_entry(log, self.cost, "step") if is_fitted else None
        except (ConfigError, ValueError) as error:
            raise ChoiceError(f"the log cannot be run again: {error}") from error
        self._parts = parts

    @property
    def happened(self) -> EventLog:
        """The rerun without a choice: what happened, timed with `cost`."""
        return self._happened[0]

    @cached_property
    def _happened(self) -> tuple[EventLog, list[int]]:
        """`happened`, and when each input was applied in it, in us."""
        engine = self._engine()
        return self._played(engine, self._workload.inputs), engine.applied

    @cached_property
    def error(self) -> float | None:
        """The median error of a predicted step's time; None if times are exact or it is unknown."""
        held = None if self._fitted is None else self._fitted["held_back"]["median"]
        return None if held is None else float(held)

    @cached_property
    def steps(self) -> dict[int, int]:
        """The log's steps and their numbers in the rerun, which leaves out steps without a decision."""
        return replayed_steps(self.log)

    @cached_property
    def first_difference(self) -> int | None:
        """The first step of the log that the rerun decides differently, or None.

        A log that ends before its requests do may end in the middle of a step, which does not count.
        """
        ours = _decided(self.happened, exactly=self._is_known)
        recorded = _decided(self.log, exactly=self._is_known)
        numbers = {number: step for step, number in self.steps.items()}
        for (step, one), (_, two) in zip_longest(recorded, ours, fillvalue=(0, None)):
            if one != two:
                is_over = self.unfinished and step in (0, recorded[-1][0])
                return None if is_over else step or max(numbers.values(), default=0) + 1
        return None

    def check(self, step: int) -> int:
        """Return the number of a log's step in the rerun. Raises ChoiceError if it is not reached."""
        if step not in self.steps:
            raise ChoiceError(f"step {step} decides nothing, or is not in the log")
        if (first := self.first_difference) is not None and first <= step:
            raise ChoiceError(
                f"step {step} cannot be decided again: a rerun of the log's inputs decides step "
                f"{first} differently, so from there on its state is not that of the log"
            )
        return self.steps[step]

    def take(self, step: int, choice: Choice) -> EventLog:
        """Return the log of the run in which `choice` was made in a step of the log.

        Before that step, it is equal to `happened`. Raises ChoiceError if the step cannot be reached,
        if it has no such decision, if memory becomes too small for a request, or if the run does not
        end.
        """
        at = self.check(step)
        changes: dict[str, Any] = {}
        if isinstance(choice, Settings) and (choice.blocks > 0 or not self._can_hold):
            more = choice.blocks * self.config.block_size
            changes = {"max_kv_tokens": self.config.max_kv_tokens + more}
        try:
            engine = self._engine(**changes)
            scheduler = choosing(engine.scheduler, at, choice)
            engine.loop.scheduler = engine.scheduler = scheduler
            engine.most_steps = 3 * len(self.steps) + _SPARE_STEPS
            if isinstance(choice, Settings) and choice.blocks < 0 and self._can_hold:
                engine.takes = at, -choice.blocks
            log = self._played(engine, self._timed_inputs())
        except (ConfigError, RequestError) as error:
            raise ChoiceError(f"this cannot be chosen: {error}") from error
        if not scheduler.is_taken:
            raise ChoiceError(f"step {step} has no such decision")
        return log if not isinstance(choice, Settings) else _with_settings(log, choice)

    @property
    def _can_hold(self) -> bool:
        """Whether blocks can be taken away in the middle of a run: a held prefix keeps them."""
        return self.config.prefix_cache != "off"

    def _timed_inputs(self) -> list[Input]:
        """Return the inputs, each at the time at which `happened` had it."""
        if self.is_exact:
            return list(self._workload.inputs)
        return [
            replace(one, step=None, at_ms=at / US_PER_MS)
            for one, at in zip(self._workload.inputs, self._happened[1], strict=True)
        ]

    def _engine(self, **changes: Any) -> "_RerunEngine":
        config = self.config.changed(**changes) if changes else self.config
        runner = CostRunner(**asdict(self.cost))
        return _RerunEngine(runner, config, self._workload, **self._parts)

    def _played(self, engine: "_RerunEngine", inputs: list[Input]) -> EventLog:
        play(inputs, engine, engine.apply, engine.skip_to)
        if self._fitted is not None:
            header = engine.log[0]
            assert isinstance(header, v.RunStarted)
            header.t["fitted"] = self._fitted
        if self._is_known:
            return engine.log
        return with_unknown_tokens(engine.log, simulation_of(self._started))


class _RerunEngine(ReplayEngine):
    """Notes when inputs were applied, takes blocks away, and stops a run that does not end.

    takes  from which step on blocks are taken away, and how many
    """

    def __init__(self, runner: CostRunner, *rest: Any, **parts: Any) -> None:
        super().__init__(runner, *rest, **parts)
        self.skip_to = runner.clock.skip_to
        self.applied: list[int] = []
        self.most_steps = 0
        self.takes = (0, 0)
        self._hold = Hold(0)

    def apply(self, one: Input) -> None:
        """See `ReplayEngine.apply`."""
        self.applied.append(self.clock.now())
        super().apply(one)

    def step(self) -> StepOutput:
        """See `Engine.step`. Raises ChoiceError after too many steps."""
        if self.most_steps and self.step_count >= self.most_steps:
            raise ChoiceError(
                f"with this choice, the run has not ended after {self.step_count:,} steps: requests "
                "preempt one another for ever, because memory is too small for one of them"
            )
        first, blocks = self.takes
        if len(self._hold.block_table) < blocks and self.step_count + 1 >= first:
            self._take_away(blocks)
        return super().step()

    def _take_away(self, blocks: int) -> None:
        """Hold blocks, as soon as they can be had, by a prefix that no prompt has."""
        had = len(self._hold.block_table)
        blocks = min(blocks, had + self.cache.num_available_blocks)
        if blocks > had:
            size = self.config.block_size
            tokens = [self.tokenizer.vocab_size - 1] * (blocks * size)
            self.kv_transfer.adopt(tokens, b"", source=TAKEN)
            hold = self.holds.pin(tokens, blocks, label=TAKEN)
            if had:
                self.holds.release(self._hold.id)
            self._hold = hold


def recorded_cost(log: EventLog) -> Cost | None:
    """Return the prices of the simulated machine that a log was made on, or None for any other."""
    started = started_of(log)
    if started is None or started.model.get("name") != "cost runner":
        return None
    others = ("name", "parameters", "kv_groups")
    prices = {name: value for name, value in started.model.items() if name not in others}
    return Cost(**{"base_ms": 0.0, "per_token_ms": 0.0} | prices)


def _with_settings(log: EventLog, choice: Settings) -> EventLog:
    """Return the log with the chosen settings in its header."""
    started = log[0]
    assert isinstance(started, v.RunStarted)
    chosen = {"max_batch_size": choice.seats, "token_budget": choice.budget}
    settings = started.settings | {name: one for name, one in chosen.items() if one is not None}
    return EventLog.from_events([msgspec.structs.replace(started, settings=settings), *log[1:]])


def _end_with_the_log(inputs: list[Input], log: EventLog) -> int:
    """Let requests that have not ended end with the first unknown token; return their number."""
    live = {event.request for event in log.of(v.RequestArrived)}
    live |= {event.request for event in log.of(v.Forked)}
    live -= {event.request for event in log.of(v.RequestFinished)}
    first, unfinished = 1, 0
    for one in inputs:
        if isinstance(one, Arrival):
            ids = range(first, first + one.params.samples)
            first = ids.stop
            if not live.isdisjoint(ids):
                most = 1 + max((answer.length for answer in one.answers.values()), default=0)
                one.params = msgspec.structs.replace(
                    one.params, max_tokens=most, min_tokens=min(one.params.min_tokens, most)
                )
                unfinished += 1
    return unfinished


_NO_DECISION = (v.RunStarted, v.EnginePaused, v.EngineResumed, v.StepReported, v.StepStarted)


def _decided(log: EventLog, *, exactly: bool) -> list[tuple[int, list[Any]]]:
    """Return the number of each step that computes something, with what it did.

    exactly  with every event and block number; else only rows, admissions and preemptions
    """
    steps, now, step = list[tuple[int, list[Any]]](), list[Any](), 0
    for event in log:
        match event:
            case v.StepStarted():
                step = event.step
            case v.StepFinished() if exactly:
                now += [(row.request, row.ids, row.accepted, row.forced) for row in event.tokens]
            case v.RequestArrived() if exactly:
                now.append((event.request, event.tokens, event.label, event.priority, event.n))
            case v.Admitted() if not exactly:
                now.append(("admitted", event.request, len(event.blocks)))
            case v.Preempted() if not exactly:
                now.append(("preempted", event.request))
            case _ if exactly and not isinstance(event, (*_NO_DECISION, v.StepScheduled)):
                now.append(without_measured(event))
        if isinstance(event, v.StepScheduled):
            now += [(row.request, row.start, row.count) for row in event.rows]
            if event.rows or exactly:
                steps.append((step, now))
                now = []
    if now:
        steps.append((step, now))
    return steps
