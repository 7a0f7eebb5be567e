"""Check the parts that a learner may write when they enter the engine.

The constructor rejects an object that does not fit its role. A part that is not the engine's own is
then wrapped in a `CheckedPart` (`part_errors.py`), which turns its exceptions and wrong results into
errors. `_ROLES` has what is checked. The engine calls its own parts directly, so the step loop needs no
checks.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.eviction import EvictionOrder
from engine.core.config import ConfigError, EngineConfig
from engine.core.output.tool_use import Tool
from engine.core.part_errors import (
    CheckedPart,
    DrafterError,
    EvictionError,
    PartMethod,
    PolicyError,
    PoolError,
    Role,
    ToolError,
    is_own,
)
from engine.core.request import Request
from engine.core.runner import Runner
from engine.core.scheduling.policy import Policy
from engine.core.speculation.drafter import Drafter

_Part = TypeVar("_Part")


# Checks of results, see `Role.checks`


def _key(method: PartMethod, *args: Any) -> tuple[float, ...]:
    key = method.ask(*args)
    if not isinstance(key, tuple) or not all(
        isinstance(number, int | float) and not math.isnan(number) for number in key
    ):
        raise method.wrong(f"must return a tuple of numbers, got {key!r}")
    return key


def _admit(method: PartMethod, *args: Any) -> Collection[Request] | None:
    admit = method.ask(*args)
    if not isinstance(admit, Collection | None):
        raise method.wrong(f"must return a collection of requests or None, got {admit!r}")
    return admit


def _victim(method: PartMethod, running: Sequence[Request], needed_by: Request) -> Request:
    victim = method.ask(running, needed_by)
    if victim not in running:
        got = f"request {victim.id}" if isinstance(victim, Request) else repr(victim)
        raise method.wrong(f"must return one of the running requests, got {got}")
    return cast(Request, victim)


def _token_ids(method: PartMethod, *args: Any, vocab_size: int) -> list[int]:
    ids = method.ask(*args)
    if not isinstance(ids, list):
        raise method.wrong(f"must return a list of token ids, got {ids!r}")
    for token in ids:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise method.wrong(
                f"must return token ids of the vocabulary (0 to {vocab_size - 1}), got {token!r}"
            )
    return list(ids)


def _allocate(method: PartMethod, count: int) -> list[int]:
    free = list(_pool(method).free)
    blocks = method.ask(count)
    if not isinstance(blocks, list) or len(blocks) != count:
        raise method.wrong(f"must return a list of {count} blocks, got {blocks!r}")
    _check_allocated(method, blocks, free)
    return blocks


def _writable(method: PartMethod, block: int) -> int:
    free, holders = list(_pool(method).free), _pool(method).refs[block]
    fresh: int = method.ask(block)
    _check_allocated(method, [fresh], free)
    if _pool(method).refs[block] != holders - 1:
        raise method.wrong(f"must drop one reference to block {block} from `refs`")
    return fresh


def _check_allocated(method: PartMethod, blocks: list[int], free: list[int]) -> None:
    for index, block in enumerate(blocks):
        if block in blocks[:index]:
            raise method.wrong(f"handed out block {block} twice")
        if block not in free:
            raise method.wrong(f"handed out block {block}, which is in use or does not exist")
    if _pool(method).free != [block for block in free if block not in blocks]:
        raise method.wrong("must leave the other blocks in `free`, in their order")
    if any(_pool(method).refs[block] != 1 for block in blocks):
        raise method.wrong("must give each block one reference in `refs`")


def _pool(method: PartMethod) -> BlockPool:
    return cast(BlockPool, method.part)


_ROLES = {
    "runner": Role("run"),
    "policy": Role("key", Policy, PolicyError, {"key": _key, "admit": _admit, "victim": _victim}),
    "pool": Role("allocate", BlockPool, PoolError, {"allocate": _allocate, "writable": _writable}),
    "tree": Role("match"),
    "eviction": Role("key", EvictionOrder, EvictionError, {"key": _key}),
    "drafter": Role("propose", Drafter, DrafterError, {"propose": _token_ids}),
    "tool": Role("feed", Tool, ToolError, {"feed": _token_ids}),
    "attention": Role(""),
    "verifier": Role("accept"),
    "logits_to_probs": Role(""),
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
    method = _ROLES[name].method
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


def checked_part(name: str, part: _Part, **facts: Any) -> _Part:
    """Return one of the engine's own parts unchanged; wrap any other, with facts for its checks."""
    return part if is_own(part) else cast(_Part, CheckedPart(part, _ROLES[name], **facts))


def checked_tool(tool: type[Tool], vocab_size: int) -> Callable[..., Tool]:
    """Return `ToolUse` unchanged; of any other class, return what makes checked tools."""
    if is_own(tool):
        return tool
    return lambda *args: checked_part("tool", tool(*args), vocab_size=vocab_size)
