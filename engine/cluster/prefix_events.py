"""Route by the replicas' own event logs, and by guesses about the blocks that they will have soon.

The log of a replica says exactly what is in its tree. But a log is late: a request spends time in a
queue, in prefill and on the network before an event says that its prompt is cached. In the meantime, a
burst of requests with a new prefix would be scattered over all replicas. So a prompt counts as cached
on the replica that it was sent to, until the replica's log confirms it or `guess_ms` have passed.

    score = compute_weight * prompt tokens to compute + cached tokens to evict for them
            + prompt tokens that the replica still owes
            + batch_weight * requests in flight / seats in the replica's batch

The replica with the lowest score wins, and ties go to the replica with the most free memory. A long
cached prefix lowers the score and a queue raises it, so a hot prefix spreads to another replica when
waiting for it would take longer than computing it again. Evicted tokens count, because they may have
to be computed again later. `compute_weight` is above 1, because computing a prompt delays every later
request, too: at 1, a rush copies all prefixes to all replicas, even if the memory of one replica holds
only some of them.

Source: Dynamo's KV router (`lib/llm/src/kv_router/scheduler.rs`), which also follows events and adds
the blocks to compute and the load; llm-d's precise prefix scorer (`pkg/plugins/scorer`), whose
speculative entries expire in the same way.

Differs from Dynamo in three ways: this router also counts evictions, it counts tokens instead of
blocks, and it always takes the minimum, whereas Dynamo can draw from a softmax.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from engine.cluster.block_index import BlockIndex, Keys
from engine.cluster.events import RoutingReason
from engine.cluster.guesses import Guesses
from engine.cluster.replica_tree import ReplicaTree
from engine.cluster.router import Decision, Replica, Router, best
from engine.core.log.vocabulary import Event

US_PER_MS = 1000


class _Prompt(NamedTuple):
    """The keys of a prompt's blocks, and how many tokens of the prompt each replica has.

    cached  tokens according to the logs, for replicas that have any
    hits    tokens including guesses, for all replicas
    """

    request: int
    keys: Keys
    cached: dict[str, int]
    hits: dict[str, int]


@dataclass(eq=False)
class PrefixEvents(Router):
    """Send a prompt to the replica where it costs least, according to the replicas' logs.

    guesses         count a prompt as cached on the replica that it was sent to, and as owed until its
                    first token; if False, rely on the logs alone
    guess_ms        how long a guess counts if no event confirms it
    compute_weight  the cost of computing a prompt token, if waiting for one costs 1
    batch_weight    the load of a full batch of requests, in prompt tokens
    seed            the seed for choosing between equal replicas
    """

    name: ClassVar[str] = "prefix_events"

    guesses: bool = True
    guess_ms: float = 5000.0
    compute_weight: float = 3.0
    batch_weight: float = 1536.0
    seed: int = 0
    _rng: random.Random = field(init=False, repr=False)
    _guesses: Guesses = field(init=False, repr=False)
    _index: BlockIndex = field(init=False, repr=False, default_factory=BlockIndex)
    _trees: dict[str, ReplicaTree] = field(init=False, repr=False, default_factory=dict)
    _owed: dict[str, int] = field(init=False, repr=False, default_factory=dict)  # by replica
    _owed_by: dict[int, tuple[str, int]] = field(init=False, repr=False, default_factory=dict)
    _last: _Prompt = field(init=False, repr=False, default=_Prompt(0, {}, {}, {}))

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._guesses = Guesses(round(self.guess_ms * US_PER_MS))

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        """Return the replica with the lowest score; ties go to the one with the most free memory."""
        self._last = prompt = self._look_up(request, tokens, now_us)
        terms, free, longest = dict[str, dict[str, float]](), dict[str, int](), 0
        for candidate in replicas:
            name = candidate.id
            tree, hit, owed = self._trees[name], prompt.hits[name], self._owed_at(name)
            free[name] = tree.free - owed
            compute = len(tokens) - hit
            evict = max(compute - max(free[name], 0), 0)
            terms[name] = {
                "prefill": self.compute_weight * compute,
                "evictions": evict,
                "queued": owed,
                "batch": self.batch_weight * candidate.in_flight / tree.seats,
            }
            longest = max(longest, hit)
        scores = {name: sum(its.values()) for name, its in terms.items()}
        replica, ties = best(scores, lambda name: {"free": free[name], "draw": self._rng.random()})
        reason = _reason(prompt, replica, longest)
        return Decision(replica, reason, prompt.hits, scores, terms, ties)

    def on_routed(self, request: int, tokens: Sequence[int], replica: str, now_us: int) -> None:
        """Note the tokens that the replica owes, and guess that it will have the prompt's blocks."""
        if not self.guesses or replica not in self._trees:
            return
        prompt = self._last
        if prompt.request != request:  # a pinned request skips `choose`
            prompt = self._look_up(request, tokens, now_us)
        owed = len(tokens) - prompt.hits[replica]
        self._owed_by[request] = replica, owed
        self._owed[replica] += owed
        keys = self._index.keys_on(replica, prompt.keys)
        is_new = bool(keys) and not self._index.has(replica, keys[-1])
        if is_new and not self._trees[replica].is_off:
            self._guesses.add(request, replica, keys, now_us)

    def on_first_token(self, request: int, now_us: int) -> None:
        """Stop counting the prompt as owed. Its guess stays, because the events may be late."""
        replica, owed = self._owed_by.pop(request, ("", 0))
        if replica in self._owed:
            self._owed[replica] -= owed

    def on_ended(self, request: int, now_us: int) -> None:
        """Drop the guess if the request ended without a token."""
        if request in self._owed_by:
            self._guesses.drop(request)
            self.on_first_token(request, now_us)

    def on_event(self, replica: str, event: Event, now_us: int) -> None:
        """Fold the event, and drop the guesses about blocks that are now cached."""
        if replica in self._trees:
            for key in self._trees[replica].apply(event):
                self._guesses.confirm(replica, key)

    def on_joined(self, replica: str, block_size: int) -> None:
        """Add a replica with an empty tree."""
        self._index.join(replica, block_size)
        self._guesses.index.join(replica, block_size)
        self._trees[replica], self._owed[replica] = ReplicaTree(replica, self._index), 0

    def on_left(self, replica: str) -> None:
        """Drop the replica's tree and the guesses about it."""
        self._trees.pop(replica).clear()
        self._index.leave(replica)
        self._guesses.leave(replica)
        del self._owed[replica]

    def _look_up(self, request: int, tokens: Sequence[int], now_us: int) -> _Prompt:
        keys = self._index.keys(tokens)
        cached = self._index.hits(keys, len(tokens))
        self._guesses.expire(now_us)
        guessed = self._guesses.index.hits(keys, len(tokens))
        hits = dict.fromkeys(self._trees, 0) | cached
        for replica, hit in guessed.items():
            hits[replica] = max(hits[replica], hit)
        return _Prompt(request, keys, cached, hits)

    def _owed_at(self, replica: str) -> int:
        return self._owed[replica] if self.guesses else self._trees[replica].owed


def _reason(prompt: _Prompt, replica: str, longest: int) -> RoutingReason:
    hit = prompt.hits[replica]
    if hit < longest:
        return "lowest_cost"
    if not longest:
        return "least_work"
    return "longest_prefix" if prompt.cached.get(replica) == hit else "prefix_on_its_way"
