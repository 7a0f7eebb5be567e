"""The entries of the log with something measured in them: a run begins, a request arrives, a step ends.

Every other entry is written where something is decided, and is the same in every run of one workload.
What a clock says and how probable a model finds a token differs from run to run: it stands apart, under
one last key `t`, and logs are compared without it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from engine.clock import Clock
from engine.config import EngineConfig
from engine.events.vocabulary import (
    SCHEMA_VERSION,
    Event,
    RequestArrived,
    RunStarted,
    StepFinished,
    StepStarted,
)
from engine.output.processor import TokenOutput
from engine.runner import Runner
from engine.scheduling.request import Request
from engine.text.tokenizer import Tokenizer


class Recorder:
    """Reads the clock for the log: when a run, a request and a step began, what a step took."""

    def __init__(self, clock: Clock, emit: Callable[[Event], None]) -> None:
        self._clock = clock
        self._emit = emit
        self._started = self._scheduled = 0  # of the current step, on the clock

    def run_started(
        self,
        config: EngineConfig,
        runner: Runner,
        tokenizer: Tokenizer,
        classes: Mapping[str, str],
    ) -> None:
        """The log's first entry: settings, model, and the names of the `classes` that run, by part."""
        self._emit(
            RunStarted(
                schema=SCHEMA_VERSION,
                settings=msgspec.to_builtins(config) | {"num_blocks": config.num_blocks},
                classes=dict(classes),
                model=runner.describe(),
                tokenizer=tokenizer.describe(),
                clock=self._clock.name,
                t={"unix_us": time.time_ns() // 1000},
            )
        )

    def request_arrived(self, request: Request, submitted_at: int | None) -> None:
        """A request joined the queue; `submitted_at` is when its client asked, None for now."""
        params = request.params
        self._emit(
            RequestArrived(
                request=request.id,
                prompt=list(request.tokens),
                texts=list(request.texts),
                label=request.label,
                max_tokens=params.max_tokens,
                n=params.samples,
                priority=request.priority,
                sampling=msgspec.structs.replace(params, seed=request.seed).changed(),
                t={"at": self._clock.now() if submitted_at is None else submitted_at},
            )
        )

    def step_started(self, step: int) -> None:
        """Scheduling of a step begins."""
        self._started = self._clock.now()
        self._emit(StepStarted(step))

    def step_scheduled(self) -> None:
        """Scheduling is over, and the scheduler has written what it decided."""
        self._scheduled = self._clock.now()

    def step_finished(self, gains: Sequence[TokenOutput]) -> None:
        """The forward pass is over, and its tokens belong to their requests."""
        measured: dict[str, Any] = {
            "start": self._started,
            "scheduled": self._scheduled,
            "end": self._clock.now(),
            "logprobs": [[round(value, 4) for value in gained.logprobs] for gained in gains],
        }
        if any(gained.request.params.logprobs for gained in gains):
            measured["top_logprobs"] = [
                [[(id_, round(value, 4)) for id_, value in top] for top in gained.top]
                for gained in gains
            ]
        self._emit(StepFinished([gained.row() for gained in gains], measured))
