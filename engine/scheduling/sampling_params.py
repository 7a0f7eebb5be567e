"""How a request's tokens are chosen, and when its output ends.

Fields are validated in the constructor, so an error points at the caller.
"""

import sys
from typing import Any

import msgspec

_MAX = sys.float_info.max
_MIN_WHOLE = {  # whole numbers, with their lower bounds
    "max_tokens": 1,
    "min_tokens": 0,
    "top_k": 0,
    "n": 1,
    "best_of": 1,
    "logprobs": 0,
    "prompt_logprobs": 0,
}
_RANGES = {  # numbers, with their bounds
    "temperature": (0, _MAX, "0 or more"),
    "min_p": (0, 1, "from 0 to 1"),
    "top_p": (sys.float_info.min, 1, "above 0 and at most 1"),
    "repetition_penalty": (sys.float_info.min, _MAX, "above 0"),
    "presence_penalty": (-2, 2, "from -2 to 2"),
    "frequency_penalty": (-2, 2, "from -2 to 2"),
}


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
    ignore_eos          continue after the model's end tokens

    Choice of a token, in the order of application:

    logit_bias          token id -> number added to its logit; -100 forbids it, 100 forces it
    repetition_penalty  logits of tokens in prompt or output are divided by it if positive and
                        multiplied by it if negative; 1 is off (CTRL, arXiv:1909.05858)
    frequency_penalty   subtracted from a token's logit for each use in the output; 0 is off
    presence_penalty    subtracted once if the token occurs in the output; 0 is off
    temperature         0 always takes the most likely token (greedy); higher is more random
    min_p               keep tokens with at least this probability relative to the most likely one;
                        0 keeps all (arXiv:2407.01082)
    top_k               keep only the k most likely tokens; 0 keeps all
    top_p               keep the smallest set of most likely tokens whose probability reaches p
                        (arXiv:1904.09751)
    seed                the same seed gives the same tokens, whatever else is in the batch; None
                        uses the request's id, so a run can be repeated

    Samples:

    n                   samples of one prompt; they share its KV blocks
    best_of             compute this many samples and return the n with the highest mean
                        log-probability per sampled token; None means n

    Log-probabilities: natural logarithms of the model's distribution, after logit_bias and before
    penalties, temperature and truncation:

    logprobs            this many of the most likely tokens for each output token; None is off. The
                        chosen token's own log-probability is always recorded
    prompt_logprobs     the same for the prompt's tokens from the second on, without logit_bias.
                        Such a prompt is computed in full, because the prefix cache keeps no
                        log-probabilities
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
        """Number of samples to compute."""
        return self.n if self.best_of is None else self.best_of

    def changed(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON values."""
        given: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value != _DEFAULTS[name]
        }

    def __post_init__(self) -> None:
        for field, low in _MIN_WHOLE.items():
            value, optional = getattr(self, field), _DEFAULTS[field] is None
            if not (optional and value is None) and (not is_whole(value) or value < low):
                bounds = f"a whole number of at least {low}" + (" or None" if optional else "")
                raise SamplingError(field, f"must be {bounds}, got {value!r}")
        for field, (least, most, bounds) in _RANGES.items():
            value = getattr(self, field)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise SamplingError(field, f"must be a number, got {value!r}")
            if not least <= value <= most:  # NaN is in no range
                raise SamplingError(field, f"must be {bounds}, got {value!r}")
        if self.seed is not None and not is_whole(self.seed):
            raise SamplingError("seed", f"must be a whole number or None, got {self.seed!r}")
        if not isinstance(self.ignore_eos, bool):
            raise SamplingError("ignore_eos", f"must be True or False, got {self.ignore_eos!r}")
        if self.min_tokens > self.max_tokens:
            raise SamplingError(
                "min_tokens",
                f"must be at most max_tokens ({self.max_tokens}), got {self.min_tokens}",
            )
        if self.samples < self.n:
            raise SamplingError("best_of", f"must be at least n ({self.n}), got {self.best_of}")
        self._check_collections()

    def _check_collections(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        for field, values in (("stop", stop), ("stop_token_ids", self.stop_token_ids)):
            if not isinstance(values, list | tuple):
                raise SamplingError(field, f"must be a list, got {values!r}")
            msgspec.structs.force_setattr(self, field, tuple(values))
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise SamplingError("stop", f"must be non-empty strings, got {text!r}")
        for token in self.stop_token_ids:
            if not is_whole(token):
                raise SamplingError("stop_token_ids", f"must be token ids, got {token!r}")
        if not isinstance(self.logit_bias, dict):
            raise SamplingError("logit_bias", f"must map token ids, got {self.logit_bias!r}")
        for token, bias in self.logit_bias.items():
            number = isinstance(bias, int | float) and not isinstance(bias, bool)
            if not is_whole(token) or not number or not -100 <= bias <= 100:
                raise SamplingError(
                    "logit_bias",
                    f"must map token ids to numbers from -100 to 100, got {token!r}: {bias!r}",
                )


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


_DEFAULTS: dict[str, Any] = {
    field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    for field in msgspec.structs.fields(SamplingParams)
}
