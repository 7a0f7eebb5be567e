"""The server's queue limits: how much may wait, and when a rejected client should try again.

The limits count requests and tokens, because thirty short questions and thirty books are not the same
queue. A request counts with its prompt and all output it may have, which is all the work it can bring.
Requests are counted before a prompt is tokenized, tokens after, when their number is known.

`Retry-After` is the time in which the engine, at its recent speed, works off half of the queue. A
client that returns then finds room, and the engine has not run out of work.

Source: vLLM limits waiting requests and tokens (`max_num_queued_reqs`, `max_num_queued_tokens`); SGLang
limits requests (`--max-queued-requests`). A `Retry-After` that follows the load is what RFC 9110,
section 10.2.3 is for.
"""

import math
from collections import deque
from collections.abc import Iterable

from engine.events.fold import State
from engine.events.vocabulary import Event, StepFinished, StepScheduled
from server.core.request_stream import Prompt
from server.core.settings import ServerSettings
from server.http.errors import ApiError, too_many

RECENT_STEPS = 100
MAX_RETRY_SECONDS = 60  # OpenAI's SDKs ignore a longer Retry-After


class Admission:
    """The limits of one engine's queue. Lives on the event loop."""

    def __init__(self, settings: ServerSettings, state: State) -> None:
        """`state` is the folded log, which keeps changing."""
        self._settings = settings
        self._state = state
        self._scheduled = 0  # tokens of the current step
        self._steps: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)  # tokens, microseconds

    def observe(self, events: Iterable[Event]) -> None:
        """Note what steps have computed, and how long they took."""
        for event in events:
            if isinstance(event, StepScheduled):
                self._scheduled = sum(row.count for row in event.rows)
            elif isinstance(event, StepFinished):
                self._steps.append((self._scheduled, event.t["end"] - event.t["start"]))

    def check_requests(self, pending: int) -> None:
        """Raise ApiError 429 unless one more may wait; `pending` are on their way to the queue."""
        waiting, limit = len(self._state.waiting) + pending, self._settings.max_waiting
        if waiting >= limit:
            raise self._full(f"{waiting} requests are waiting, the limit is {limit}", 0)

    def check_tokens(self, prompts: list[Prompt], pending: int) -> None:
        """Raise ApiError 429 unless these prompts may wait too.

        `pending` are the tokens of requests on their way to the queue. An empty queue accepts whatever
        the engine can serve, however large.
        """
        waiting, limit = self._tokens_waiting() + pending, self._settings.max_waiting_tokens
        added = tokens_of(prompts)
        if waiting and waiting + added > limit:
            message = f"{waiting} tokens are waiting, {added} more exceed the limit of {limit}"
            raise self._full(message, pending)

    def _tokens_waiting(self) -> int:
        requests = (self._state.requests[id_] for id_ in self._state.waiting)
        return sum(one.prompt_length + one.slots * one.max_tokens for one in requests)

    def _full(self, message: str, pending: int) -> ApiError:
        seconds = self._retry_after(self._tokens_waiting() + pending)
        return too_many(f"{message}: try again in {seconds} s", "queue_full", seconds)

    def _retry_after(self, waiting: int) -> int:
        computed = sum(tokens for tokens, _ in self._steps)
        seconds = sum(duration for _, duration in self._steps) / 1e6
        if not computed:
            return 1
        return min(MAX_RETRY_SECONDS, max(1, math.ceil(waiting / 2 * seconds / computed)))


def tokens_of(prompts: Iterable[Prompt]) -> int:
    """Return the most work that a request can bring: its prompts, and all output they may have."""
    return sum(
        len(prompt.tokens) + prompt.params.samples * prompt.params.max_tokens for prompt in prompts
    )
