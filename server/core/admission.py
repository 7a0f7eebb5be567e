"""The server's queue limits: how much may wait, and when a rejected client should retry.

The limits count both requests and tokens, because thirty short questions are far less work than thirty
books. A request's token count is its prompt plus its maximum output, the most work it can cause. The
request limit is checked before the prompt is tokenized; the token limit is checked afterwards, when
the number of tokens is known.

`Retry-After` is the time the engine needs, at its recent speed, to work through half of the queue. A
client that retries then finds room in the queue, and the engine has not run out of work.

Source: vLLM limits waiting requests and tokens (`max_num_queued_reqs`, `max_num_queued_tokens`); SGLang
limits requests (`--max-queued-requests`). RFC 9110, section 10.2.3, defines `Retry-After`.
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
        """Set up the limits. `state` is the folded log, which keeps changing."""
        self._settings = settings
        self._state = state
        self._scheduled = 0  # tokens of the current step
        self._steps: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)  # (tokens, microseconds)

    def observe(self, events: Iterable[Event]) -> None:
        """Record how many tokens each step computed and how long it took."""
        for event in events:
            if isinstance(event, StepScheduled):
                self._scheduled = sum(row.count for row in event.rows)
            elif isinstance(event, StepFinished):
                self._steps.append((self._scheduled, event.t["end"] - event.t["start"]))

    def check_requests(self, pending: int) -> None:
        """Raise ApiError 429 if the queue is full; `pending` more requests are about to join it."""
        waiting, limit = len(self._state.waiting) + pending, self._settings.max_waiting
        if waiting >= limit:
            raise self._full(f"{waiting} requests are waiting, and the limit is {limit}", 0)

    def check_tokens(self, prompts: list[Prompt], pending: int) -> None:
        """Raise ApiError 429 if the queue has no room for these prompts.

        `pending` counts the tokens of requests that are not in the queue yet. An empty queue accepts
        any request that the engine can serve, however large.
        """
        waiting, limit = self._tokens_waiting() + pending, self._settings.max_waiting_tokens
        added = tokens_of(prompts)
        if waiting and waiting + added > limit:
            message = (
                f"{waiting} tokens are waiting, and {added} more would exceed the limit of {limit}"
            )
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
    """Return the most tokens that a request can cause: its prompts plus their maximum output."""
    return sum(
        len(prompt.tokens) + prompt.params.samples * prompt.params.max_tokens for prompt in prompts
    )
