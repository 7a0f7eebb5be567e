"""The activation functions of gated feed-forward networks, by their names in config.json."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F


def gelu_tanh(x: Tensor) -> Tensor:
    """Return GELU with the tanh approximation, elementwise (arXiv:1606.08415)."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": gelu_tanh,
}
