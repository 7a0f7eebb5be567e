"""KV cache groups: layers that differ have block tables of their own, over one memory.

A model with sliding windows or linear layers beside full attention stores the KV of a token several
times, once per *group* of layers, and each group needs another part of it:

    full attention   block 0  block 4  block 6  block 9    all blocks of a request
    window           -        -        block 7  block 8    only the blocks in its window
    chunk            -        -        -        block 3    only the blocks of its latest chunk
    linear           -        -        -        block 5    only the latest state

Chunked local attention (Llama 4) reads only the tokens of the same chunk: the text is cut at fixed
places. Linear layers keep the state after each block, or only at the ends of steps, which then end at
block boundaries (`aligned_chunks.py`).

All groups take their blocks from one memory. Five rules follow from that:

1. A request is admitted if the memory has its blocks for all groups. A window counts with what it can
   hold at once, which is less than a long prompt.
2. Blocks behind a window go back to the memory of all groups before the request gets new ones.
3. A block can be found by its prefix and its group. A prefix is a hit if every group has what it needs
   of it: full attention all its blocks, a window those before its end. Each group shortens the hit
   of the others until all agree.
4. All free and evictable blocks are in one queue. Blocks that no request can find are reused first,
   the others least recently used first. A request returns its blocks group by group, from the last to
   the first, so all blocks of one group are evicted before those of the next.
5. A window keeps few of its blocks findable (`retention`): those before the end of the prompt, where a
   later turn of the conversation goes on, and those where a prompt leaves a cached one.

The log has the tree and the evictions of the first group of full attention, and the tables of all
groups, as in a recording: a block that no table names, and that this group has not cached, counts as
free. So the pool's `free` is not the order of allocation; `queue` is.

Source: vLLM's `HybridKVCacheCoordinator` (`vllm/v1/core/kv_cache_coordinator.py`), its managers of full
attention, windows, chunks and linear layers (`single_type_kv_cache_manager.py`), and `block_pool.py`.

Differs from vLLM as `hash_cache.py` does. With a prefix cache, blocks of all groups have the same size.
There are no drafts with linear layers in vLLM's mode `align` and no samples that fork, and only a
simulated machine has groups: the engine's own models keep windows in `window_pages.py`.
"""

from typing import Any, Literal

import msgspec

from engine.core.config import ConfigError, EngineConfig


class Group(msgspec.Struct, frozen=True):
    """Layers that share a block table.

    kind        "linear": a state after each block; "aligned": states at the ends of steps
    window      tokens that a token of a window reads, itself included, or the tokens of a chunk; 0 for
                another kind
    block_size  tokens per block; differs from the engine's only without a prefix cache
    checkpoint  of aligned layers: a step may leave a state inside its chunk, a multiple of so many
                tokens after its start; 0: it leaves one only at its end
    """

    kind: Literal["full", "window", "chunk", "linear", "aligned"]
    block_size: int
    window: int = 0
    checkpoint: int = 0

    def blocks_for(self, tokens: int) -> int:
        """Return the number of blocks of `tokens` tokens."""
        return -(-tokens // self.block_size)

    def first_needed(self, num_computed: int) -> int:
        """Return the index of the first block that the next token reads, or continues."""
        if self.kind == "full":
            return 0
        if self.kind == "chunk":
            return num_computed // self.window * self.window // self.block_size
        return max(num_computed - self.reads + 1, 0) // self.block_size

    @property
    def is_linear(self) -> bool:
        """Whether the next token reads a state instead of earlier tokens."""
        return self.kind in ("linear", "aligned")

    @property
    def reads(self) -> int:
        """The tokens that a token reads, itself included; linear layers read the state before it."""
        return 2 if self.is_linear else self.window

    @property
    def blocks_of_hit(self) -> int:
        """The number of blocks before the end of a prefix that a hit needs, of windows and states."""
        return self.blocks_for(self.reads - 1)

    def new_blocks(self, held: int, tokens: int, has_checkpoint: bool = False) -> int:
        """Return how many blocks a table with `held` entries gets, so that it has `tokens` tokens.

        Aligned layers get one for the state after the last token, and one for a checkpoint before it.
        """
        missing = max(self.blocks_for(tokens) - held, 0)
        return min(missing, 1 + has_checkpoint) if self.kind == "aligned" else missing

    def most_blocks(self, tokens: int, in_flight: int) -> int:
        """Return how many blocks a request of so many tokens holds at most at any time.

        in_flight  the most tokens that the steps which have not ended compute. A window may begin
                   inside a block, so it needs one more.
        """
        whole = self.blocks_for(tokens)
        if self.kind == "window":
            return min(whole, self.blocks_for(self.window - 1 + in_flight) + 1)
        if self.kind == "aligned":  # the last state, the next one, and one between them
            return min(whole, 2 + (self.checkpoint > 0))
        return min(whole, self.blocks_for(self.window + in_flight)) if self.window else whole

    def has_checkpoint(self, start: int, end: int, position: int) -> bool:
        """Return whether a chunk of a prompt can leave a state at `position`, a whole block from it."""
        return (
            self.checkpoint > 0
            and start % self.block_size == 0
            and start + self.block_size <= position < end
            and (position - start) % self.checkpoint == 0
        )


class KVGroups(msgspec.Struct, frozen=True):
    """The groups of a model, in the order in which a request returns their blocks.

    retention  which blocks of windows and linear layers can be found: those before the end of a prompt
               (0), those and further ones every so many tokens, or all (None). It is vLLM's
               `prefix_cache_retention_interval`
    """

    groups: list[Group]
    retention: int | None = None


def keeps(group: Group, retention: int | None, index: int, ends: list[int]) -> bool:
    """Return whether a block of a table can be found, once it is full.

    retention  see `KVGroups`
    index      of the block
    ends       the number of blocks before the end of the prompt, and where it leaves a cached one
    """
    if group.kind in ("full", "chunk"):
        return True
    needed = group.blocks_of_hit
    if retention is None:
        return needed > 0
    interval = retention // group.block_size
    if interval and (needed >= interval or index % interval >= interval - needed):
        return True
    return any(end - needed <= index < end for end in ends)


def check_groups(config: EngineConfig, groups: KVGroups) -> None:
    """Raise ConfigError for settings or groups that cannot be combined."""
    wanted: dict[str, Any] = {"scheduler": "vllm", "preemption": True, "batching": "continuous"}
    wanted |= {"host_kv_tokens": 0, "disk_kv_tokens": 0}
    for name, value in wanted.items():
        if (got := getattr(config, name)) != value:
            raise ConfigError(f"{name} must be {value!r} with several KV cache groups, got {got!r}")
    if config.prefix_cache == "radix":
        raise ConfigError(
            'prefix_cache must be "hash" or "off" with several KV cache groups, got "radix"'
        )
    sizes = {one.block_size for one in groups.groups} - {config.block_size}
    if config.prefix_cache == "hash" and sizes:
        raise ConfigError(
            f"block_size must be that of all KV cache groups with a prefix cache, got "
            f"{config.block_size} and {sizes.pop()}"
        )
    kinds = {one.kind for one in groups.groups}
    if "aligned" in kinds and not (config.chunked_prefill and config.prefix_cache == "hash"):
        raise ConfigError(
            'chunked_prefill must be True and prefix_cache "hash" with aligned linear layers'
        )
    for one in groups.groups:
        if one.kind == "chunk" and one.window % one.block_size:
            raise ConfigError(
                f"block_size must divide the {one.window} tokens of a chunk, got {one.block_size}"
            )
    if "full" not in kinds:
        raise ConfigError("kv_groups must have a group of full attention")
