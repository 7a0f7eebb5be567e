"""Submit the prompts of an earlier run again, each before the same step as in that run.

An idle engine runs no steps, so a step's number says how much work came before it, not how late it was.
If the new run has no work left before the next arrival, the rest moves forward to the next step, as
`simulate` does. The requests belong to the server: no client waits for them.
"""

from collections import deque
from collections.abc import Iterable
from typing import Literal

from engine.core.engine import Engine
from engine.simulation.workload import Abort, Arrival

Prompts = Literal["none", "same_steps", "together"]


class Replay:
    """The arrivals and aborts that are still to come. Used by the engine thread only."""

    def __init__(self, inputs: Iterable[Arrival | Abort] = ()) -> None:
        self._inputs = deque(inputs)
        self._skipped_steps = 0
        self._next = 1  # the id that the next arrival had
        self._ids: dict[int, int] = {}  # an id in the earlier run -> in this one

    def submit_due(self, engine: Engine) -> int:
        """Submit and abort what comes before the next step; return the newest request's id, or 0."""
        newest = 0
        while self._inputs:
            step = self._inputs[0].step or 1
            if not engine.has_work():
                self._skipped_steps = max(self._skipped_steps, step - engine.step_count - 1)
            if step > engine.step_count + 1 + self._skipped_steps:
                break
            match self._inputs.popleft():
                case Arrival(params=params, label=label, priority=priority) as arrival:
                    request = engine.submit(
                        arrival.keyed_prompt,
                        params,
                        label=label,
                        priority=priority,
                        begun=arrival.begun,
                    )
                    for sample in range(params.samples):
                        self._ids[self._next + sample] = request.id + sample
                    self._next += params.samples
                    newest = request.id
                case Abort(request=request_id):
                    engine.abort(self._ids[request_id])
        return newest
