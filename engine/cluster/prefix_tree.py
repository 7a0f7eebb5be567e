"""Route by an approximate prefix tree, which records the prompts that were sent to each replica.

A prompt that was sent to a replica is assumed to be cached there from then on. This needs no messages
from the replicas and takes effect at once, but nothing corrects it: the router does not learn of
evictions, and its own limit (`max_tree_size`) is only a guess at the replica's memory.

    condition                                 replica                         reason
    the loads differ too much                 the one with the fewest         load_unbalanced
                                              requests in flight
    a replica was sent a long enough prefix   the one with the longest        longest_prefix
    otherwise                                 the one that was sent least     least_cached

Source: `cache_aware` in SGLang's gateway (`sgl-router/src/policies/cache_aware.rs`); Ray's
`PrefixCacheAffinityRouter` (`ray/llm/_internal/serve/routing_policies/prefix_aware`).

Differs from both, whose trees hold the prompt's characters and evict from time to time. This tree holds
the keys of blocks and evicts whenever a replica's share is full.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from engine.cluster.block_index import BlockIndex, Keys
from engine.cluster.events import RoutingReason
from engine.cluster.router import Decision, Replica, Router, best


@dataclass(eq=False)
class PrefixTree(Router):
    """Send a prompt to the replica that was sent the longest prefix of it.

    cache_threshold        a prefix is long enough if it is more than this share of the prompt
    balance_abs_threshold  the loads differ too much if the largest exceeds the smallest by more than
                           this many requests, and
    balance_rel_threshold  by more than this factor
    max_tree_size          how many of the most recently sent tokens to remember per replica
    """

    name: ClassVar[str] = "prefix_tree"

    cache_threshold: float = 0.3
    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5
    max_tree_size: int = 2**20
    _index: BlockIndex = field(init=False, repr=False, default_factory=BlockIndex)
    _sent: dict[str, OrderedDict[int, None]] = field(init=False, repr=False, default_factory=dict)
    _sizes: dict[str, int] = field(init=False, repr=False, default_factory=dict)
    _last: tuple[int, Keys] = field(init=False, repr=False, default=(0, {}))  # in `choose`

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        """Return a replica by the table in the module's docstring."""
        self._last = request, self._index.keys(tokens)
        hits = dict.fromkeys(self._sent, 0) | self._index.hits(self._last[1], len(tokens))
        loads = {replica.id: float(replica.in_flight) for replica in replicas}
        most, least = max(loads.values()), min(loads.values())
        reason: RoutingReason = "longest_prefix"
        scores = {id_: float(len(tokens) - hits.get(id_, 0)) for id_ in loads}
        if most - least > self.balance_abs_threshold and most > self.balance_rel_threshold * least:
            replica, ties = best(loads, lambda id_: {"room": float(-self._remembered(id_))})
            return Decision(replica, "load_unbalanced", hits, loads, ties=ties)
        if max(hits.get(id_, 0) for id_ in loads) <= self.cache_threshold * len(tokens):
            reason = "least_cached"
            scores = {id_: float(self._remembered(id_)) for id_ in loads}
        replica, ties = best(scores, lambda id_: {"fewer_requests": -loads[id_]})
        return Decision(replica, reason, hits, scores, ties=ties)

    def on_routed(self, request: int, tokens: Sequence[int], replica: str, now_us: int) -> None:
        """Remember the prompt's blocks."""
        if replica not in self._sent:
            return
        keys = self._last[1] if self._last[0] == request else self._index.keys(tokens)
        chain, sent = self._index.keys_on(replica, keys), self._sent[replica]
        for key in reversed(chain):  # so that the end of a prefix is dropped first
            sent[key] = None
            sent.move_to_end(key)
        self._index.add(replica, chain)
        while sent and self._remembered(replica) > self.max_tree_size:
            self._index.discard(replica, [sent.popitem(last=False)[0]])

    def on_joined(self, replica: str, block_size: int) -> None:
        """Add a replica to which nothing has been sent."""
        self._index.join(replica, block_size)
        self._sent[replica], self._sizes[replica] = OrderedDict(), block_size

    def on_left(self, replica: str) -> None:
        """Drop a replica and the record of what was sent to it."""
        self._index.discard(replica, self._sent.pop(replica))
        self._index.leave(replica)
        del self._sizes[replica]

    def _remembered(self, replica: str) -> int:
        """Return the number of tokens that are remembered for a replica."""
        return len(self._sent.get(replica, ())) * self._sizes.get(replica, 0)
