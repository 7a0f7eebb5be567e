"""/v1/chat/completions: its body, its route, its prompt, and its response.

A stream has these chunks for each choice: the role with empty content, the content as it is generated,
and an empty delta with the finish_reason. It ends with a chunk without choices, if `include_usage` is
set, and `[DONE]`. As in vLLM (`serving_chat.py`), the role chunks of all choices are sent when the
first token of any choice arrives. A client can therefore measure the time to first token by the first
chunk it gets. If the stream fails before that, it starts with the error.
"""

import re
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Self

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response

from engine.scheduling.sampling_params import SamplingParams
from engine.text.tokenizer import Tokenizer, encode_continuation
from server.api.openai.requests import (
    FIRST_ERROR,
    MAX_LOGPROBS,
    OPENAI_TEMPERATURE,
    Client,
    SamplingRequest,
)
from server.api.openai.responses import CHAT_COMPLETION, OpenAISerializer, chat_logprobs
from server.core.admission import characters_in, check_length, max_request_tokens
from server.core.bridge import Bridge
from server.core.models import Models
from server.core.request_stream import OutputDelta, Prompt
from server.core.settings import MAX_NAME_LENGTH
from server.http.bodies import JsonRoute
from server.http.errors import bad_request
from server.http.streaming import StreamedAnswer, WholeAnswer, sse

MAX_MESSAGES = 4096


class TextPart(BaseModel):
    """A part of a message's content."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: str
    text: str | None = None


class ChatMessage(BaseModel):
    """A message. Other fields, such as `reasoning_content`, are passed to the chat template."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: str = Field(max_length=MAX_NAME_LENGTH, examples=["user"])
    content: str | Annotated[list[TextPart], FIRST_ERROR] | None = Field(
        None, examples=["What is 17 + 25?"]
    )


class ChatRequest(SamplingRequest):
    """A body for /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], FIRST_ERROR] = Field(max_length=MAX_MESSAGES)
    max_tokens: int | None = Field(None, ge=1, description="Maximum number of output tokens.")
    max_completion_tokens: int | None = Field(
        None, ge=1, description="Newer name of max_tokens; takes precedence."
    )
    logprobs: bool | None = Field(None, description="Return the log-probability of each token.")
    top_logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_LOGPROBS,
        description="With logprobs, also return those of this many most likely tokens.",
    )

    @model_validator(mode="after")
    def _check_chat_fields(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs", "top_logprobs needs logprobs: true")
        if self.max_completion_tokens is not None:
            self.max_tokens = self.max_completion_tokens
        return self

    @property
    def fields(self) -> dict[str, str]:
        """See `SamplingRequest`."""
        fields = {"prompt": "messages", "logprobs": "top_logprobs"}
        if self.max_completion_tokens is not None:
            fields["max_tokens"] = "max_completion_tokens"
        return fields


def routes(models: Models) -> APIRouter:
    """Return the route /v1/chat/completions."""
    router = APIRouter(tags=["OpenAI"], route_class=JsonRoute)
    settings = models.settings

    @router.post("/v1/chat/completions", responses=CHAT_COMPLETION)
    async def chat_completions(body: ChatRequest, x_client: Client = None) -> Response:
        """Answer a conversation."""
        params = body.sampling(
            {"max_tokens": settings.chat_max_tokens, "temperature": OPENAI_TEMPERATURE},
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        )
        messages = template_messages(body.messages)
        encode = partial(encode_chat, messages, params, fit=body.max_tokens is None)
        request = body.to_generation(encode, x_client)
        answer = StreamedAnswer if body.stream else WholeAnswer
        serializer = partial(ChatSerializer, body, settings.model_name)
        return answer(models, body.model, request, serializer)

    return router


def template_messages(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages as the chat template expects them, with the text parts of each one joined."""
    if not messages:
        raise bad_request("messages", "messages must have at least one entry, got an empty list")
    plain = []
    for index, message in enumerate(messages):
        content = message.content
        if isinstance(content, list):
            content = "".join(_text(part, index, at) for at, part in enumerate(content))
        # Templates know only the older name of this role; some silently drop a message with a
        # role they do not know.
        role = "system" if message.role == "developer" else message.role
        extra = {k: v for k, v in (message.model_extra or {}).items() if v is not None}
        plain.append(extra | {"role": role, "content": content or ""})
    return plain


def _text(part: TextPart, message: int, index: int) -> str:
    if part.type != "text" or part.text is None:
        field = f"messages[{message}].content[{index}]"
        raise bad_request(field, f"{field} must be {{type: text, text: ...}}, got {part.type!r}")
    return part.text


def encode_chat(
    messages: Sequence[dict[str, Any]], params: SamplingParams, bridge: Bridge, *, fit: bool
) -> list[Prompt]:
    """Tokenize a conversation. With `fit`, max_tokens is capped at what still fits the context.

    Raises RequestError if the conversation is too long.
    """
    check_length([characters_in(messages)], bridge)
    tokens = encode_conversation(messages, bridge.tokenizer)
    if fit:
        max_tokens = max(1, min(params.max_tokens, max_request_tokens(bridge) - len(tokens)))
        params = msgspec.structs.replace(params, max_tokens=max_tokens)
    return [Prompt(tokens, params)]


def encode_conversation(messages: Sequence[dict[str, Any]], tokenizer: Tokenizer) -> list[int]:
    """Return a conversation's token ids. A client cannot inject special tokens.

    If a user's message contains "<|user_end|>", these characters are ordinary text. As a special token
    they would end the user's turn, and the rest of the message could pass for the assistant's. The
    template gets a placeholder instead of such content, and the content is inserted afterwards as
    ordinary text. The assistant's messages keep their special tokens: the model generated them, and the
    next turn finds them in the prefix cache.
    """
    marker = secrets.randbits(128)  # random, so no message can contain it
    replaced: list[list[int]] = []  # each replaced content, as ids of ordinary text
    safe = []
    for message in messages:
        if message["role"] != "assistant":
            ordinary = tokenizer.encode_ordinary(message["content"])
            if (
                encode_continuation(message["content"], tokenizer) != ordinary
            ):  # has a special token
                message = message | {"content": f"[{marker} {len(replaced)}]"}  # noqa: PLW2901
                replaced.append(ordinary)
        safe.append(message)
    before, *rest = re.split(rf"\[{marker} (\d+)\]", tokenizer.chat_template.render(safe))
    tokens = tokenizer.encode(before)
    between = {text: encode_continuation(text, tokenizer) for text in rest[1::2]}  # most repeat
    for index, text in zip(rest[::2], rest[1::2], strict=True):
        tokens += replaced[int(index)] + between[text]
    return tokens


class ChatSerializer(OpenAISerializer):
    """Writes a chat completion, streamed or whole.

    With log-probabilities, every token is sent, even if it has no text.
    """

    id_prefix = "chatcmpl"
    kind = "chat.completion.chunk"
    _sent_roles = False

    def chunk(self, delta: OutputDelta) -> bytes:
        """See `StreamSerializer`. The first chunk of the stream starts with the role of each choice."""
        self.num_tokens += len(delta.ids)
        text, logprobs = "".join(delta.texts), chat_logprobs(delta, self.tokenizer)
        data = b""
        if not self._sent_roles:
            self._sent_roles = True
            choices = range(sum(prompt.params.n for prompt in self.stream.prompts))
            role = {"role": "assistant", "content": ""}
            data = b"".join(self._chunk(index, role) for index in choices)
        if text or logprobs:
            data += self._chunk(delta.choice, {"content": text}, logprobs)
        if delta.finish_reason:
            data += self._chunk(delta.choice, {}, None, delta.finish_reason)
        return data

    def render(self, choices: list[OutputDelta]) -> dict[str, Any]:
        """See `WholeSerializer`."""
        self.kind = "chat.completion"
        self.num_tokens = sum(len(delta.ids) for delta in choices)
        rendered = [
            {
                "index": delta.choice,
                "message": {"role": "assistant", "content": "".join(delta.texts), "refusal": None},
                "logprobs": chat_logprobs(delta, self.tokenizer),
                "finish_reason": delta.finish_reason,
            }
            for delta in choices
        ]
        return self.wrap(rendered, usage=self.usage())

    def _chunk(
        self,
        index: int,
        delta: dict[str, str],
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return sse(self.wrap([choice]))
