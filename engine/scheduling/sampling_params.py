"""How a request wants its tokens chosen, and when it has enough of them.

Fields are checked when the struct is made, so that a wrong one is refused where it was written and
not in the middle of a batch.
"""

import math
from typing import Any

import msgspec

_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


class SamplingError(ValueError):
    """A sampling parameter is wrong. `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters of one request, after OpenAI's and vLLM's names.

    How long:

    max_tokens          output tokens at most, forced ones included
    min_tokens          so many output tokens come before an end token or a stop string counts
    stop                strings that end the output; the text ends before them
    stop_token_ids      tokens that end the output, beside the model's end tokens
    ignore_eos          go on past the model's end tokens

    Which token, in the order of application:

    logit_bias          token id -> what is added to its logit; -100 forbids it, 100 forces it
    repetition_penalty  logits of tokens in prompt or output are divided by it where positive and
                        multiplied where negative; 1 is none (CTRL, arXiv:1909.05858)
    frequency_penalty   taken from a token's logit for each time it is in the output; 0 is none
    presence_penalty    taken once if it is in the output; 0 is none
    temperature         0 always takes the likeliest token (greedy); higher is bolder
    min_p               keep tokens at least so probable relative to the likeliest one; 0 keeps all
                        (arXiv:2407.01082)
    top_k               keep only the k likeliest tokens; 0 keeps all
    top_p               keep the smallest set of likeliest tokens whose probability reaches p
                        (arXiv:1904.09751)
    seed                the same seed gives the same tokens, whatever else is in the batch; None: the
                        engine takes the request's id, so that a run can be repeated

    How many:

    n                   samples of one prompt; they share its KV blocks
    best_of             make so many samples and hand out the n with the highest mean log-probability
                        per sampled token; None: as many as n

    What is told beside the tokens, as natural logarithms, of the model's own distribution with
    logit_bias added, before penalties, temperature and cuts:

    logprobs            so many of the likeliest tokens at each place of the output; None: none. The
                        chosen token's own log-probability is always there
    prompt_logprobs     the same for the prompt's tokens, from the second on, but without logit_bias:
                        nothing was chosen there. Such a prompt is computed whole, because the prefix
                        cache keeps no log-probabilities
    """

    max_tokens: int = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logit_bias: dict[int, float] = {}
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    temperature: float = 0.0
    min_p: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    n: int = 1
    best_of: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    @property
    def samples(self) -> int:
        """Samples to compute."""
        return self.n if self.best_of is None else self.best_of

    def end_ids(self, eos_ids: frozenset[int]) -> frozenset[int]:
        """The tokens that end the output of a model with these end tokens."""
        own = frozenset(self.stop_token_ids)
        return own if self.ignore_eos else own | eos_ids

    def changed(self) -> dict[str, Any]:
        """The fields that differ from their defaults, as JSON values."""
        given: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value != _DEFAULTS[name]
        }

    def __post_init__(self) -> None:
        # A single string and a list are what people write.
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        msgspec.structs.force_setattr(self, "stop", _tuple("stop", stop))
        ids = _tuple("stop_token_ids", self.stop_token_ids)
        msgspec.structs.force_setattr(self, "stop_token_ids", ids)
        self._check_counts()
        self._check_numbers()
        self._check_stops()
        if not isinstance(self.ignore_eos, bool):
            raise SamplingError("ignore_eos", f"must be True or False, got {self.ignore_eos!r}")
        if self.min_tokens > self.max_tokens:
            raise SamplingError(
                "min_tokens", f"({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})"
            )
        if self.samples < self.n:
            raise SamplingError("best_of", f"({self.best_of}) must not be less than n ({self.n})")

    def _check_counts(self) -> None:
        for field, least in (("max_tokens", 1), ("min_tokens", 0), ("top_k", 0), ("n", 1)):
            if not is_whole(value := getattr(self, field)) or value < least:
                raise SamplingError(
                    field, f"must be a whole number of at least {least}, got {value!r}"
                )
        for field, least in (("best_of", 1), ("logprobs", 0), ("prompt_logprobs", 0)):
            value = getattr(self, field)
            if value is not None and (not is_whole(value) or value < least):
                raise SamplingError(
                    field, f"must be a whole number of at least {least} or None, got {value!r}"
                )
        if self.seed is not None and not is_whole(self.seed):
            raise SamplingError("seed", f"must be a whole number or None, got {self.seed!r}")

    def _check_numbers(self) -> None:
        for field in _NUMBERS:
            if not _is_number(value := getattr(self, field)):
                raise SamplingError(field, f"must be a number, got {value!r}")
        for field, fits, wanted in (
            ("temperature", self.temperature >= 0, "be 0 or more"),
            ("top_p", 0 < self.top_p <= 1, "lie above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "lie between 0 and 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "be above 0"),
            ("presence_penalty", -2 <= self.presence_penalty <= 2, "lie between -2 and 2"),
            ("frequency_penalty", -2 <= self.frequency_penalty <= 2, "lie between -2 and 2"),
        ):
            if not fits:
                raise SamplingError(field, f"must {wanted}, got {getattr(self, field)!r}")
        if not isinstance(self.logit_bias, dict):
            raise SamplingError("logit_bias", f"must map token ids, got {self.logit_bias!r}")
        for token, bias in self.logit_bias.items():
            if not is_whole(token) or not _is_number(bias) or not -100 <= bias <= 100:
                raise SamplingError(
                    "logit_bias",
                    f"must map token ids to numbers from -100 to 100, got {token!r}: {bias!r}",
                )

    def _check_stops(self) -> None:
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise SamplingError("stop", f"must be strings that are not empty, got {text!r}")
        for token in self.stop_token_ids:
            if not is_whole(token):
                raise SamplingError("stop_token_ids", f"must be token ids, got {token!r}")


def _tuple(field: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise SamplingError(field, f"must be a list, got {values!r}")
    return tuple(values)


def is_whole(value: object) -> bool:
    """Whether it is a whole number, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_DEFAULTS: dict[str, Any] = msgspec.to_builtins(SamplingParams())
