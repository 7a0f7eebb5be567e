"""Run a paused engine until something happens, then say what it was.

    preemption    a request was preempted
    eviction      cached blocks were evicted because a request needed memory
    finish        a request ended, for any reason
    arrival       a request arrived
    waiting       a request that no earlier step could have admitted was left waiting
    first_token   the named request got its first token
    steps         only the number of steps counts

The engine stops *after* the step in which it happened, so that the step can be looked at as a whole.
Every run ends after at most `MAX_STEPS` steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from engine.core.engine import Engine
from engine.core.log.vocabulary import (
    BlockEvicted,
    Event,
    Preempted,
    RadixEvicted,
    RequestArrived,
    RequestFinished,
    StepFinished,
)

MAX_STEPS = 500

Until = Literal["preemption", "eviction", "finish", "arrival", "waiting", "first_token", "steps"]
# Beyond what was waited for: the engine had no work left, or the teacher intervened.
StopReason = Literal[Until, "idle", "paused", "resumed"]

_WORDS = {
    "preemption": "{request} was preempted",
    "eviction": "blocks were evicted because {request} needed memory",
    "finish": "{request} ended",
    "arrival": "{request} arrived",
    "waiting": "{request} was left waiting",
    "first_token": "{request} got its first token",
    "steps": "the asked number of steps has run",
    "idle": "no request is waiting or running",
    "paused": "the engine was paused",
    "resumed": "the engine was resumed",
}


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Why the engine cannot do what a command asks: the parts of an `ApiError`."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None


class Stopped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Why the engine stopped.

    step      the number of its last step
    reason    what happened
    request   the request that it happened to, if there is one
    """

    step: int
    reason: StopReason
    request: int | None = None

    @property
    def message(self) -> str:
        """The reason in words."""
        words = _WORDS[self.reason].format(request=f"r{self.request}")
        return f"stopped after step {self.step}: {words}"


@dataclass(slots=True)
class StepCommand:
    """A command to run steps of a paused engine.

    until       what ends it before its steps have run
    left        how many steps may still run
    reply       the number of the command, which is answered with a `Stopped`
    request     with "first_token": the request
    newest      with "waiting": the newest request that an earlier step could have admitted
    """

    until: Until
    left: int
    reply: int
    request: int | None = None
    newest: int = 0
    _found: tuple[StopReason, int] | None = None  # reason, request

    def see(self, events: Iterable[Event]) -> None:
        """Look for the awaited event among the events of a step, or between two steps."""
        if self.until in ("steps", "waiting"):
            return
        for event in events:
            if self._found is None:
                self._found = self._match(event)

    def _match(self, event: Event) -> tuple[StopReason, int] | None:
        match event:
            case Preempted() if self.until == "preemption":
                return "preemption", event.request
            case RadixEvicted() | BlockEvicted() if (
                self.until == "eviction" and event.reason == "room"
            ):
                return "eviction", event.needed_by
            case RequestArrived() if self.until == "arrival":
                return "arrival", event.request
            case RequestFinished() if self.until == "finish" or event.request == self.request:
                return "finish", event.request
            case StepFinished() if self.until == "first_token":
                if any(row.request == self.request and row.ids for row in event.tokens):
                    assert self.request is not None
                    return "first_token", self.request
        return None

    def after_step(self, engine: Engine) -> Stopped | None:
        """Count a step; return why the command has ended, or None if it has not."""
        self.left -= 1
        if self.until == "waiting" and self._found is None:
            for request in engine.scheduler.waiting:
                if request.id > self.newest and not request.preemptions:
                    self._found = ("waiting", request.id)
                    break
        if self._found is not None:
            return Stopped(engine.step_count, *self._found)
        return Stopped(engine.step_count, "steps") if self.left == 0 else self.when_idle(engine)

    def when_idle(self, engine: Engine) -> Stopped | None:
        """Return why the command has ended if the engine has no work; None if it has."""
        if engine.has_work():
            return None
        return Stopped(engine.step_count, *(self._found or ("idle",)))


def must_await_token(engine: Engine, request: int | None) -> Refusal | None:
    """Return None if the request is live and has no token yet; otherwise say so."""
    live = engine.requests.get(request or 0)
    if live is None:
        return Refusal(400, f"request must be a live request, got {request}", param="request")
    if len(live.tokens) > live.prompt_length:
        message = f"request must have no token yet, and r{request} has its first one"
        return Refusal(400, message, param="request")
    return None
