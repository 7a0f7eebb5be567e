"""The KV cache groups of a recorded vLLM: layers that differ have block tables of their own.

All groups share one memory and one numbering of blocks. The log has the tables, the prefix tree and the
evictions of one group, that of full attention, because its hits are the longest. Of the other groups, a
block is counted while a table names it, so that the number of free blocks can be compared with vLLM's.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from visualizer.sources.vllm_lines import Group, GroupTable, Header

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


def group_names(header: Header) -> list[str]:
    """Return the groups in words, that of the log first: "the sliding window of 512 tokens"."""
    return [_name(group) for group in main_first(header, header.groups)]


def _name(group: Group) -> str:
    words = _KINDS.get(group.kind, "full attention" if "Full" in group.kind else group.kind)
    words = words.format(window=group.window or 0)
    return f"{words} ({group.layers} layers)" if group.layers > 1 else words


class OtherGroups:
    """The block tables of all groups but the log's.

    blocks   how many tables name each block
    """

    def __init__(self) -> None:
        self.blocks: Counter[int] = Counter()
        self._tables: dict[tuple[int, int], dict[int, int]] = {}  # by request and group

    def change(self, op: GroupTable) -> list[int]:
        """Change a table; -1 stands for no block. Return the blocks that it names now, and did not."""
        table, new = self._tables.setdefault((op.request, op.group), {}), list[int]()
        for index, block in op.changes:
            if (old := table.pop(index, -1)) >= 0:
                self._release(old)
            if block >= 0:
                table[index] = block
                self.blocks[block] += 1
                new.append(block)
        return new

    def drop(self, request: int) -> None:
        """Drop the tables of a request that was preempted or has ended."""
        for key in [key for key in self._tables if key[0] == request]:
            for block in self._tables.pop(key).values():
                self._release(block)

    def _release(self, block: int) -> None:
        self.blocks[block] -= 1
        if not self.blocks[block]:
            del self.blocks[block]
