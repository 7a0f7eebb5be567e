"""The parts of an engine that somebody may write: what each must be, and what the log calls it.

What is given as a part is looked at before anything is made of it, so that a slip is refused where it
was written. What a part does wrong later on is in `part_errors.py`.
"""

from collections.abc import Mapping
from typing import Any

from engine.config import ConfigError, EngineConfig
from engine.runner import Runner

# What each part must be able to do at least; "" is to be called itself.
_ASKED = {
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
    """Raise ConfigError, which says what to pass instead, for what cannot be the part it is given as.

    None stands for the engine's own. A tool and attention are classes, because the engine makes many.
    """
    for name, part in parts.items():
        if part is not None:
            if name in _OF_A_MODEL and not hasattr(parts["runner"], name):
                runner = type(parts["runner"]).__name__
                raise ConfigError(f"{runner} has no {name}: it is a model's part")
            _check_kind(name, part)
    if (pool := parts["pool"]) is not None:
        _check_size("pool", pool.num_blocks, "num_blocks", config.num_blocks)
        _check_new("pool", new=len(pool.free) == pool.num_blocks)
    if (tree := parts["tree"]) is not None:
        _check_size("tree", tree.block_size, "block_size", config.block_size)
        _check_new("tree", new=len(tree.nodes) == 1)


def give_to_model(runner: Runner, parts: Mapping[str, Any]) -> None:
    """Hand the parts that a model's runner has on to it; what is not given stays as it is."""
    for name in _OF_A_MODEL:
        if parts[name] is not None:
            setattr(runner, name, parts[name])


def names_of(parts: Mapping[str, Any]) -> dict[str, str]:
    """The names of the classes that run, by part. A class and a function have names of their own."""
    return {
        name: part.__name__ if hasattr(part, "__name__") else type(part).__name__
        for name, part in parts.items()
        if part is not None
    }


def _check_kind(name: str, part: Any) -> None:
    method = _ASKED[name]
    if not method:
        if not callable(part):
            raise ConfigError(f"{name} must be a class or a function, got {part!r}")
        return
    wanted = "a class" if name == "tool" else "an object"
    if isinstance(part, type) != (name == "tool"):
        got = f"the class {part.__name__}" if isinstance(part, type) else repr(part)
        raise ConfigError(f"{name} must be {wanted}, got {got}")
    if not callable(getattr(part, method, None)):
        raise ConfigError(
            f"{name} must be {wanted} with a method {method}(), got {part!r}; "
            "docs/extending.md shows one"
        )


def _check_size(name: str, got: int, field: str, wanted: int) -> None:
    if got != wanted:
        raise ConfigError(f"{name} must be made with config.{field} ({wanted}), got one with {got}")


def _check_new(name: str, *, new: bool) -> None:
    if not new:
        raise ConfigError(f"{name} has served another engine: make a new one for this one")
