"""The engine's settings.

Each switch turns off one idea of LLM serving, so a lesson can show what that idea is good for.
`docs/glossary.md` maps each setting to the flags of vLLM and SGLang.
"""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec


class ConfigError(ValueError):
    """A setting is invalid. The message names the field, the value and the valid values."""


_CHOICES = {
    "batching": ("continuous", "static"),
    "admission": ("whole", "first_chunk"),
    "prefix_cache": ("radix", "hash", "off"),
}
_PRESETS: dict[str, dict[str, Any]] = {
    "vllm": {"admission": "whole", "prefix_cache": "hash"},
    "sglang": {"admission": "first_chunk", "prefix_cache": "radix"},
}


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a step, the size of the KV memory, and which ideas are on.

    token_budget      tokens computed in one step, over all requests (vLLM: max_num_batched_tokens)
    max_batch_size    seats in the batch, one for each running sample (vLLM: max_num_seqs)
    max_kv_tokens     token slots of KV memory, rounded down to whole blocks
    block_size        token slots in a KV block
    policy            order of the queue: "fcfs"; "priority"; "sjf", shortest job first; "lpm",
                      longest prefix match; "fair", the label with the least service first
    batching          "continuous": a free seat is filled in the next step; "static": a batch runs
                      until its last request has finished
    chunked_prefill   split a prompt that does not fit into one step's budget
    admission         "whole": admit a request only if all its tokens fit into memory beside the
                      running requests (vLLM: scheduler_reserve_full_isl); "first_chunk": admit it as
                      soon as its first chunk fits, at the risk that it is soon preempted
    prefix_cache      keep blocks for later requests: "radix", in a tree as SGLang does; "hash", in
                      a hash table as vLLM does; "off". True means "radix", False "off"
    eviction          what the tree evicts first: "lru", the least recently used leaf; "lfu", the
                      least frequently used
    async_scheduling  schedule a step while the previous one is computed, so a stop token is noticed,
                      and a freed seat filled, one step later; cannot be combined with a drafter
    jump_forward      append the tokens that a grammar forces without sampling them; they are computed
                      with the next row (SGLang: jump-forward decoding)
    preemption        admit optimistically and preempt when memory runs out; if off, each request
                      reserves its maximum number of blocks at admission
    """

    token_budget: int = 64
    max_batch_size: int = 8
    max_kv_tokens: int = 2048
    block_size: int = 16
    policy: str = "fcfs"
    batching: Literal["continuous", "static"] = "continuous"
    chunked_prefill: bool = True
    admission: Literal["whole", "first_chunk"] = "whole"
    prefix_cache: Literal["radix", "hash", "off"] | bool = "radix"
    eviction: str = "lru"
    preemption: bool = True
    async_scheduling: bool = False
    jump_forward: bool = True

    def __post_init__(self) -> None:
        for field in ("token_budget", "max_batch_size", "max_kv_tokens", "block_size"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{field} must be a whole number of at least 1, got {value!r}")
        for field in ("chunked_prefill", "preemption", "async_scheduling", "jump_forward"):
            if not isinstance(value := getattr(self, field), bool):
                raise ConfigError(f"{field} must be True or False, got {value!r}")
        for field in ("policy", "eviction"):
            if not isinstance(value := getattr(self, field), str):
                raise ConfigError(
                    f"{field} must be a name, got {value!r}: pass an object to Engine({field}=...)"
                )
        if isinstance(self.prefix_cache, bool):
            kind = "radix" if self.prefix_cache else "off"
            msgspec.structs.force_setattr(self, "prefix_cache", kind)
        for field, values in _CHOICES.items():
            if not isinstance(value := getattr(self, field), str) or value not in values:
                raise ConfigError(f"{field} must be {_any_of(values)}, got {value!r}")
        if self.prefix_cache == "hash" and self.eviction != "lru":
            raise ConfigError(
                'eviction must be "lru" if prefix_cache is "hash", because its queue evicts in that '
                f"order; got {self.eviction!r}"
            )
        if self.max_kv_tokens < self.block_size:
            raise ConfigError(
                f"max_kv_tokens must be at least block_size ({self.block_size}), got "
                f"{self.max_kv_tokens}"
            )

    @classmethod
    def like(cls, engine: str, **settings: Any) -> "EngineConfig":
        """Return the settings that make the engine decide as vLLM ("vllm") or SGLang ("sglang") does.

        `settings` extend or override the preset. `docs/glossary.md` says what each preset covers.
        Raises ConfigError for an unknown engine or setting.
        """
        if not isinstance(engine, str) or engine not in _PRESETS:
            raise ConfigError(f"engine must be {_any_of(_PRESETS)}, got {engine!r}")
        for name in settings:
            if name not in cls.__struct_fields__:
                raise ConfigError(
                    f"{name} is not a setting; the settings are {', '.join(cls.__struct_fields__)}"
                )
        return cls(**_PRESETS[engine] | settings)

    @property
    def num_blocks(self) -> int:
        """The number of KV blocks in memory."""
        return self.max_kv_tokens // self.block_size

    def blocks_for(self, tokens: int) -> int:
        """Return the number of KV blocks needed for `tokens` tokens."""
        return -(-tokens // self.block_size)


def checked(config: EngineConfig | None) -> EngineConfig:
    """Return `config`, or the defaults for None. Raises ConfigError for anything else."""
    config = EngineConfig() if config is None else config
    if not isinstance(config, EngineConfig):
        raise ConfigError(f"config must be an EngineConfig(...), got {config!r}")
    return config


def _any_of(names: Iterable[str]) -> str:
    """Return '"a", "b" or "c"'."""
    *others, last = (f'"{name}"' for name in names)
    return f"{', '.join(others)} or {last}"
