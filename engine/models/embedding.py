"""The token embedding: one row of a matrix per token.

A quantized matrix stays quantized: only the rows of a step's tokens are converted.
"""

from torch import Tensor
from torch.nn import functional as F

from engine.models.weights.matrix import Int8Matrix, Matrix


class Embedding:
    """Looks up rows of `weight` [vocab, hidden], which may be shared with the output layer."""

    def __init__(self, weight: Matrix) -> None:
        self.weight = weight

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Return the rows of `token_ids` [tokens]: [tokens, hidden], in the model's precision."""
        if isinstance(self.weight, Int8Matrix):
            return self.weight.rows(token_ids)
        return F.embedding(token_ids, self.weight)
