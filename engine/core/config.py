"""The engine's settings, each declared once: its type, its bounds, its meaning and its default.

Each switch turns off one idea of LLM serving, so a lesson can show what that idea is good for. The
options of `underglass serve`, the form that restarts an engine, the playground's controls, the error
messages and the table in `docs/glossary.md`, which maps each setting to the flags of vLLM and SGLang,
are all derived from the declarations: see `declared.py`.
"""

from typing import Annotated, Any, Literal

import msgspec

from engine.core.declared import any_of, setting, wrong_field


class ConfigError(ValueError):
    """A setting is invalid. The message names the field, the value and the valid values."""


_PRESETS: dict[str, dict[str, Any]] = {
    "vllm": {"admission": "whole", "prefix_cache": "hash"},
    "sglang": {"scheduler": "sglang", "prefix_cache": "radix"},
}


_WITH_SGLANG: dict[str, tuple[Any, ...]] = {
    "policy": ("fcfs", "lpm", "priority"),
    "batching": ("continuous",),
    "prefix_cache": ("radix", "off"),
    "host_kv_tokens": (0,),
    "disk_kv_tokens": (0,),
    "preemption": (True,),
    "watermark": (0.0,),
    "long_prefill_token_threshold": (0,),
}


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a step, the size of the KV memory, and which ideas are on.

    vllm, sglang  the flags that do the same there, for the setting or for each of its values
    range         what the playground offers: minimum, maximum and step
    """

    token_budget: Annotated[
        int,
        setting(
            "Maximum number of tokens computed in one step, over all requests.",
            ge=1,
            range=(4, 256, 1),
            vllm="`--max-num-batched-tokens`",
            sglang="`--chunked-prefill-size`, `--max-prefill-tokens` (prefill only)",
        ),
    ] = 64
    scheduler: Annotated[
        Literal["vllm", "sglang", "sglang_mixed"],
        setting(
            "vllm: each step hands out its tokens, to running requests first; sglang: a step computes "
            "prompts, and the running requests decode only if none can be admitted; sglang_mixed: they "
            "decode in the same step.",
            vllm={"vllm": "the only one"},
            sglang={"sglang": "the default", "sglang_mixed": "`--enable-mixed-chunk`"},
        ),
    ] = "vllm"
    schedule_conservativeness: Annotated[
        float,
        setting(
            "For SGLang's scheduler: a running request is expected to produce 0.7 times this share of "
            "its remaining output. With a smaller number, more requests are admitted and retracted.",
            ge=0,
            le=2,
            sglang="`--schedule-conservativeness`",
        ),
    ] = 1.0
    max_batch_size: Annotated[
        int,
        setting(
            "Seats in the batch: the maximum number of running samples.",
            ge=1,
            range=(1, 32, 1),
            vllm="`--max-num-seqs`",
            sglang="`--max-running-requests`",
        ),
    ] = 8
    max_kv_tokens: Annotated[
        int,
        setting(
            "Size of the KV memory in token slots, rounded down to whole blocks.",
            ge=1,
            range=(64, 2048, 8),
            vllm="derived from `--gpu-memory-utilization`; `--num-gpu-blocks-override` sets it in "
            "blocks",
            sglang="`--max-total-tokens`; derived from `--mem-fraction-static` by default",
        ),
    ] = 2048
    block_size: Annotated[
        int,
        setting(
            "Token slots per KV block.",
            ge=1,
            range=(1, 32, 1),
            vllm="`--block-size`",
            sglang="`--page-size`",
        ),
    ] = 16
    kv_dtype: Annotated[
        Literal["auto", "int8"],
        setting(
            "How KV is stored: auto, in the model's precision; or int8, in about half of 16 bits, with "
            "a scale for each token and head.",
            vllm={
                "auto": "`--kv-cache-dtype auto`",
                "int8": "`--kv-cache-dtype int8_per_token_head`",
            },
            sglang={"auto": "`--kv-cache-dtype auto`", "int8": "– (`fp8_e4m3`, `fp8_e5m2`)"},
        ),
    ] = "auto"
    policy: Annotated[
        Literal["fcfs", "priority", "sjf", "lpm", "fair"],
        setting(
            "Order of the queue: fcfs, first come first served; priority; sjf, shortest job first; "
            "lpm, longest prefix match; or fair, the label with the least service first.",
            vllm={
                "fcfs": "`--scheduling-policy fcfs`",
                "priority": "`--scheduling-policy priority` (lower is more urgent, as here)",
            },
            sglang={
                "fcfs": "`--schedule-policy fcfs`",
                "priority": "`--enable-priority-scheduling` (higher first by default; here as with "
                "`--schedule-low-priority-values-first`)",
                "sjf": "– (`--schedule-policy lof` is the opposite: longest output first)",
                "lpm": "`--schedule-policy lpm`; for in-batch sharing, the environment variables "
                "`IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD` and `..._DEPRIORITIZE_THRESHOLD`, both 32 "
                "tokens",
                "fair": "–",
            },
        ),
    ] = "fcfs"
    batching: Annotated[
        Literal["continuous", "static"],
        setting(
            "continuous: a free seat is filled in the next step; static: a batch runs until its last "
            "request has finished.",
            vllm={"static": "– (always continuous)"},
            sglang={"static": "– (always continuous)"},
        ),
    ] = "continuous"
    chunked_prefill: Annotated[
        bool,
        setting(
            "Split a prompt that does not fit into the token budget of a step.",
            vllm="`--enable-chunked-prefill` (on by default)",
            sglang="`--chunked-prefill-size -1` switches it off",
        ),
    ] = True
    admission: Annotated[
        Literal["whole", "first_chunk"],
        setting(
            "whole: admit a request if all its tokens fit into memory beside the running requests; "
            "first_chunk: if its first chunk fits, at the risk that it is soon preempted.",
            vllm={
                "whole": "`--scheduler-reserve-full-isl` (on by default)",
                "first_chunk": "`--no-scheduler-reserve-full-isl`",
            },
        ),
    ] = "whole"
    watermark: Annotated[
        float,
        setting(
            "Share of the KV blocks that admissions leave free while other requests run, so that these "
            "can grow without a preemption.",
            ge=0,
            le=0.99,
            vllm="`--watermark`",
        ),
    ] = 0.0
    long_prefill_token_threshold: Annotated[
        int,
        setting(
            "Maximum number of tokens that one request computes in a step while there are others, so "
            "that a long prompt does not take all the budget. 0: no limit.",
            ge=0,
            vllm="`--long-prefill-token-threshold`",
        ),
    ] = 0
    long_prefill_token_threshold_adaptive: Annotated[
        bool,
        setting(
            "Raise that limit to an equal share of the budget where the share is larger.",
            vllm="`--long-prefill-token-threshold-adaptive`",
        ),
    ] = False
    prefix_cache: Annotated[
        Literal["radix", "hash", "off"] | bool,
        setting(
            "Keep KV blocks for later requests with the same prefix: radix, in a tree as SGLang does; "
            "hash, in a hash table as vLLM does; or off.",
            vllm={
                "radix": "–",
                "hash": "`--enable-prefix-caching` (on by default)",
                "off": "`--no-enable-prefix-caching`",
            },
            sglang={"radix": "the default", "off": "`--disable-radix-cache`"},
        ),
    ] = "radix"
    host_kv_tokens: Annotated[
        int,
        setting(
            "Host memory below the prefix cache, in token slots: evicted blocks go there and come back "
            "if fetching costs less than computing. 0: none.",
            ge=0,
            vllm="`--kv-offloading-size`, in GiB",
            sglang="`--enable-hierarchical-cache`, `--hicache-size`, in GB",
        ),
    ] = 0
    disk_kv_tokens: Annotated[
        int,
        setting(
            "Disk space below that, in token slots. 0: none.",
            ge=0,
            vllm="a secondary tier `fs` in `--kv-transfer-config`",
            sglang="`--hicache-storage-backend file`",
        ),
    ] = 0
    kv_write: Annotated[
        Literal["write_back", "write_through"],
        setting(
            "When a block is copied to host memory and disk: write_back, when it is evicted; "
            "write_through, when it has been computed.",
            vllm={"write_back": "–", "write_through": "always"},
            sglang={
                "write_back": "`--hicache-write-policy write_back`",
                "write_through": "`--hicache-write-policy write_through`",
            },
        ),
    ] = "write_back"
    eviction: Annotated[
        Literal["lru", "lfu"],
        setting(
            "Which leaf of the tree is evicted first: lru, the least recently used one; or lfu, the "
            "least frequently used one.",
            vllm="– (always LRU, block by block)",
            sglang="`--radix-eviction-policy`: `lru`, `lfu`, `slru`, `priority`, `tlru`",
        ),
    ] = "lru"
    preemption: Annotated[
        bool,
        setting(
            "Admit optimistically, and preempt when KV memory runs out; if off, reserve each request's "
            "maximum at admission.",
            sglang={False: "the closest is a high `--schedule-conservativeness`"},
        ),
    ] = True
    async_scheduling: Annotated[
        bool,
        setting(
            "Schedule a step while the one before is computed, so that neither waits; a stop token is "
            "noticed one step late. Cannot be combined with a drafter.",
            vllm="`--async-scheduling` (on by default where supported)",
            sglang="`--disable-overlap-schedule` switches it off",
        ),
    ] = False
    jump_forward: Annotated[
        bool,
        setting(
            "Append the tokens that a grammar forces without sampling them; they are computed with the "
            "next row.",
            sglang="jump-forward decoding, in its early versions",
        ),
    ] = True
    max_loras: Annotated[
        int,
        setting(
            "Slots for LoRA adapters: how many different ones a step may use.",
            ge=0,
            range=(0, 8, 1),
            vllm="`--max-loras` (1 by default)",
            sglang="`--max-loras-per-batch`",
        ),
    ] = 4

    def __post_init__(self) -> None:
        if isinstance(self.prefix_cache, bool):
            kind = "radix" if self.prefix_cache else "off"
            msgspec.structs.force_setattr(self, "prefix_cache", kind)
        if wrong := wrong_field(self):
            raise ConfigError(" ".join(wrong))
        if self.prefix_cache == "hash" and self.eviction != "lru":
            raise ConfigError(
                'eviction must be "lru" if prefix_cache is "hash", because its queue evicts in that '
                f"order; got {self.eviction!r}"
            )
        for name in ("host_kv_tokens", "disk_kv_tokens"):
            without = "prefix_cache" if self.prefix_cache == "off" else "async_scheduling"
            if getattr(self, name) and (self.async_scheduling or self.prefix_cache == "off"):
                raise ConfigError(
                    f"{name} must be 0 with {without}={getattr(self, without)!r}, got "
                    f"{getattr(self, name)}"
                )
        if self.scheduler != "vllm":
            self._check_sglang()
        if self.max_kv_tokens < self.block_size:
            raise ConfigError(
                f"max_kv_tokens must be at least block_size ({self.block_size}), got "
                f"{self.max_kv_tokens}"
            )

    def _check_sglang(self) -> None:
        for name, values in _WITH_SGLANG.items():
            if (value := getattr(self, name)) not in values:
                raise ConfigError(
                    f"{name} must be {' or '.join(map(repr, values))} with "
                    f"scheduler={self.scheduler!r}, got {value!r}"
                )
        least, name = self.block_size, "block_size"
        if self.scheduler == "sglang_mixed" and self.max_batch_size >= least:
            least, name = self.max_batch_size + 1, "max_batch_size + 1"
        if self.chunked_prefill and self.token_budget < least:
            raise ConfigError(
                f"token_budget must be at least {name} ({least}) with "
                f"scheduler={self.scheduler!r}, got {self.token_budget}"
            )

    @classmethod
    def like(cls, engine: str, **settings: Any) -> "EngineConfig":
        """Return the settings that make the engine decide as vLLM ("vllm") or SGLang ("sglang") does.

        `settings` extend or override the preset. `docs/glossary.md` says what each preset covers.
        Raises ConfigError for an unknown engine or setting.
        """
        if not isinstance(engine, str) or engine not in _PRESETS:
            raise ConfigError(f"engine must be {any_of(_PRESETS)}, got {engine!r}")
        return cls(**_PRESETS[engine]).changed(**settings)

    def changed(self, **settings: Any) -> "EngineConfig":
        """Return a copy with other settings. Raises ConfigError, also for an unknown setting."""
        for name in settings:
            if name not in self.__struct_fields__:
                raise ConfigError(
                    f"{name} is not a setting; the settings are {', '.join(self.__struct_fields__)}"
                )
        return msgspec.structs.replace(self, **settings)

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
