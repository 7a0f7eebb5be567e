"""How a request's tokens are chosen, and when its output ends.

Fields are validated in the constructor, so an error points at the caller.
"""

import sys
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from engine.core.declared import INVALID, schema_of, wrong_field

Kind = Literal["json_schema", "json_object", "regex", "choice", "grammar"]


class StructuredOutput(msgspec.Struct, frozen=True):
    """The format that every output of a request must match; named as vLLM's `StructuredOutputsParams`.

    kind  "json_schema", "json_object" (any JSON object), "regex", "choice" (one of several texts) or
          "grammar" (EBNF, or llguidance's dialect of Lark)
    text  the schema or the list of choices as JSON, the expression or the grammar; "" for json_object
    """

    kind: Kind
    text: str = ""

    def __post_init__(self) -> None:
        if wrong := wrong_field(self):
            raise ValueError(" ".join(wrong))


MAX_SAMPLES = 16384  # vLLM's limit (VLLM_MAX_N_SEQUENCES)
_Count = Annotated[int, Meta(ge=0)]
_Positive = Annotated[int, Meta(ge=1)]
_Texts = tuple[Annotated[str, Meta(min_length=1)], ...]
# The bounds of floats exclude NaN, infinity and numbers that are too small to divide by.
_LEAST, _MOST = sys.float_info.min, sys.float_info.max
_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class SamplingError(ValueError):
    """A sampling parameter is invalid. `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters of one request, with OpenAI's and vLLM's names.

    Length:

    max_tokens          maximum number of output tokens, including forced ones
    min_tokens          minimum number of output tokens before an end token or a stop string applies
    stop                strings that end the output; the text ends before them
    stop_token_ids      tokens that end the output, in addition to the model's end tokens
    include_stop_str_in_output  keep the stop string, or the text of the stop token, in the text
    ignore_eos          continue after the model's end tokens

    Text:

    skip_special_tokens  leave special tokens, tool calls and tool results out of the text; stop
                        strings are searched for in the remaining text. vLLM's default is True

    Choice of a token, in the order of application:

    structured          the format of the output; tokens that would break it are not allowed
    logit_bias          token id -> number added to its logit; -100 forbids it, 100 forces it
    repetition_penalty  divides the positive logits of tokens in the prompt or output and multiplies
                        their negative logits; 1 is off (CTRL, arXiv:1909.05858)
    frequency_penalty   subtracted from a token's logit for each use in the output; 0 is off
    presence_penalty    subtracted once if the token occurs in the output; 0 is off
    bad_words           texts that must not be sampled: the last token of such a text is forbidden
                        where the tokens before it are already there (`engine/extensions/bad_words.py`)
    allowed_token_ids   sample only these tokens; None allows all
    temperature         0 always takes the most likely token (greedy); higher is more random
    min_p               keep tokens with at least this probability relative to the most likely one;
                        0 keeps all (arXiv:2407.01082)
    top_k               keep only the k most likely tokens; 0 keeps all
    top_p               keep the smallest set of most likely tokens whose probability reaches p
                        (arXiv:1904.09751)
    seed                the same seed gives the same random numbers, whatever else is in the batch,
                        and so the same tokens, up to rounding (`core/runner.py`);
                        None uses the request's id, so a run can be repeated

    Samples:

    n                   samples of one prompt; they share its KV blocks. Samples beyond the batch's
                        seats are queued as requests of their own (`split_samples`)
    best_of             compute this many samples and return the n with the highest mean
                        log-probability per sampled token; None means n

    Log-probabilities: natural logarithms of the model's distribution, after logit_bias and before
    penalties, temperature and truncation:

    logprobs            record this many of the most likely tokens at each output position; None is
                        off. The chosen token's own log-probability is always recorded
    prompt_logprobs     the same for the prompt's tokens from the second on, without logit_bias.
                        Such a prompt is computed in full, because the prefix cache keeps no
                        log-probabilities
    """

    max_tokens: _Positive = 16
    min_tokens: _Count = 0
    stop: _Texts = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = False
    structured: StructuredOutput | None = None
    logit_bias: dict[int, Annotated[float, Meta(ge=-100, le=100)]] = {}
    repetition_penalty: Annotated[float, Meta(ge=_LEAST, le=_MOST)] = 1.0
    frequency_penalty: _Penalty = 0.0
    presence_penalty: _Penalty = 0.0
    bad_words: _Texts = ()
    allowed_token_ids: Annotated[tuple[int, ...], Meta(min_length=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=_MOST)] = 0.0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    top_k: _Count = 0
    top_p: Annotated[float, Meta(ge=_LEAST, le=1)] = 1.0
    seed: int | None = None
    n: _Positive = 1
    best_of: _Positive | None = None
    logprobs: _Count | None = None
    prompt_logprobs: _Count | None = None

    @property
    def samples(self) -> int:
        """Number of samples to compute."""
        return self.n if self.best_of is None else self.best_of

    def changed(self, seed: int) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON values, with a request's seed."""
        given, changed = msgspec.to_builtins(self, str_keys=True), dict[str, Any]()
        given["seed"] = seed
        for name, value in given.items():
            if value != _DEFAULTS[name]:
                changed[name] = list(value) if isinstance(value, tuple) else value
        return changed

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            msgspec.structs.force_setattr(self, "stop", (self.stop,))
        try:
            given = msgspec.convert(self, _SCHEMA, from_attributes=True)
        except INVALID:
            given = self
            if wrong := wrong_field(self):
                raise SamplingError(*wrong) from None
        for name in _TUPLES:  # the caller may have passed lists
            msgspec.structs.force_setattr(self, name, getattr(given, name))
        if self.min_tokens > self.max_tokens:
            raise SamplingError(
                "min_tokens",
                f"must be at most max_tokens ({self.max_tokens}), got {self.min_tokens}",
            )
        if self.samples < self.n:
            raise SamplingError("best_of", f"must be at least n ({self.n}), got {self.best_of}")
        if self.samples > MAX_SAMPLES:
            field = "n" if self.best_of is None else "best_of"
            raise SamplingError(field, f"must be at most {MAX_SAMPLES}, got {self.samples}")


def split_samples(params: SamplingParams, seats: int) -> list[SamplingParams]:
    """Divide more samples than a batch has seats among requests that each fit into it.

    The first request has as many samples as there are seats, and they fork from one prompt. Each
    further sample is a request of its own, which finds the prompt in the prefix cache. If the caller
    set a seed, the sample's index is added to it, as in vLLM, so that no two requests draw the same
    numbers.

    Differs from vLLM, which turns every sample into a request of its own
    (`vllm/v1/engine/parallel_sampling.py`).
    """
    ranking = params.best_of is not None
    parts = []
    for first in (0, *range(seats, params.samples)):
        size = 1 if first else seats
        parts.append(
            msgspec.structs.replace(
                params,
                n=min(params.n, size),
                best_of=size if ranking else None,
                seed=None if params.seed is None else params.seed + first,
            )
        )
    return parts


_SCHEMA = schema_of(SamplingParams)
_TUPLES = "stop", "stop_token_ids", "bad_words", "allowed_token_ids"
_DEFAULTS: dict[str, Any] = {
    field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    for field in msgspec.structs.fields(SamplingParams)
}
