"""The prefix cache's changes as vLLM's KV events, computed from the event log.

A KV event says which blocks of tokens can be found in the prefix cache from now on, and which can no
longer. Routers made for vLLM read these events to send a request to the replica that has its prefix.

A block's hash covers its tokens and the hash of the block before it, so it names a whole prefix. Both
prefix caches publish the same kinds of events:

radix  a node's blocks are published one by one, so the tree's shape is invisible: a split publishes
       nothing, and an evicted leaf is one `BlockRemoved` with all its blocks, the last one first
hash   one event for each new chain of blocks, and one for each evicted or withdrawn block

With `prefix_cache="off"` nothing is published but the start of the run.

Source: vLLM 0.32, `vllm/distributed/kv_events.py` and `vllm/v1/core/kv_cache_utils.py`. The hashes are
those that vLLM computes with its default `--prefix-caching-hash-algo sha256` for text: a test compares
them with a recording of vLLM. As in vLLM, the hashes depend on the adapter's name and path and on the
cache salt, and the events have name and salt under `extra_keys`. The log has only the digest of a salt,
so the engine thread tells the publisher the salts of new requests.

Differs from vLLM: vLLM publishes each copy of a duplicate block, stored and removed. Here a hash is
stored with its first copy and removed with its last one, so a subscriber that keeps a set is never
wrong. vLLM says nothing when it starts. Here every run, also after a restart, begins with
`AllBlocksCleared`. New weights under an old name and from the same path have the same hashes in vLLM,
which finds the old KV then; here they get hashes of their own. A request that a restart submits again
is hashed with the digest of its salt, because the server no longer knows the salt.
"""

import hashlib
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.core.log.vocabulary import (
    AdapterChanged,
    BlockEvicted,
    BlocksStored,
    BlockWithdrawn,
    Event,
    Forked,
    PrefixAdopted,
    RadixEvicted,
    RadixExtended,
    RadixInserted,
    RadixSplit,
    RequestArrived,
    RequestFinished,
    RunStarted,
    StepFinished,
)
from engine.extensions.prefix_keys import extra_keys, name_of

ROOT = 0
MEDIUM = "GPU"  # vLLM's name for the engine's own KV memory, also on a CPU


class KVEvent(msgspec.Struct, tag=True, omit_defaults=True, gc=False):
    """Base of the events. On the wire an event is a map; its class name is under `type`."""


class BlockStored(KVEvent):
    """A chain of blocks can be found from now on.

    block_hashes       one per block, 64-bit integers
    parent_block_hash  the hash of the block before the first one; None at the start of a prefix
    token_ids          the tokens of all blocks, `block_size` for each
    extra_keys         for each block what its hash depends on, too: the adapter's name, and for the
                       first block of a prefix the salt; None for neither
    """

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    # The fields without a default are always on the wire, as in vLLM.
    lora_id: None
    medium: str
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None]
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class BlockRemoved(KVEvent):
    """Blocks can no longer be found."""

    block_hashes: list[int]
    medium: str
    group_idx: int | None = None


class AllBlocksCleared(KVEvent):
    """No block can be found: a run begins."""


class KVEventBatch(msgspec.Struct, array_like=True, gc=False):
    """The events of one step, in order. On the wire it is an array.

    ts                  the time of publishing, in seconds since 1970
    data_parallel_rank  always 0: an Underglass server is one replica
    """

    ts: float
    events: list[KVEvent]
    data_parallel_rank: int = 0


def digest(value: object) -> bytes:
    """Return the hash of a value: vLLM's `sha256` (`vllm/utils/hashing.py`)."""
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def block_digest(
    parent: bytes, tokens: Iterable[int], extra_keys: tuple[Any, ...] | None = None
) -> bytes:
    """Return the hash of a full block; `parent` is that of the block before, or the `seed`.

    extra_keys  of the block; see `engine.extensions.prefix_keys.extra_keys`
    """
    return digest((parent, tuple(tokens), extra_keys))


def seed() -> bytes:
    """Return the hash before a first block. As in vLLM, PYTHONHASHSEED replaces the constant."""
    return digest(os.environ.get("PYTHONHASHSEED", "vllm-none-hash"))


def wire_hash(block: bytes) -> int:
    """Return a hash as vLLM publishes it: its last 64 bits."""
    return int.from_bytes(block[-8:], "big")


@dataclass(slots=True)
class _Node:
    """A node of the log's prefix tree.

    hashes  one per block of the node; the root has the seed
    end     number of blocks from the start of the prefix to the end of the node
    copies  with the hash cache: number of blocks with this content
    """

    hashes: list[bytes]
    end: int
    copies: int = 1


@dataclass(slots=True)
class KVEvents:
    """Turns the events of a log into KV events; `apply` must see every event, in order.

    salts  by digest: the salts of requests that are about to arrive
    """

    salts: Mapping[str, str] = field(default_factory=dict)

    _block_size: int = 0
    _tokens: dict[int, list[int]] = field(default_factory=dict)  # by request
    _nodes: dict[int, _Node] = field(default_factory=dict)
    _keys: dict[int, tuple[str, str]] = field(default_factory=dict)  # (adapter, salt), by request
    _adapters: dict[str, tuple[str, str]] = field(default_factory=dict)  # by key: name and path

    def apply(self, event: Event) -> KVEvent | None:
        """Return the KV event that an event of the log stands for, if there is one."""
        # A false isinstance takes several times as long, because events are msgspec structs.
        kind = type(event)
        if kind is StepFinished:
            for row in event.tokens:  # type: ignore[attr-defined]
                self._tokens[row.request] += row.ids
            return None
        change = _CHANGES.get(kind)
        return change(self, event) if change is not None else None

    def _run_started(self, event: RunStarted) -> KVEvent:
        self._block_size = event.settings["block_size"]
        self._tokens, self._adapters, self._nodes = {}, {}, {ROOT: _Node([seed()], 0)}
        return AllBlocksCleared()

    def _request_arrived(self, event: RequestArrived) -> None:
        self._tokens[event.request] = event.tokens
        adapter, digest = event.extra_key or ("", "")
        self._keys[event.request] = adapter, self.salts.get(digest, digest)

    def _forked(self, event: Forked) -> None:
        self._tokens[event.request] = list(self._tokens[event.parent])
        self._keys[event.request] = self._keys[event.parent]

    def _request_finished(self, event: RequestFinished) -> None:
        del self._tokens[event.request], self._keys[event.request]

    def _adapter_changed(self, event: AdapterChanged) -> None:
        used = name_of(event.adapter), event.path
        others = (one for key, one in self._adapters.items() if key != event.adapter)
        self._adapters[event.adapter] = (event.adapter, event.path) if used in others else used

    def _radix_inserted(self, event: RadixInserted) -> KVEvent:
        parent = self._nodes[event.parent]
        hashes, stored = self._store(event.request, parent, len(event.blocks))
        self._nodes[event.node] = _Node(hashes, parent.end + len(hashes))
        return stored

    def _radix_extended(self, event: RadixExtended) -> KVEvent:
        node = self._nodes[event.node]
        hashes, stored = self._store(event.request, node, len(event.blocks))
        node.hashes += hashes
        node.end += len(hashes)
        return stored

    def _radix_split(self, event: RadixSplit) -> None:
        lower = self._nodes[event.node]
        end = lower.end - len(lower.hashes) + event.at
        self._nodes[event.upper] = _Node(lower.hashes[: event.at], end)
        lower.hashes = lower.hashes[event.at :]

    def _radix_evicted(self, event: RadixEvicted) -> KVEvent:
        return _removed(self._nodes.pop(event.node).hashes[::-1])

    def _blocks_stored(self, event: BlocksStored) -> KVEvent | None:
        parent, new = event.parent, list[int]()
        for node in event.nodes:  # those that exist come first: a node's parent exists
            if node in self._nodes:
                self._nodes[node].copies += 1
                parent = node
            else:
                new.append(node)
        if not new:
            return None
        above = self._nodes[parent]
        hashes, stored = self._store(event.request, above, len(new))
        for end, (node, one) in enumerate(zip(new, hashes, strict=True), above.end + 1):
            self._nodes[node] = _Node([one], end)
        return stored

    def _prefix_adopted(self, event: PrefixAdopted) -> KVEvent:
        above = self._nodes[event.parent]
        hashes, stored = self._stored(above, event.tokens)
        share, end = len(hashes) // len(event.nodes), above.end
        for node in event.nodes:
            self._nodes[node] = _Node(hashes[end - above.end :][:share], end + share)
            end += share
        return stored

    def _block_removed(self, event: BlockEvicted | BlockWithdrawn) -> KVEvent | None:
        node = self._nodes[event.node]
        node.copies -= 1
        return _removed(self._nodes.pop(event.node).hashes) if not node.copies else None

    def _store(self, request: int, parent: _Node, count: int) -> tuple[list[bytes], BlockStored]:
        """Return the hashes of a request's next `count` blocks after `parent`, and their event."""
        size = self._block_size
        start = parent.end * size
        tokens = self._tokens[request][start : start + count * size]
        return self._stored(parent, tokens, self._keys[request])

    def _stored(
        self, parent: _Node, tokens: list[int], key: Sequence[str] = ("", "")
    ) -> tuple[list[bytes], BlockStored]:
        """Return the hashes of the blocks of tokens after `parent`, and their event."""
        size = self._block_size
        before, hashes = parent.hashes[-1], list[bytes]()
        adapter, salt = key
        name, path = self._adapters.get(adapter, (adapter, ""))
        blocks = parent.end + len(tokens) // size
        extra = list(extra_keys(blocks, name, path, salt))[parent.end :]
        for at, keys in zip(range(0, len(tokens), size), extra, strict=True):
            block = tokens[at : at + size]
            hashes.append(block_digest(hashes[-1] if at else before, block, keys))
        event = BlockStored(
            block_hashes=[wire_hash(one) for one in hashes],
            parent_block_hash=wire_hash(before) if parent.end else None,
            token_ids=tokens,
            block_size=size,
            lora_id=None,
            medium=MEDIUM,
            lora_name=name_of(adapter) or None,
            # Without their tags, as in vLLM, which has none of an adapter's path there.
            extra_keys=[keys and tuple(key[1] for key in keys) for keys in extra],
            group_idx=0,
            kv_cache_spec_kind="full_attention",
        )
        return hashes, event


def _removed(hashes: Iterable[bytes]) -> BlockRemoved:
    return BlockRemoved([wire_hash(one) for one in hashes], MEDIUM, 0)


_CHANGES: dict[type[Event], Callable[[KVEvents, Any], KVEvent | None]] = {
    RunStarted: KVEvents._run_started,
    RequestArrived: KVEvents._request_arrived,
    AdapterChanged: KVEvents._adapter_changed,
    Forked: KVEvents._forked,
    RequestFinished: KVEvents._request_finished,
    RadixInserted: KVEvents._radix_inserted,
    RadixExtended: KVEvents._radix_extended,
    RadixSplit: KVEvents._radix_split,
    RadixEvicted: KVEvents._radix_evicted,
    BlocksStored: KVEvents._blocks_stored,
    BlockEvicted: KVEvents._block_removed,
    BlockWithdrawn: KVEvents._block_removed,
    PrefixAdopted: KVEvents._prefix_adopted,
}
