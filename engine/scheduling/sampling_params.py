"""How a request wants its tokens chosen, and when it has enough of them."""

import math

import msgspec


class SamplingError(ValueError):
    """A sampling parameter is wrong. `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters of one request, after OpenAI's and vLLM's names.

    max_tokens    output tokens at most, forced ones included
    temperature   0 always takes the likeliest token (greedy); higher is bolder
    top_k         keep only the k likeliest tokens; 0 keeps all
    top_p         keep the smallest set of likeliest tokens whose probability reaches p
    seed          the same seed gives the same tokens, whatever else is in the batch; None: the
                  engine takes the request's id, so that a run can be repeated
    n             samples of one prompt; they share its KV blocks
    ignore_eos    go on past the model's end token until max_tokens
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    n: int = 1
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for field, least in (("max_tokens", 1), ("top_k", 0), ("n", 1)):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise SamplingError(
                    field, f"must be a whole number of at least {least}, got {value!r}"
                )
        for field in ("temperature", "top_p"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SamplingError(field, f"must be a number, got {value!r}")
        if not math.isfinite(self.temperature) or self.temperature < 0:
            raise SamplingError("temperature", f"must be 0 or more, got {self.temperature!r}")
        if not 0 < self.top_p <= 1:
            raise SamplingError("top_p", f"must lie above 0 and at most 1, got {self.top_p!r}")
        if self.seed is not None and (
            not isinstance(self.seed, int) or isinstance(self.seed, bool)
        ):
            raise SamplingError("seed", f"must be a whole number or None, got {self.seed!r}")
        if not isinstance(self.ignore_eos, bool):
            raise SamplingError("ignore_eos", f"must be True or False, got {self.ignore_eos!r}")
