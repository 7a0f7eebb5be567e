"""KV memory: the keys and values of every computed token, stored in blocks.

A block has `block_size` slots, one per token. A token's keys and values are adjacent, so writing a
token is one operation. Each block is contiguous, so reading a block is one copy:

    [layers, num_blocks, block_size, 2 (keys, values), kv_heads, head_dim]

If sliding layers free what is behind their window (`engine/extensions/window_pages.py`), they have a
smaller tensor with window pages in place of blocks, and `page_of` says which page a block has.

Differs from vLLM (`vllm/v1/attention/backends/flash_attn.py`):

- One tensor holds all layers of a kind. vLLM allocates one per layer.
- A token's keys and values are adjacent. vLLM stores all keys before all values
  (`[2, num_blocks, block_size, kv_heads, head_dim]`), which suits its GPU kernels.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.core.compute.device import CPU, activation_dtype
from engine.core.compute.model import ModelConfig
from engine.core.config import ConfigError


class KVCache:
    """The KV memory of all layers. A slot's contents are undefined until it is written.

    tensor         the memory of the layers that have every block, in the layout above
    window_tensor  the memory of sliding layers that have window pages, in the same layout; empty if
                   there are none
    page_of        [num_blocks] each block's window page; -1 for none
    activation_dtype  the type that attention computes in; see `device.py`
    by_slot[l]     layer l as `[blocks or pages * block_size, 2 * kv_heads, head_dim]`, for writing
                   tokens
    by_block[l]    layer l as `[blocks or pages, block_size * 2 * kv_heads * head_dim]`, for reading
                   blocks
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
    ) -> None:
        self.block_size = block_size
        self._num_layers = config.num_layers
        self._sliding: list[int] = []
        if num_window_pages is not None:
            windows = enumerate(config.windows)
            self._sliding = [layer for layer, window in windows if window is not None]
        self._full = [one for one in range(config.num_layers) if one not in self._sliding]
        slots = block_size, 2, config.num_kv_heads, config.head_dim
        pages = num_window_pages or 0
        try:
            sizes = (len(self._full), num_blocks), (len(self._sliding), pages)
            self.tensor, self.window_tensor = (
                torch.empty((*size, *slots), dtype=dtype, device=device) for size in sizes
            )
        except (RuntimeError, TypeError) as error:  # TypeError: a size too large for torch
            raise ConfigError(
                f"max_kv_tokens: {num_blocks} KV blocks of {block_size} tokens do not fit in "
                f"memory; lower it ({error})"
            ) from error
        self.has_window_pages = bool(self._sliding)
        self.activation_dtype = activation_dtype(dtype, device)
        self.page_of = torch.full((num_blocks if self._sliding else 0,), -1, device=device)
        memory = dict(zip(self._full, self.tensor, strict=True))
        memory |= zip(self._sliding, self.window_tensor, strict=True)
        layers = [memory[layer] for layer in range(config.num_layers)]
        self.by_slot = [
            layer.view(-1, 2 * config.num_kv_heads, config.head_dim) for layer in layers
        ]
        self.by_block = [layer.flatten(1) for layer in layers]

    def blocks_in(self, layer: int, blocks: Tensor) -> Tensor:
        """Return where a layer has `blocks`: their indexes in `by_block[layer]`."""
        return self.page_of[blocks] if layer in self._sliding else blocks

    def slots_in(self, layer: int, slots: Tensor) -> Tensor:
        """Return where a layer has `slots`, numbered by block: their indexes in `by_slot[layer]`."""
        if layer not in self._sliding:
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

    # Pages: the KV of one block in all layers, as bytes, whatever the precision.

    @property
    def page_shape(self) -> tuple[int, ...]:
        """The shape of a page: [layers, block_size, 2 (keys, values), kv_heads, head_dim]."""
        return self._num_layers, *self.tensor.shape[2:]

    @property
    def page_bytes(self) -> int:
        """The size of a page."""
        return int(np.prod(self.page_shape)) * self.tensor.element_size()

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """Return the pages of `blocks`: for each block all layers, in the layout above.

        A sliding layer's part of a block without a window page is 0.
        """
        pages = self._pages(len(blocks))
        pages[:, self._full] = self.tensor[:, list(blocks)].transpose(0, 1)
        at, found = self._window_pages(blocks)
        pages[at[:, None], self._sliding] = self.window_tensor[:, found].transpose(0, 1)
        return pages.view(torch.uint8).cpu().numpy().tobytes()

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        """Write pages that `read_pages` returned, one to each of `blocks`.

        A sliding layer's part is written if the block has a window page.
        """
        # A copy, because torch has no read-only tensors.
        values = torch.tensor(np.frombuffer(pages, np.uint8), device=self.tensor.device)
        values = values.view(self.tensor.dtype).view(len(blocks), *self.page_shape)
        self.tensor[:, list(blocks)] = values[:, self._full].transpose(0, 1)
        at, found = self._window_pages(blocks)
        self.window_tensor[:, found] = values[at[:, None], self._sliding].transpose(0, 1)

    def _pages(self, count: int) -> Tensor:
        return self.tensor.new_zeros(count, *self.page_shape)

    def _window_pages(self, blocks: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return which of `blocks`, by index, have a window page, and those pages."""
        pages = self.page_of[list(blocks)] if self._sliding else self.page_of
        at = (pages >= 0).nonzero()[:, 0]
        return at, pages[at]

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, given as (source, destination), in every layer and in this order."""
        for source, destination in copies:
            self.tensor[:, destination] = self.tensor[:, source]
            if self._sliding:
                pages = self.page_of
                self.window_tensor[:, pages[destination]] = self.window_tensor[:, pages[source]]
