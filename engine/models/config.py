"""The sizes and switches of a decoder; `config_file.py` reads them from a config.json."""

from dataclasses import dataclass

from engine.core.compute.model import ModelConfig
from engine.models.families import Family
from engine.models.rope import QueryScaling, Rope
from engine.models.weights.checkpoint import CheckpointError


@dataclass(frozen=True, slots=True)
class LlamaConfig(ModelConfig):
    """The configuration of a Llama-like decoder.

    family             the switches that its architecture implies
    activation         of the feed-forward networks, see `activation.py`
    qkv_bias           queries, keys and values have a bias
    output_bias        the projection after attention has a bias
    mlp_bias           the projections of dense feed-forward networks have a bias
    query_scale        a factor for normalised queries, besides attention's 1 / sqrt(head_dim)
    query_scaling      how queries grow with their position; None: they do not
    ropes              [layers] how the layer rotates; None: it does not
    num_experts        feed-forward networks of a sparse layer (mixture of experts); 0: no layer is
                       sparse
    experts_per_token  how many of them compute each token
    swiglu             alpha and limit of a `ClampedFeedForward`
    expert_size        inner size of an expert, as intermediate_size is of a dense layer's network
    norm_topk_prob     the chosen experts' weights are scaled to a sum of one
    sparse_layers      [layers] whether the layer is sparse
    """

    family: Family
    activation: str
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    query_scale: float
    query_scaling: QueryScaling | None
    ropes: tuple[Rope | None, ...]
    num_experts: int
    experts_per_token: int
    swiglu: tuple[float, float]
    expert_size: int
    norm_topk_prob: bool
    sparse_layers: tuple[bool, ...]

    @property
    def unread(self) -> tuple[str, ...]:
        """What the names of tensors begin with that a file may have although no layer reads them."""
        return ()


def check_entries(*entries: tuple[str, object, object]) -> None:
    """Check entries of a config.json, given as (name, value, the only supported value).

    Raises CheckpointError, which names the entry.
    """
    for entry, value, supported in entries:
        if value != supported:
            raise CheckpointError(f"{entry} = {value!r} is not supported, only {supported!r}")
