"""KV in int8: `EngineConfig(kv_dtype="int8")` stores keys and values in about half of 16 bits.

Each vector, the key or the value of one token in one head, is divided by its own scale, the largest of
its values / 127, and rounded. The scale, a float32, is stored behind it:

    int8 [head_dim] | float32 scale        head_dim + 4 bytes in place of 2 * head_dim or 4 * head_dim

so a block is still one piece of memory, and whatever moves blocks moves their scales: copies on write,
window pages, KV transfers. Pages of another `kv_dtype` are rejected, because their format differs.

A scale per token and head is what vLLM's `int8_per_token_head` has (`KVQuantMode` in
`vllm/v1/kv_cache_interface.py`, `triton_reshape_and_cache_flash.py`), which keeps the scales in tensors
of their own. Two others are cheaper, and were not chosen:

- A scale per block and head takes a sixteenth of the scales. But a block fills token by token, so a
  larger value would change the scale of tokens that are stored already: what a token is read back as
  would depend on the tokens after it, and a cached prefix would not be what a fresh request computes.
- A scale per layer (vLLM's `fp8`, `k_scale` in the checkpoint) takes nothing, and needs calibration.

With a scale per token, a token's bytes depend on nothing but that token, so tokens stay the same alone
or batched, whole or in chunks, cached or cold. KIVI (arXiv:2402.02750) found that keys have a few
channels with large values. It quantizes keys per channel over groups of 32 tokens, at 2 bits, and keeps
the newest tokens as they are; `docs/models.md` has the error of 8 bits without that.

Attention computes in floating point: the blocks that it gathers are decoded. The mirror holds decoded
copies (`mirror.py`), which are faster to read and take what int8 saved; `attention=PagedAttention` does
without. vLLM's kernel decodes each block as it reads it.
"""

import torch
from torch import Tensor

from engine.models.kv_sizes import SCALE_BYTES

_LARGEST = 127
_SMALLEST_SCALE = 1e-12  # a vector of zeros stays one


class Int8KV:
    """A codec for `KVCache`; see above."""

    dtype = torch.int8
    name = "int8 with a scale per token and head"

    def stored_size(self, size: int) -> int:
        """Return how many bytes store a vector of `size` values."""
        return size + SCALE_BYTES

    def encode(self, vectors: Tensor) -> Tensor:
        """[..., size] -> int8 [..., size + 4]."""
        values = vectors.float()
        scale = values.abs().amax(-1, keepdim=True).div_(_LARGEST).clamp_min_(_SMALLEST_SCALE)
        rounded = (values / scale).round_().to(torch.int8)
        return torch.cat((rounded, scale.view(torch.int8)), dim=-1)

    def decode(self, stored: Tensor, out: Tensor) -> Tensor:
        """Write the vectors into `out`, int8 [..., size + 4] -> [..., size], and return it."""
        scale = stored[..., -SCALE_BYTES:].contiguous().view(torch.float32)
        return torch.mul(stored[..., :-SCALE_BYTES], scale, out=out)


def stored_kv(dtype: torch.dtype, kv_dtype: str) -> tuple[torch.dtype, int]:
    """Return the type of stored KV and the bytes of a vector's scale, for a model in `dtype`."""
    return (torch.int8, SCALE_BYTES) if kv_dtype == "int8" else (dtype, 0)
