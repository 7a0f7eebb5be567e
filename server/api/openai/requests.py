"""The fields that completions and chat completions share, and their conversion for the engine.

Nearly every field may be `null`, which means absent. An unsupported field is rejected by name, never
ignored: a client that sends `tools` must not get an answer without them. Only its neutral value, which
asks for nothing, is accepted. Bounds that OpenAI's API and LMTP share are in `server/core/settings.py`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from fastapi import Header
from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.scheduling.sampling_params import SamplingError, SamplingParams
from server.core.bridge import Bridge
from server.core.request_stream import GenerationRequest, Prompt
from server.core.settings import (
    LARGEST_COUNT,
    LARGEST_WHOLE,
    MAX_BIASES,
    MAX_NAME_LENGTH,
    MAX_STOP_LENGTH,
    MAX_STOP_TOKENS,
    MAX_STOPS,
)
from server.http.errors import bad_request, unknown_field
from server.http.request_log import label_in

OPENAI_TEMPERATURE = 1.0  # OpenAI's default

Client = Annotated[
    str | None, Header(alias="X-Client", description="The request's label in the event log.")
]

MAX_LOGPROBS = 20  # OpenAI's limit; each one adds an object to every token on the wire
_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")

# pydantic also checks that a bounded string is valid Unicode: half a surrogate pair, which JSON can
# express, could be neither sent back nor logged.
Stop = Annotated[str, Field(max_length=MAX_STOP_LENGTH)]
# Only the first error is reported. Without `fail_fast`, pydantic collects one for each element, and
# one for each member of a union. That takes 3.4 s and 0.8 GB for 250,000 floats in place of ids.
FIRST_ERROR = Field(fail_fast=True)

# Fields that have the same name and meaning in SamplingParams.
_SAMPLING_FIELDS = (
    *("max_tokens", "min_tokens", "stop_token_ids", "ignore_eos", "temperature", "top_p", "top_k"),
    *("min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "seed", "n"),
)

# Fields of OpenAI's API that are not supported (some of them in one endpoint only), and the values
# that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "metadata": ({},),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "prompt_cache_key": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": ("in_memory",),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "stream_options.continuous_usage_stats": (False,),  # vLLM's
    "stream_options.include_obfuscation": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(strict=True, extra="allow")

    include_usage: bool | None = Field(None, description="Send token counts in a final chunk.")


class SamplingRequest(BaseModel):
    """The fields that completions and chat completions share."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = Field(
        None,
        max_length=MAX_NAME_LENGTH,
        description="Any name; the response repeats it. With `--model auto`, a name from /v1/models.",
    )
    max_tokens: int | None = Field(None, ge=0, description="Maximum number of output tokens.")
    min_tokens: int | None = Field(
        None,
        ge=0,
        description="Minimum tokens to generate before an end token or a stop string applies.",
    )
    stop: Stop | Annotated[list[Stop], FIRST_ERROR] | None = Field(
        None, description=f"Strings that end the output and are removed from it; up to {MAX_STOPS}."
    )
    stop_token_ids: Annotated[list[int], FIRST_ERROR] | None = Field(
        None, max_length=MAX_STOP_TOKENS, description="Tokens that end the output."
    )
    ignore_eos: bool | None = Field(
        None, description="Keep generating after the model's end token."
    )
    temperature: float | None = Field(
        None, ge=0, description="0 always picks the most likely token."
    )
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Sample only from the most likely tokens, up to this total probability.",
    )
    top_k: int | None = Field(
        None,
        ge=0,
        le=LARGEST_COUNT,
        description="Sample only from this many most likely tokens; 0 means all.",
    )
    min_p: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Minimum probability of a token, relative to the most likely token.",
    )
    logit_bias: Annotated[dict[str, float], FIRST_ERROR] | None = Field(
        None,
        max_length=MAX_BIASES,
        description="Token id -> value added to its logit, -100 to 100.",
    )
    frequency_penalty: float | None = Field(
        None,
        ge=-2,
        le=2,
        description="Subtracted from a token's logit for each time the output contains it.",
    )
    presence_penalty: float | None = Field(
        None,
        ge=-2,
        le=2,
        description="Subtracted from a token's logit once if the output contains it.",
    )
    repetition_penalty: float | None = Field(
        None, gt=0, description="Divides the logits of tokens in the prompt or output; 1 is off."
    )
    seed: int | None = Field(
        None,
        ge=-LARGEST_WHOLE,
        le=LARGEST_WHOLE,
        description="The same seed gives the same tokens.",
    )
    n: int | None = Field(None, ge=1, description="Samples per prompt; they share its KV blocks.")
    stream: bool | None = Field(None, description="Send tokens as they are generated.")
    stream_options: StreamOptions | None = None
    user: str | None = Field(
        None, max_length=MAX_NAME_LENGTH, description="The request's label in the event log."
    )
    safety_identifier: str | None = Field(
        None, max_length=MAX_NAME_LENGTH, description="Newer name of `user`; takes precedence."
    )
    priority: int | None = Field(
        None,
        ge=-LARGEST_COUNT,
        le=LARGEST_COUNT,
        description="With --policy priority, lower values come first.",
    )

    @model_validator(mode="after")
    def _check_shared_fields(self) -> Self:
        """Raise ApiError for an unsupported field or an unsupported combination of fields."""
        _check_unsupported(self.model_extra or {})
        if self.stream_options is not None:
            options = self.stream_options.model_extra or {}
            _check_unsupported({f"stream_options.{k}": value for k, value in options.items()})
            if not self.stream:
                raise bad_request("stream_options", "stream_options needs stream: true")
        if isinstance(self.stop, list) and len(self.stop) > MAX_STOPS:
            message = f"stop must have at most {MAX_STOPS} entries, got {len(self.stop)}"
            raise bad_request("stop", message)
        return self

    @property
    def fields(self) -> dict[str, str]:
        """The engine's field names -> this request's names, where they differ."""
        return {}

    def sampling(self, defaults: Mapping[str, Any], **own: Any) -> SamplingParams:
        """Return the engine's parameters. Raises ApiError for a bad value.

        defaults  the endpoint's defaults, for fields that the body does not set
        own       the endpoint's own parameters under the engine's names; None for those not set
        """
        given = {name: getattr(self, name) for name in _SAMPLING_FIELDS} | {
            "stop": [self.stop] if isinstance(self.stop, str) and self.stop else self.stop or None,
            "logit_bias": _by_token(self.logit_bias) if self.logit_bias else None,
        }
        given = {name: value for name, value in (given | own).items() if value is not None}
        try:
            return SamplingParams(**dict(defaults) | given)
        except SamplingError as error:
            field = self.fields.get(error.field, error.field)
            message = str(error).removeprefix(error.field)
            raise bad_request(field, field + message) from error

    def to_generation(
        self, encode: Callable[[Bridge], list[Prompt]], x_client: str | None
    ) -> GenerationRequest:
        """Return the request for the engine. `x_client` is the header that overrides `user`."""
        label = label_in(x_client or "") or self.safety_identifier or self.user or ""
        return GenerationRequest(encode, label, self.priority or 0, self.fields)


def _by_token(bias: dict[str, float]) -> dict[int, float]:
    """Convert JSON's string keys to token ids."""
    for token in bias:
        if not _TOKEN_ID.fullmatch(token):
            raise bad_request(
                "logit_bias", f"logit_bias keys must be token ids, got {token[:20]!r}"
            )
    return {int(token): value for token, value in bias.items()}


def _check_unsupported(fields: Mapping[str, Any]) -> None:
    """Raise ApiError for a field that is unknown, or unsupported and not neutral."""
    for name, value in fields.items():
        if value is None:
            continue
        if name not in _NEUTRAL:
            raise unknown_field(name)
        if not any(_same(value, neutral) for neutral in _NEUTRAL[name]):
            raise bad_request(name, f"{name} is not supported: leave it out")


def _same(value: object, neutral: object) -> bool:
    """Whether two JSON values are equal; 0 is not false and 1 is not true."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
