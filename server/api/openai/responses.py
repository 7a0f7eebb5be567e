"""Responses of OpenAI's endpoints: what their serializers share, and their schemas.

Serializers (`completions.py`, `chat.py`) write plain dicts. The pydantic models below only describe
responses in the OpenAPI document: building them for each token would cost more than the token itself. A
test compares real responses with the document.
"""

import time
import uuid
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.text.tokenizer import Tokenizer
from server.core.request_stream import OutputDelta, RequestStream
from server.http.streaming import EVENT, sse

FinishReason = Literal["stop", "length"]


class OpenAISerializer:
    """The common part of both endpoints' serializers: the id, the time and the token counts.

    kind         the `object` of a chunk or response
    num_tokens   output tokens so far, over all choices
    """

    done = b"data: [DONE]\n\n"

    def __init__(self, prefix: str, kind: str, model: str, *, include_usage: bool) -> None:
        self.kind = kind
        self.num_tokens = 0
        self._id = f"{prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model
        self._include_usage = include_usage

    def begin(self, stream: RequestStream, tokenizer: Tokenizer) -> None:
        """See `ResponseSerializer`."""
        self.stream = stream
        self.tokenizer = tokenizer

    def wrap(self, choices: list[dict[str, Any]], **more: object) -> dict[str, Any]:
        """Return a response or chunk with these choices."""
        head = {"id": self._id, "object": self.kind, "created": self._created, "model": self._model}
        return head | {"choices": choices} | more

    def closing(self) -> bytes:
        """See `StreamSerializer`. It has the token counts, if the client asked for them."""
        return sse(self.wrap([], usage=self.usage())) if self._include_usage else b""

    def usage(self) -> dict[str, Any]:
        """Return the token counts. `cached_tokens` are prompt tokens found in the prefix cache."""
        prompt_tokens = self.stream.prompt_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self.num_tokens,
            "total_tokens": prompt_tokens + self.num_tokens,
            "prompt_tokens_details": {"cached_tokens": sum(self.stream.cached_tokens)},
        }


def count_tokens(choices: list[OutputDelta]) -> int:
    """Return the number of tokens in all choices."""
    return sum(len(choice.ids) for choice in choices)


class PromptTokensDetails(BaseModel):
    """Details of prompt_tokens."""

    cached_tokens: int = Field(description="Prompt tokens found in the prefix cache.")


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(BaseModel):
    """Four lists with one entry per token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One completion or, in a stream, a piece of one; the last piece has the finish_reason."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class Completion(BaseModel):
    """A response of /v1/completions, or a chunk of a stream; only the last chunk has `usage`."""

    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class TokenLogprob(BaseModel):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(TokenLogprob):
    """A token of the output, and the most likely tokens at its position."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(BaseModel):
    """One entry per token."""

    content: list[ChosenToken]
    refusal: None


class AssistantMessage(BaseModel):
    """The assistant's message."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(BaseModel):
    """One sample."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(BaseModel):
    """A response of /v1/chat/completions.

    The chunks of a stream are `chat.completion.chunk`. Their `choices` have `delta` instead of
    `message`: first the role, then pieces of the content, and finally an empty delta with the
    finish_reason.
    """

    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Model(BaseModel):
    """A model that requests can name. It has `loaded` only with `--model auto`."""

    model_config = ConfigDict(extra="forbid")

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    loaded: bool | None = None


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"]
    data: list[Model]


_COMPLETION_STREAM = """\
data: {"id": "cmpl-1", "object": "text_completion", "created": 1767225600, "model": "bundled", \
"choices": [{"index": 0, "text": " there was", "logprobs": null, "finish_reason": "length"}]}

data: [DONE]

"""
_TEACHING_STREAM = """\
data: {"token": " there", "token_id": 311, "is_first": true, "ttft_ms": 12.4}

data: {"token": " was", "token_id": 285, "is_first": false}

data: {"done": true, "full_text": " there was"}

"""
_CHAT_STREAM = """\
data: {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1767225600, "model": \
"bundled", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, \
"finish_reason": null}]}

data: [DONE]

"""


def _streamed(
    model: type[BaseModel], text: str, **examples: str
) -> dict[int | str, dict[str, Any]]:
    values = {name: {"value": example} for name, example in examples.items()}
    stream = {"itemSchema": EVENT, "examples": values}
    return {200: {"model": model, "description": text, "content": {"text/event-stream": stream}}}


COMPLETION = _streamed(
    Completion,
    "The whole response as JSON. With stream: true, server-sent events that end with [DONE]. Without "
    "model and stream in the body, the teaching stream: one event per token.",
    stream=_COMPLETION_STREAM,
    teaching=_TEACHING_STREAM,
)
CHAT_COMPLETION = _streamed(
    ChatCompletion,
    "The whole response as JSON. With stream: true, server-sent events that end with [DONE].",
    stream=_CHAT_STREAM,
)
