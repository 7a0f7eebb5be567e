"""The fields that completions and chat completions share, and their conversion for the engine.

Nearly every field may be `null`, which means absent. Unsupported fields are in `fields.py`. Bounds that
OpenAI's API and LMTP share are in `server/core/settings.py`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from fastapi import Header
from pydantic import Field, PrivateAttr, model_validator

from engine.core.sampling_params import SamplingError, SamplingParams
from engine.core.scheduling.admission import RequestError
from engine.extensions.bad_words import MAX_SEQUENCES
from server.api.openai.fields import check_unsupported
from server.api.openai.structured import (
    ResponseFormat,
    Shape,
    StructuredOutputs,
    requested_shape,
)
from server.core.admission import max_request_tokens
from server.core.bridge import Bridge
from server.core.commands import Prompt
from server.core.request_stream import GenerationRequest
from server.core.settings import (
    LARGEST_COUNT,
    LARGEST_WHOLE,
    MAX_ALLOWED_TOKENS,
    MAX_BIASES,
    MAX_CHOICES,
    MAX_NAME_LENGTH,
    MAX_STOP_LENGTH,
    MAX_STOP_TOKENS,
    MAX_STOPS,
)
from server.http.errors import bad_request, in_json
from server.http.fields import Open
from server.http.request_log import label_in

OPENAI_TEMPERATURE = 1.0  # OpenAI's default

Client = Annotated[
    str | None, Header(alias="X-Client", description="The request's label in the event log.")
]

MAX_LOGPROBS = 20  # OpenAI's limit; each one adds an object to every token on the wire
MAX_SALT_LENGTH = 128  # vLLM's limit, as the characters that it forbids
_NOT_IN_SALTS = {*"@/\\\0"}
_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")

# pydantic also checks that a bounded string is valid Unicode. JSON can express half of a surrogate
# pair, but such a string could be neither sent back nor logged.
Stop = Annotated[str, Field(max_length=MAX_STOP_LENGTH)]
# Only the first error is reported. Without `fail_fast`, pydantic collects an error for each element and
# for each member of a union, which takes 3.4 s and 0.8 GB for 250,000 floats in place of ids.
FIRST_ERROR = Field(fail_fast=True)


class StreamOptions(Open):
    """Options of a stream."""

    include_usage: bool | None = Field(None, description="Send token counts in a final chunk.")
    continuous_usage_stats: bool | None = Field(
        None,
        description="With include_usage, also send a choice's counts so far in each of its chunks.",
    )


class Body(Open):
    """A request body. A field that it does not declare must be neutral: see `fields.py`."""

    @model_validator(mode="after")
    def _check_others(self) -> Self:
        check_unsupported(self.model_extra or {})
        return self


class SamplingRequest(Body):
    """The fields that completions and chat completions share."""

    model: str | None = Field(
        None,
        max_length=MAX_NAME_LENGTH,
        description="Any name; the response repeats it. With `--model auto` or LoRA adapters, a name "
        "from /v1/models.",
    )
    max_tokens: int | None = Field(None, ge=0, description="Maximum number of output tokens.")
    min_tokens: int | None = Field(
        None,
        ge=0,
        description="Minimum number of output tokens before an end token or a stop string applies.",
    )
    stop: Stop | Annotated[list[Stop], FIRST_ERROR] | None = Field(
        None, description=f"Strings that end the output and are removed from it; up to {MAX_STOPS}."
    )
    stop_token_ids: Annotated[list[int], FIRST_ERROR] | None = Field(
        None, max_length=MAX_STOP_TOKENS, description="Tokens that end the output."
    )
    include_stop_str_in_output: bool | None = Field(
        None, description="Keep the stop string, or the text of the stop token, in the text."
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
        ge=-1,
        le=LARGEST_COUNT,
        description="Sample only from this many most likely tokens; 0 or -1 means all.",
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
    bad_words: Annotated[list[Stop], FIRST_ERROR] | None = Field(
        None, max_length=MAX_SEQUENCES, description="Words that must not be generated."
    )
    allowed_token_ids: Annotated[list[int], FIRST_ERROR] | None = Field(
        None, max_length=MAX_ALLOWED_TOKENS, description="Generate only these tokens."
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
        description="The same seed gives the same tokens, up to rounding: the other requests in the "
        "batch change the last bits of the logits, so a draw on the border between two tokens may "
        "select the other token.",
    )
    n: int | None = Field(
        None,
        ge=1,
        le=MAX_CHOICES,
        description="Samples per prompt, which share the prompt's KV blocks. Samples that do not fit "
        "in the batch wait.",
    )
    stream: bool | None = Field(None, description="Send tokens as they are generated.")
    stream_options: StreamOptions | None = None
    skip_special_tokens: bool | None = Field(
        None,
        description="Leave special tokens and tool calls out of the text. The default is false in the "
        "teaching stream and true elsewhere.",
    )
    return_token_ids: bool | None = Field(
        None, description="Return the token ids of the prompt and of the output."
    )
    prompt_logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_LOGPROBS,
        description="Return the log-probabilities of the prompt's tokens and of this many most likely "
        "tokens at each position; not in a stream.",
    )
    truncate_prompt_tokens: int | None = Field(
        None,
        ge=-1,
        le=LARGEST_COUNT,
        description="Keep only this many tokens of a prompt; -1 keeps as many as fit.",
    )
    truncation_side: Literal["left", "right"] | None = Field(
        None, description="The side on which truncate_prompt_tokens cuts; left by default."
    )
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
    request_id: str | None = Field(
        None, max_length=MAX_NAME_LENGTH, description="The end of the response's `id`."
    )
    rid: str | None = Field(
        None, max_length=MAX_NAME_LENGTH, description="The response's `id`; SGLang's name."
    )
    cache_salt: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_SALT_LENGTH,
        description="Share cached prefixes only with requests that have the same salt.",
    )
    response_format: ResponseFormat | None = Field(
        None, description="Make the output JSON; with type json_schema, JSON that matches a schema."
    )
    structured_outputs: StructuredOutputs | None = Field(
        None, description="Make the output match a JSON schema, an expression or a grammar."
    )
    _shape: Shape | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check_shared_fields(self) -> Self:
        """Raise ApiError for an unsupported combination of fields."""
        if self.stream_options is not None:
            options = self.stream_options.model_extra or {}
            check_unsupported({f"stream_options.{k}": value for k, value in options.items()})
            if not self.stream:
                raise bad_request("stream_options", "stream_options needs stream: true")
        if self.prompt_logprobs and self.is_streamed:
            message = "prompt_logprobs needs a whole response: set stream to false"
            raise bad_request("prompt_logprobs", message)
        if isinstance(self.stop, list) and len(self.stop) > MAX_STOPS:
            message = f"stop must have at most {MAX_STOPS} entries, got {len(self.stop)}"
            raise bad_request("stop", message)
        self._shape = requested_shape(self.response_format, self.structured_outputs)
        return self

    @property
    def is_streamed(self) -> bool:
        """Whether the response is a stream."""
        return bool(self.stream)

    @property
    def fields(self) -> dict[str, str]:
        """Map the engine's field names to this request's names, where they differ."""
        return {} if self._shape is None else {"structured": self._shape.field}

    def sampling(self, defaults: Mapping[str, Any], **own: Any) -> SamplingParams:
        """Return the engine's parameters. Raises ApiError for a bad value.

        defaults  the endpoint's defaults, for fields that the body does not set
        own       the endpoint's own parameters under the engine's names; None if not set
        """
        same = [
            one for one in SamplingParams.__struct_fields__ if one in SamplingRequest.model_fields
        ]
        given = {name: getattr(self, name) for name in same} | {
            "stop": [self.stop] if isinstance(self.stop, str) and self.stop else self.stop or None,
            "logit_bias": _by_token(self.logit_bias) if self.logit_bias else None,
            "top_k": 0 if self.top_k == -1 else self.top_k,
            "structured": None if self._shape is None else self._shape.output,
        }
        given = {name: value for name, value in (given | own).items() if value is not None}
        try:
            return SamplingParams(**dict(defaults) | given)
        except SamplingError as error:
            field = self.fields.get(error.field, error.field)
            message = str(error).removeprefix(error.field)
            raise bad_request(field, field + in_json(message)) from error

    def truncated(self, tokens: list[int], max_tokens: int, bridge: Bridge) -> list[int]:
        """Return the tokens of a prompt that `truncate_prompt_tokens` keeps.

        A limit of -1 leaves room for `max_tokens` output tokens. Raises RequestError if the limit
        exceeds the context.

        Source: `TokenizeParams` in vLLM (`vllm/renderers/params.py`), whose tokenizers cut on the left.
        Differs from vLLM, where -1 leaves one token of context and shortens the output instead.
        """
        limit = self.truncate_prompt_tokens
        if limit is None:
            return tokens
        if limit > (most := max_request_tokens(bridge)):
            message = f"must be at most {most}, the context length, got {limit}"
            raise RequestError("truncate_prompt_tokens", message)
        kept = max(1, most - max_tokens) if limit == -1 else limit
        if self.truncation_side == "right":
            return tokens[:kept]
        return tokens[max(0, len(tokens) - kept) :]

    def to_generation(
        self, encode: Callable[[Bridge], list[Prompt]], x_client: str | None
    ) -> GenerationRequest:
        """Return the request for the engine. The header `x_client` overrides `user`."""
        label = label_in(x_client or "") or self.safety_identifier or self.user or ""
        salt = self.cache_salt or ""
        if forbidden := _NOT_IN_SALTS & {*salt}:
            message = f"cache_salt must not contain {sorted(forbidden)[0]!r}"
            raise bad_request("cache_salt", message)
        return GenerationRequest(
            encode,
            label,
            self.priority or 0,
            self.fields,
            model=self.model or "",
            cache_salt=salt,
        )


def _by_token(bias: dict[str, float]) -> dict[int, float]:
    """Convert JSON's string keys to token ids."""
    for token in bias:
        if not _TOKEN_ID.fullmatch(token):
            raise bad_request(
                "logit_bias", f"logit_bias keys must be token ids, got {token[:20]!r}"
            )
    return {int(token): value for token, value in bias.items()}
