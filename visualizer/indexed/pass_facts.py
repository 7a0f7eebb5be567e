"""The steps in the order in which they finish, and what the scheduler decided in each, while a log is
folded. The paused time, too.
"""

from operator import attrgetter

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.simulation.latencies import PausedTime
from visualizer.indexed.block_facts import BlockFacts
from visualizer.indexed.facts import Finished, Plans, Time
from visualizer.indexed.handlers import Handlers
from visualizer.indexed.step_facts import StepFacts

Repeat = tuple[int, int, int]  # request, tokens, step of its preemption


class _Pass(msgspec.Struct, gc=False):
    """A step that finishes; see `Finished` and `Plans` in `facts.py`."""

    number: int
    failed: bool = False
    begin: Time | None = None
    launched: Time | None = None
    ready: Time | None = None
    end: Time | None = None
    decodes: int = 0
    prefills: int = 0
    blocked: v.Blocked | None = None
    skipped: list[tuple[int, str]] = []
    is_after_gap: bool = False
    rows: int = 0
    tokens: int = 0
    prompt: int = 0
    again: list[Repeat] = []
    victims: list[int] = []
    seats: int = 0
    used: int = 0
    waiting: int = 0
    away: int = 0
    deferred: int = 0
    slotless: int = 0
    stalled: int = 0
    arrived: int = 0
    is_after_idle: bool = False


class PassFacts:
    """The steps that have finished.

    count      how many have
    has_times  whether all of them say when they ended
    """

    def __init__(self, state: State, steps: StepFacts, blocks: BlockFacts) -> None:
        self.count = 0
        self.has_times = True
        self.paused = PausedTime()
        self._state, self._steps, self._blocks = state, steps, blocks
        self._last = _Pass(0)  # that began
        self._open: dict[int, _Pass] = {}
        self._finished: list[_Pass] = []  # that were not taken
        self._is_after_gap = self._is_after_idle = False
        self._arrived = 0
        self.before: Handlers = {
            v.RequestArrived: self._request_arrived,
            v.Preempted: self._preempted,
            v.StepReported: self._reported,
            v.StepStarted: self._started,
            v.StepFinished: self._step_finished,
            v.EventsMissing: self._missing,
        }
        self.after: Handlers = dict.fromkeys(
            (v.Keyframe, v.StepFinished, v.EnginePaused, v.EngineResumed), self.paused.note
        )

    def take(self) -> list[Finished | Plans]:
        """Return the steps that have finished since this was last asked for."""
        done, self._finished = self._finished, []
        columns = [
            kind(*(list(map(attrgetter(name), done)) for name in kind.__struct_fields__))
            for kind in (Finished, Plans)
        ]
        return columns if done else []

    def counts(self, step: int) -> bool:
        """Return whether a step that finishes counts: it did not fail while the one before ran.

        A damaged log may lack the end of the one before.
        """
        return step - 1 not in self._open or not self._begun(step).failed

    def join(
        self, number: int, rows: list[v.ScheduledRow], kinds: list[str], again: list[Repeat]
    ) -> None:
        """Add a step that began before the log does, with those of its rows that are known."""
        self._last = _Pass(number)
        if rows:
            self._open[number] = self._last
            self._describe(self._last, rows, kinds, again)

    def plan(self, event: v.StepScheduled, kinds: list[str], again: list[Repeat]) -> None:
        """Note what a step computes: the kinds of its rows, and what it computes again."""
        requests, number = self._state.requests, self._state.step
        done = self._open[number] = self._begun(number)
        done.failed, done.blocked, done.skipped = False, event.blocked, event.skipped
        self._describe(done, event.rows, kinds, again)
        for request, reason in event.skipped:
            done.stalled += reason == "token_budget"
            if reason in ("policy", "adapter_slot"):
                is_away = request in self._state.waiting and requests[request].preemptions > 0
                done.deferred += not is_away and reason == "policy"
                done.slotless += not is_away and reason == "adapter_slot"

    def _begun(self, number: int) -> _Pass:
        last = self._last if self._last.number == number else None
        return self._open.get(number) or last or _Pass(number)

    def _describe(
        self, done: _Pass, rows: list[v.ScheduledRow], kinds: list[str], again: list[Repeat]
    ) -> None:
        state, decodes = self._state, kinds.count("decode")
        done.again = again
        done.decodes += decodes
        done.prefills += len(kinds) - decodes
        done.rows, done.tokens = len(rows), sum(row.count for row in rows)
        for row, kind in zip(rows, kinds, strict=True) if decodes < len(kinds) else ():
            done.prompt += row.count if kind == "prefill" else 0
        done.seats = sum(state.requests[one].num_seqs for one in state.running)
        _, _, unshared, shared = self._blocks.count()
        done.used, done.waiting = unshared + shared, len(state.waiting)
        done.away = self._steps.suspended

    def _request_arrived(self, _event: v.RequestArrived) -> None:
        self._is_after_idle |= not (self._state.waiting or self._state.running)
        self._arrived += 1

    def _preempted(self, event: v.Preempted) -> None:
        self._last.victims.append(event.request)

    def _reported(self, event: v.StepReported) -> None:
        done = self._last
        done.rows = event.prefills + event.decodes
        done.tokens = event.prefill_tokens + event.decodes
        done.prompt, done.waiting = event.prefill_tokens, event.waiting

    def _started(self, event: v.StepStarted) -> None:
        self._last = self._open[event.step] = _Pass(event.step, failed=True)
        self._last.arrived, self._arrived = self._arrived, 0
        self._last.is_after_idle, self._is_after_idle = self._is_after_idle, False

    def _step_finished(self, event: v.StepFinished) -> None:
        counts, done = self.counts(event.step), self._begun(event.step)
        self._open.pop(event.step, None)
        if not counts:
            return
        t = event.t
        done.begin, done.end = t.get("start"), t.get("end")
        done.launched = t.get("launched", t.get("scheduled", done.end))
        done.ready = t.get("ready", done.end)
        if not done.decodes + done.prefills:
            done.launched = done.ready = done.end
        done.is_after_gap, self._is_after_gap = self._is_after_gap, False
        self.has_times &= done.end is not None
        self._finished.append(done)
        self.count += 1

    def _missing(self, _event: v.EventsMissing) -> None:
        self._is_after_gap = True
        self._is_after_idle = False  # requests may have come and gone
