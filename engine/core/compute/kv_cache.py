"""KV memory: the keys and values of every computed token, stored in blocks.

A block has `block_size` slots, one per token. A token's keys and values are adjacent, so writing a
token is one operation. Each block is contiguous, so reading a block is one copy:

    [layers, num_blocks, block_size, 2 (keys, values), kv_heads, head_dim]

A model may keep one vector in place of the two (`ModelConfig.kv_parts`), and a codec may store each of
them in another form (`kv_dtype="int8"`, see `engine/models/int8_kv.py`).

If sliding layers free what is behind their window (`engine/extensions/window_pages.py`), they have a
smaller tensor with window pages in place of blocks, and `page_of` says which page a block has. They
also have a tensor of their own if their heads have another shape (Gemma 4); without window pages, it
has every block. A layer that shares the KV of an earlier one (`ModelConfig.kv_source`) has none.

Differs from vLLM (`vllm/v1/attention/backends/flash_attn.py`):

- One tensor holds all layers of a kind. vLLM allocates one per layer.
- A token's keys and values are adjacent. vLLM stores all keys before all values
  (`[2, num_blocks, block_size, kv_heads, head_dim]`), which suits its GPU kernels.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.core.compute.device import CPU, activation_dtype
from engine.core.compute.model import ModelConfig
from engine.core.config import ConfigError

if TYPE_CHECKING:
    from engine.core.compute.mirror import Mirror


class KVCodec(Protocol):
    """Another form for keys and values in blocks; each vector of a head is stored by itself.

    dtype  the type of what is stored; name  the same in words
    """

    dtype: torch.dtype
    name: str

    def stored_size(self, size: int) -> int:
        """Return how many values of `dtype` store a vector of `size` values."""

    def encode(self, vectors: Tensor) -> Tensor:
        """[..., size] -> `dtype` [..., stored size]."""

    def decode(self, stored: Tensor, out: Tensor) -> Tensor:
        """Write the vectors into `out`, [..., stored size] -> [..., size], and return it."""


class KVCache:
    """The KV memory of all layers. A slot's contents are undefined until it is written.

    tensor         the memory of the layers that have every block, in the layout above
    window_tensor  the memory of sliding layers that have window pages or heads of another shape, in
                   the same layout; it has no layers if there are none
    has_window_pages  whether `window_tensor` has window pages in place of blocks
    page_of        [num_blocks] where `window_tensor` has each block; -1 for nowhere
    mirror         contiguous copies of contexts, if `MirroredAttention` reads this memory
    activation_dtype  the type that attention computes in; see `device.py`
    codec          the form in which vectors are stored; None: as they are
    parts          the vectors of a token and head: 2, or 1 that is both
    shapes[l]      layer l's heads and their size, as attention computes them
    by_slot[l]     layer l as `[blocks or pages * block_size, parts * kv_heads, stored size]`, for
                   writing tokens
    by_block[l]    layer l as `[blocks or pages, block_size * parts * kv_heads * stored size]`, for
                   reading blocks
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device = CPU,
        *,
        num_window_pages: int | None = None,
        codec: KVCodec | None = None,
    ) -> None:
        self.codec, self.parts = codec, config.kv_parts
        self.shapes = [config.kv_shape(layer) for layer in range(config.num_layers)]
        self.num_blocks, self.block_size = num_blocks, block_size
        self.mirror: Mirror | None = None
        own, windows = config.layers_with_kv, config.windows
        self.has_window_pages = num_window_pages is not None and config.window is not None
        self._is_paged = [self.has_window_pages and window is not None for window in windows]
        apart = self.has_window_pages or config.global_heads is not None
        self._sliding = [layer for layer in own if apart and windows[layer] is not None]
        self._full = [layer for layer in own if layer not in self._sliding]
        pages = num_blocks if num_window_pages is None else num_window_pages
        try:
            self.tensor, self.window_tensor = (
                torch.empty(
                    (len(layers), count, block_size, self.parts, *self._stored(layers)),
                    dtype=dtype if codec is None else codec.dtype,
                    device=device,
                )
                for layers, count in ((self._full, num_blocks), (self._sliding, pages))
            )
        except (RuntimeError, TypeError) as error:  # TypeError: a size too large for torch
            raise ConfigError(
                f"max_kv_tokens: {num_blocks} KV blocks of {block_size} tokens do not fit in "
                f"memory; lower it ({error})"
            ) from error
        self.activation_dtype = activation_dtype(dtype, device)
        self.page_of = torch.arange(num_blocks if self._sliding else 0, device=device)
        if self.has_window_pages:
            self.page_of.fill_(-1)
        memory = dict(zip(self._full, self.tensor, strict=True))
        memory |= zip(self._sliding, self.window_tensor, strict=True)
        layers = [memory[config.kv_source(layer)] for layer in range(config.num_layers)]
        self.by_slot = [layer.flatten(2, 3).flatten(0, 1) for layer in layers]
        self.by_block = [layer.flatten(1) for layer in layers]

    def _stored(self, layers: list[int]) -> tuple[int, int]:
        """Return the heads of layers of a kind, and the values that store a vector."""
        heads, size = self.shapes[next(iter(layers), 0)]
        return heads, size if self.codec is None else self.codec.stored_size(size)

    def blocks_in(self, layer: int, blocks: Tensor) -> Tensor:
        """Return where a layer has `blocks`: their indexes in `by_block[layer]`."""
        return self.page_of[blocks] if self._is_paged[layer] else blocks

    def slots_in(self, layer: int, slots: Tensor) -> Tensor:
        """Return where a layer has `slots`, numbered by block: their indexes in `by_slot[layer]`."""
        if not self._is_paged[layer]:
            return slots
        return self.page_of[slots // self.block_size] * self.block_size + slots % self.block_size

    def map_window_pages(self, pages: Sequence[tuple[int, int]]) -> None:
        """Note changes of `page_of`, given as (block, page) and in this order."""
        for block, page in dict(pages).items():
            self.page_of[block] = page

    @property
    def nbytes(self) -> int:
        """The bytes of both tensors."""
        return self.tensor.nbytes + self.window_tensor.nbytes

    # Pages: the KV of one block in all layers, as bytes, whatever the precision. First come the layers
    # of `tensor`, then those of `window_tensor`.

    @property
    def page_shape(self) -> tuple[int, ...]:
        """The shape of a page: [layers, block_size, parts, kv_heads, stored size].

        It is only [values] if the heads of the layers have different shapes.
        """
        full, windows = self.tensor.shape, self.window_tensor.shape
        if full[2:] == windows[2:]:
            return full[0] + windows[0], *full[2:]
        return (self.page_bytes // self.tensor.element_size(),)

    @property
    def page_bytes(self) -> int:
        """The size of a page."""
        values = _page_values(self.tensor) + _page_values(self.window_tensor)
        return values * self.tensor.element_size()

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """Return the pages of `blocks`, one after the other.

        A sliding layer's part of a block without a window page is 0.
        """
        full = self.tensor[:, list(blocks)].transpose(0, 1).flatten(1)
        at, found = self._window_pages(blocks)
        present = self.window_tensor[:, found].transpose(0, 1).flatten(1)
        windows = present.new_zeros(len(blocks), present.shape[1])
        windows[at] = present
        return torch.cat((full, windows), 1).view(torch.uint8).cpu().numpy().tobytes()

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        """Write pages that `read_pages` returned, one to each of `blocks`.

        A sliding layer's part is written if the block has a window page.
        """
        if self.mirror is not None:
            self.mirror.clear()
        # A copy, because torch has no read-only tensors.
        values = torch.tensor(np.frombuffer(pages, np.uint8), device=self.tensor.device)
        values = values.view(self.tensor.dtype).view(len(blocks), -1)
        sizes = [_page_values(one) for one in (self.tensor, self.window_tensor)]
        full, windows = torch.split(values, sizes, dim=1)
        self.tensor[:, list(blocks)] = _by_layer(full, self.tensor)
        at, found = self._window_pages(blocks)
        self.window_tensor[:, found] = _by_layer(windows[at], self.window_tensor)

    def _window_pages(self, blocks: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return which of `blocks`, by index, have a window page, and those pages."""
        pages = self.page_of[list(blocks)] if self._sliding else self.page_of
        at = (pages >= 0).nonzero()[:, 0]
        return at, pages[at]

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, given as (source, destination), in every layer and in this order."""
        if self.mirror is not None:
            self.mirror.clear()
        for source, destination in copies:
            self.tensor[:, destination] = self.tensor[:, source]
            if self._sliding:
                pages = self.page_of
                self.window_tensor[:, pages[destination]] = self.window_tensor[:, pages[source]]


def _page_values(tensor: Tensor) -> int:
    """Return the number of values of one block in the layers of `tensor`."""
    return tensor[:, :1].numel()


def _by_layer(pages: Tensor, tensor: Tensor) -> Tensor:
    """Turn [blocks, values of a page] into the layout of `tensor`."""
    return pages.reshape(len(pages), tensor.shape[0], *tensor.shape[2:]).transpose(0, 1)
