"""A generation request and its stream: the bounded buffer between the engine and one handler.

The engine thread reports once per step for all requests together. Each `RequestStream` holds the output
that has not been sent to its client yet. If the client reads slowly, the output of several steps
collects here and is sent as one chunk. A client that does not read at all fills its own buffer and is
cut off; other clients are not delayed.

`StreamPacer` decides how often to write: the more streams there are, the less often. Writing one event
to one client takes about 40 us, most of it in the kernel. With `--one-process`, the engine thread
mostly stands still meanwhile, because Python runs one thread at a time: with 64 streams and a small
model, that adds up to half a step. So after each write, streams rest for a time that grows with their
number: up to six streams get each token separately, 30 streams are written to at most every 15 ms, and
64 at most every 32 ms. A stream's first token and its end are never delayed.

Differs from vLLM and SGLang: they count `--stream-interval` in tokens, so it delays even a single
stream.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.core.commands import Kept, OutputDelta, Prompt, numbers
from server.http.continued import Continued, StreamName
from server.http.errors import ApiError, bad_request

if TYPE_CHECKING:
    from server.core.bridge import Bridge

# Maximum number of deltas that a handler takes at once.
MAX_DELTAS = 64

SECONDS_PER_STREAM = 500e-6
MIN_REST = 3e-3  # shorter rests are skipped, so up to six streams never rest
MAX_REST = 50e-3  # text that arrives 20 times a second still looks smooth


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A generation request, as a route passes it to `Bridge.generate`.

    encode    returns the prompts as token ids; the bridge calls it with itself as the argument, on
              the tokenizer thread
    label     the client's name in the log
    priority  0 is the most urgent
    fields    maps the engine's field names to the client's where they differ, for error messages
    on_kept   called when the engine has kept the prompt and its output for an LMTP buffer
    model     the name that the client gave: an adapter's, or one of the model's own
    cache_salt  requests share cached prefixes only with those that have the same salt
    continued   the stream that it continues, if another server began it
    """

    encode: Callable[["Bridge"], list[Prompt]]
    label: str = ""
    priority: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    on_kept: Callable[[Kept], None] | None = None
    model: str = ""
    cache_salt: str = ""
    continued: Continued | None = None


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Data that the outermost middleware gives to a route, in `request.state.context`.

    on_end   called with each stream of the connection when it ends, for the request log
    address  the client's address, or "" if it is unknown
    """

    on_end: Callable[["RequestStream"], None]
    address: str = ""


def merge_deltas(deltas: Iterable[OutputDelta]) -> list[OutputDelta]:
    """Merge deltas into one per choice, in the order in which the choices first appear."""
    merged: dict[int, OutputDelta] = {}
    for delta in deltas:
        first = merged.setdefault(delta.choice, delta)
        if first is delta:
            continue
        first.ids += delta.ids
        first.texts += delta.texts
        if first.logprobs is None or delta.logprobs is None:  # the last delta may have no tokens
            first.logprobs = first.logprobs or delta.logprobs
        else:
            first.logprobs.extend(delta.logprobs)
        first.finish_reason, first.stop_reason = delta.finish_reason, delta.stop_reason
    return list(merged.values())


class RequestStream:
    """The output of all choices of one request. Lives on the event loop, so it needs no locks.

    number          stands for the stream in commands and reports
    label           the client's name in the log
    name            gives the answer's ids and its time
    prompts         in the request's order; each prompt has one choice per sample, consecutively
    continued       the beginning of the stream, if another server wrote it
    earlier         what its client has, in the pieces in which it has got it
    request_ids     the engine's id of each prompt's first sample, once the request is queued
    cached_tokens   number of tokens found in the prefix cache, per prompt
    submitted_at    the engine clock's time when the request arrived, in microseconds
    first_at        the engine clock's time at the end of the step that sampled the first token
    output_tokens   tokens generated so far, over all choices
    finish_reasons  finish reasons of the choices that have ended
    failure         the error that ended all choices, if any
    closed          whether no handler reads the stream any more
    kept            whether the engine has kept its output for an LMTP buffer

    `release` is called once, as soon as the engine can end the request.
    """

    def __init__(
        self,
        submitted_at: int,
        buffer_bytes: int,
        release: Callable[[], None],
        *,
        label: str = "",
        on_kept: Callable[[Kept], None] | None = None,
        fields: Mapping[str, str] | None = None,
        continued: Continued | None = None,
    ) -> None:
        self.number = next(numbers)
        self.name = StreamName() if continued is None else continued.name
        self.continued = continued
        self.earlier: list[OutputDelta] = []
        self.submitted_at = submitted_at
        self.label = label
        self.prompts: list[Prompt] = []
        self.request_ids: list[int] = []
        self.cached_tokens: list[int] = []
        self.first_at: int | None = None
        self.output_tokens = 0
        self.finish_reasons: list[str] = []
        self.failure: Exception | None = None
        self.closed = False
        self.kept = False
        self._release = release
        self._on_kept = on_kept
        self._fields = fields or {}
        self._buffer_bytes = buffer_bytes
        self._deltas: list[OutputDelta] = []
        self._bytes = 0
        self._unfinished = 0
        self._reader: asyncio.Future[None] | None = None  # set while a handler waits
        self._waits_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def queued(
        self, prompts: list[Prompt], request_ids: list[int], earlier: Sequence[OutputDelta] = ()
    ) -> None:
        """Record that the request is in the engine's queue."""
        self.prompts, self.request_ids = prompts, request_ids
        if self.continued is not None:
            self.earlier = self.continued.cut(earlier)
        self.cached_tokens = [0] * len(prompts)
        self._unfinished = sum(prompt.params.samples for prompt in prompts)
        for delta in earlier:
            self._unfinished -= delta.finish_reason is not None
            if delta.finish_reason == "error":
                self.fail(self._error_of(delta))

    @property
    def finished(self) -> bool:
        """Whether every choice has ended and every delta has been taken."""
        return self._unfinished == 0 and not self._deltas and self.failure is None

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens in all prompts together."""
        return sum(len(prompt.tokens) for prompt in self.prompts)

    def put(self, delta: OutputDelta) -> None:
        """Add the output of a step; cut the reader off if the buffer exceeds its limit.

        The first token and the end wake the handler at once. For all others, the pacer calls `wake`.
        """
        if self.failure is not None:
            return
        if delta.ids:
            self.output_tokens += len(delta.ids)
            if self.first_at is None:
                self.first_at = delta.at
        urgent = delta.finish_reason is not None or self.output_tokens == len(delta.ids)
        if delta.finish_reason is not None:
            self._unfinished -= 1
            self.finish_reasons.append(delta.finish_reason)
        if delta.finish_reason == "error":  # ends all choices: no partial responses
            self.fail(self._error_of(delta))
            return
        self._deltas.append(delta)
        self._bytes += delta.bytes
        if self._bytes > self._buffer_bytes:
            self._deltas.clear()
            message = f"the reader is more than {self._buffer_bytes} bytes behind and was cut off"
            self.fail(ApiError(500, message, type="server_error", code="slow_reader"))
        elif urgent:
            self.wake()

    def _error_of(self, delta: OutputDelta) -> ApiError:
        if not delta.error_field:
            message = f"the forward pass failed and ended this request: {delta.error}"
            return ApiError(500, message, type="server_error", code="forward_pass_failed")
        field = self._fields.get(delta.error_field, delta.error_field)
        tokens = "token" if self.output_tokens == 1 else "tokens"
        message = (
            f"{field}{delta.error.removeprefix(delta.error_field)} "
            f"(the output ended after {self.output_tokens} {tokens})"
        )
        return bad_request(field, message, "grammar_limit")

    def keep(self, kept: Kept) -> None:
        """Pass on what the engine has kept of an open stream."""
        if not self.closed and self._on_kept is not None:
            self.kept = True
            self._on_kept(kept)

    def fail(self, error: Exception) -> None:
        """End all choices: `deltas` returns the output so far and then raises `error`.

        The engine aborts the request now, even if a client that does not read blocks the handler.
        """
        if self.failure is None:
            self.failure = error
            self.wake()
            self.close()

    def close(self) -> None:
        """Release the request once no handler reads it any more. A second call does nothing."""
        if not self.closed:
            self.closed = True
            self._release()
            if self._timer is not None:
                self._timer.cancel()

    async def deltas(self, timeout: float) -> list[OutputDelta]:
        """Wait for new output and return it, at most one delta per choice.

        Returns an empty list after `timeout` seconds without output. Raises ApiError if the request
        failed.
        """
        if not self._deltas and self.failure is None:
            loop = asyncio.get_running_loop()
            self._reader, self._waits_since = loop.create_future(), loop.time()
            if self._timer is None:
                self._timer = loop.call_later(timeout, self._on_timer, loop, timeout)
            try:
                await self._reader
            finally:
                self._reader = None
        if not self._deltas and self.failure is not None:
            raise self.failure
        # Take a limited number: writing a slow reader's whole backlog would delay other streams.
        deltas, self._deltas = self._deltas[:MAX_DELTAS], self._deltas[MAX_DELTAS:]
        self._bytes -= sum(delta.bytes for delta in deltas)
        return merge_deltas(deltas) if len(deltas) > 1 else deltas

    def _on_timer(self, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        """Wake the handler if it has waited for `timeout`. One timer per token would cost too much."""
        left = 0.0 if self._reader is None else self._waits_since + timeout - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self._on_timer, loop, timeout)
        else:
            self._timer = None
            if self._reader is not None and not self._reader.done():
                self._reader.set_result(None)

    def wake(self) -> bool:
        """Wake the handler if there is output; return whether one was waiting.

        A late call does nothing, because an urgent delta may already have woken the handler.
        """
        if self._reader is None or not (self._deltas or self.failure):
            return False
        if not self._reader.done():
            self._reader.set_result(None)
        return True


class StreamPacer:
    """Wakes the handlers of streams with new output. Lives on the event loop.

    resting   whether streams rest until a timer fires; the engine thread reads this too: during a
              rest it wakes the event loop only for first tokens and ends, because a thread that
              wakes up takes the GIL
    on_rested called when the rest ends, because the engine may have delivered reports meanwhile
    """

    def __init__(self, on_rested: Callable[[], None]) -> None:
        self.resting = False
        self._on_rested = on_rested
        self._waiting: dict[RequestStream, None] = {}  # an ordered set

    def add(self, streams: Iterable[RequestStream]) -> None:
        """Wake the handlers of these streams now, or after the current rest."""
        self._waiting.update(dict.fromkeys(streams))
        if not self.resting:
            self._wake()

    def _wake(self) -> None:
        # A handler that is still writing to a slow client is not woken, so it does not count.
        written = sum([stream.wake() for stream in self._waiting])
        self._waiting.clear()
        rest = SECONDS_PER_STREAM * written
        if rest > MIN_REST:
            self.resting = True
            asyncio.get_running_loop().call_later(min(rest, MAX_REST), self._end_rest)

    def _end_rest(self) -> None:
        self.resting = False  # set first: from now on, every report from the engine wakes the loop
        self._on_rested()
        if not self.resting:
            self._wake()
