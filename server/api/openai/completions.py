"""/v1/completions: its body, its prompts, and its responses.

For each choice, a stream has chunks with the text as it is generated; the last of them also has the
finish_reason. The stream ends with a chunk without choices, if `include_usage` is set, and `[DONE]`. A
body without `model` and `stream` gets the teaching stream instead (`TeachingSerializer`).
"""

from functools import partial
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from engine.core.sampling_params import SamplingParams
from engine.core.tokenizer import Tokenizer, encode_continuation
from server.api.openai.requests import (
    FIRST_ERROR,
    MAX_LOGPROBS,
    OPENAI_TEMPERATURE,
    SamplingRequest,
)
from server.api.openai.responses import (
    LogprobLists,
    OpenAISerializer,
    chat_logprobs,
    echoed_pieces,
    prompt_logprobs,
)
from server.core.admission import check_length
from server.core.bridge import Bridge
from server.core.commands import OutputDelta, Prompt
from server.core.request_stream import GenerationRequest, RequestStream
from server.core.settings import MAX_CHOICES
from server.http.errors import bad_request
from server.http.streaming import sse

MAX_PROMPTS = 1024

_OPENAI_DEFAULTS = {
    "max_tokens": 16,
    "temperature": OPENAI_TEMPERATURE,
    "skip_special_tokens": True,
}
_TEACHING_DEFAULTS = {"max_tokens": 50, "temperature": 0.0}  # the same text for a whole class

_Ids = Annotated[list[int], FIRST_ERROR]
_Prompts = Field(fail_fast=True, max_length=MAX_PROMPTS)


class CompletionRequest(SamplingRequest):
    """A body for /v1/completions. Without `model` and `stream`, it requests the teaching stream."""

    prompt: str | Annotated[list[str], _Prompts] | _Ids | Annotated[list[_Ids], _Prompts] = Field(
        description="Text, token ids, or a list of either.", examples=["Once upon a time"]
    )
    best_of: int | None = Field(
        None,
        ge=1,
        le=MAX_CHOICES,
        description="Generate this many samples and return the n most likely; not in a stream.",
    )
    echo: bool | None = Field(
        None, description="Return the prompt before the output; with max_tokens 0, only the prompt."
    )
    add_special_tokens: bool | None = Field(
        None, description="false leaves out the beginning-of-sequence token."
    )
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_LOGPROBS,
        description="Return log-probabilities, including those of this many most likely tokens.",
    )

    @model_validator(mode="after")
    def _check_completion_fields(self) -> Self:
        if self.max_tokens == 0 and not self.echo:
            raise bad_request(
                "max_tokens", "max_tokens 0 needs echo: true, because otherwise nothing is returned"
            )
        if self.stream and self.best_of is not None and self.best_of > (self.n or 1):
            raise bad_request(
                "best_of",
                f"best_of must be at most n ({self.n or 1}) in a stream, got {self.best_of}: the "
                "best samples are not known before the end",
            )
        prompts, samples = len(self.prompts()), max(self.n or 1, self.best_of or 1)
        if prompts > 1 and prompts * samples > MAX_CHOICES:
            raise bad_request(
                "prompt",
                f"prompt has {prompts} entries with {samples} samples each, which makes "
                f"{prompts * samples} samples, but the limit is {MAX_CHOICES}: send fewer prompts",
            )
        if self.is_teaching:
            self._check_teaching()
        return self

    def _check_teaching(self) -> None:
        """Raise ApiError for options that need more than the teaching stream's one sample."""
        for field, used in (
            ("prompt", len(self.prompts()) > 1),
            ("n", (self.n or 1) > 1),
            ("best_of", (self.best_of or 1) > 1),
            ("echo", self.echo),
        ):
            if used:
                raise bad_request(
                    field,
                    f"{field}: a body without model and stream requests the teaching stream, which "
                    "has one prompt and one sample: add model or stream",
                )

    @property
    def is_teaching(self) -> bool:
        """Whether the body requests the teaching stream."""
        return self.model is None and self.stream is None

    @property
    def is_streamed(self) -> bool:
        """See `SamplingRequest`."""
        return bool(self.stream) or self.is_teaching

    @property
    def fields(self) -> dict[str, str]:
        """See `SamplingRequest`."""
        if self.prompt_logprobs is not None:
            return super().fields
        return super().fields | {"prompt_logprobs": "logprobs"}

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts as a list, each as text or as token ids."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if not prompt:
            raise bad_request("prompt", "prompt must have at least one entry, got an empty list")
        if isinstance(prompt[0], int):
            return [prompt]
        return list(prompt)


def generation(body: CompletionRequest, x_client: str | None) -> GenerationRequest:
    """Return the request for the engine."""
    scored = body.logprobs if body.echo else None
    if body.prompt_logprobs is not None and not body.is_streamed:
        scored = body.prompt_logprobs
    params = body.sampling(
        _TEACHING_DEFAULTS if body.is_teaching else _OPENAI_DEFAULTS,
        # The engine samples at least one token; the serializer drops it.
        max_tokens=1 if body.max_tokens == 0 else body.max_tokens,
        best_of=None if body.best_of == (body.n or 1) else body.best_of,
        logprobs=body.logprobs,
        prompt_logprobs=scored,
    )
    return body.to_generation(partial(_encode, body, params), x_client)


def _encode(body: CompletionRequest, params: SamplingParams, bridge: Bridge) -> list[Prompt]:
    """Tokenize the prompts that are text, and truncate all prompts if the request asks for it.

    Raises RequestError if a text is too long, or if the truncation limit exceeds the context.
    """
    prompts, tokenizer = body.prompts(), bridge.tokenizer
    lengths = (len(prompt) for prompt in prompts if isinstance(prompt, str))
    check_length(lengths, bridge, truncated=body.truncate_prompt_tokens is not None)
    encode = tokenizer.encode
    if body.add_special_tokens is False:
        encode = partial(encode_continuation, tokenizer=tokenizer)
    ids = [encode(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
    return [Prompt(body.truncated(one, params.max_tokens, bridge), params) for one in ids]


class CompletionSerializer(OpenAISerializer):
    """Writes a completion, streamed or whole."""

    id_prefix = "cmpl"
    kind = "text_completion"

    def __init__(
        self,
        body: CompletionRequest,
        default_model: str,
        stream: RequestStream,
        tokenizer: Tokenizer,
    ) -> None:
        super().__init__(body, default_model, stream, tokenizer)
        self._prompts = body.prompts()
        if body.truncate_prompt_tokens is not None:  # echo only the tokens that were kept
            self._prompts = [prompt.tokens for prompt in stream.prompts]
        self._echo = bool(body.echo)
        self._logprobs = body.logprobs or 0
        self._with_prompt_logprobs = body.prompt_logprobs is not None and not body.is_streamed
        self._with_logprobs = body.logprobs is not None
        # With max_tokens 0, the engine still samples one token, which is dropped.
        self._with_output = body.max_tokens != 0
        self._is_plain = self._with_output and not (self._echo or self._with_logprobs)
        self._lengths: dict[int, int] = {}  # choice -> characters written so far

    def chunk(self, delta: OutputDelta) -> bytes:
        """See `StreamSerializer`."""
        choice = self._choice(delta)
        content = choice["text"] or choice["logprobs"] or choice.get("token_ids")
        if not content and not delta.finish_reason:
            return b""
        return sse(self.wrap([choice], **self.usage_so_far(delta.choice)))

    def render(self, choices: list[OutputDelta]) -> dict[str, Any]:
        """See `WholeSerializer`. Samples that `best_of` leaves out also count as output."""
        best = []
        for delta in best_choices(self.stream, choices):
            best.append(choice := self._choice(delta))
            if self._with_prompt_logprobs:
                ids = self.prompt_of(delta.choice).tokens
                scores = delta.prompt_scores
                choice["prompt_logprobs"] = prompt_logprobs(ids, scores, self.tokenizer)
        self.num_tokens = sum(len(delta.ids) for delta in choices) if self._with_output else 0
        return self.wrap(best, usage=self.usage())

    def _choice(self, delta: OutputDelta) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": delta.choice,
            "text": "".join(delta.texts),
            "logprobs": None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self.with_token_ids:
            if self.is_first(delta.choice):
                choice["prompt_token_ids"] = self.prompt_of(delta.choice).tokens
            choice["token_ids"] = delta.ids if self._with_output else []
        if not self._is_plain:
            self._apply_options(choice, delta)
        self.count(delta.choice, len(delta.ids) if self._with_output else 0)
        return choice

    def _apply_options(self, choice: dict[str, Any], delta: OutputDelta) -> None:
        """Add the prompt and log-probabilities to a choice, or drop its output, as requested."""
        index = delta.choice
        is_first = index not in self._lengths
        logprobs = LogprobLists(self.tokenizer, self._lengths.get(index, 0))
        if not self._with_output:
            choice["text"] = ""
            choice["finish_reason"] = delta.finish_reason and "length"
            choice["stop_reason"] = None
        if self._echo and is_first:
            at = index // self.stream.prompts[0].params.n
            ids, prompt = self.prompt_of(index).tokens, self._prompts[at]
            pieces = echoed_pieces(prompt, ids, self.tokenizer)
            text = prompt if isinstance(prompt, str) else "".join(pieces)
            choice["text"] = text + choice["text"]
            if self._with_logprobs:
                logprobs.add_prompt(ids, pieces, delta.prompt_scores, self._logprobs)
            logprobs.offset = len(text)
        if self._with_logprobs and self._with_output and delta.logprobs is not None:
            logprobs.add(delta.ids, delta.logprobs)
        if self._with_logprobs and (delta.ids or is_first):
            choice["logprobs"] = logprobs.to_json()
        self._lengths[index] = logprobs.offset


def best_choices(stream: RequestStream, choices: list[OutputDelta]) -> list[OutputDelta]:
    """Return the n best samples of each prompt, best first and renumbered.

    Without `best_of`, return all of them unchanged. See `engine.core.output.processor.best`.
    """
    params = stream.prompts[0].params  # the same for all prompts of a request
    if params.best_of is None:
        return choices
    best: list[OutputDelta] = []
    for first in range(0, len(choices), params.best_of):
        samples = sorted(choices[first : first + params.best_of], key=_mean_logprob, reverse=True)
        best += samples[: params.n]
    for index, delta in enumerate(best):
        delta.choice = index
    return best


def _mean_logprob(delta: OutputDelta) -> float:
    assert delta.logprobs is not None  # best_of requests them
    sampled = len(delta.ids) - sum(delta.logprobs.forced)  # forced tokens add 0.0 to the sum
    return sum(delta.logprobs.chosen) / max(1, sampled)


class TeachingSerializer:
    """Writes the teaching stream, which has one event per token and a last event.

        data: {"token": " there", "token_id": 311, "is_first": true, "ttft_ms": 12.4}
        data: {"token": " was", "token_id": 285, "is_first": false}
        ...
        data: {"done": true, "full_text": " there was ...", "finish_reason": "length"}

    `token` may be empty: a token can end inside a character, which is then sent with the next token.
    `full_text` is the text of all tokens, and `finish_reason` says why generation ended. `ttft_ms` is
    the time from the moment the server read the request to the end of the step that sampled its first
    token, exactly as in the event log.

    With `logprobs`, an event also has the token's log-probability and the most likely tokens in its
    place:

        {..., "logprob": -0.3, "top_logprobs": [{"token": " there", "logprob": -0.3, "bytes": [...]}]}
    """

    done = b""

    def __init__(self, stream: RequestStream, tokenizer: Tokenizer) -> None:
        self._pieces: list[str] = []
        self._finish_reason: str | None = None
        self._submitted_at = stream.submitted_at
        self._tokenizer = tokenizer

    def chunk(self, delta: OutputDelta) -> bytes:
        """Write one event per token."""
        events = []
        self._finish_reason = delta.finish_reason
        logprobs = chat_logprobs(delta, self._tokenizer)
        for index, (token_id, text) in enumerate(zip(delta.ids, delta.texts, strict=True)):
            event: dict[str, Any] = {"token": text, "token_id": token_id}
            event["is_first"] = not self._pieces
            if not self._pieces:
                event["ttft_ms"] = (delta.at - self._submitted_at) / 1000
            if logprobs is not None:
                entry = logprobs["content"][index]
                event |= {name: entry[name] for name in ("logprob", "top_logprobs")}
            self._pieces.append(text)
            events.append(sse(event))
        return b"".join(events)

    def closing(self) -> bytes:
        """Write the last event, with the whole text and the reason why it ended."""
        text, reason = "".join(self._pieces), self._finish_reason
        return sse({"done": True, "full_text": text, "finish_reason": reason})
