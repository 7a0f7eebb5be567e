"""What OpenAI's endpoints take: their bodies, and what they mean to the engine."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from server.api.openai.completions import Shown
from server.api.openai.sampling_fields import FIRST_ERROR, MAX_LOGPROBS, SamplingRequest
from server.core.limits import MAX_NAME_LENGTH
from server.http.errors import bad_request

MAX_PROMPTS = 1024
MAX_MESSAGES = 4096


_Ids = Annotated[list[int], FIRST_ERROR]
_Prompts = Field(fail_fast=True, max_length=MAX_PROMPTS)


class CompletionRequest(SamplingRequest):
    """A body for /v1/completions. With neither `model` nor `stream` it asks for the teaching stream."""

    prompt: str | Annotated[list[str], _Prompts] | _Ids | Annotated[list[_Ids], _Prompts] = Field(
        description="Text, token ids, or a list of either.", examples=["Once upon a time"]
    )
    best_of: int | None = Field(
        None, ge=1, description="Make so many samples, return the n likeliest; not in a stream."
    )
    echo: bool | None = Field(
        None, description="Put the prompt in front; with max_tokens 0 it is all there is."
    )
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_LOGPROBS,
        description="So many of the likeliest tokens in each place, with log-probabilities.",
    )

    def check_fields(self) -> None:
        """See `SamplingRequest`."""
        super().check_fields()
        if self.max_tokens == 0 and not self.echo:
            raise bad_request("max_tokens", "max_tokens 0 leaves nothing to do without echo: true")
        if self.stream and self.best_of is not None and self.best_of > (self.n or 1):
            raise bad_request(
                "best_of",
                f"best_of ({self.best_of}) must not be more than n ({self.n or 1}) in a stream: "
                "which samples are best is known at their end",
            )
        if self.is_teaching:
            for field, asked in (
                ("prompt", len(self.prompts()) > 1),
                ("n", (self.n or 1) > 1),
                ("best_of", (self.best_of or 1) > 1),
                ("echo", self.echo),
            ):
                if asked:
                    raise bad_request(
                        field,
                        f"{field}: without model and stream in the body this is the teaching stream, "
                        "one prompt and one answer: add either for more",
                    )

    @property
    def shown(self) -> Shown:
        """What the answer shows beside its output."""
        return Shown(
            echo=bool(self.echo), logprobs=self.logprobs is not None, output=self.max_tokens != 0
        )

    @property
    def is_teaching(self) -> bool:
        """Whether it asks for the teaching stream."""
        return self.model is None and self.stream is None

    @property
    def fields(self) -> dict[str, str]:
        """See `SamplingRequest`."""
        return {"prompt_logprobs": "logprobs"}

    def engine_fields(self) -> dict[str, Any]:
        """See `SamplingRequest`."""
        return super().engine_fields() | {
            # The engine makes a token in any case; the form keeps it back.
            "max_tokens": 1 if self.max_tokens == 0 else self.max_tokens,
            "best_of": None if self.best_of == (self.n or 1) else self.best_of,
            "logprobs": self.logprobs,
            "prompt_logprobs": self.logprobs if self.echo else None,
        }

    def prompts(self) -> list[str | list[int]]:
        """The prompts, one for each completion."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if not prompt:
            raise bad_request("prompt", "prompt is an empty list: give at least one prompt")
        if isinstance(prompt[0], int):
            return [prompt]
        return list(prompt)


class TextPart(BaseModel):
    """A part of a message's content."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: str
    text: str | None = None


class ChatMessage(BaseModel):
    """A message. Other fields, such as `reasoning_content`, reach the chat template."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: str = Field(max_length=MAX_NAME_LENGTH, examples=["user"])
    content: str | Annotated[list[TextPart], FIRST_ERROR] | None = Field(
        None, examples=["What is 17 + 25?"]
    )


class ChatRequest(SamplingRequest):
    """A body for /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], FIRST_ERROR] = Field(max_length=MAX_MESSAGES)
    max_tokens: int | None = Field(None, ge=1, description="Output tokens at most.")
    max_completion_tokens: int | None = Field(
        None, ge=1, description="Output tokens at most; wins over max_tokens."
    )
    logprobs: bool | None = Field(None, description="Tell how probable each token was.")
    top_logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_LOGPROBS,
        description="So many of the likeliest tokens in each place; with logprobs: true.",
    )

    def check_fields(self) -> None:
        """See `SamplingRequest`."""
        super().check_fields()
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs", "top_logprobs is only for logprobs: true")

    @property
    def output_limit(self) -> int | None:
        """`max_completion_tokens` is the newer name of `max_tokens`."""
        newer = self.max_completion_tokens
        return self.max_tokens if newer is None else newer

    @property
    def fields(self) -> dict[str, str]:
        """See `SamplingRequest`."""
        fields = {"prompt": "messages", "logprobs": "top_logprobs"}
        if self.max_completion_tokens is not None:
            fields["max_tokens"] = "max_completion_tokens"
        return fields

    def engine_fields(self) -> dict[str, Any]:
        """See `SamplingRequest`."""
        return super().engine_fields() | {
            "logprobs": (self.top_logprobs or 0) if self.logprobs else None,
        }


def conversation(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Messages for the chat template: text parts joined, everything else as it came."""
    if not messages:
        raise bad_request("messages", "messages is empty: send at least one message")
    plain = []
    for index, message in enumerate(messages):
        content = message.content
        if isinstance(content, list):
            content = "".join(_text(part, index, at) for at, part in enumerate(content))
        # OpenAI's newer name; templates know the older one, or drop the message without a word.
        role = "system" if message.role == "developer" else message.role
        entry = {k: v for k, v in (message.model_extra or {}).items() if v is not None}
        plain.append(entry | {"role": role, "content": content or ""})
    return plain


def _text(part: TextPart, message: int, index: int) -> str:
    if part.type != "text" or part.text is None:
        raise bad_request(
            f"messages[{message}].content[{index}]",
            f"only parts of the form {{type: text, text: ...}} are supported, got {part.type!r}",
        )
    return part.text
