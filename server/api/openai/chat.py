"""/v1/chat/completions: its body, its route, its prompt, and its response.

For each choice, a stream has a chunk with the role and empty content, then chunks with the content as
it is generated, and then an empty delta with the finish_reason. The stream ends with a chunk without
choices, if `include_usage` is set, and `[DONE]`. As in vLLM (`serving_chat.py`), the role chunks of all
choices are sent when the first token of any choice arrives. A client can therefore measure the time to
first token by the first chunk that it receives. If the stream fails before that, it starts with the
error.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Self

import msgspec
from fastapi import APIRouter
from pydantic import Field, PrivateAttr, model_validator
from starlette.responses import Response

from engine.core.sampling_params import SamplingParams
from engine.core.tokenizer import Tokenizer, encode_continuation
from engine.models.text.chat_template import ChatTemplate, ChatTemplateError
from server.api.openai.requests import (
    FIRST_ERROR,
    MAX_LOGPROBS,
    OPENAI_TEMPERATURE,
    Client,
    SamplingRequest,
)
from server.api.openai.responses import (
    CHAT_COMPLETION,
    OpenAISerializer,
    chat_logprobs,
    prompt_logprobs,
)
from server.api.openai.template_fields import TemplateFields, check_variables
from server.api.openai.tool_calls import ToolCallWriter
from server.api.openai.tool_messages import (
    MessageToolCalls,
    template_tool_calls,
    with_names,
    without_tool_messages,
)
from server.api.openai.tools import ToolRequest, check_ordinary, tool_request
from server.api.openai.truncation import NO_TRUNCATION, Truncation
from server.core.admission import characters_in, check_length, max_request_tokens
from server.core.bridge import Bridge
from server.core.commands import OutputDelta, Prompt
from server.core.models import Models
from server.core.request_stream import GenerationRequest, RequestStream
from server.core.settings import MAX_NAME_LENGTH, ServerSettings
from server.http.bodies import JsonRoute
from server.http.errors import bad_request
from server.http.fields import Open
from server.http.streaming import StreamedAnswer, WholeAnswer, sse

MAX_MESSAGES = 4096


class TextPart(Open):
    """A part of a message's content."""

    type: str
    text: str | None = None


class ChatMessage(Open):
    """A message. Other fields, such as `reasoning_content`, are passed to the chat template."""

    role: str = Field(max_length=MAX_NAME_LENGTH, examples=["user"])
    content: str | Annotated[list[TextPart], FIRST_ERROR] | None = Field(
        None, examples=["What is 17 + 25?"]
    )
    tool_calls: MessageToolCalls | None = Field(None, description="The assistant's calls.")


class ChatRequest(TemplateFields, SamplingRequest):
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
        description="With logprobs, also return the log-probabilities of this many most likely tokens.",
    )
    echo: bool | None = Field(
        None,
        description="Return the last message before the output, if both have the same role.",
    )
    tool_choice: str | dict[str, Any] | None = Field(
        None,
        description='"none", "auto" (the default), "required", or a function to call: {"type": '
        '"function", "function": {"name": ...}}.',
    )
    parallel_tool_calls: bool | None = Field(
        None, description="Allow more than one call. The default is true."
    )
    _tools: ToolRequest | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check_chat_fields(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs", "top_logprobs needs logprobs: true")
        if self.max_completion_tokens is not None:
            self.max_tokens = self.max_completion_tokens
        self._tools = tool_request(self.tools, self.tool_choice, self.parallel_tool_calls)
        if self._tools is not None and self._tools.forced:
            if self.structured_outputs is not None:
                raise bad_request(
                    "structured_outputs",
                    "structured_outputs cannot be combined with a forced tool call: leave one out",
                )
            # As in vLLM and OpenAI's API, `response_format` applies only to content, not to calls.
            self._shape = self._tools.shape()
        return self

    @property
    def tool_request(self) -> ToolRequest | None:
        """The request's tools, if any."""
        return self._tools

    @property
    def role(self) -> str:
        """The response's role."""
        return "assistant" if self.begins_turn else self.messages[-1].role

    @property
    def echoed(self) -> str:
        """The text that the response returns before the output."""
        if not self.echo:
            return ""
        [last] = template_messages(self.messages[-1:])
        return last["content"] if last["role"] == self.role else ""

    @property
    def fields(self) -> dict[str, str]:
        """See `SamplingRequest`."""
        fields = super().fields | {"prompt": "messages", "logprobs": "top_logprobs"}
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
        request = generation(body, x_client, settings)
        answer = StreamedAnswer if body.stream else WholeAnswer
        serializer = partial(ChatSerializer, body, settings)
        return answer(models, body.model, request, serializer)

    return router


def generation(
    body: ChatRequest, x_client: str | None, settings: ServerSettings
) -> GenerationRequest:
    """Return the request for the engine."""
    tools = body.tool_request
    # Some models mark their calls with special tokens.
    text = {"skip_special_tokens": False} if tools and tools.choice == "auto" else {}
    params = body.sampling(
        {
            "max_tokens": settings.chat_max_tokens,
            "temperature": OPENAI_TEMPERATURE,
            "skip_special_tokens": True,
        },
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        prompt_logprobs=None if body.stream else body.prompt_logprobs,
        **text,
    )
    encode = partial(
        encode_chat,
        template_messages(body.messages),
        params,
        tools=tools,
        fit=body.max_tokens is None,
        truncation=Truncation.of(body),
        **body.template_options(),
    )
    return body.to_generation(encode, x_client)


def template_messages(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages as the chat template expects them, with the text parts of each one joined."""
    if not messages:
        raise bad_request("messages", "messages must have at least one entry, got an empty list")
    plain = []
    for index, message in enumerate(messages):
        content = message.content
        if isinstance(content, list):
            content = "".join(_text(part, index, at) for at, part in enumerate(content))
        # Templates know only "system", the older name of "developer"; some silently drop a message
        # whose role they do not know.
        role = "system" if message.role == "developer" else message.role
        extra = {k: v for k, v in (message.model_extra or {}).items() if v is not None}
        if message.tool_calls:  # an empty list would look like a call to some templates
            extra["tool_calls"] = template_tool_calls(message.tool_calls)
        plain.append(extra | {"role": role, "content": content or ""})
    return plain


def _text(part: TextPart, message: int, index: int) -> str:
    if part.type != "text" or part.text is None:
        field = f"messages[{message}].content[{index}]"
        raise bad_request(field, f"{field} must be {{type: text, text: ...}}, got {part.type!r}")
    return part.text


def encode_chat(
    messages: Sequence[dict[str, Any]],
    params: SamplingParams,
    bridge: Bridge,
    *,
    tools: ToolRequest | None = None,
    fit: bool,
    truncation: Truncation = NO_TRUNCATION,
    **options: Any,
) -> list[Prompt]:
    """Tokenize a conversation. With `fit`, max_tokens is reduced to what still fits the context.

    options  see `ChatTemplate.render`

    Raises RequestError if the conversation is too long, and ApiError if its tools cannot be used.
    """
    shown = tools.tools if tools is not None else None
    size = characters_in([*messages, *(shown or ()), options.get("variables", {})])
    check_length([size], bridge, truncated=truncation.is_on)
    if tools is not None:
        tools.parser(bridge.tokenizer.chat_template, bridge.settings.tool_call_parser)
    tokens = encode_conversation(messages, bridge.tokenizer, shown, **options)
    tokens = truncation.cut(tokens, params.max_tokens, bridge)
    if fit:
        max_tokens = max(1, min(params.max_tokens, max_request_tokens(bridge) - len(tokens)))
        params = msgspec.structs.replace(params, max_tokens=max_tokens)
    return [Prompt(tokens, params)]


def encode_conversation(
    messages: Sequence[dict[str, Any]],
    tokenizer: Tokenizer,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> list[int]:
    """Return a conversation's token ids. A client cannot inject special tokens.

    tools, options  see `ChatTemplate.render`

    If a user's message contains "<|user_end|>", these characters are ordinary text. As a special token,
    they would end the user's turn, and the rest of the message could pass for the assistant's. The
    template therefore gets a placeholder instead of such content, and the content is inserted
    afterwards as ordinary text. The assistant's messages keep their special tokens, because the model
    generated them and the next turn finds them in the prefix cache.
    """
    template = tokenizer.chat_template
    messages = with_names(messages) if template.takes_tools else without_tool_messages(messages)
    if tools is not None and template.takes_tools:
        check_ordinary("tools", tools, tokenizer)
    check_variables(options.get("variables", {}), tokenizer)
    marker = secrets.randbits(128)  # random, so no message can contain it
    replaced: list[list[int]] = []  # each replaced content, as ids of ordinary text
    safe = []
    for message in messages:
        if message["role"] != "assistant":
            ordinary = tokenizer.encode_ordinary(message["content"])
            has_special_token = encode_continuation(message["content"], tokenizer) != ordinary
            if has_special_token:
                message = message | {"content": f"[{marker} {len(replaced)}]"}  # noqa: PLW2901
                replaced.append(ordinary)
        safe.append(message)
    text = _rendered(template, safe, tools=tools, **options)
    before, *rest = re.split(rf"\[{marker} (\d+)\]", text)
    tokens = tokenizer.encode(before)
    # A dictionary, because most of these texts repeat.
    between = {text: encode_continuation(text, tokenizer) for text in rest[1::2]}
    for index, text in zip(rest[::2], rest[1::2], strict=True):
        tokens += replaced[int(index)] + between[text]
    return tokens


def _rendered(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
    """Render a conversation. If the template rejects system messages, they join the user's messages."""
    try:
        return template.render(messages, **options)
    except ChatTemplateError as error:
        accepted = with_one_system_message(messages)
        if accepted == messages:
            raise
        try:
            return template.render(accepted, **options)
        except ChatTemplateError:
            raise error from None


def with_one_system_message(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with at most one system message, which is the first.

    The system messages at the beginning are joined. A later one becomes a user's message in its place
    and is joined with adjacent messages of the user, because many templates require roles to alternate.

    Differs from vLLM, which reports the template's error. OpenAI's API accepts such messages anywhere.
    """
    joined: list[dict[str, Any]] = []
    begins, after_system = True, False
    for message in messages:
        is_system = message["role"] == "system"
        begins = begins and is_system
        role = "user" if is_system and not begins else message["role"]
        if joined and joined[-1]["role"] == role and (is_system or after_system):
            joined[-1]["content"] += "\n\n" + message["content"]
        else:
            joined.append({**message, "role": role})
        after_system = is_system
    return joined


class ChatSerializer(OpenAISerializer):
    """Writes a chat completion, streamed or whole.

    With log-probabilities or token ids, every token is sent, even if it has no text.
    """

    id_prefix = "chatcmpl"
    kind = "chat.completion.chunk"
    _sent_roles = False

    def __init__(
        self,
        body: ChatRequest,
        settings: ServerSettings,
        stream: RequestStream,
        tokenizer: Tokenizer,
    ) -> None:
        super().__init__(body, settings.model_name, stream, tokenizer)
        self._tools = body.tool_request
        self._tool_parser = settings.tool_call_parser
        self._writers: dict[int, ToolCallWriter] = {}  # by choice
        self._role = body.role
        self._echo = body.echoed
        self._with_prompt_logprobs = body.prompt_logprobs is not None and not body.stream

    def chunk(self, delta: OutputDelta) -> bytes:
        """See `StreamSerializer`. The first chunk of the stream starts with the role of each choice."""
        text, logprobs = "".join(delta.texts), chat_logprobs(delta, self.tokenizer)
        finish_reason = delta.finish_reason
        deltas: list[dict[str, Any]] = [{"content": text}] if text else []
        if writer := self._tool_calls(delta.choice):
            deltas = writer.deltas(text, ended=finish_reason is not None)
            finish_reason = writer.finish_reason(finish_reason)
        data = b""
        if not self._sent_roles:
            self._sent_roles = True
            data = self._opening()
        self.count(delta.choice, len(delta.ids))
        ids = {"token_ids": delta.ids} if self.with_token_ids else {}
        if not deltas and (logprobs or ids.get("token_ids")):
            deltas = [{"content": ""}]
        for message_delta in deltas:
            data += self._chunk(delta.choice, message_delta, logprobs, of_choice=ids)
            # The first delta carries the log-probabilities and ids of all tokens.
            logprobs, ids = None, {"token_ids": []} if self.with_token_ids else {}
        if finish_reason:
            end: dict[str, Any] = {
                "finish_reason": finish_reason,
                "stop_reason": delta.stop_reason,
            }
            if self.with_token_ids:
                end["token_ids"] = []  # the previous chunk had the tokens
            data += self._chunk(delta.choice, {}, of_choice=end)
        return data

    def _opening(self) -> bytes:
        """Return the first chunks: each choice's role and, with `echo`, the message it continues."""
        choices = range(self.stream.prompts[0].params.n)
        role = {"role": self._role, "content": ""}
        ids = {"prompt_token_ids": self.stream.prompts[0].tokens} if self.with_token_ids else {}
        data = b"".join(self._chunk(index, role, of_chunk=ids) for index in choices)
        if self._echo:
            data += b"".join(self._chunk(index, {"content": self._echo}) for index in choices)
        return data

    def render(self, choices: list[OutputDelta]) -> dict[str, Any]:
        """See `WholeSerializer`."""
        self.kind = "chat.completion"
        self.num_tokens = sum(len(delta.ids) for delta in choices)
        rendered = [self._choice(delta) for delta in choices]
        ids, more = self.stream.prompts[0].tokens, dict[str, Any]()
        if self.with_token_ids:
            more["prompt_token_ids"] = ids
        if self._with_prompt_logprobs:
            scores = choices[0].prompt_scores
            more["prompt_logprobs"] = prompt_logprobs(ids, scores, self.tokenizer)
        return self.wrap(rendered, usage=self.usage(), **more)

    def _choice(self, delta: OutputDelta) -> dict[str, Any]:
        finish_reason = delta.finish_reason
        message: dict[str, Any] = {"content": "".join(delta.texts)}
        if writer := self._tool_calls(delta.choice):
            message = writer.message(message["content"])
            finish_reason = writer.finish_reason(finish_reason)
        if self._echo:
            message["content"] = self._echo + (message["content"] or "")
        choice: dict[str, Any] = {
            "index": delta.choice,
            "message": {"role": self._role} | message | {"refusal": None},
            "logprobs": chat_logprobs(delta, self.tokenizer),
            "finish_reason": finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self.with_token_ids:
            choice["token_ids"] = delta.ids
        return choice

    def _tool_calls(self, choice: int) -> ToolCallWriter | None:
        """Return the writer of this choice's tool calls; None if the output is only content."""
        if self._tools is None:
            return None
        if choice not in self._writers:
            parser = self._tools.parser(self.tokenizer.chat_template, self._tool_parser)
            if parser is None:
                return None
            self._writers[choice] = ToolCallWriter(parser, self._tools)
        return self._writers[choice]

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        *,
        of_choice: Mapping[str, Any] = MappingProxyType({}),
        of_chunk: Mapping[str, Any] = MappingProxyType({}),
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        usage = self.usage_so_far(index)
        return sse(self.wrap([choice | dict(of_choice)], **usage, **of_chunk))
