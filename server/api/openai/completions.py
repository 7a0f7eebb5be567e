"""/v1/completions: its body, its prompts, and its response.

A stream has these chunks for each choice: the text as it is generated, and the last text together with
the finish_reason. It ends with a chunk without choices, if `include_usage` is set, and `[DONE]`.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from engine.scheduling.sampling_params import SamplingParams
from server.api.openai.logprobs import CompletionLogprobs, echoed_pieces
from server.api.openai.requests import FIRST_ERROR, MAX_LOGPROBS, SamplingRequest
from server.api.openai.responses import OpenAISerializer, count_tokens
from server.core.admission import check_length
from server.core.bridge import Bridge
from server.core.request_stream import OutputDelta, Prompt, RequestStream
from server.http.errors import bad_request
from server.http.streaming import sse

MAX_PROMPTS = 1024

_Ids = Annotated[list[int], FIRST_ERROR]
_Prompts = Field(fail_fast=True, max_length=MAX_PROMPTS)


@dataclass(frozen=True, slots=True)
class CompletionOptions:
    """Which parts a completion contains.

    echo      the prompt, before the output
    logprobs  log-probabilities of the tokens in the completion
    output    the output; False for max_tokens 0, when the one token that the engine samples anyway
              is dropped
    """

    echo: bool = False
    logprobs: bool = False
    output: bool = True


class CompletionRequest(SamplingRequest):
    """A body for /v1/completions. Without `model` and `stream` it requests the teaching stream."""

    prompt: str | Annotated[list[str], _Prompts] | _Ids | Annotated[list[_Ids], _Prompts] = Field(
        description="Text, token ids, or a list of either.", examples=["Once upon a time"]
    )
    best_of: int | None = Field(
        None,
        ge=1,
        description="Generate this many samples and return the n most likely; no stream.",
    )
    echo: bool | None = Field(
        None, description="Return the prompt before the output; with max_tokens 0, only the prompt."
    )
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_LOGPROBS,
        description="Return log-probabilities, including those of this many most likely tokens.",
    )

    def check_fields(self) -> None:
        """See `SamplingRequest`."""
        super().check_fields()
        if self.max_tokens == 0 and not self.echo:
            raise bad_request("max_tokens", "max_tokens 0 needs echo: true, or nothing is returned")
        if self.stream and self.best_of is not None and self.best_of > (self.n or 1):
            raise bad_request(
                "best_of",
                f"best_of must be at most n ({self.n or 1}) in a stream, got {self.best_of}: the "
                "best samples are known only at the end",
            )
        if self.is_teaching:
            self._check_teaching()

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
    def options(self) -> CompletionOptions:
        """Which parts the response contains."""
        return CompletionOptions(
            echo=bool(self.echo), logprobs=self.logprobs is not None, output=self.max_tokens != 0
        )

    @property
    def is_teaching(self) -> bool:
        """Whether the body requests the teaching stream."""
        return self.model is None and self.stream is None

    @property
    def fields(self) -> dict[str, str]:
        """See `SamplingRequest`."""
        return {"prompt_logprobs": "logprobs"}

    def engine_fields(self) -> dict[str, Any]:
        """See `SamplingRequest`."""
        return super().engine_fields() | {
            # The engine samples at least one token; the serializer drops it.
            "max_tokens": 1 if self.max_tokens == 0 else self.max_tokens,
            "best_of": None if self.best_of == (self.n or 1) else self.best_of,
            "logprobs": self.logprobs,
            "prompt_logprobs": self.logprobs if self.echo else None,
        }

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


def encode_prompts(
    prompts: list[str | list[int]], params: SamplingParams, bridge: Bridge
) -> list[Prompt]:
    """Tokenize the prompts that are text. Raises RequestError if they are too long."""
    check_length((len(prompt) for prompt in prompts if isinstance(prompt, str)), bridge)
    encode = bridge.tokenizer.encode
    return [Prompt(encode(one) if isinstance(one, str) else one, params) for one in prompts]


class CompletionSerializer(OpenAISerializer):
    """Writes a completion, streamed or whole.

    `prompts` are the request's prompts before tokenization.
    """

    def __init__(
        self,
        model: str,
        prompts: list[str | list[int]],
        options: CompletionOptions,
        *,
        include_usage: bool,
    ) -> None:
        super().__init__("cmpl", "text_completion", model, include_usage=include_usage)
        self._prompts = prompts
        self._options = options
        self._is_plain = options == CompletionOptions()
        self._lengths: dict[int, int] = {}  # choice -> characters written so far

    def chunk(self, delta: OutputDelta) -> bytes:
        """See `StreamSerializer`."""
        choice = self._choice(delta)
        if not choice["text"] and choice["logprobs"] is None and not delta.finish_reason:
            return b""
        return sse(self.wrap([choice]))

    def render(self, choices: list[OutputDelta]) -> dict[str, Any]:
        """See `WholeSerializer`. Samples that `best_of` leaves out also count as output."""
        best = [self._choice(delta) for delta in best_choices(self.stream, choices)]
        self.num_tokens = count_tokens(choices) if self._options.output else 0
        return self.wrap(best, usage=self.usage())

    def _choice(self, delta: OutputDelta) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": delta.choice,
            "text": "".join(delta.texts),
            "logprobs": None,
            "finish_reason": delta.finish_reason,
        }
        if not self._is_plain:
            self._apply_options(choice, delta)
        if self._options.output:
            self.num_tokens += len(delta.ids)
        return choice

    def _apply_options(self, choice: dict[str, Any], delta: OutputDelta) -> None:
        """Add the prompt and log-probabilities to a choice, or drop its output, as requested."""
        options, index = self._options, delta.choice
        is_first = index not in self._lengths
        logprobs = CompletionLogprobs(self.tokenizer, self._lengths.get(index, 0))
        if not options.output:
            choice["text"] = ""
            choice["finish_reason"] = delta.finish_reason and "length"
        if options.echo and is_first:
            at = index // self.stream.prompts[0].params.n
            ids, prompt = self.stream.prompts[at].tokens, self._prompts[at]
            pieces = echoed_pieces(prompt, ids, self.tokenizer)
            text = prompt if isinstance(prompt, str) else "".join(pieces)
            choice["text"] = text + choice["text"]
            if options.logprobs:
                logprobs.add_prompt(ids, pieces, delta.prompt_scores)
            logprobs.offset = len(text)
        if options.logprobs and options.output and delta.logprobs is not None:
            logprobs.add(delta.ids, delta.logprobs)
        if options.logprobs and (delta.ids or is_first):
            choice["logprobs"] = logprobs.to_json()
        self._lengths[index] = logprobs.offset


def best_choices(stream: RequestStream, choices: list[OutputDelta]) -> list[OutputDelta]:
    """Return the n best samples of each prompt, best first and renumbered.

    Without `best_of`, return all of them unchanged. See `engine.output.processor.best`.
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
