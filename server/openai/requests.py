"""What OpenAI's endpoints take: the fields, and the rule for those that are not supported.

Nearly every field may be `null`, which means absent. A field that cannot be honoured is refused by
name, never ignored: a client that asked for `stop` must not get an answer that ran past it. Only a
field's neutral value, which asks for nothing, passes.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engine.scheduling.sampling_params import SamplingError, SamplingParams
from server.errors import bad_request

# Known fields of OpenAI's and vLLM's API that are not supported, and the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "metadata": ({},),
    "min_p": (0,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "stop": ([], ""),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
}


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool | None = Field(None, description="Send token counts in a last chunk.")


class SamplingRequest(BaseModel):
    """The fields that completions and chat completions share."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = Field(None, description="Any name; it is echoed.")
    max_tokens: int | None = Field(None, description="Output tokens at most.")
    temperature: float | None = Field(None, description="0 always takes the likeliest token.")
    top_p: float | None = Field(None, description="Keep the likeliest tokens up to this mass.")
    top_k: int | None = Field(None, description="Keep this many likeliest tokens; 0 keeps all.")
    seed: int | None = Field(None, description="The same seed gives the same tokens.")
    n: int | None = Field(None, description="Samples per prompt; they share its KV blocks.")
    stream: bool | None = Field(None, description="Send tokens as they come.")
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = Field(None, description="Go on past the model's end token.")
    user: str | None = Field(None, description="Names the request in the log, as X-Client does.")
    priority: int | None = Field(None, description="0 first, under the policy priority.")

    def check_fields(self) -> None:
        """Raise ApiError for a field that is unknown or cannot be honoured."""
        for name, value in (self.model_extra or {}).items():
            if value is None:
                continue
            if name not in _NEUTRAL:
                raise bad_request(name, f"{name} is not a field of this request; see /docs")
            if name == "best_of" and value == self.n:
                continue
            if not any(_same(value, neutral) for neutral in _NEUTRAL[name]):
                raise bad_request(name, f"{name} is not supported: leave it out")
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options", "stream_options is only for stream: true")

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with token counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def output_limit(self) -> int | None:
        """How many tokens the client wants at most, if it says."""
        return self.max_tokens

    @property
    def fields(self) -> dict[str, str]:
        """The engine's name of a field -> its name in this request, where they differ."""
        return {}

    def sampling(self, *, max_tokens: int, temperature: float) -> SamplingParams:
        """The engine's parameters, with these defaults. Raises ApiError for a value out of range."""
        limit = self.output_limit
        given: Mapping[str, Any] = {
            "max_tokens": max_tokens if limit is None else limit,
            "temperature": temperature if self.temperature is None else self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "seed": self.seed,
            "n": self.n,
            "ignore_eos": self.ignore_eos,
        }
        try:
            return SamplingParams(**{k: v for k, v in given.items() if v is not None})
        except SamplingError as error:
            field = self.fields.get(error.field, error.field)
            message = str(error).removeprefix(error.field)
            raise bad_request(field, field + message) from error


class CompletionRequest(SamplingRequest):
    """A body for /v1/completions. With neither `model` nor `stream` it asks for the teaching stream."""

    prompt: str | list[str] | list[int] | list[list[int]] = Field(
        description="Text, token ids, or a list of either.", examples=["Once upon a time"]
    )

    def prompts(self) -> list[str | list[int]]:
        """The prompts, one for each completion."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if not prompt:
            raise bad_request("prompt", "prompt is an empty list: give at least one prompt")
        if isinstance(prompt[0], int):
            return [[int(token) for token in prompt]]
        return list(prompt)


class TextPart(BaseModel):
    """A part of a message's content."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: str
    text: str | None = None


class ChatMessage(BaseModel):
    """A message. Other fields, such as `reasoning_content`, reach the chat template."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: str = Field(examples=["user"])
    content: str | list[TextPart] | None = Field(None, examples=["What is 17 + 25?"])


class ChatRequest(SamplingRequest):
    """A body for /v1/chat/completions."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = Field(
        None, description="Output tokens at most; wins over max_tokens."
    )

    @property
    def output_limit(self) -> int | None:
        """`max_completion_tokens` is the newer name of `max_tokens`."""
        newer = self.max_completion_tokens
        return self.max_tokens if newer is None else newer

    @property
    def fields(self) -> dict[str, str]:
        """See `SamplingRequest`."""
        fields = {"prompt": "messages"}
        if self.max_completion_tokens is not None:
            fields["max_tokens"] = "max_completion_tokens"
        return fields

    def conversation(self) -> list[dict[str, Any]]:
        """The messages for the chat template: text parts joined, everything else as it came."""
        if not self.messages:
            raise bad_request("messages", "messages is empty: send at least one message")
        conversation = []
        for index, message in enumerate(self.messages):
            content = message.content
            if isinstance(content, list):
                content = "".join(_text(part, index, at) for at, part in enumerate(content))
            entry = {k: v for k, v in (message.model_extra or {}).items() if v is not None}
            conversation.append(entry | {"role": message.role, "content": content or ""})
        return conversation


def _same(value: object, neutral: object) -> bool:
    """Equality in which 0 is not false: `logprobs: 0` asks for something, `logprobs: false` not."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _text(part: TextPart, message: int, index: int) -> str:
    if part.type != "text" or part.text is None:
        raise bad_request(
            f"messages[{message}].content[{index}]",
            f"only parts of the form {{type: text, text: ...}} are supported, got {part.type!r}",
        )
    return part.text
