"""The members of a static batch, which no event names."""

from collections.abc import Iterable

from engine.core.log.fold import State
from engine.core.log.vocabulary import RequestState


class Batch:
    """The static batch that runs, found as the scheduler forms it.

    is_static   whether batching is static at all
    roots       the requests in it, samples as the request that they fork off
    """

    def __init__(self) -> None:
        self.is_static = False
        self.roots: set[int] = set()

    def note(self, state: State, waiting: Iterable[RequestState]) -> None:
        """Note the start of a step or of a log. `waiting` is in the policy's order."""
        self.is_static = state.settings.get("batching") == "static"
        if not self.is_static:
            return
        if state.running:
            # A log that begins later does not say which requests have not started yet.
            self.roots |= {state.requests[request].root for request in state.running}
            return
        self.roots, seats = set(), state.settings["max_batch_size"]
        for request in waiting:
            seats -= request.num_seqs
            if seats < 0:
                break
            self.roots.add(request.root)
