"""Whom the server lets in: a bound on what waits, and when those who are refused should come back.

What waits is counted twice, in requests and in tokens, because thirty short questions and thirty
books are not the same queue. The tokens of a request are its prompt and all the output that it may
have: that much work it brings. Requests are counted before a prompt is tokenized, tokens after, when
their number is known.

`Retry-After` comes from what the engine has computed lately: the seconds in which it works off half
of what waits. Whoever comes back then finds room, and the engine has not run dry.

Source: vLLM has no bound, SGLang one in requests (`--max-queued-requests`); a `Retry-After` that
follows the load is what RFC 9110, section 10.2.3 is for.
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
LONGEST_WAIT = 60  # seconds; OpenAI's SDKs heed no longer one


class Admission:
    """The limits of one engine's queue. Lives on the event loop."""

    def __init__(self, settings: ServerSettings, state: State) -> None:
        """`state` is the folded log, which goes on changing."""
        self._settings = settings
        self._state = state
        self._scheduled = 0  # tokens of the step that is running
        self._steps: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)  # tokens, microseconds

    def note(self, events: Iterable[Event]) -> None:
        """Take in what steps have computed, and how long it took them."""
        for event in events:
            if isinstance(event, StepScheduled):
                self._scheduled = sum(row.count for row in event.rows)
            elif isinstance(event, StepFinished):
                self._steps.append((self._scheduled, event.t["end"] - event.t["start"]))

    def check_requests(self, pending: int) -> None:
        """Raise ApiError 429 unless one more may wait; `pending` are on their way to the queue."""
        waiting, limit = len(self._state.waiting) + pending, self._settings.max_waiting
        if waiting >= limit:
            raise self._full(f"{waiting} requests wait already, the limit is {limit}", 0)

    def check_tokens(self, prompts: list[Prompt], pending: int) -> None:
        """Raise ApiError 429 unless these prompts may wait behind what waits.

        `pending` are the tokens of those on their way to the queue. Where nobody waits, whatever the
        engine can serve is let in, however large.
        """
        waiting, limit = self._tokens_waiting() + pending, self._settings.max_waiting_tokens
        wanted = tokens_of(prompts)
        if waiting and waiting + wanted > limit:
            message = f"{waiting} tokens wait already, {wanted} more exceed the limit of {limit}"
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
        return min(LONGEST_WAIT, max(1, math.ceil(waiting / 2 * seconds / computed)))


def tokens_of(prompts: Iterable[Prompt]) -> int:
    """The work that a request brings at most: its prompts, and all output they may have."""
    return sum(
        len(prompt.tokens) + prompt.params.samples * prompt.params.max_tokens for prompt in prompts
    )
