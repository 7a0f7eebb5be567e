"""Play a workload on a real model; `simulate` does the same on a simulated machine.

Prompts are sent as texts, so any workload of readable requests works. Every answer has max_tokens
tokens, so that runs can be compared. Idle time is skipped, so a low arrival rate does not make a run
longer.
"""

from pathlib import Path

import msgspec

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.log.log import EventLog
from engine.core.log.recorder import WallClock
from engine.simulation.cost_runner import US_PER_MS
from engine.simulation.simulate import play
from engine.simulation.workload import Arrival, Workload


class IdleSkippingClock(WallClock):
    """Real time since the first reading, plus the skipped idle time."""

    name = "wall, idle time skipped"

    def __init__(self) -> None:
        super().__init__()
        self._skipped: int | None = None

    def now(self) -> int:
        """Return microseconds."""
        if self._skipped is None:  # the time to load a model is not part of the run
            self._skipped = -super().now()
        return super().now() + self._skipped

    def skip_to(self, at: int) -> None:
        """Advance the clock to `at`, unless it is already later."""
        ahead = max(0, at - self.now())
        assert self._skipped is not None
        self._skipped += ahead


def play_on_model(
    workload: Workload, config: EngineConfig | None = None, *, model: str | Path = "bundled"
) -> EventLog:
    """Serve all requests of a workload on a model and return the log.

    Raises RequestError for a request that these settings could never serve, CheckpointError for a
    model that cannot be loaded, and ValueError for a prompt without text.
    """
    clock = IdleSkippingClock()
    engine = Engine.load(model, config, clock=clock)
    arrivals = (one for one in workload.inputs if isinstance(one, Arrival))
    play(arrivals, engine, lambda one: _submit(one, engine), clock.skip_to)
    return engine.log


def _submit(one: Arrival, engine: Engine) -> None:
    text = "".join(one.texts).strip()
    if not text:
        raise ValueError(
            f"texts: the prompt of {one.label or 'a request'} has token ids but no text; give its texts"
        )
    engine.submit(
        text,
        msgspec.structs.replace(one.params, ignore_eos=True),
        label=one.label,
        priority=one.priority,
        submitted_at=None if one.step is not None else round(one.at_ms * US_PER_MS),
    )
