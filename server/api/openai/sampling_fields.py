"""How a client wants its tokens: the fields that both endpoints share.

Nearly every field may be `null`, which means absent. What is not supported is refused by name; see
`refused.py`. Bounds that both protocols share are in `server/core/limits.py`.
"""

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from engine.scheduling.sampling_params import SamplingError, SamplingParams
from server.api.openai.refused import check_extra
from server.core.limits import (
    LARGEST_COUNT,
    LARGEST_WHOLE,
    MAX_BIASES,
    MAX_NAME_LENGTH,
    MAX_STOP_LENGTH,
    MAX_STOP_TOKENS,
    MAX_STOPS,
)
from server.http.errors import bad_request

MAX_LOGPROBS = 20  # OpenAI's; each is an object on the wire, for every token
_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")

# Bounded strings are also checked to be Unicode: half a surrogate pair, which JSON can express, could
# neither be sent back nor logged.
Stop = Annotated[str, Field(max_length=MAX_STOP_LENGTH)]
# Only the first error is reported. Without `fail_fast` pydantic collects one for each element, and
# one for each member of a union: 3.4 s and 0.8 GB for 250,000 floats where ids are expected.
FIRST_ERROR = Field(fail_fast=True)


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(strict=True, extra="allow")

    include_usage: bool | None = Field(None, description="Send token counts in a last chunk.")


class SamplingRequest(BaseModel):
    """The fields that completions and chat completions share."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = Field(
        None,
        max_length=MAX_NAME_LENGTH,
        description="Any name; it is echoed. With `--model auto`, one that /v1/models lists.",
    )
    max_tokens: int | None = Field(None, ge=0, description="Output tokens at most.")
    min_tokens: int | None = Field(
        None, ge=0, description="So many come before an end token or a stop string counts."
    )
    stop: Stop | Annotated[list[Stop], FIRST_ERROR] | None = Field(
        None, description=f"Texts that end the output, which is without them; {MAX_STOPS} at most."
    )
    stop_token_ids: Annotated[list[int], FIRST_ERROR] | None = Field(
        None, max_length=MAX_STOP_TOKENS, description="Tokens that end the output."
    )
    ignore_eos: bool | None = Field(None, description="Go on past the model's end token.")
    temperature: float | None = Field(None, ge=0, description="0 always takes the likeliest token.")
    top_p: float | None = Field(
        None, gt=0, le=1, description="Keep the likeliest tokens up to this mass."
    )
    top_k: int | None = Field(
        None, ge=0, le=LARGEST_COUNT, description="Keep this many likeliest tokens; 0 keeps all."
    )
    min_p: float | None = Field(
        None, ge=0, le=1, description="Keep tokens at least so likely, relative to the likeliest."
    )
    logit_bias: Annotated[dict[str, float], FIRST_ERROR] | None = Field(
        None,
        max_length=MAX_BIASES,
        description="Token id -> what is added to its logit, -100 to 100.",
    )
    frequency_penalty: float | None = Field(
        None, ge=-2, le=2, description="Taken from a token's logit each time it is in the output."
    )
    presence_penalty: float | None = Field(
        None, ge=-2, le=2, description="Taken once if it is in the output."
    )
    repetition_penalty: float | None = Field(
        None, gt=0, description="Divides the logits of tokens in prompt or output; 1 is none."
    )
    seed: int | None = Field(
        None,
        ge=-LARGEST_WHOLE,
        le=LARGEST_WHOLE,
        description="The same seed gives the same tokens.",
    )
    n: int | None = Field(None, ge=1, description="Samples per prompt; they share its KV blocks.")
    stream: bool | None = Field(None, description="Send tokens as they come.")
    stream_options: StreamOptions | None = None
    user: str | None = Field(
        None,
        max_length=MAX_NAME_LENGTH,
        description="Names the request in the log, as X-Client does.",
    )
    safety_identifier: str | None = Field(
        None, max_length=MAX_NAME_LENGTH, description="The newer name of `user`; wins over it."
    )
    priority: int | None = Field(
        None, ge=-LARGEST_COUNT, le=LARGEST_COUNT, description="0 first, under the policy priority."
    )

    def check_fields(self) -> None:
        """Raise ApiError for a field that cannot be honoured."""
        check_extra(self.model_extra or {})
        if self.stream_options is not None:
            options = self.stream_options.model_extra or {}
            check_extra({f"stream_options.{name}": value for name, value in options.items()})
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options", "stream_options is only for stream: true")
        if isinstance(self.stop, list) and len(self.stop) > MAX_STOPS:
            message = f"stop may have {MAX_STOPS} entries at most, got {len(self.stop)}"
            raise bad_request("stop", message)

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with token counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def label(self) -> str:
        """Who asks, as far as the body says it."""
        return self.safety_identifier or self.user or ""

    @property
    def output_limit(self) -> int | None:
        """How many tokens the client wants at most, if it says."""
        return self.max_tokens

    @property
    def fields(self) -> dict[str, str]:
        """The engine's name of a field -> its name in this request, where they differ."""
        return {}

    def engine_fields(self) -> dict[str, Any]:
        """What the request asks for, under the engine's names; None where it says nothing."""
        return {
            "max_tokens": self.output_limit,
            "min_tokens": self.min_tokens,
            "stop": [self.stop] if isinstance(self.stop, str) and self.stop else self.stop or None,
            "stop_token_ids": self.stop_token_ids,
            "ignore_eos": self.ignore_eos,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "logit_bias": _by_token(self.logit_bias or {}) or None,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "repetition_penalty": self.repetition_penalty,
            "seed": self.seed,
            "n": self.n,
        }

    def sampling(self, *, max_tokens: int, temperature: float) -> SamplingParams:
        """The engine's parameters, with these defaults. Raises ApiError for a value out of range."""
        given = {name: value for name, value in self.engine_fields().items() if value is not None}
        try:
            return SamplingParams(**{"max_tokens": max_tokens, "temperature": temperature} | given)
        except SamplingError as error:
            field = self.fields.get(error.field, error.field)
            message = str(error).removeprefix(error.field)
            raise bad_request(field, field + message) from error


def _by_token(bias: dict[str, float]) -> dict[int, float]:
    """JSON's keys are strings; these have to be token ids."""
    for token in bias:
        if not _TOKEN_ID.fullmatch(token):
            shown = repr(token[:20])
            raise bad_request("logit_bias", f"logit_bias must map token ids, got {shown}")
    return {int(token): value for token, value in bias.items()}
