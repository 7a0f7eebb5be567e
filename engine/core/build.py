"""Wire the parts of an engine: pool, prefix cache, scheduler, drafter, log and loop.

`Engine` passes on the parts that its user wrote; every other part is the engine's own. Parts that a
user wrote are checked once, here, where they enter; see `parts.py`.
"""

from collections.abc import Callable
from typing import Any, TypedDict

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.eviction import EVICTIONS, EvictionOrder
from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.cache.prefix_cache import WindowPages
from engine.core.cache.radix_cache import RadixCache
from engine.core.cache.radix_tree import RadixTree
from engine.core.config import ConfigError, EngineConfig
from engine.core.extras import extension
from engine.core.log.recorder import Clock, Recorder
from engine.core.log.vocabulary import Event
from engine.core.loop import Loop
from engine.core.output.processor import output_maker
from engine.core.output.tool_use import Tool, ToolUse
from engine.core.parts import (
    check_parts,
    checked_part,
    checked_tool,
    class_names,
    set_model_parts,
)
from engine.core.runner import Runner
from engine.core.scheduling.policies import POLICIES
from engine.core.scheduling.policy import Policy
from engine.core.scheduling.scheduler import Scheduler
from engine.core.speculation.drafter import Drafter, FollowingDrafter, Speculation
from engine.core.tokenizer import Tokenizer


class Parts(TypedDict, total=False):
    """The parts that a user may write; see `docs/extending.md`. None is the engine's own.

    `attention`, `verifier` and `logits_to_probs` are parts of a model, and passed on to its runner.
    """

    policy: Policy | None
    pool: BlockPool | None
    tree: RadixTree | None
    eviction: EvictionOrder | None
    drafter: Drafter | None
    tool: type[Tool] | None
    attention: Callable[..., Any] | None
    verifier: object | None
    logits_to_probs: Callable[..., Any] | None


def build(
    runner: Runner,
    config: EngineConfig,
    tokenizer: Tokenizer,
    *,
    clock: Clock,
    emit: Callable[[Event], None],
    parts: Parts,
) -> Loop:
    """Return the loop of a new engine, whose KV memory is allocated and whose log has begun.

    Raises ConfigError for a part that does not fit its role, and if there is not enough memory.
    """
    given: dict[str, Any] = {"runner": runner, **dict.fromkeys(Parts.__annotations__), **parts}
    check_parts(given, config)
    pool = given["pool"] = given["pool"] or BlockPool(config.num_blocks)
    policy = given["policy"] = given["policy"] or POLICIES[config.policy]()
    used_pool = checked_part("pool", pool)
    runner.kv_dtype = config.kv_dtype
    # KV memory is allocated early, because there may be too little of it.
    pages = _reserve(runner, config, used_pool, emit)
    set_model_parts(runner, given)
    cache = _cache(config, used_pool, emit, pages, given)
    drafter = given["drafter"]
    draft = drafter if isinstance(drafter, FollowingDrafter) else None
    if draft is not None:
        draft.reserve(config, tokenizer.vocab_size)
    speculation, vocab_size = None, tokenizer.vocab_size
    if drafter is not None:
        drafter = checked_part("drafter", drafter, vocab_size=vocab_size)
        speculation = Speculation(drafter, cache)
    recorder = Recorder(clock, emit)
    recorder.take_lanes = getattr(runner, "take_lanes", None)
    kind = Loop
    if config.async_scheduling:
        from engine.core.async_loop import AsyncLoop

        kind = AsyncLoop
    scheduler_kind = Scheduler
    if config.scheduler != "vllm":
        if speculation is not None:
            raise ConfigError(f'scheduler must be "vllm" with a drafter, got {config.scheduler!r}')
        sglang = extension("sglang_scheduler")
        kind = sglang.OverlapLoop if config.async_scheduling else sglang.NormalLoop
        scheduler_kind = sglang.SGLangScheduler
    elif getattr(runner, "kv_groups", None):
        scheduler_kind = extension("grouped_cache").GroupedScheduler
    loop = kind(
        config=config,
        runner=runner,
        cache=cache,
        scheduler=scheduler_kind(config, checked_part("policy", policy), cache, emit, speculation),
        recorder=recorder,
        clock=clock,
        emit=emit,
        new_output=output_maker(
            config, tokenizer, checked_tool(given["tool"] or ToolUse, vocab_size)
        ),
        draft=draft,
    )
    model = runner.describe() | ({"draft_model": draft.describe()} if draft else {})
    recorder.run_started(config, model, tokenizer, class_names(given), pages)
    return loop


def _reserve(
    runner: Runner, config: EngineConfig, pool: BlockPool, emit: Callable[[Event], None]
) -> WindowPages | None:
    """Let a runner allocate its KV memory. Return the window pages of its sliding layers, if any."""
    if runner.window is None:
        runner.reserve(config.num_blocks, config.block_size)
        return None
    pages: WindowPages | None = extension("window_pages").reserve(runner, config, pool, emit)
    return pages


def _cache(
    config: EngineConfig,
    pool: BlockPool,
    emit: Callable[[Event], None],
    pages: WindowPages | None,
    given: dict[str, Any],
) -> KVCacheManager:
    if groups := getattr(given["runner"], "kv_groups", None):
        grouped: KVCacheManager = extension("grouped_cache").grouped_cache(
            config, groups, pool, emit
        )
        return grouped
    if config.prefix_cache == "hash":
        from engine.core.cache.hash_cache import HashCache

        return HashCache(pool, config.block_size, emit, pages)
    tree = given["tree"] = given["tree"] or RadixTree(config.block_size)
    given["eviction"] = given["eviction"] or EVICTIONS[config.eviction]()
    tree.eviction = checked_part("eviction", given["eviction"])
    tree.enabled = config.prefix_cache != "off"
    if config.scheduler != "vllm":
        sglang: KVCacheManager = extension("sglang_cache").SGLangCache(pool, tree, emit, pages)
        return sglang
    return RadixCache(pool, tree, emit, pages)
