"""LMTP's messages: the format of frames, and the fields of a client's frames.

A frame is a word, a space and JSON:

    client   GENERATE {"stream_id": 1, "prompt": [791, 264], "max_tokens": 8}
    server   TOKEN [{"stream_id": 1, "token": 311, "logprob": -0.2, "finish_reason": null, ...}]

The server always sends a list, because one frame may carry several tokens. LMQL's own client
(`lmql/models/lmtp/lmtp_client.py`) accepts nothing else.

This module checks a client's fields and their types; the engine checks the values. `null` means
absent. An unknown field is rejected with its name instead of ignored, because a client must not get an
answer that lacks something it asked for. Fields that LMQL's client sends keep LMQL's names; the others
have the engine's names.
"""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from engine.core.sampling_params import SamplingParams
from engine.extensions.bad_words import MAX_SEQUENCES
from server.api.openai.structured import Shape, shape_of
from server.core.settings import (
    LARGEST_COUNT,
    LARGEST_WHOLE,
    MAX_ALLOWED_TOKENS,
    MAX_NAME_LENGTH,
    MAX_STOP_LENGTH,
    MAX_STOP_TOKENS,
    MAX_STOPS,
)
from server.http.errors import ApiError, bad_request

Name = Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
Whole = Annotated[int, Meta(ge=-LARGEST_WHOLE, le=LARGEST_WHOLE)]
StreamId = Whole | Name  # bounded, because every item of a stream repeats it
Tokens = str | list[int | None]
Stop = Annotated[str, Meta(max_length=MAX_STOP_LENGTH)]

DEFAULT_MAX_TOKENS = 32  # as in LMQL's server
MAX_TOP_LOGPROBS = 128

# Sent instead of minus infinity, which JSON lacks. msgspec would write null, but LMQL sorts
# log-probabilities and needs numbers.
MIN_LOGPROB = -1e30

_encode = msgspec.json.Encoder().encode


class FrameError(ValueError):
    """A frame is malformed. The message names the defect."""


def frame(word: str, content: object) -> str:
    """Return a whole frame."""
    return f"{word} {_encode(content).decode()}"


def item(content: object) -> bytes:
    """Encode one item of a TOKEN or MSG frame."""
    return _encode(content)


def split(text: str) -> tuple[str, str]:
    """Return a frame's word and its unparsed JSON. Raises FrameError if either is missing."""
    word, space, content = text.partition(" ")
    if not space or not word.isascii() or not word.isupper():
        raise FrameError(
            "a frame must be a word in capitals, a space and JSON, such as GENERATE {...}"
        )
    return word, content


def items_of(content: str) -> list[dict[str, Any]]:
    """Parse the items of a TOKEN or MSG frame. Raises FrameError for anything else."""
    try:
        return msgspec.json.decode(content, type=list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise FrameError(str(error)) from error


class Call(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that every command has: the client's id for the stream, and the model's name."""

    stream_id: StreamId
    model: Name | None = None

    def check(self) -> None:
        """Raise ApiError, naming the field, for an invalid value that the types cannot rule out."""


class PromptCall(Call, kw_only=True):
    """A command that runs a request in the engine.

    prompt    token ids, or text ("text mode": tokens come back with their text)
    from_     `from` on the wire: a buffer whose tokens precede the prompt
    user      the request's label in the log
    priority  with --policy priority, lower values come first
    """

    prompt: Tokens
    from_: Name | None = msgspec.field(default=None, name="from")
    user: Name | None = None
    priority: Annotated[int, Meta(ge=-LARGEST_COUNT, le=LARGEST_COUNT)] | None = None


class GenerateCall(PromptCall, kw_only=True):
    """GENERATE. Fields that are not explained here are those of SamplingParams.

    keep    names the buffer to store
    output  the tokens that the client has already, of another server whose stream is continued
    """

    keep: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)] | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, Meta(le=LARGEST_COUNT)] | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    top_logprobs: int | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[int], Meta(max_length=MAX_STOP_TOKENS)] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    bad_words: Annotated[list[Stop], Meta(max_length=MAX_SEQUENCES)] | None = None
    allowed_token_ids: Annotated[list[int], Meta(max_length=MAX_ALLOWED_TOKENS)] | None = None
    ignore_eos: bool | None = None
    seed: Whole | None = None
    structured_outputs: dict[str, Any] | None = None
    output: list[int] | None = None

    def check(self) -> None:
        """See `Call`."""
        if not 0 <= (self.top_logprobs or 0) <= MAX_TOP_LOGPROBS:
            raise bad_request(
                "top_logprobs",
                f"top_logprobs must be 0 to {MAX_TOP_LOGPROBS}, got {self.top_logprobs}",
            )
        self.shape()

    def shape(self) -> Shape | None:
        """Return the shape that the output must have, if any. Raises ApiError."""
        return None if self.structured_outputs is None else shape_of(self.structured_outputs)

    def sampling(self, *, vocab_size: int, room: int) -> SamplingParams:
        """Return the engine's parameters. Raises SamplingError for a value out of range.

        As in LMQL's server, a bias for an id outside the vocabulary has no effect. LMQL requests
        tokens in chunks and does not know how many still fit in the context, so `max_tokens` is reduced
        to `room`.
        """
        max_tokens = DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        same = [name for name in SamplingParams.__struct_fields__ if name in self.__struct_fields__]
        given: dict[str, Any] = {name: getattr(self, name) for name in same}
        if self.logit_bias:
            given["logit_bias"] = {
                id_: bias for id_, bias in self.logit_bias.items() if 0 <= id_ < vocab_size
            }
        if shape := self.shape():
            given["structured"] = shape.output
        top = 1 if self.top_logprobs is None else self.top_logprobs
        given |= {"max_tokens": min(max_tokens, max(1, room)), "logprobs": min(top, vocab_size)}
        return SamplingParams(**{name: one for name, one in given.items() if one is not None})


class ScoreCall(PromptCall, kw_only=True):
    """SCORE: return the log-probabilities of `scored` after the prompt."""

    scored: Tokens


class ModelInfoCall(Call, kw_only=True):
    """MODEL_INFO. LMQL's client repeats the model's name in `data`, which is not parsed."""

    data: msgspec.Raw = msgspec.Raw(b"null")


class CancelCall(Call, kw_only=True):
    """CANCEL: end a stream. LMQL's protocol does not have this command."""


class ReleaseCall(Call, kw_only=True):
    """RELEASE: delete a buffer. LMQL's protocol does not have this command."""

    buffer: Name


CALLS: dict[str, type[Call]] = {
    "GENERATE": GenerateCall,
    "SCORE": ScoreCall,
    "MODEL_INFO": ModelInfoCall,
    "CANCEL": CancelCall,
    "RELEASE": ReleaseCall,
}

# Commands that open a stream and are answered with TOKEN frames.
STREAM_WORDS = ("GENERATE", "SCORE")

# A surrogate pair is two escapes for one character. The pattern matches the first escape. If the second
# is missing, msgspec's error says only "truncated".
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")

# The pattern does not match inside a JSON string, because quotation marks are escaped there.
_STREAM_ID = re.compile(
    r'(?<!\\)"stream_id"\s*:\s*(-?[1-9][0-9]{0,17}|0|"[ -!#-\[\]-~]{1,256}")\s*[,}]'
)


class _Stream(msgspec.Struct):
    stream_id: StreamId | None = None


def parse_call(word: str, content: str) -> Call:
    """Parse a frame. Raises ApiError if it is invalid."""
    if word not in CALLS:
        commands = ", ".join(CALLS)
        message = f"{word[:40]} is not a command: the commands are {commands}"
        raise bad_request(None, message, "unknown_command")
    try:
        call = msgspec.json.decode(content, type=CALLS[word])
    except msgspec.ValidationError as error:
        raise _api_error(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        reason = "a string is not valid Unicode" if _HALF_A_PAIR.search(content) else error
        raise bad_request(None, f"{word} must be followed by JSON: {reason}", "not_json") from error
    call.check()
    return call


def stream_of(content: str) -> StreamId | None:
    """Return a frame's stream id, if it has one, so that errors can be sent on that stream.

    The id is also found in invalid JSON, because the client may be waiting on the stream.
    """
    try:
        return msgspec.json.decode(content, type=_Stream).stream_id
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError):
        match = _STREAM_ID.search(content)
        return None if match is None else msgspec.json.decode(match[1])


def _api_error(message: str) -> ApiError:
    """Convert msgspec's "Expected ..., got ... - at `$.field`" to an error that names the field."""
    what, _, path = message.partition(" - at ")
    if "required field" in what or "unknown field" in what:
        field = what.rpartition(" field ")[2].strip("`")[:MAX_NAME_LENGTH]
        missing = "required" in what
        return bad_request(field, f"{field} is missing" if missing else f"{field} is unknown")
    field = path.rpartition("$.")[2].strip("`")  # the path of a key is "`key` in `$.field`"
    return bad_request(field or None, f"{field or 'the JSON'}{_in_words(what)}")


def _in_words(what: str) -> str:
    """Return " must be a string or null, got a list" for "Expected `str | null`, got `array`"."""
    if not what.startswith("Expected "):
        return f": {what}"
    words = _KINDS.sub(
        lambda kinds: " or ".join(_NAMES[one] for one in kinds[1].split(" | ")), what
    )
    return words.replace("Expected", " must be", 1)


_NAMES = {
    "array": "a list",
    "bool": "a boolean",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "an object",
    "str": "a string",
}
_KINDS = re.compile(rf"`((?:{'|'.join(_NAMES)})(?: \| (?:{'|'.join(_NAMES)}))*)`")
