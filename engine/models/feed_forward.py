"""The feed-forward network of a layer: y = down(act(gate(x)) * up(x)), each token by itself.

The gate and up projections read the same input, so they are fused into one matrix, as in vLLM.

Source: GLU Variants Improve Transformer, arXiv:2002.05202 (SwiGLU; Gemma's is GeGLU).
"""

import torch
from torch import Tensor

from engine.models.activation import ACTIVATIONS
from engine.models.config import LlamaConfig
from engine.models.linear import Linear
from engine.models.weights.checkpoint import Checkpoint


class FeedForward:
    """A gated feed-forward network with the weights under the name `prefix`.

    size  of its hidden layer, for an expert; None for the configuration's `intermediate_size`
    """

    def __init__(
        self, config: LlamaConfig, weights: Checkpoint, prefix: str, size: int | None = None
    ) -> None:
        hidden, inner = config.hidden_size, size or config.intermediate_size
        parts = {"gate_up": 2 * inner} if config.family.fused else {"gate": inner, "up": inner}
        rows = {f"{prefix}.{part}_proj.weight": count for part, count in parts.items()}
        gate_up_bias = down_bias = None
        if config.mlp_bias:
            biases = [weights.load(f"{prefix}.{p}_proj.bias", count) for p, count in parts.items()]
            gate_up_bias = torch.cat(biases)
            down_bias = weights.load(f"{prefix}.down_proj.bias", hidden)
        dense = size is None  # the packed copies of many small experts would double the memory
        self._gate_up = Linear(weights.load_matrix(rows, hidden), gate_up_bias, packs=dense)
        down = weights.load_matrix({f"{prefix}.down_proj.weight": hidden}, inner)
        self._down = Linear(down, down_bias, packs=dense)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the network's output for `x` [tokens, hidden]: the same shape."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(self._activation(gate).mul_(up))
