"""LoRA adapters: many customers of one model, each with a small change of its weights.

An adapter that a client may name is *registered*: its matrices are in memory. A step can use only those
in one of `max_loras` slots, so that what a step reads stays bounded. A slot keeps its adapter while a
request in the batch uses it. Three rules follow, as in vLLM:

1. A waiting request whose adapter is in no slot, while each slot is in use, is passed over: others may
   overtake it ("adapter_slot").
2. When a request is admitted, its adapter replaces the one that was least recently in use.
3. KV depends on the adapter. So the cache's key of a prefix begins with the adapter and with the salt
   of the request; requests that differ in one of them never share a block.

`prefix_keys.py` has that key. A request without adapter and salt runs through no function of this file.

Source: `max_loras` in vLLM's `vllm/v1/core/sched/scheduler.py`.

Differs from vLLM, which keeps as many adapters in host memory as `max_cpu_loras` says and reads others
from disk; here every registered one is in memory.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.core.log.vocabulary import AdapterChanged, Event
from engine.core.request import Request
from engine.core.scheduling.admission import RequestError
from engine.core.scheduling.scheduler import Plan
from engine.extensions.prefix_keys import name_of, salt_digest


class AdapterError(ValueError):
    """An adapter cannot be loaded or found. The message names the file, the entry and the fix."""


class NoAdapterError(AdapterError):
    """There is no adapter where one was looked for."""


class HostAdapter(Protocol):
    """An adapter in memory; see `engine/models/lora.py`."""

    rank: int
    nbytes: int


class AdapterStore(Protocol):
    """The adapters of a runner: `ModelAdapters`, or that of a simulation."""

    def read(self, path: str) -> HostAdapter:
        """Read an adapter into memory. Raises AdapterError if the model cannot use it."""

    def put(self, slot: int, key: str, adapter: HostAdapter) -> None:
        """Put an adapter into a slot, in place of what is there."""

    def clear(self, slot: int) -> None:
        """Empty a slot."""


def read(store: AdapterStore | None, max_loras: int, path: str) -> HostAdapter:
    """Read an adapter into memory. Any thread may call this. Raises AdapterError."""
    if store is None:
        raise AdapterError(
            f"this engine's runner has no adapters, so {path!r} cannot be read: load the model with "
            "Engine.load and without `parallel`, because a model on several devices cannot be adapted"
        )
    if not max_loras:
        raise AdapterError(f"max_loras is 0, so {path!r} cannot be used: set it to at least 1")
    return store.read(path)


@dataclass(frozen=True, slots=True)
class Adapter:
    """A registered adapter.

    key   names its weights, in the cache and in the log: its name, and from the second weights of this
          name on also their number, so that KV of the earlier ones is never found; see `name_of`
    """

    name: str
    key: str
    path: str
    weights: HostAdapter


class Adapters:
    """The adapters of one engine. Call its methods between steps only, as those of `Engine`.

    registered  by name
    slots       the key of the adapter in each slot, "" for none
    """

    def __init__(
        self,
        *,
        store: AdapterStore | None,
        max_loras: int,
        requests: Mapping[int, Request],
        running: Sequence[Request],
        plans: Sequence[Plan],
        emit: Callable[[Event], None],
    ) -> None:
        self.registered: dict[str, Adapter] = {}
        self.slots = [""] * max_loras
        self._store, self._requests, self._emit = store, requests, emit
        self._running, self._plans = running, plans
        self._by_key: dict[str, Adapter] = {}  # also those removed while a request needs them
        self._used: OrderedDict[str, None] = OrderedDict()  # keys in slots, most recent use last
        self._versions: dict[str, int] = {}

    def add(
        self, name: str, path: str, *, replace: bool = False, weights: HostAdapter | None = None
    ) -> Adapter:
        """Register an adapter, so that requests can name it. Raises AdapterError.

        weights  what `read` returned for the path; None: they are read now
        """
        if not name or not path:
            raise AdapterError("an adapter needs a name and a path, got an empty one")
        if name != name_of(name):
            raise AdapterError(
                f"the name of an adapter must not end in @ and a number, got {name!r}"
            )
        if name in self.registered and not replace:
            raise AdapterError(f"the adapter {name!r} is already loaded: remove it, or replace it")
        weights = weights or read(self._store, len(self.slots), path)
        version = self._versions[name] = self._versions.get(name, 0) + 1
        key = name if version == 1 else f"{name}@{version}"
        adapter = self.registered[name] = self._by_key[key] = Adapter(name, key, path, weights)
        self._drop_removed()
        return adapter

    def add_as_logged(self, key: str) -> None:
        """Register an adapter of which a log has only the key, for a simulation."""
        if key not in self._by_key:
            weights = read(self._store, len(self.slots), key)
            self.registered[key] = self._by_key[key] = Adapter(key, key, key, weights)

    def remove(self, name: str) -> None:
        """Remove an adapter. Requests that already name it keep it until they end."""
        if self.registered.pop(name, None) is None:
            raise AdapterError(f"there is no adapter {name!r}; loaded: {self._names()}")
        self._drop_removed()

    def take_over(self, other: "Adapters") -> None:
        """Register what an engine had that used the same runner and has ended."""
        for slot, key in enumerate(other.slots):
            if key:
                assert self._store is not None
                self._store.clear(slot)
        self.registered, self._versions = other.registered, other._versions
        self._by_key = {one.key: one for one in self.registered.values()}

    def extra_key(self, name: str, salt: str) -> tuple[str, ...]:
        """Return the key of a request. Raises RequestError for an unknown adapter."""
        if name and name not in self.registered:
            raise RequestError("adapter", f"there is no adapter {name!r}; loaded: {self._names()}")
        return (self.registered[name].key if name else "", salt_digest(salt))

    @property
    def in_slots(self) -> list[str]:
        """The key in each slot, or nothing if all are empty; see `StateCore`."""
        return self.slots if any(self.slots) else []

    # What the scheduler asks

    def lacks_slot(self, request: Request) -> bool:
        """Return whether a waiting request's adapter is in no slot while each slot is in use."""
        if not request.extra_key or not (key := request.extra_key[0]) or key in self.slots:
            return False
        in_use = set(self._in_use())
        return all(held in in_use for held in self.slots)

    def admit(self, request: Request) -> None:
        """Put the adapter of a request that is being admitted into a slot, unless it is in one."""
        if not request.extra_key or not (key := request.extra_key[0]):
            return
        in_use = list(self._in_use())
        for used in in_use:
            self._used.move_to_end(used)
        if key not in self.slots:
            self._put(key, set(in_use), request.id)
        self._used[key] = None
        self._used.move_to_end(key)

    def _put(self, key: str, in_use: set[str], request: int) -> None:
        evicted = ""
        if "" not in self.slots:
            evicted = next(held for held in self._used if held not in in_use)
            del self._used[evicted]
        slot = self.slots.index(evicted)
        adapter = self._by_key[key]
        assert self._store is not None
        self._store.put(slot, key, adapter.weights)
        self.slots[slot] = key
        weights = adapter.weights
        self._emit(
            AdapterChanged(slot, key, evicted, request, adapter.path, weights.rank, weights.nbytes)
        )

    def _in_use(self) -> Iterator[str]:
        """Yield the keys of adapters that the batch or a forward pass in flight uses."""
        in_flight = (row.request for plan in self._plans for row in plan.rows)
        for request in (*self._running, *in_flight):
            if request.extra_key and request.extra_key[0]:
                yield request.extra_key[0]

    def _drop_removed(self) -> None:
        """Free the removed adapters that no request needs any more."""
        needed = {adapter.key for adapter in self.registered.values()} | set(self._in_use())
        needed |= {one.extra_key[0] for one in self._requests.values() if one.extra_key}
        for key in self._by_key.keys() - needed:
            del self._by_key[key]
            if key in self.slots:
                slot = self.slots.index(key)
                assert self._store is not None
                self._store.clear(slot)
                self.slots[slot] = ""
                del self._used[key]
                self._emit(AdapterChanged(slot, "", key))

    def _names(self) -> str:
        return ", ".join(sorted(self.registered)) or "none"
