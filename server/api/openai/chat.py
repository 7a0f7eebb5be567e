"""/v1/chat/completions: its body, its prompt, and its response.

For each choice, a stream has a chunk with the role and empty content, then chunks with the content as
it is generated, and then an empty delta with the finish_reason. The stream ends with a chunk without
choices, if `include_usage` is set, and `[DONE]`. As in vLLM (`serving_chat.py`), the role chunks of all
choices are sent when the first token of any choice arrives. A client can therefore measure the time to
first token by the first chunk that it receives. If the stream fails before that, it starts with the
error.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Self

import msgspec
from pydantic import Field, PrivateAttr, model_validator

from engine.core.sampling_params import SamplingParams
from engine.core.tokenizer import Tokenizer
from server.api.openai.conversation import (
    MAX_MESSAGES,
    ChatMessage,
    TemplateFields,
    conversation_tokens,
    template_messages,
)
from server.api.openai.requests import (
    FIRST_ERROR,
    MAX_LOGPROBS,
    OPENAI_TEMPERATURE,
    SamplingRequest,
)
from server.api.openai.responses import (
    OpenAISerializer,
    chat_logprobs,
    prompt_logprobs,
)
from server.api.openai.tools import ToolCallWriter, ToolRequest, tool_request
from server.core.admission import max_request_tokens
from server.core.bridge import Bridge
from server.core.commands import OutputDelta, Prompt
from server.core.request_stream import GenerationRequest, RequestStream
from server.core.settings import ServerSettings
from server.http.errors import bad_request
from server.http.streaming import sse


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
    encode = partial(_encode, body, template_messages(body.messages), params)
    return body.to_generation(encode, x_client)


def _encode(
    body: ChatRequest, messages: list[dict[str, Any]], params: SamplingParams, bridge: Bridge
) -> list[Prompt]:
    """Tokenize a conversation. If the body sets no max_tokens, they are reduced to what still fits.

    Raises RequestError if the conversation is too long, and ApiError if its tools cannot be used.
    """
    tools = body.tool_request
    if tools is not None:
        tools.parser(bridge.tokenizer.chat_template, bridge.settings.tool_call_parser)
    tokens = conversation_tokens(
        messages,
        tools.tools if tools is not None else None,
        body.template_options(),
        bridge,
        truncated=body.truncate_prompt_tokens is not None,
    )
    tokens = body.truncated(tokens, params.max_tokens, bridge)
    if body.max_tokens is None:
        max_tokens = max(1, min(params.max_tokens, max_request_tokens(bridge) - len(tokens)))
        params = msgspec.structs.replace(params, max_tokens=max_tokens)
    return [Prompt(tokens, params)]


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
            data += self._chunk(delta.choice, message_delta, {}, logprobs=logprobs, **ids)
            # The first delta carries the log-probabilities and ids of all tokens.
            logprobs, ids = None, {"token_ids": []} if self.with_token_ids else {}
        if finish_reason:
            end = {"finish_reason": finish_reason, "stop_reason": delta.stop_reason}
            # The chunk before had the tokens.
            ids = {"token_ids": []} if self.with_token_ids else {}
            data += self._chunk(delta.choice, {}, {}, **end, **ids)
        return data

    def _opening(self) -> bytes:
        """Return the first chunks: each choice's role and, with `echo`, the message it continues."""
        choices = range(self.stream.prompts[0].params.n)
        role = {"role": self._role, "content": ""}
        ids = {"prompt_token_ids": self.stream.prompts[0].tokens} if self.with_token_ids else {}
        data = b"".join(self._chunk(index, role, ids) for index in choices)
        if self._echo:
            data += b"".join(self._chunk(index, {"content": self._echo}, {}) for index in choices)
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
            name = self.stream.name
            self._writers[choice] = ToolCallWriter(parser, self._tools, name, choice)
        return self._writers[choice]

    def _chunk(
        self, index: int, delta: dict[str, Any], of_chunk: Mapping[str, Any], **of_choice: Any
    ) -> bytes:
        """Return a chunk; `of_chunk` and `of_choice` are its further fields and its choice's."""
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        usage = self.usage_so_far(index)
        return sse(self.wrap([choice | of_choice], **usage, **of_chunk))
