"""What a handler holds while the engine writes its answer, and the bounded buffer in between.

The engine hands over once per step, for all requests together. Each request keeps what its client
has not been sent yet; when the client reads slowly, several steps wait here and leave as one
chunk. A client that does not read at all fills its own buffer, is cut off, and stalls nobody.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.engine import Engine
from engine.scheduling.request import Request, TokenScore
from engine.scheduling.sampling_params import SamplingParams
from server.http.errors import ApiError

if TYPE_CHECKING:
    from server.core.bridge import Bridge

# What a token costs in a buffer beside its text: about the size of its event on the wire.
TOKEN_BYTES = 80
# The same for each log-probability that goes with it.
LOGPROB_BYTES = 80
# What a handler takes in one turn, in steps of one choice.
MOST_GAINS = 64


@dataclass(slots=True)
class Prompt:
    """One prompt of a request, as token ids, and how it wants its samples.

    `ended` is called on the engine thread as a sample ends, before the next step.
    """

    tokens: list[int]
    params: SamplingParams
    ended: Callable[[Engine, Request], None] | None = None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request for tokens, as a route hands it over.

    encode    returns its prompts as token ids; the bridge passes itself, on the tokenizer thread
    label     the client's name in the log
    priority  how urgent it is, 0 first
    fields    the engine's name of a field -> the client's, where they differ, for error messages
    """

    encode: Callable[["Bridge"], list[Prompt]]
    label: str = ""
    priority: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What the outermost middleware gives to a route, in `request.state.context`.

    on_end   called with each stream of the connection as it ends, for the request log
    """

    on_end: Callable[["RequestStream"], None]


@dataclass(slots=True)
class Logprobs:
    """How probable the model found the tokens of a Gain: one entry of each list per token.

    pieces  the tokens' own text as the log has it, also where a stop string holds it back or ends it
    chosen  natural logarithm of the token's probability; 0.0 for forced ones
    top     (id, logprob) of the likeliest in its place, as many as `SamplingParams.logprobs`
    forced  whether a tool put it there, and nothing was chosen
    """

    pieces: list[str]
    chosen: list[float]
    top: list[list[tuple[int, float]]]
    forced: list[bool]

    def extend(self, later: "Logprobs") -> None:
        """Take in those of later tokens."""
        self.pieces += later.pieces
        self.chosen += later.chosen
        self.top += later.top
        self.forced += later.forced


@dataclass(slots=True)
class OutputDelta:
    """What one choice (a sample of a prompt) gained: ids, a piece of text for each, perhaps its end.

    at             the engine clock's time, in microseconds, at the end of the step that brought the
                   first of them
    logprobs       where the request asks for them with `logprobs`, or needs them for `best_of`
    prompt_scores  of the prompt's tokens from the second on, where `prompt_logprobs` asks for them;
                   in the choice's first Gain
    """

    choice: int
    at: int
    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: Logprobs | None = None
    prompt_scores: list[TokenScore] = field(default_factory=list)
    finish_reason: str | None = None
    error: str = ""

    def extend(self, later: "OutputDelta") -> None:
        """Take in what the same choice gained later."""
        self.ids += later.ids
        self.texts += later.texts
        if self.logprobs is None or later.logprobs is None:  # the end may come without tokens
            self.logprobs = self.logprobs or later.logprobs
        else:
            self.logprobs.extend(later.logprobs)
        self.finish_reason = later.finish_reason


class RequestStream:
    """All choices of one HTTP request. Lives on the event loop; nothing here is locked.

    prompts        in the order of the request; each has as many choices, one after the other, as it
                   has samples
    request_ids    the engine's id of each prompt's first sample, once it is queued
    cached_tokens  per prompt, how many tokens were found in the prefix cache
    submitted_at   the engine clock's time when the client asked, in microseconds
    first_at       the engine clock's time at the end of the step that brought the first token
    output_tokens  how many there were so far, over all choices
    finish_reasons of the choices that have ended
    finished       every choice has ended and its last gain has been taken
    failure        what ended all of it, if something did
    closed         nobody waits for it any more; the engine thread reads this, too

    `release` is called once, as soon as the engine need not go on for it.
    """

    def __init__(
        self,
        submitted_at: int,
        buffer_bytes: int,
        release: Callable[["RequestStream"], None],
        label: str = "",
    ) -> None:
        self.submitted_at = submitted_at
        self.label = label
        self._release = release
        self.prompts: list[Prompt] = []
        self.request_ids: list[int] = []
        self.cached_tokens: list[int] = []
        self.first_at: int | None = None
        self.output_tokens = 0
        self.finish_reasons: list[str] = []
        self.closed = False
        self._buffer_bytes = buffer_bytes
        self._gains: list[OutputDelta] = []
        self._bytes = 0
        self._unfinished = 0
        self.failure: Exception | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self._waits_since = 0.0
        self._reminder: asyncio.TimerHandle | None = None

    def queued(self, prompts: list[Prompt], request_ids: list[int]) -> None:
        """The engine has taken the request into its queue."""
        self.prompts, self.request_ids = prompts, request_ids
        self.cached_tokens = [0] * len(prompts)
        self._unfinished = sum(prompt.params.samples for prompt in prompts)

    @property
    def finished(self) -> bool:
        """See the class."""
        return self._unfinished == 0 and not self._gains and self.failure is None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts together."""
        return sum(len(prompt.tokens) for prompt in self.prompts)

    def put(self, gain: OutputDelta) -> None:
        """Add what a step brought. Beyond the buffer's limit, the reader is cut off.

        The first of it and its end wake the handler; for what lies between somebody calls `wake`.
        """
        if self.failure is not None:
            return
        if gain.ids:
            self.output_tokens += len(gain.ids)
            if self.first_at is None:
                self.first_at = gain.at
        urgent = gain.finish_reason is not None or self.output_tokens == len(gain.ids)
        if gain.finish_reason is not None:
            self._unfinished -= 1
            self.finish_reasons.append(gain.finish_reason)
        if (
            gain.finish_reason == "error"
        ):  # the end of all choices: an answer is whole, or it failed
            message = f"the forward pass failed and ended this request: {gain.error}"
            self.fail(ApiError(500, message, type="server_error", code="forward_pass_failed"))
            return
        self._gains.append(gain)
        self._bytes += _size(gain)
        if self._bytes > self._buffer_bytes:
            self._gains.clear()
            message = f"the reader is more than {self._buffer_bytes} bytes behind and was cut off"
            self.fail(ApiError(500, message, type="server_error", code="slow_reader"))
        elif urgent:
            self.wake()

    def fail(self, error: Exception) -> None:
        """End it: `gains` raises `error` after what has been put so far.

        The engine lets go of it now, even if its handler is stuck sending to a client that does not
        read.
        """
        if self.failure is None:
            self.failure = error
            self.wake()
            self.close()

    def close(self) -> None:
        """Nobody waits for it any more: whatever is left of it ends. Twice is harmless."""
        if not self.closed:
            self.closed = True
            self._release(self)
            if self._reminder is not None:
                self._reminder.cancel()

    async def gains(self, patience: float) -> list[OutputDelta]:
        """What came since the last call, at most one Gain per choice; waits until there is some.

        Returns nothing when `patience` seconds have passed without any. Raises ApiError when the
        request failed.
        """
        if not self._gains and self.failure is None:
            loop = asyncio.get_running_loop()
            self._wakeup, self._waits_since = loop.create_future(), loop.time()
            if self._reminder is None:
                self._reminder = loop.call_later(patience, self._remind, loop, patience)
            try:
                await self._wakeup
            finally:
                self._wakeup = None
        if not self._gains and self.failure is not None:
            raise self.failure
        # Not all at once, where a slow reader has left much: to write it would hold up the others.
        gains, self._gains = self._gains[:MOST_GAINS], self._gains[MOST_GAINS:]
        self._bytes -= sum(map(_size, gains))
        return _merged(gains) if len(gains) > 1 else gains

    def _remind(self, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        """Wake who has waited long enough. A timer for each token would cost more than the token."""
        left = 0.0 if self._wakeup is None else self._waits_since + patience - loop.time()
        if left > 0:
            self._reminder = loop.call_later(left, self._remind, loop, patience)
        else:
            self._reminder = None
            self._rouse()

    def wake(self) -> bool:
        """Let the handler take what there is; False if it has, or is busy with what it took before.

        Whoever calls this may be late: the handler was woken by something urgent meanwhile.
        """
        return bool(self._gains or self.failure) and self._rouse()

    def _rouse(self) -> bool:
        if self._wakeup is None:
            return False
        if not self._wakeup.done():
            self._wakeup.set_result(None)
        return True


def _size(gain: OutputDelta) -> int:
    size = sum(map(len, gain.texts)) + TOKEN_BYTES * len(gain.ids)
    if gain.logprobs is not None:
        size += LOGPROB_BYTES * sum(len(top) + 1 for top in gain.logprobs.top)
    return size


def _merged(gains: list[OutputDelta]) -> list[OutputDelta]:
    """One Gain per choice, in the order in which the choices first appear."""
    merged: dict[int, OutputDelta] = {}
    for gain in gains:
        first = merged.setdefault(gain.choice, gain)
        if first is not gain:
            first.extend(gain)
    return list(merged.values())
