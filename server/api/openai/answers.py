"""What OpenAI's endpoints answer, for the OpenAPI document.

The answers themselves are made where the tokens come in (`completions.py`, `chat.py`), without these
classes: they would cost more than the tokens. That both agree is checked from outside, by comparing
real answers with the document.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from server.http.openapi import EVENT

FinishReason = Literal["stop", "length"]


class PromptTokensDetails(BaseModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int = Field(description="Found in the prefix cache.")


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(BaseModel):
    """Four lists side by side, one entry per token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One completion. In a stream: a piece of it, whose last has the finish_reason."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class Completion(BaseModel):
    """An answer of /v1/completions. The chunks of a stream look the same; `usage` is in the last."""

    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class TokenLogprob(BaseModel):
    """A token and how probable it was."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(TokenLogprob):
    """A token of the answer, and the likeliest in its place."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(BaseModel):
    """One entry per token."""

    content: list[ChosenToken]
    refusal: None


class AnswerMessage(BaseModel):
    """What the assistant says."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(BaseModel):
    """An answer of /v1/chat/completions.

    The chunks of a stream are `chat.completion.chunk`: in `choices` stands `delta` instead of
    `message`, first the role, then pieces of the content, last nothing beside the finish_reason.
    """

    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Model(BaseModel):
    """A model that can be asked for; `loaded` is there with `--model auto`."""

    model_config = ConfigDict(extra="forbid")

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    loaded: bool | None = None


class ModelList(BaseModel):
    """All of them."""

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
    model: type[BaseModel], words: str, **examples: str
) -> dict[int | str, dict[str, Any]]:
    shown = {name: {"value": text} for name, text in examples.items()}
    stream = {"itemSchema": EVENT, "examples": shown}
    return {200: {"model": model, "description": words, "content": {"text/event-stream": stream}}}


COMPLETION = _streamed(
    Completion,
    "The whole answer as JSON; with stream: true server-sent events, ended by [DONE]; with neither "
    "model nor stream in the body the teaching stream, one event per token.",
    stream=_COMPLETION_STREAM,
    teaching=_TEACHING_STREAM,
)
CHAT_COMPLETION = _streamed(
    ChatCompletion,
    "The whole answer as JSON; with stream: true server-sent events, ended by [DONE].",
    stream=_CHAT_STREAM,
)
