"""Check the parts that a learner may write when they enter the engine.

The constructor rejects an object that does not fit its role. A part that is not the engine's own is
then wrapped: the wrapper turns its exceptions and wrong results into the errors of
`part_errors.py`. The engine calls its own parts directly, so the step loop needs no checks.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.eviction import EVICTIONS, EvictionOrder
from engine.core.cache.prefix_cache import PrefixLookup
from engine.core.cache.radix_tree import RadixNode
from engine.core.config import ConfigError, EngineConfig
from engine.core.output.tool_use import Tool, ToolTokens, ToolUse
from engine.core.part_errors import (
    EvictionError,
    PolicyError,
    PoolError,
    ToolError,
    ask,
    checked_ids,
    checked_key,
    named,
)
from engine.core.request import Request
from engine.core.runner import Runner
from engine.core.scheduling.policies import POLICIES
from engine.core.scheduling.policy import AdmissionLimits, Policy
from engine.core.scheduling.waiting_queue import WaitingQueue
from engine.core.tokenizer import Tokenizer

# The method that each part must have; "" for a part that is itself callable.
_METHODS = {
    "runner": "run",
    "policy": "key",
    "pool": "allocate",
    "tree": "match",
    "eviction": "key",
    "drafter": "propose",
    "tool": "feed",
    "attention": "",
    "verifier": "accept",
    "logits_to_probs": "",
}
_OF_A_MODEL = ("attention", "verifier", "logits_to_probs")


def check_parts(parts: Mapping[str, Any], config: EngineConfig) -> None:
    """Raise ConfigError for an object that does not fit its role. None is always valid."""
    for name, part in parts.items():
        if part is not None:
            if name in ("tree", "eviction") and config.prefix_cache == "hash":
                raise ConfigError(
                    f'{name} is a part of the radix tree: set prefix_cache="radix", got "hash"'
                )
            if name in _OF_A_MODEL and not hasattr(parts["runner"], name):
                runner = type(parts["runner"]).__name__
                raise ConfigError(
                    f"{name} is a part of a model, and {runner} has none: load a model"
                )
            _check_kind(name, part)
    if config.async_scheduling and parts["drafter"] is not None:
        raise ConfigError(
            "async_scheduling must be False with a drafter, which needs the last token to propose the "
            f"next ones; got async_scheduling=True and drafter={type(parts['drafter']).__name__}(...)"
        )
    if (pool := parts["pool"]) is not None:
        new = len(pool.free) == pool.num_blocks
        _check_new("pool", "num_blocks", pool.num_blocks, config.num_blocks, new=new)
    if (tree := parts["tree"]) is not None:
        new = len(tree.nodes) == 1
        _check_new("tree", "block_size", tree.block_size, config.block_size, new=new)


def set_model_parts(runner: Runner, parts: Mapping[str, Any]) -> None:
    """Pass the model's parts on to its runner."""
    for name in _OF_A_MODEL:
        if parts[name] is not None:
            setattr(runner, name, parts[name])


def class_names(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of each part's class, or its own name if it is a class or a function."""
    return {
        name: part.__name__ if hasattr(part, "__name__") else type(part).__name__
        for name, part in parts.items()
        if part is not None
    }


def _check_kind(name: str, part: Any) -> None:
    method = _METHODS[name]
    if not method:
        if not callable(part):
            raise ConfigError(f"{name} must be a class or a function, got {part!r}")
        return
    kind = "a class" if name == "tool" else "an object"
    if isinstance(part, type) != (name == "tool"):
        got = f"the class {part.__name__}" if isinstance(part, type) else repr(part)
        raise ConfigError(f"{name} must be {kind}, got {got}")
    if not callable(getattr(part, method, None)):
        raise ConfigError(
            f"{name} must be {kind} with a method {method}(), got {part!r}; "
            "docs/extending.md shows one"
        )


def _check_new(name: str, field: str, got: int, expected: int, *, new: bool) -> None:
    if got != expected:
        raise ConfigError(f"{name} must be made with config.{field} ({expected}), got {got}")
    if not new:
        raise ConfigError(f"{name} has served another engine: make a new one for this one")


# Wrappers


def checked_policy(policy: Policy) -> Policy:
    """Return one of the engine's own policies unchanged; wrap any other."""
    return policy if type(policy) in (Policy, *POLICIES.values()) else _CheckedPolicy(policy)


def checked_eviction(order: EvictionOrder) -> EvictionOrder:
    """Return one of the engine's own eviction orders unchanged; wrap any other."""
    return order if type(order) in EVICTIONS.values() else _CheckedEviction(order)


def checked_pool(pool: BlockPool) -> BlockPool:
    """Return a plain `BlockPool` unchanged; wrap a subclass."""
    return pool if type(pool) is BlockPool else _CheckedPool(pool)


def checked_tool(tool: type[Tool]) -> type[Tool]:
    """Return `ToolUse` unchanged; wrap any other tool class."""
    return tool if tool is ToolUse else cast(type[Tool], partial(_CheckedTool, tool))


class _CheckedTool:
    """A learner's tool. Raises ToolError for its mistakes."""

    def __init__(
        self,
        tool: type[Tool],
        tokens: ToolTokens,
        tokenizer: Tokenizer,
        evaluate: Callable[[str], str | None],
    ) -> None:
        self._tool = tool(tokens, tokenizer, evaluate)
        self._vocab_size = tokenizer.vocab_size

    def feed(self, token: int) -> list[int]:
        """See `Tool.feed`."""
        forced = ask(ToolError, self._tool.feed, token)
        return checked_ids(ToolError, self._tool, "feed", forced, self._vocab_size)


class _CheckedPolicy(Policy):
    """A learner's policy. Raises PolicyError for its mistakes."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def keys_change(self) -> bool:  # type: ignore[override]
        return self._policy.keys_change

    @property
    def sort_limit(self) -> int | None:  # type: ignore[override]
        return self._policy.sort_limit

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        key = ask(PolicyError, self._policy.key, request, tree)
        return checked_key(PolicyError, self._policy, key)

    def group(self, request: Request) -> Hashable:
        return ask(PolicyError, self._policy.group, request)

    def admit(
        self, waiting: Iterator[Request], limits: AdmissionLimits
    ) -> Collection[Request] | None:
        admit = ask(PolicyError, self._policy.admit, waiting, limits)
        if not isinstance(admit, Collection | None):
            name = named(self._policy, "admit")
            raise PolicyError(f"{name} must return a collection of requests or None, got {admit!r}")
        return admit

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        victim = ask(PolicyError, self._policy.victim, running, needed_by)
        if victim not in running:
            got = f"request {victim.id}" if isinstance(victim, Request) else repr(victim)
            name = named(self._policy, "victim")
            raise PolicyError(f"{name} must return one of the running requests, got {got}")
        return victim

    def defer(self, request: Request, tree: PrefixLookup, computing: Sequence[Request]) -> bool:
        return ask(PolicyError, self._policy.defer, request, tree, computing)

    def on_queued(self, request: Request, waiting: WaitingQueue) -> None:
        ask(PolicyError, self._policy.on_queued, request, waiting)

    def on_served(self, request: Request, prompt_tokens: int, output_tokens: int) -> None:
        ask(PolicyError, self._policy.on_served, request, prompt_tokens, output_tokens)


class _CheckedEviction(EvictionOrder):
    """A learner's eviction order. Raises EvictionError for its mistakes."""

    def __init__(self, order: EvictionOrder) -> None:
        self._order = order

    def key(self, node: RadixNode) -> tuple[float, ...]:
        return checked_key(EvictionError, self._order, ask(EvictionError, self._order.key, node))


class _CheckedPool(BlockPool):
    """A learner's pool. Raises PoolError for its mistakes; the pool must not be used after that."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.num_blocks = pool.num_blocks
        self.share = pool.share  # type: ignore[method-assign]
        self.release = pool.release  # type: ignore[method-assign]

    @property
    def free(self) -> list[int]:  # type: ignore[override]
        return self._pool.free

    @property
    def refs(self) -> list[int]:  # type: ignore[override]
        return self._pool.refs

    def allocate(self, count: int) -> list[int]:
        free, name = list(self.free), named(self._pool, "allocate")
        blocks = ask(PoolError, self._pool.allocate, count)
        if not isinstance(blocks, list) or len(blocks) != count:
            raise PoolError(f"{name} must return a list of {count} blocks, got {blocks!r}")
        self._check_allocated(name, blocks, free)
        return blocks

    def writable(self, block: int) -> int:
        if type(self._pool).writable is BlockPool.writable:
            return super().writable(block)  # so its call to `allocate` is checked
        free, holders, name = list(self.free), self.refs[block], named(self._pool, "writable")
        fresh = ask(PoolError, self._pool.writable, block)
        self._check_allocated(name, [fresh], free)
        if self.refs[block] != holders - 1:
            raise PoolError(f"{name} must drop one reference to block {block} from `refs`")
        return fresh

    def _check_allocated(self, name: str, blocks: list[int], free: list[int]) -> None:
        for index, block in enumerate(blocks):
            if block in blocks[:index]:
                raise PoolError(f"{name} handed out block {block} twice")
            if block not in free:
                raise PoolError(
                    f"{name} handed out block {block}, which is in use or does not exist"
                )
        if self.free != [block for block in free if block not in blocks]:
            raise PoolError(f"{name} must leave the other blocks in `free`, in their order")
        if any(self.refs[block] != 1 for block in blocks):
            raise PoolError(f"{name} must give each block one reference in `refs`")
