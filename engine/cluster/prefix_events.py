"""Route by the replicas' own event logs, and by guesses about the blocks that they will have soon.

The log of a replica says exactly what is in its tree. But a log is late: a request spends time in a
queue, in prefill and on the network before an event says that its prompt is cached. In the meantime, a
burst of requests with a new prefix would be scattered over all replicas. So a prompt counts as cached
on the replica that it was sent to, until the replica's log confirms it or `guess_ms` have passed.

The replica with the lowest score wins. A score is in prompt tokens, and it estimates how long the first
token takes and what the request costs the others:

    prefill    weight * prompt tokens to compute
    evictions  cached tokens to evict for them, because they may have to be computed again later
    queued     prompt tokens that the replica still owes
    batch      batch_weight * requests in flight / seats in the replica's batch

`weight` is compute_weight, which is well above 1, because computing a prompt delays every later
request, too, and a second copy of a prefix takes the memory of another one: at 1, a rush copies all
prefixes to all replicas, and a conversation moves as soon as another replica has a little less to do.
But if a single prefix fills the batch of its replica, then copying it is the only way to share the
work. So the weight falls to 1 where the replica with the prefix has more requests than this one: from
0.4 batches more to 0.9 batches more.

Ties go to the replica with the most free memory. In a large cluster, only some replicas are compared
term by term: those with a prefix, if one of them has a lower score than any other can have, or else
those with the lowest scores and the one with the longest prefix.

Source: Dynamo's KV router (`lib/llm/src/kv_router/scheduler.rs`), which also follows events and adds
the blocks to compute and the load; llm-d's precise prefix scorer (`pkg/plugins/scorer`), whose
speculative entries expire in the same way.

Differs from Dynamo, whose score is the blocks to compute plus the blocks in use: this router also
counts evictions, it counts tokens instead of blocks, its weight depends on the loads, and it always
takes the minimum, whereas Dynamo can draw from a softmax.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import inf
from typing import ClassVar, NamedTuple

from engine.cluster.block_index import BlockIndex, Keys
from engine.cluster.events import RoutingReason
from engine.cluster.guesses import Guesses
from engine.cluster.replica_tree import ReplicaTree
from engine.cluster.router import Decision, Replica, Router, best
from engine.core.log.vocabulary import Event

US_PER_MS = 1000
RELIEF = 0.4, 0.9  # batches more at the holder: where the weight begins to fall, and where it is 1
CONTENDERS = 8  # replicas that are compared term by term


class _Prompt(NamedTuple):
    """The keys of a prompt's blocks, and how many tokens of the prompt each replica has.

    cached  tokens according to the logs, for replicas that have any
    hits    tokens including guesses, for replicas that have any
    """

    request: int
    keys: Keys
    cached: dict[str, int]
    hits: dict[str, int]


@dataclass(slots=True)
class _Known:
    """What the router knows of a replica: its tree, and how many prompt tokens it owes."""

    tree: ReplicaTree
    owed: int = 0

    @property
    def room(self) -> int:
        """Token slots that no cached and no owed token needs; negative if more are owed."""
        return self.tree.free - self.owed


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
    compute_weight: float = 6.0
    batch_weight: float = 1536.0
    seed: int = 0
    _rng: random.Random = field(init=False, repr=False)
    _guesses: Guesses = field(init=False, repr=False)
    _index: BlockIndex = field(init=False, repr=False, default_factory=BlockIndex)
    _known: dict[str, _Known] = field(init=False, repr=False, default_factory=dict)
    _fewest_seats: float = field(init=False, repr=False, default=inf)  # of all replicas so far
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
        hits, num_tokens = prompt.hits, len(tokens)
        holders = [replica for replica in replicas if replica.id in hits]
        holder = max(holders or replicas, key=lambda one: (hits.get(one.id, 0), -one.in_flight))
        contenders, most = replicas, holder.in_flight
        if is_large := len(replicas) > CONTENDERS:
            contenders = holders if len(holders) <= CONTENDERS else []
        terms, scores = self._compared(contenders, most, num_tokens, hits)
        if is_large and not self._suffices(scores, most, num_tokens):
            contenders = self._cheapest(replicas, hits, holder, num_tokens)
            terms, scores = self._compared(contenders, most, num_tokens, hits)
        replica, ties = best(
            scores, lambda id_: {"free": self._known[id_].room, "draw": self._rng.random()}
        )
        return Decision(
            replica,
            _reason(prompt, replica, hits.get(holder.id, 0)),
            {id_: hits.get(id_, 0) for id_ in terms},
            scores,
            terms,
            ties,
        )

    def _compared(
        self, replicas: Sequence[Replica], most: int, num_tokens: int, hits: dict[str, int]
    ) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        """Return the terms and the scores of replicas."""
        terms = {
            one.id: self._terms(one, most, num_tokens, hits.get(one.id, 0)) for one in replicas
        }
        return terms, {id_: sum(its.values()) for id_, its in terms.items()}

    def _suffices(self, scores: dict[str, float], most: int, num_tokens: int) -> bool:
        """Return whether no replica can have a lower score than these, which are all with a prefix.

        Any other replica computes the whole prompt, at the full weight if the holder is not busy.
        """
        lowest = min(scores.values(), default=inf)
        return lowest < self.compute_weight * num_tokens and most <= RELIEF[0] * self._fewest_seats

    def _terms(self, candidate: Replica, most: int, num_tokens: int, hit: int) -> dict[str, float]:
        """Return the terms of a replica's score.

        most  the requests of the holder: the replica with the longest prefix, and of several the
              least loaded one
        hit   how many of the prompt's `num_tokens` are cached on the candidate, or will be
        """
        known, load, compute = self._known[candidate.id], candidate.in_flight, num_tokens - hit
        seats, room = known.tree.seats, known.room
        return {
            "prefill": self._weight(most - load, seats) * compute,
            "evictions": max(compute - max(room, 0), 0),
            "queued": known.owed,
            "batch": self.batch_weight * load / seats,
        }

    def _weight(self, fewer: int, seats: int) -> float:
        """Return the weight of a prompt token where `fewer` fewer requests are than at the holder."""
        low, high = RELIEF
        return 1 + (self.compute_weight - 1) * min(max(high - fewer / seats, 0) / (high - low), 1)

    def _cheapest(
        self, replicas: Sequence[Replica], hits: dict[str, int], holder: Replica, num_tokens: int
    ) -> list[Replica]:
        """Return the replicas with the lowest scores, and the holder.

        This is `_terms` for hundreds of replicas, without a call for each.
        """
        scores, known_of, hit_of = list[tuple[float, int]](), self._known, hits.get
        batch, most, low = self.batch_weight, holder.in_flight, RELIEF[0]
        for index, replica in enumerate(replicas):
            known, load = known_of[replica.id], replica.in_flight
            owed, tree = known.owed, known.tree
            seats, room, compute = tree.seats, tree.free - owed, num_tokens - hit_of(replica.id, 0)
            weight = self.compute_weight
            if most - load > low * seats:
                weight = self._weight(most - load, seats)
            score = weight * compute + owed + batch * load / seats
            if room < compute:
                score += compute - room if room > 0 else compute
            scores.append((score, index))
        cheapest = [replicas[index] for _, index in nsmallest(CONTENDERS, scores)]
        return cheapest if holder in cheapest else [*cheapest, holder]

    def on_routed(self, request: int, tokens: Sequence[int], replica: str, now_us: int) -> None:
        """Note the tokens that the replica owes, and guess that it will have the prompt's blocks."""
        if not self.guesses or replica not in self._known:
            return
        prompt = self._last
        if prompt.request != request:  # a pinned request skips `choose`
            prompt = self._look_up(request, tokens, now_us)
        owed = len(tokens) - prompt.hits.get(replica, 0)
        self._owed_by[request] = replica, owed
        self._known[replica].owed += owed
        keys = self._index.keys_on(replica, prompt.keys)
        is_new = bool(keys) and not self._index.has(replica, keys[-1])
        if is_new and not self._known[replica].tree.is_off:
            self._guesses.add(request, replica, keys, now_us)

    def on_first_token(self, request: int, now_us: int) -> None:
        """Stop counting the prompt as owed. Its guess stays, because the events may be late."""
        replica, owed = self._owed_by.pop(request, ("", 0))
        if replica in self._known:
            self._known[replica].owed -= owed

    def on_ended(self, request: int, now_us: int) -> None:
        """Drop the guess if the request ended without a token."""
        if request in self._owed_by:
            self._guesses.drop(request)
            self.on_first_token(request, now_us)

    def on_event(self, replica: str, event: Event, now_us: int) -> None:
        """Fold the event, and drop the guesses about blocks that are now cached."""
        if known := self._known.get(replica):
            for key in known.tree.apply(event):
                self._guesses.confirm(replica, key)
            self._fewest_seats = min(self._fewest_seats, known.tree.seats)
            if not self.guesses:
                known.owed = known.tree.owed

    def on_joined(self, replica: str, block_size: int) -> None:
        """Add a replica with an empty tree."""
        self._index.join(replica, block_size)
        self._guesses.index.join(replica, block_size)
        self._known[replica] = _Known(ReplicaTree(replica, self._index))

    def on_left(self, replica: str) -> None:
        """Drop the replica's tree and the guesses about it."""
        self._known.pop(replica).tree.clear()
        self._index.leave(replica)
        self._guesses.leave(replica)

    def _look_up(self, request: int, tokens: Sequence[int], now_us: int) -> _Prompt:
        keys = self._index.keys(tokens)
        cached = self._index.hits(keys, len(tokens))
        self._guesses.expire(now_us)
        guessed = self._guesses.index.hits(keys, len(tokens))
        hits = cached | {
            replica: max(hit, cached.get(replica, 0)) for replica, hit in guessed.items()
        }
        return _Prompt(request, keys, cached, hits)


def _reason(prompt: _Prompt, replica: str, longest: int) -> RoutingReason:
    hit = prompt.hits.get(replica, 0)
    if hit < longest:
        return "lowest_cost"
    if not longest:
        return "least_work"
    return "longest_prefix" if prompt.cached.get(replica) == hit else "prefix_on_its_way"
