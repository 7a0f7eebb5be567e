"""Reading beyond the texts a model was trained on: rotary frequencies, stretched.

A rotary frequency is an angle per token. A model trained on texts of 8,192 tokens has never seen the
angles of token 8,193; turning more slowly keeps far tokens within angles it knows. The methods differ
in which frequencies they slow down. They are what transformers computes
(`modeling_rope_utils.py`), and their fields are the entries of config.json's `rope_parameters`.

linear   all of them alike (position interpolation, arXiv:2306.15595)
dynamic  none up to the length the model was trained on; see `DynamicScaling`
llama3   the slow ones; fast ones, which tell neighbours apart, stay (Llama 3.1, arXiv:2407.21783)
yarn     the same idea with another ramp, and sharper attention (arXiv:2309.00071)

Frequencies are `[head_dim / 2]` in radians per token, fastest first, each the same fraction of the
one before it.
"""

import math
from typing import Annotated, Any, TypeAlias

import msgspec
import torch
from torch import Tensor

from engine.compute.weights.checkpoint import CheckpointError

_Factor: TypeAlias = Annotated[float, msgspec.Meta(ge=1)]
_Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
_Length: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class _Scaling(msgspec.Struct, frozen=True, tag_field="rope_type", forbid_unknown_fields=True):
    """What the methods have in common: `factor` is how much longer texts may become."""

    factor: _Factor

    @property
    def attention_scale(self) -> float:
        """What queries and keys are multiplied with as they are turned."""
        return 1.0


class LinearScaling(_Scaling, frozen=True, tag="linear"):
    """All frequencies are divided by `factor`."""

    def scaled(self, frequencies: Tensor) -> Tensor:
        """The frequencies to turn with."""
        return frequencies / self.factor


class DynamicScaling(_Scaling, frozen=True, tag="dynamic"):
    """NTK scaling by the length of the text: none while that is within max_position_embeddings.

    A longer text would change the frequencies with every token that it grows, and with them keys that
    are cached already, perhaps shared with a text that is shorter. Our `max_context` ends where this
    begins, so texts of that length are refused.
    """

    def scaled(self, frequencies: Tensor) -> Tensor:
        """See `LinearScaling`."""
        return frequencies


class Llama3Scaling(_Scaling, frozen=True, tag="llama3"):
    """By how often a frequency turns within the context the model was trained on first.

    Those below `low_freq_factor` turns are divided by `factor`, those above `high_freq_factor` stay,
    between them is a ramp.
    """

    low_freq_factor: _Positive
    high_freq_factor: _Positive
    original_max_position_embeddings: _Length

    def __post_init__(self) -> None:
        """A ramp needs a width."""
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError("high_freq_factor must be above low_freq_factor")

    def scaled(self, frequencies: Tensor) -> Tensor:
        """See `LinearScaling`."""
        turns = self.original_max_position_embeddings * frequencies / (2 * math.pi)
        width = self.high_freq_factor - self.low_freq_factor
        kept = ((turns - self.low_freq_factor) / width).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


class YarnScaling(_Scaling, frozen=True, tag="yarn"):
    """Also by turns within the original context, with a ramp over the number of the frequency.

    The ramp leads from the one that turns `beta_fast` times, which stays, to the one that turns
    `beta_slow` times, which is divided by `factor`. `truncate` rounds both outwards.
    """

    original_max_position_embeddings: _Length
    beta_fast: _Positive = 32.0
    beta_slow: _Positive = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    def scaled(self, frequencies: Tensor) -> Tensor:
        """See `LinearScaling`."""
        low = self._number(frequencies, self.beta_fast)
        high = self._number(frequencies, self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * len(frequencies) - 1)
        width = high - low or 0.001
        divided = ((torch.arange(len(frequencies)) - low) / width).clamp(0, 1)
        return frequencies * (1 - divided + divided / self.factor)

    def _number(self, frequencies: Tensor, turns: float) -> float:
        """Which frequency turns so often, as a fraction where it is between two."""
        fastest = self.original_max_position_embeddings * float(frequencies[0]) / (2 * math.pi)
        return math.log(fastest / turns) / math.log(float(frequencies[0] / frequencies[1]))

    @property
    def attention_scale(self) -> float:
        """See `_Scaling`."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0


RopeScaling: TypeAlias = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling


def read_scaling(entries: dict[str, Any], max_position_embeddings: int) -> RopeScaling | None:
    """The scaling that config.json's `rope_parameters` or `rope_scaling` ask for, None for none.

    The context a model was trained on first is max_position_embeddings where it is not stated. Raises
    CheckpointError, naming the entry, for a method or an entry that is not supported.
    """
    entries = {name: value for name, value in entries.items() if value is not None}
    entries.pop("rope_theta", None)
    kind = entries.pop("type", "default")  # its name before transformers 4.43
    kind = entries.setdefault("rope_type", kind)
    if entries.pop("partial_rotary_factor", 1.0) != 1.0:
        raise CheckpointError(
            "partial_rotary_factor is not supported: heads are rotated as a whole"
        )
    if kind == "default":
        return None
    if kind in ("llama3", "yarn"):
        entries.setdefault("original_max_position_embeddings", max_position_embeddings)
    try:
        scaling: RopeScaling = msgspec.convert(entries, RopeScaling)
    except msgspec.ValidationError as error:
        raise CheckpointError(
            f"rope scaling {kind!r} is not supported as config.json has it ({error}); supported are "
            "linear, dynamic, llama3 and yarn with transformers' entries"
        ) from error
    return scaling
