"""The messages between the bridge and an engine thread: commands in one direction, reports in the
other.

They hold no objects of either side, so the same messages pass between two threads (`--one-process`)
and, as msgpack, between two processes. A stream, a reply and a buffer are numbers that only the bridge
understands; no number is used twice in the life of a server.

vLLM's counterparts are `EngineCoreRequest` and `EngineCoreOutputs` (`vllm/v1/engine/__init__.py`).
"""

from itertools import count

import msgspec

from engine.core.log.vocabulary import AnyEvent
from engine.core.request import TokenScore
from engine.core.runner import KVFormat
from engine.core.sampling_params import SamplingParams
from server.core.run_until import Refusal, Stopped, Until

# Buffer cost of a token in addition to its text: about the size of its event on the wire.
TOKEN_BYTES = 80
# Buffer cost of each log-probability of a token.
LOGPROB_BYTES = 80

numbers = count(1)  # of streams, replies and buffers


class Prompt(msgspec.Struct, array_like=True):
    """One prompt of a request, as token ids, and the parameters of its samples.

    buffer   the number of the LMTP buffer that keeps the prompt and its output, or 0
    outputs  by sample: the tokens that another server generated; empty if there are none
    """

    tokens: list[int]
    params: SamplingParams
    buffer: int = 0
    outputs: list[list[int]] = []


class Logprobs(msgspec.Struct, array_like=True):
    """Log-probabilities of an OutputDelta's tokens: each list has one entry per token.

    pieces  each token's full text, even if a stop string withholds or truncates it; "" for tokens
            that `skip_special_tokens` leaves out
    chosen  natural logarithm of the token's probability; 0.0 for forced tokens
    top     (id, logprob) of the most likely tokens; `SamplingParams.logprobs` sets how many
    forced  whether a tool inserted the token instead of sampling it
    """

    pieces: list[str]
    chosen: list[float]
    top: list[list[tuple[int, float]]]
    forced: list[bool]

    def extend(self, later: "Logprobs") -> None:
        """Append the log-probabilities of later tokens."""
        self.pieces += later.pieces
        self.chosen += later.chosen
        self.top += later.top
        self.forced += later.forced

    def piece(self, begin: int, end: int) -> "Logprobs":
        """Return those of the tokens from `begin` to `end`."""
        at = slice(begin, end)
        return Logprobs(self.pieces[at], self.chosen[at], self.top[at], self.forced[at])


class OutputDelta(msgspec.Struct, array_like=True):
    """New output of one choice (a sample of a prompt): token ids, their texts, and possibly its end.

    at             the engine clock's time, in microseconds, at the end of the first id's step
    logprobs       set if the request asks for them with `logprobs` or needs them for `best_of`
    prompt_scores  scores of the prompt's tokens, starting with the second; set in the choice's first
                   delta if the request sets `prompt_logprobs`
    stop_reason    the stop string, or the token of `stop_token_ids`, that ended the choice
    error          why the choice ended with the finish reason "error"
    error_field    the field of SamplingParams that is to blame for it, or "": the engine's fault
    """

    choice: int
    at: int
    ids: list[int] = []
    texts: list[str] = []
    logprobs: Logprobs | None = None
    prompt_scores: list[TokenScore] = []
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    error: str = ""
    error_field: str = ""

    def piece(self, begin: int, end: int) -> "OutputDelta":
        """Return the part with the tokens from `begin` to `end`."""
        part = OutputDelta(self.choice, self.at, self.ids[begin:end], self.texts[begin:end])
        if self.logprobs is not None:
            part.logprobs = self.logprobs.piece(begin, end)
        if begin == 0:
            part.prompt_scores = self.prompt_scores
        if end == len(self.ids):
            part.finish_reason, part.stop_reason = self.finish_reason, self.stop_reason
        return part

    @property
    def bytes(self) -> int:
        """The number of bytes that count towards the buffer's limit."""
        size = sum(map(len, self.texts)) + TOKEN_BYTES * len(self.ids)
        if self.logprobs is not None:
            size += LOGPROB_BYTES * sum(len(top) + 1 for top in self.logprobs.top)
        return size


class Kept(msgspec.Struct, array_like=True):
    """The tokens that an LMTP buffer keeps, and how many of them the engine holds in its cache."""

    tokens: list[int]
    held: int


class KVLayout(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """An engine's KV memory: what a page holds, tokens per block, number of blocks."""

    format: KVFormat
    block_size: int
    num_blocks: int


class ExportedPages(msgspec.Struct, array_like=True, tag=True):
    """Pages of a cached prefix from block `first` on."""

    layout: KVLayout
    first: int
    blocks: int
    data: bytes


class LoadedAdapter(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """A LoRA adapter that requests can name. `key` names its weights in the log."""

    name: str
    path: str
    key: str


class Report(msgspec.Struct, array_like=True, tag=True):
    """Everything that happened since the last report.

    events    the new events of the log
    queued    (stream, the engine's id of each prompt's first sample, its client's output so far)
    deltas    new output of the streams' choices, or how they ended
    cached    (stream, index of the prompt, tokens found in the prefix cache)
    kept      (stream, what its buffer keeps)
    replies   (a command's reply, its result: the last step's number or another count, a `Stopped`,
              what a command about KV returns, a `LoadedAdapter`, or a `Refusal`)
    paused    whether the engine is paused
    until     what a paused engine runs until, or ""
    urgent    whether the event loop must see it now: it has a reply, a first token or an end
    trace_error  why the trace file is no longer written, or ""
    """

    events: list[AnyEvent] = []
    queued: list[tuple[int, list[int], list[OutputDelta]]] = []
    deltas: list[tuple[int, OutputDelta]] = []
    cached: list[tuple[int, int, int]] = []
    kept: list[tuple[int, Kept]] = []
    replies: list[
        tuple[int, int | Stopped | KVLayout | ExportedPages | LoadedAdapter | Refusal]
    ] = []
    paused: bool = False
    until: str = ""
    urgent: bool = False
    trace_error: str = ""


class Command(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """A command of the bridge. `reply` is the number of its answer; 0 asks for none."""

    reply: int


class Submit(Command, frozen=True):
    """Queue all prompts of a request consecutively.

    adapter     the name of the LoRA adapter, "" for none
    cache_salt  "" for none
    """

    stream: int
    prompts: list[Prompt]
    label: str
    priority: int
    submitted_at: int
    adapter: str = ""
    cache_salt: str = ""


class Release(Command, frozen=True):
    """Abort the unfinished samples of a request.

    kept  whether the bridge knows of the buffer that the request has filled; otherwise it is released
    """

    stream: int
    kept: bool


class ReleaseBuffer(Command, frozen=True):
    """Give up what the engine holds for an LMTP buffer."""

    buffer: int


class Answer(Command, frozen=True):
    """Reply with the number of the last step."""


class Pause(Command, frozen=True):
    """Pause the engine and end the commands that step it; reply with the last step's number."""


class Resume(Command, frozen=True):
    """Resume the engine; reply with the number of the last step."""


class RunUntil(Command, frozen=True):
    """Run the engine until something happens, for at most `steps` steps; reply with a `Stopped`.

    The engine is paused first; with `paused`, it must be paused already.
    """

    until: Until
    request: int | None
    steps: int
    paused: bool = False


class DescribeKV(Command, frozen=True):
    """Reply with the `KVLayout` of the engine's KV memory."""


class ExportKV(Command, frozen=True):
    """Read the pages of a cached prefix from block `first` on; reply with `ExportedPages`."""

    tokens: list[int]
    first: int


class AdoptKV(Command, frozen=True):
    """Adopt pages; reply with the number of adopted blocks. See `KVTransfer.adopt`."""

    tokens: list[int]
    first: int
    pages: bytes
    source: str


class AddAdapter(Command, frozen=True):
    """Read a LoRA adapter and register it, in place of one of its name.

    Replies with a `LoadedAdapter`.
    """

    name: str
    path: str


class RemoveAdapter(Command, frozen=True):
    """Remove a LoRA adapter; reply with the number of the last step. Requests that use it keep it."""

    name: str


KVCommand = DescribeKV | ExportKV | AdoptKV
AdapterCommand = AddAdapter | RemoveAdapter
AnyCommand = (
    Submit
    | Release
    | ReleaseBuffer
    | Answer
    | Pause
    | Resume
    | RunUntil
    | KVCommand
    | AdapterCommand
)
