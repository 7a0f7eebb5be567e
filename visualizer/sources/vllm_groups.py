"""The KV cache groups of a recorded vLLM: layers that differ have block tables of their own.

All groups share one memory and one numbering of blocks. The log has the prefix tree and the evictions
of one group, that of full attention, because its hits are the longest. Of the other groups it has the
block tables: a block that none of them names counts as free, although a later request may find it.
"""

from collections.abc import Sequence
from typing import TypeVar

from visualizer.sources.vllm_lines import Group, Header

_KINDS = {
    "SlidingWindow": "the sliding window of {window:,} tokens",
    "ChunkedLocalAttention": "the chunked local attention",
    "Mamba": "the linear layers",
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


def _kind(group: Group) -> str:
    words = _KINDS.get(group.kind, "full attention" if "Full" in group.kind else group.kind)
    return words.format(window=group.window or 0)
