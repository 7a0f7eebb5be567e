"""The engine's settings.

Each switch turns one idea of LLM serving off, so that a lesson can show the world without it.

`docs/glossary.md` maps every setting to vLLM's and SGLang's flag.
"""

from typing import Literal

import msgspec


class ConfigError(ValueError):
    """A setting is wrong. The message names the field, what it got and what it takes."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much the engine may do in a step, how much it may remember, and which ideas are on.

    token_budget      tokens computed in one step, over all requests   (vLLM:
                      max_num_batched_tokens)
    max_batch_size    requests running at once                         (vLLM: max_num_seqs)
    max_kv_tokens     token slots of KV memory, rounded down to whole blocks
    block_size        token slots in a KV block
    policy            order of the queue: "fcfs"; "priority"; "sjf", shortest job first; "lpm",
                      longest prefix match; "fair", the label that has had the least service first
    batching          "continuous": a place that falls free is given away in the next step;
                      "static": a batch runs until its last member has finished
    chunked_prefill   a prompt may be cut to fit into a step's budget
    prefix_cache      computed blocks are kept in the radix tree and found again
    eviction          what the tree forgets first: "lru", the least recently used; "lfu", the least
                      frequently used
    preemption        memory is promised optimistically and taken back when it runs out; off, every
                      request reserves its worst case before it is admitted
    """

    token_budget: int = 64
    max_batch_size: int = 8
    max_kv_tokens: int = 2048
    block_size: int = 16
    policy: str = "fcfs"
    batching: Literal["continuous", "static"] = "continuous"
    chunked_prefill: bool = True
    prefix_cache: bool = True
    eviction: str = "lru"
    preemption: bool = True

    def __post_init__(self) -> None:
        for field in ("token_budget", "max_batch_size", "max_kv_tokens", "block_size"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{field} must be a whole number of at least 1, got {value!r}")
        for field in ("chunked_prefill", "prefix_cache", "preemption"):
            if not isinstance(getattr(self, field), bool):
                raise ConfigError(f"{field} must be True or False, got {getattr(self, field)!r}")
        for field in ("policy", "eviction"):
            if not isinstance(getattr(self, field), str):
                got = repr(getattr(self, field))
                raise ConfigError(
                    f"{field} must be a name, got {got}: an object goes to Engine({field}=...)"
                )
        if self.batching not in ("continuous", "static"):
            raise ConfigError(f'batching must be "continuous" or "static", got {self.batching!r}')
        if self.max_kv_tokens < self.block_size:
            raise ConfigError(
                f"max_kv_tokens ({self.max_kv_tokens}) must hold at least one block: "
                f"raise it, or lower block_size ({self.block_size})"
            )

    @property
    def num_blocks(self) -> int:
        """KV blocks in memory."""
        return self.max_kv_tokens // self.block_size

    def blocks_for(self, tokens: int) -> int:
        """KV blocks that hold `tokens` token slots."""
        return -(-tokens // self.block_size)


def checked(config: EngineConfig | None) -> EngineConfig:
    """`config`, the defaults for None. Raises ConfigError for anything else, such as a dict."""
    config = EngineConfig() if config is None else config
    if not isinstance(config, EngineConfig):
        raise ConfigError(f"config must be an EngineConfig(...), got {config!r}")
    return config
