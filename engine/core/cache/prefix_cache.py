"""What a prefix cache shows to others: owners of blocks, matches, lookups and window pages.

`kv_cache_manager.py` has the cache itself, and `radix_cache.py` and `hash_cache.py` its two kinds.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from engine.core.request import Request

NO_REQUEST = -1


class BlockOwner(Protocol):
    """An owner of a block table and a place in the cache: a request, or a hold (`holds.py`)."""

    id: int
    block_table: list[int]
    num_computed_tokens: int
    last_node: int


class PrefixMatch(Protocol):
    """The cached prefix of a token sequence, in whole blocks."""

    @property
    def blocks(self) -> list[int]:
        """The blocks, in the order of their tokens."""


class Adopted(NamedTuple):
    """Blocks that entered the cache without a request; see `PrefixAdopted`."""

    parent: int
    nodes: list[int]
    blocks: list[int]


class PrefixLookup(Protocol):
    """The part of a prefix cache that a policy may use, because looking up changes nothing.

    enabled  False if the engine's prefix cache is off
    """

    enabled: bool
    block_size: int

    def match(self, tokens: Sequence[int], limit: int) -> PrefixMatch:
        """Return the longest cached prefix of `tokens`, at most `limit` blocks."""


class WindowPages(Protocol):
    """Which blocks sliding layers have KV of; see `engine/extensions/window_pages.py`.

    Only a model whose sliding layers have a memory of their own has one. Its methods follow what caches
    and manager do with blocks.
    """

    window: int
    num_pages: int
    running: Sequence[Request]

    @property
    def blocks(self) -> list[int]:
        """The blocks that have a window page, in ascending order."""

    def limited(self, lookup: PrefixLookup) -> PrefixLookup:
        """Return a lookup that finds only prefixes whose window pages are present."""

    def has_page(self, block: int) -> bool:
        """Return whether a block is in use and has a window page."""

    def make_room(self, count: int, needed_by: int = NO_REQUEST) -> None:
        """Evict idle pages until `count` pages are free."""

    def assign(self, blocks: Iterable[int]) -> None:
        """Give each newly allocated block a page."""

    def move(self, own: Iterable[int], cached: Iterable[int]) -> None:
        """Move the pages of a request's own blocks to equal cached blocks that have none."""

    def touch(self, blocks: Sequence[int]) -> None:
        """Mark the pages in the window of an owner of these blocks as just used."""

    def send(self) -> None:
        """Send changes to the runner."""

    def take_unsent(self) -> list[tuple[int, int]]:
        """Return the changes that the runner does not know yet."""
