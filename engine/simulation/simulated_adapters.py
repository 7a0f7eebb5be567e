"""Slots for LoRA adapters on a machine without a model: only which adapter is where.

A `CostRunner` charges `adapter_load_ms` for each adapter that is put into a slot and `per_adapter_ms`
for each different adapter in a step: its matrices are read once, whatever the number of its tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine.core.runner import Row


class SimulatedAdapter(NamedTuple):
    """An adapter without matrices."""

    rank: int = 0
    nbytes: int = 0


class SimulatedAdapters:
    """The slots of a runner without a model; see `AdapterStore`.

    slots   by key of the adapter
    loaded  adapters that were put into a slot and have not been paid for
    """

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.loaded = 0

    def read(self, path: str) -> SimulatedAdapter:
        """Return an adapter, whatever the path."""
        return SimulatedAdapter()

    def put(self, slot: int, key: str, adapter: object) -> None:
        """Put an adapter into a slot."""
        self.clear(slot)
        self.slots[key] = slot
        self.loaded += 1

    def clear(self, slot: int) -> None:
        """Empty a slot."""
        self.slots = {key: one for key, one in self.slots.items() if one != slot}

    def used_by(self, rows: Sequence[Row]) -> int:
        """Count the different adapters of rows. Raises AssertionError if one is in no slot."""
        keys = {row.request.extra_key[0] for row in rows if row.request.extra_key} - {""}
        assert keys <= self.slots.keys(), f"the adapters {keys - self.slots.keys()} are in no slot"
        return len(keys)
