"""Lesson 23: the key of a block, chained as in vLLM."""

from typing import Any


def block_key(before: Any, tokens: list[int], adapter: str | None, salt: str | None) -> Any:
    """Chain the blocks. The salt of the first block is in all later keys, too."""
    extra = []
    if adapter is not None:
        extra.append(("lora", adapter))
    if before is None and salt is not None:
        extra.append(("cache_salt", salt))
    return before, tuple(tokens), tuple(extra)
