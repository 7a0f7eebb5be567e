"""Submit the prompts of an earlier run again, each before the step that it came before then.

An idle engine runs no steps, so a step's number says how much work came before it, not how late it was.
If the new run has no work left before the next arrival, the rest moves forward to the next step, as
`simulate` does. The requests belong to the server: no client waits for them.
"""

from collections import deque
from collections.abc import Iterable
from typing import Literal

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events.log import EventLog
from engine.events.vocabulary import Event
from engine.scheduling.admission import RequestError, check_request
from engine.simulation.workload import Abort, Arrival, Workload
from server.core.settings import ServerSettings
from server.http.errors import bad_request

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
                case Arrival(prompt=prompt, params=params, label=label, priority=priority):
                    request = engine.submit(prompt, params, label=label, priority=priority)
                    for sample in range(params.samples):
                        self._ids[self._next + sample] = request.id + sample
                    self._next += params.samples
                    newest = request.id
                case Abort(request=request_id):
                    engine.abort(self._ids[request_id])
        return newest


def inputs_of(events: Iterable[Event], prompts: Prompts) -> list[Arrival | Abort]:
    """Return the arrivals and aborts of a log, in order.

    With "together", all requests arrive before the first step, and none is aborted. Raises ApiError for
    a log without its beginning or without texts.
    """
    if prompts == "none":
        return []
    log = EventLog()
    for event in events:
        log.append(event)
    try:
        inputs = Workload.from_log(log).inputs
    except ValueError as error:
        message = f"prompts must be none, got {prompts!r}: {error} (the log: see --log-window)"
        raise bad_request("prompts", message) from error
    arrivals_and_aborts = [one for one in inputs if isinstance(one, Arrival | Abort)]
    if prompts == "same_steps":
        return arrivals_and_aborts
    arrivals = [one for one in arrivals_and_aborts if isinstance(one, Arrival)]
    for one in arrivals:
        one.step = 1
    return list(arrivals)


def check_inputs(
    inputs: Iterable[Arrival | Abort],
    config: EngineConfig,
    *,
    vocab_size: int,
    max_context: int | None,
    settings: ServerSettings,
) -> None:
    """Raise ApiError if an engine with these settings could never serve one of the requests."""
    request = 1
    for one in inputs:
        if not isinstance(one, Arrival):
            continue
        try:
            check_request(
                one.prompt,
                one.params,
                one.priority,
                config=config,
                vocab_size=vocab_size,
                max_context=max_context,
            )
        except RequestError as error:
            name = one.label if one.label and settings.trace_text == "on" else f"r{request}"
            raise bad_request(
                "prompts",
                f"prompts must be none with these settings, because {name} cannot be served: {error}",
            ) from error
        request += one.params.samples
