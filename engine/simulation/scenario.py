"""A scenario: a small, named workload that shows one idea, with a caption.

`scenarios.py` has the gallery. The board shows a scenario by its name, lessons start from it, and a
test checks that its log agrees with its caption.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from engine.config import EngineConfig
from engine.events.log import EventLog
from engine.events.vocabulary import RunStarted
from engine.simulation.cost_runner import Cost
from engine.simulation.simulate import simulate
from engine.simulation.speakers import Speaker, workload_of
from engine.simulation.workload import Workload
from engine.speculation.drafter import Drafter


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A workload, and what to look at.

    caption   two or three sentences: what to look at, and why it happens
    speakers  in order of arrival
    step      the step to look at
    select    the name of the request to look at; if several share it, the first
    sample    the sample of that request
    cost      the simulated machine; by default 10 ms per step and 0.25 ms per token
    drafter   makes the drafter of a scenario about speculation
    """

    name: str
    caption: str
    speakers: tuple[Speaker, ...]
    config: EngineConfig
    step: int
    select: str
    sample: int = 0
    cost: Cost = field(default=Cost(10, 0.25))
    drafter: Callable[[], Drafter] | None = None

    @property
    def workload(self) -> Workload:
        """The requests of all speakers."""
        return workload_of(self.speakers)

    @property
    def request(self) -> int:
        """The id of the request to look at."""
        return self.id_of(self.select) + self.sample

    def id_of(self, name: str) -> int:
        """Return the id of a speaker's first request. Raises KeyError for an unknown name."""
        first = 1
        for speaker in self.speakers:
            if speaker.name == name:
                return first
            first += speaker.n
        raise KeyError(name)

    def run(self, **changes: Any) -> EventLog:
        """Return the log, the same each time and undated. `changes` are fields of EngineConfig."""
        parts = {} if self.drafter is None else {"drafter": self.drafter()}
        config = msgspec.structs.replace(self.config, **changes)
        log = simulate(self.workload, config, cost=self.cost, **parts)
        started = log[0]
        assert isinstance(started, RunStarted)
        started.t.clear()
        return log


def write(scenarios: Iterable[Scenario], folder: Path) -> None:
    """Write every log into a folder, and captions, steps and requests into its `gallery.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    moments = {}
    for one in scenarios:
        packed = gzip.compress(one.run().to_bytes(), mtime=0)
        (folder / f"{one.name}.jsonl.gz").write_bytes(packed)
        moments[one.name] = {"caption": one.caption, "step": one.step, "select": one.request}
    (folder / "gallery.json").write_text(json.dumps(moments, indent=1) + "\n")
