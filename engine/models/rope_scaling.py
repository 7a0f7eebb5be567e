"""RoPE scaling: lower rotary frequencies for texts longer than those a model was trained on.

A rotary frequency is an angle per token. A model trained on texts of 8,192 tokens has never seen the
angles of token 8,193; slower rotation keeps distant tokens within familiar angles. The methods differ
in which frequencies they lower. They match transformers' (`modeling_rope_utils.py`), and their fields
are the entries of config.json's `rope_parameters`.

linear   lowers all frequencies alike (position interpolation, arXiv:2306.15595)
dynamic  lowers none up to the length the model was trained on; see `DynamicScaling`
llama3   lowers the low frequencies and keeps the high ones, which tell neighbours apart (Llama 3.1,
         arXiv:2407.21783)
yarn     the same idea with a different ramp and sharper attention (arXiv:2309.00071)
proportional
         rotates only the fastest frequencies; see `ProportionalScaling`
longrope has a searched factor for each frequency, and others for long texts; see `LongRopeScaling`

Frequencies are `[head_dim / 2]` in radians per token, fastest first. Each is a constant fraction of
the one before.
"""

import math
from typing import Annotated, Any, TypeAlias

import msgspec
import torch
from torch import Tensor

from engine.models.weights.checkpoint import CheckpointError

_Factor: TypeAlias = Annotated[float, msgspec.Meta(ge=1, le=2**20)]
_Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=2**20)]
_Length: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class _Scaling(msgspec.Struct, frozen=True, tag_field="rope_type", forbid_unknown_fields=True):
    """The part common to all methods.

    factor  how many times longer texts may become
    """

    factor: _Factor

    @property
    def attention_scale(self) -> float:
        """A factor for queries and keys, applied as they are rotated."""
        return 1.0


class LinearScaling(_Scaling, frozen=True, tag="linear"):
    """Divides all frequencies by `factor`."""

    def scaled(self, frequencies: Tensor, length: int) -> Tensor:
        """Return the frequencies to rotate with if the longest text has this length."""
        return frequencies / self.factor


class DynamicScaling(_Scaling, frozen=True, tag="dynamic"):
    """NTK scaling by the length of the text, starting at max_position_embeddings.

    Beyond that length, each new token would change the frequencies, and with them keys that are
    already cached and perhaps shared with a shorter text. `max_context` ends where this would begin,
    so longer texts are rejected and no frequency ever changes.
    """

    def scaled(self, frequencies: Tensor, length: int) -> Tensor:
        """See `LinearScaling`."""
        return frequencies


class Llama3Scaling(_Scaling, frozen=True, tag="llama3"):
    """Scales by the number of turns within the context the model was first trained on.

    Frequencies below `low_freq_factor` turns are divided by `factor`, those above `high_freq_factor`
    are kept, and there is a ramp in between.
    """

    low_freq_factor: _Positive
    high_freq_factor: _Positive
    original_max_position_embeddings: _Length

    def __post_init__(self) -> None:
        """Reject a ramp without width."""
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError("high_freq_factor must be above low_freq_factor")

    def scaled(self, frequencies: Tensor, length: int) -> Tensor:
        """See `LinearScaling`."""
        turns = self.original_max_position_embeddings * frequencies / (2 * math.pi)
        width = self.high_freq_factor - self.low_freq_factor
        kept = ((turns - self.low_freq_factor) / width).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


class YarnScaling(_Scaling, frozen=True, tag="yarn"):
    """Scales by turns within the original context, with a ramp over the frequency's index.

    The ramp runs from the frequency with `beta_fast` turns, which is kept, to the one with `beta_slow`
    turns, which is divided by `factor`. `truncate` rounds both indexes outwards. `mscale` and
    `mscale_all_dim` change attention's scale, if both are given.
    """

    original_max_position_embeddings: _Length
    beta_fast: _Positive = 32.0
    beta_slow: _Positive = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def scaled(self, frequencies: Tensor, length: int) -> Tensor:
        """See `LinearScaling`."""
        low = self._index(frequencies, self.beta_fast)
        high = self._index(frequencies, self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * len(frequencies) - 1)
        width = high - low or 0.001
        divided = ((torch.arange(len(frequencies)) - low) / width).clamp(0, 1)
        return frequencies * (1 - divided + divided / self.factor)

    def _index(self, frequencies: Tensor, turns: float) -> float:
        """Return the (fractional) index of the frequency with this number of turns."""
        fastest = self.original_max_position_embeddings * float(frequencies[0]) / (2 * math.pi)
        return math.log(fastest / turns) / math.log(float(frequencies[0] / frequencies[1]))

    @property
    def attention_scale(self) -> float:
        """See `_Scaling`."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._magnitude(self.mscale) / self._magnitude(self.mscale_all_dim)
        return self._magnitude(1.0)

    def _magnitude(self, scale: float) -> float:
        return 0.1 * scale * math.log(self.factor) + 1.0


class FactorsScaling(_Scaling, frozen=True, tag="factors"):
    """Divides each frequency by its own factor.

    A GGUF file has these factors instead of the settings of llama3; `factor` is the largest one.
    """

    factors: tuple[_Factor, ...]

    def scaled(self, frequencies: Tensor, length: int) -> Tensor:
        """See `LinearScaling`."""
        return frequencies / torch.tensor(self.factors)


class ProportionalScaling(_Scaling, frozen=True, tag="proportional"):
    """Leaves out the slowest frequencies: the values of their pairs do not depend on the position.

    Unlike `Rope.size`, which rotates the first values of a head as if it were smaller, this keeps the
    pairs and the frequencies of the whole head (Gemma 4).
    """

    partial_rotary_factor: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    factor: _Factor = 1.0

    def scaled(self, frequencies: Tensor, length: int) -> Tensor:
        """See `LinearScaling`."""
        kept = int(self.partial_rotary_factor * len(frequencies))
        return frequencies * (torch.arange(len(frequencies)) < kept) / self.factor


class LongRopeScaling(_Scaling, frozen=True, tag="longrope"):
    """Divides each frequency by a factor of its own, and all rotations become longer (Phi-3).

    The factors were searched for, short_factor for texts up to original_max_position_embeddings and
    long_factor for longer ones (arXiv:2402.13753). The choice is made once, by the longest text that
    the engine can hold, as in vLLM (`phi3_long_rope_scaled_rope.py`) and llama.cpp. transformers
    changes the frequencies when a text grows beyond the original length, and computes the text again:
    keys that are cached, and perhaps shared with a shorter text, would be wrong.
    """

    short_factor: tuple[_Positive, ...]
    long_factor: tuple[_Positive, ...]
    original_max_position_embeddings: Annotated[int, msgspec.Meta(ge=2)]
    attention_factor: float | None = None

    def scaled(self, frequencies: Tensor, length: int) -> Tensor:
        """See `LinearScaling`."""
        long = length > self.original_max_position_embeddings
        return frequencies / torch.tensor(self.long_factor if long else self.short_factor)

    @property
    def attention_scale(self) -> float:
        """See `_Scaling`."""
        if self.attention_factor is not None:
            return self.attention_factor
        original = self.original_max_position_embeddings
        return math.sqrt(1 + math.log(self.factor) / math.log(original))


RopeScaling: TypeAlias = (
    LinearScaling
    | DynamicScaling
    | Llama3Scaling
    | YarnScaling
    | FactorsScaling
    | ProportionalScaling
    | LongRopeScaling
)


def read_scaling(
    entries: dict[str, Any], max_position_embeddings: int, size: int
) -> RopeScaling | None:
    """Read the scaling from config.json's `rope_parameters` or `rope_scaling`; None if not set.

    `original_max_position_embeddings` defaults to max_position_embeddings. `size` is the number of
    rotated values of a head. Raises CheckpointError, which names the entry, for a method or an entry
    that is not supported.
    """
    entries = {name: value for name, value in entries.items() if value is not None}
    entries.pop("rope_theta", None)
    kind = entries.pop("type", "default")  # the name before transformers 4.43
    if entries.get("rope_type") != "proportional":
        entries.pop("partial_rotary_factor", None)
    if "short_factor" in entries:
        entries["rope_type"] = "longrope"  # the first files of Phi-3 say "su" or "yarn"
    kind = entries.setdefault("rope_type", kind)
    if kind == "default":
        return None
    if kind in ("llama3", "yarn", "longrope"):
        entries.setdefault("original_max_position_embeddings", max_position_embeddings)
    if kind == "longrope":
        longer = max_position_embeddings / max(entries["original_max_position_embeddings"], 1)
        entries.setdefault("factor", max(longer, 1.0))
    try:
        scaling: RopeScaling = msgspec.convert(entries, RopeScaling)
    except msgspec.ValidationError as error:
        raise CheckpointError(
            f"rope scaling {kind!r} in config.json is not supported ({error}); supported are linear, "
            "dynamic, llama3, yarn, proportional and longrope with the entries of transformers"
        ) from error
    for name in ("factors", "short_factor", "long_factor"):
        factors = getattr(scaling, name, None)
        if factors is not None and len(factors) != size // 2:
            raise CheckpointError(
                f"{name} of rope scaling must have {size // 2} values, one for each pair of rotated "
                f"values of a head, got {len(factors)}"
            )
    return scaling
