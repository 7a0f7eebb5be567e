"""The KV cache groups of a recorded vLLM: layers that differ have block tables of their own.

All groups share one memory and one numbering of blocks. The log has the prefix tree and the evictions
of one group, that of full attention, because its hits are the longest. Of the other groups it has the
block tables: a block that none of them names counts as free, although a later request may find it.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from visualizer.sources.vllm_lines import Group, Header

_KINDS = {
    "SlidingWindow": "the sliding window of {window:,} tokens",
    "ChunkedLocalAttention": "the local attention in chunks of {window:,} tokens",
    "Mamba": "the linear layers",
}

# By kind and mode.
_REPLAYABLE: dict[tuple[str, str], str] = {
    ("FullAttention", ""): "full",
    ("MLAAttention", ""): "full",
    ("SlidingWindow", ""): "window",
    ("SlidingWindowMLA", ""): "window",
    ("ChunkedLocalAttention", ""): "chunk",
    ("Mamba", "align"): "aligned",
    ("Mamba", "all"): "linear",
    ("Mamba", "none"): "linear",
}
_T = TypeVar("_T")


def main_first(header: Header, values: Sequence[_T]) -> list[_T]:
    """Return one value per group, that of the group of the log first."""
    at = header.main_group
    return [*values[at : at + 1], *values[:at], *values[at + 1 :]]


def place_of(header: Header, group: int) -> int:
    """Return the place of a group in `main_first`."""
    return group + (group < header.main_group)


def group_names(header: Header) -> list[str]:
    """Return the groups in words, that of the log first: "the sliding window of 512 tokens"."""
    kinds = [_kind(group) for group in header.groups]
    names = list[str]()
    for number, (kind, group) in enumerate(zip(kinds, header.groups, strict=True)):
        details = [f"{group.layers} layers"] * (group.layers > 1)
        details += [f"group {number}"] * (kinds.count(kind) > 1)
        names.append(f"{kind} ({', '.join(details)})" if details else kind)
    return main_first(header, names)


def replayable_groups(header: Header) -> dict[str, Any] | None:
    """Return the groups as a simulated engine has them, or None if it has no such groups.

    These are the values of `KVGroups` in `engine/extensions/kv_groups.py`.
    """
    kinds = [_REPLAYABLE.get((one.kind, one.mode)) for one in header.groups]
    is_cached, size = header.settings.prefix_cache, header.settings.block_size
    have_one_size = all(one.block_size == size for one in header.groups)
    if None in kinds or (is_cached and not have_one_size) or header.retention is msgspec.UNSET:
        return None
    # An older recorder wrote neither what windows keep nor how long chunks and checkpoints are.
    if any(
        (kind == "chunk" and (not one.window or one.window % one.block_size))
        or (kind == "aligned" and (one.checkpoint is msgspec.UNSET or one.drafts))
        for kind, one in zip(kinds, header.groups, strict=True)
    ):
        return None
    groups = [
        {
            "kind": kind,
            "block_size": one.block_size,
            "window": one.window or 0,
            "checkpoint": one.checkpoint or 0,
        }
        for kind, one in zip(kinds, header.groups, strict=True)
    ]
    return {"groups": groups, "retention": header.retention}


def _kind(group: Group) -> str:
    words = _KINDS.get(group.kind, "full attention" if "Full" in group.kind else group.kind)
    return words.format(window=group.window or 0)
