"""Write the log entries with measured values: run start, arrivals, starts and ends of steps and pauses.

All other entries record decisions and are identical in every run of the same workload. Times and
log-probabilities differ from run to run. They are in the last field, `t`, which is ignored when
logs are compared.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import msgspec

from engine.core.cache.prefix_cache import Adopted, WindowPages
from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.log.expert_loads import packed
from engine.core.output.processor import TokenOutput
from engine.core.request import Request
from engine.core.tokenizer import Tokenizer


class Clock(Protocol):
    """A clock that counts microseconds from the start of the run and never goes back.

    The engine reads the time only here, so a simulation just passes another clock.
    """

    name: str

    def now(self) -> int:
        """Return the number of whole microseconds since the clock was created."""


@runtime_checkable
class VirtualTime(Clock, Protocol):
    """A clock that moves only when it is told to; see `engine.simulation.cost_runner.VirtualClock`.

    cpu_us  the time that scheduling a step takes
    """

    cpu_us: int

    def advance(self, microseconds: int) -> None:
        """Move the time forward."""

    def overlapped(self, work: Callable[[], object]) -> None:
        """Do work without moving the clock."""


class WallClock:
    """Real time."""

    name = "wall"

    def __init__(self) -> None:
        self._start = time.perf_counter_ns()

    def now(self) -> int:
        """See `Clock`."""
        return (time.perf_counter_ns() - self._start) // 1000


class Recorder:
    """Reads the clock for the log.

    take_lanes  returns what each device did in a step; None for a model on one device
    """

    take_lanes: Callable[[], Sequence[Any]] | None = None

    def __init__(self, clock: Clock, emit: Callable[[v.Event], None]) -> None:
        self._clock = clock
        self._virtual = clock if isinstance(clock, VirtualTime) else None  # read once: it is slow
        self._emit = emit
        self._times: dict[int, dict[str, Any]] = {}  # clock times of the unfinished steps
        self._decode: Callable[[list[int]], str] = str  # the tokenizer's, once the run has started

    def run_started(
        self,
        config: EngineConfig,
        model: dict[str, Any],
        tokenizer: Tokenizer,
        classes: Mapping[str, str],
        pages: WindowPages | None = None,
    ) -> None:
        """Emit the log's first entry: settings, model, and the class of each part."""
        settings = msgspec.to_builtins(config) | {"num_blocks": config.num_blocks}
        if pages is not None:
            settings |= {"window": pages.window, "num_window_pages": pages.num_pages}
        self._decode = tokenizer.decode
        self._emit(
            v.RunStarted(
                schema=v.SCHEMA_VERSION,
                settings=settings,
                classes=dict(classes),
                model=model,
                tokenizer=tokenizer.describe(),
                clock=self._clock.name,
                t={"unix_us": time.time_ns() // 1000},
            )
        )

    def request_arrived(self, request: Request, submitted_at: int | None) -> None:
        """Emit the arrival of a request.

        `submitted_at` is the clock time at which its client sent it; None means now.
        """
        params = request.params
        self._emit(
            v.RequestArrived(
                request=request.id,
                prompt=list(request.tokens[: request.prompt_length]),
                texts=list(request.texts),
                label=request.label,
                max_tokens=params.max_tokens,
                n=params.samples,
                priority=request.priority,
                sampling=params.changed(request.seed),
                extra_key=list(request.extra_key),
                output=list(request.tokens[request.prompt_length :]),
                sample=request.sample,
                t={"at": self._clock.now() if submitted_at is None else submitted_at},
            )
        )

    def step_started(self, step: int) -> None:
        """Emit the start of a step, before it is scheduled."""
        self._times[step] = {"start": self._clock.now()}
        self._emit(v.StepStarted(step))

    def step_scheduled(self, step: int) -> None:
        """Record the time at which scheduling ended. On a virtual clock, it takes `cpu_us`."""
        if self._virtual is not None:
            self._virtual.advance(self._virtual.cpu_us)
        self._times[step]["scheduled"] = self._clock.now()

    def engine_paused(self) -> None:
        """Emit that from now on steps run only on demand."""
        self._emit(v.EnginePaused({"at": self._clock.now()}))

    def engine_resumed(self) -> None:
        """Emit that steps run by themselves again."""
        self._emit(v.EngineResumed({"at": self._clock.now()}))

    def pass_ended(self, step: int, launched: int, ready: int) -> None:
        """Record when a forward pass that overlapped with scheduling began and ended."""
        self._times[step] |= {"launched": launched, "ready": ready}

    def drafted(self, step: int, began: int) -> None:
        """Record how long the draft model ran after a step's forward pass, in microseconds."""
        self._times[step]["draft_us"] = self._clock.now() - began

    def now(self) -> int:
        """Return the clock's time."""
        return self._clock.now()

    def prefix_adopted(
        self,
        adopted: Adopted,
        tokens: list[int],
        texts: list[str],
        source: str,
        *,
        num_window_pages: int,
        began: int,
    ) -> None:
        """Emit that a prefix was adopted, which `began` at that time of the clock.

        The last `num_window_pages` of its blocks have a window page.
        """
        parent, nodes, blocks = adopted
        t = {"at": (now := self._clock.now()), "us": now - began}
        event = v.PrefixAdopted(
            parent, nodes, list(blocks), tokens, texts, source, num_window_pages, t
        )
        self._emit(event)

    def step_finished(
        self,
        step: int,
        outputs: Sequence[TokenOutput],
        wasted: Sequence[int] = (),
        expert_loads: Sequence[Sequence[int]] = (),
        drafts: Mapping[int, Sequence[int]] = MappingProxyType({}),
        *,
        draft_error: str = "",
    ) -> None:
        """Emit the tokens of a step after its forward pass, and the rows whose work was wasted.

        `expert_loads` are those of the pass, see `Runner`. `drafts` are those that it verified, by
        request. `draft_error` says why the draft model failed afterwards.
        """
        rows, logprobs, top, masked = [], [], False, False
        for out in outputs:
            request, allowed = out.request, list[int]()
            if request.constraint is not None:
                allowed, masked = [mask.allowed for mask in out.masks], True
            row = v.TokenRow(request.id, out.ids, out.pieces, out.accepted, out.forced, allowed)
            rows.append(row)
            logprobs.append(list(map(_rounded, out.logprobs)))
            top = top or bool(request.params.logprobs)
        measured = self._times.pop(step) | {"end": self._clock.now(), "logprobs": logprobs}
        if self.take_lanes is not None:
            measured["devices"] = self.take_lanes()
        if top:
            measured["top_logprobs"] = [_rounded_top(out.top) for out in outputs]
        if masked:
            measured |= self._masks(outputs)
        if drafts:
            rejected = [drafts.get(out.request.id, [])[out.accepted :] for out in outputs]
            measured["rejected"] = [[self._decode([one]) for one in row] for row in rejected]
        loads = list(map(packed, expert_loads))
        self._emit(v.StepFinished(rows, step, list(wasted), loads, draft_error, measured))

    def _masks(self, outputs: Sequence[TokenOutput]) -> dict[str, Any]:
        masks = [out.masks if out.request.constraint is not None else [] for out in outputs]
        return {
            "wanted": [[self._named(one.wanted) for one in row] for row in masks],
            "mass": [[one.mass and float(f"{one.mass:.3g}") for one in row] for row in masks],
        }

    def _named(self, token: int | None) -> tuple[int, str] | None:
        return None if token is None else (token, self._decode([token]))


_rounded = partial(round, ndigits=4)


def _rounded_top(top_logprobs: list[list[tuple[int, float]]]) -> list[list[tuple[int, float]]]:
    return [[(id_, _rounded(value)) for id_, value in top] for top in top_logprobs]
