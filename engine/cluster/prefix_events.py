"""Route by the replicas' own event logs, and by guesses about the blocks that they will have soon.

The log of a replica says exactly what is in its tree. But a log is late: a request spends time in a
queue, in prefill and on the network before an event says that its prompt is cached. In the meantime, a
burst of requests with a new prefix would be scattered over all replicas. So a prompt counts as cached
on the replica that it was sent to, until the replica's log confirms it or `guess_ms` have passed.

The replica with the lowest score wins. A score is in prompt tokens, and it estimates how long the first
token takes and what the request costs the others:

    prefill    compute_weight * prompt tokens to compute
    evictions  half of that * how often the replica's memory was filled lately
    copy       tokens of a prefix in demand that the replica lacks, / 4, instead of the two above
    queued     prompt tokens that the replica still owes
    batch      batch_weight * requests in flight / seats in the replica's batch

`compute_weight` is well above 1, because computing a prompt delays every later request, too: at 1, a
conversation moves as soon as another replica has a little less to do.

The more prompt tokens a replica computed lately, the more likely it is that it still needs what a new
prompt evicts. So of the prompt tokens that the cluster computed last, as many as its memory holds, the
router counts those that it sent to each replica. That spreads the first requests of different prefixes,
and it takes prefixes away from a replica that keeps evicting what it needs. Free memory says less: in
time all memory is full, and a replica that has just evicted something seems to have room.

A prefix is in demand if its share of the latest requests is larger than its holders' share of the
replicas, or if its holder has a batch of requests more than another replica. Then its requests go by
the load. A copy costs little, because the next requests will use it, too.

Ties go to the replica with the most free memory. Of many replicas, only some are compared by term.

Source: Dynamo's KV router (`lib/llm/src/kv_router/scheduler.rs`), which also follows events and adds
the blocks to compute and the load; llm-d's precise prefix scorer (`pkg/plugins/scorer`), whose
speculative entries expire in the same way, and its scorer `no-hit-lru`, which spreads first requests.

Differs from Dynamo, whose score is the blocks to compute plus the blocks in use, and which can draw
from a softmax instead of taking the minimum.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import exp
from typing import ClassVar

from engine.cluster.block_index import BlockIndex, Keys
from engine.cluster.demand import Demand
from engine.cluster.events import RoutingReason
from engine.cluster.guesses import Guesses
from engine.cluster.replica_tree import ReplicaTree
from engine.cluster.router import Decision, Replica, Router, best
from engine.core.log.vocabulary import Event

COPY = 0.25  # the cost of a token of a prefix in demand
CONTENDERS = 8  # replicas that are compared term by term


@dataclass(slots=True)
class _Prompt:
    """A prompt of `length` tokens, and how many of them each replica has.

    keys    of its blocks
    cached  tokens according to the logs, for replicas that have any
    hits    tokens including guesses, for replicas that have any
    prefix  the key of the last block of the longest hit; 0 without one
    shared  the length of the longest hit if it is in demand, else 0
    """

    request: int
    length: int
    keys: Keys
    cached: dict[str, int]
    hits: dict[str, int]
    prefix: int = 0
    shared: int = 0


@dataclass(slots=True)
class _Known:
    """What the router knows of a replica: its tree, and how many prompt tokens it owes.

    filled  how often the prompts that were sent there lately filled its memory, when the mean replica
            had been filled `at` times
    """

    tree: ReplicaTree
    owed: int = 0
    filled: float = 0.0
    at: float = 0.0


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
    _owed_by: dict[int, tuple[str, int]] = field(init=False, repr=False, default_factory=dict)
    _filled: float = field(init=False, repr=False, default=0.0)  # how often, the replicas' mean
    _demand: Demand = field(init=False, repr=False, default_factory=Demand)
    _last: _Prompt | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._guesses = Guesses(round(self.guess_ms * 1000))

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        """Return the replica with the lowest score; ties go to the one with the most free memory."""
        self._last = prompt = self._look_up(request, tokens, now_us)
        hits = prompt.hits
        holders = [replica for replica in replicas if replica.id in hits]
        longest = max((hits[one.id] for one in holders), default=0)
        equal = [one for one in holders if hits[one.id] == longest]
        holder = min(equal or replicas, key=lambda one: one.in_flight)
        if equal:
            prompt.prefix = self._index.last_key(holder.id, prompt.keys, longest)
            is_in_demand = self._is_in_demand(prompt.prefix, holder, len(equal), replicas)
            prompt.shared = longest if is_in_demand else 0
        if len(replicas) > CONTENDERS:
            replicas = self._contenders(prompt, holders, replicas)
            replicas = replicas if holder in replicas else [*replicas, holder]
        terms = {one.id: self._terms(prompt, one) for one in replicas}
        scores = {id_: sum(its.values()) for id_, its in terms.items()}
        replica, ties = best(scores, self._tie)
        hits = {id_: hits.get(id_, 0) for id_ in terms}
        return Decision(replica, _reason(prompt, replica, longest), hits, scores, terms, ties)

    def _is_in_demand(
        self, prefix: int, holder: Replica, holders: int, replicas: Sequence[Replica]
    ) -> bool:
        """Return whether a prefix has more requests than its holders, of which `holder` has least."""
        spare = holder.in_flight - self._known[holder.id].tree.seats
        is_full = spare > 0 and any(one.in_flight < spare for one in replicas)
        return is_full or self._demand.exceeds(prefix, holders, len(replicas))

    def _terms(self, prompt: _Prompt, candidate: Replica) -> dict[str, float]:
        """Return the terms of a replica's score."""
        known, hit = self._known[candidate.id], prompt.hits.get(candidate.id, 0)
        tree, shared = known.tree, prompt.shared
        prefill = self.compute_weight * (prompt.length - max(hit, shared))
        terms = {"prefill": prefill, "evictions": prefill / 2 * self._filled_lately(known)}
        if shared:
            terms["copy"] = COPY * max(shared - hit, 0)
        batch = self.batch_weight * candidate.in_flight / tree.seats
        return terms | {"queued": known.owed, "batch": batch}

    def _contenders(
        self, prompt: _Prompt, holders: Sequence[Replica], replicas: Sequence[Replica]
    ) -> Sequence[Replica]:
        """Return the replicas that can have the lowest score.

        The loop is `_terms` for hundreds of replicas, without a call for each.
        """
        shared, scores, hit_of = prompt.shared, list[tuple[float, int]](), prompt.hits.get
        if 0 < len(holders) <= CONTENDERS:
            lowest = min(sum(self._terms(prompt, one).values()) for one in holders)
            if lowest < self.compute_weight * (prompt.length - shared) + COPY * shared:
                return holders  # because no other replica can have a lower score
        for index, replica in enumerate(replicas):
            known, hit = self._known[replica.id], hit_of(replica.id, 0)
            tree, copied = known.tree, shared - hit if hit < shared else 0
            weight = self.compute_weight * (1 + self._filled_lately(known) / 2)
            load = known.owed + self.batch_weight * replica.in_flight / tree.seats
            scores.append((weight * (prompt.length - hit - copied) + COPY * copied + load, index))
        return [replicas[index] for _, index in nsmallest(CONTENDERS, scores)]

    def _filled_lately(self, known: _Known) -> float:
        """Return how often a replica's memory was filled while that of the mean replica was once."""
        return known.filled * exp(known.at - self._filled)

    def _tie(self, replica: str) -> dict[str, float]:
        """Return the token slots that no cached and no owed token needs, and a random number."""
        known = self._known[replica]
        return {"free": known.tree.free - known.owed, "draw": self._rng.random()}

    def on_routed(self, request: int, tokens: Sequence[int], replica: str, now_us: int) -> None:
        """Note the tokens that the replica owes, and guess that it will have the prompt's blocks."""
        if replica not in self._known:
            return
        prompt = self._last
        if prompt is None or prompt.request != request:  # a pinned request skips `choose`
            prompt = self._look_up(request, tokens, now_us)
        known, owed = self._known[replica], prompt.length - prompt.hits.get(replica, 0)
        self._demand.add(prompt.prefix, len(self._known))
        filled = owed / known.tree.slots
        self._filled += filled / len(self._known)
        known.filled, known.at = self._filled_lately(known) + filled, self._filled
        if not self.guesses:
            return
        self._owed_by[request] = replica, owed
        known.owed += owed
        keys = self._index.keys_on(replica, prompt.keys)
        if keys and not self._index.has(replica, keys[-1]) and not known.tree.is_off:
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
        return _Prompt(request, len(tokens), keys, cached, hits)


def _reason(prompt: _Prompt, replica: str, longest: int) -> RoutingReason:
    hit = prompt.hits.get(replica, 0)
    if hit < longest:
        return "lowest_cost"
    if not longest:
        return "least_work"
    return "longest_prefix" if prompt.cached.get(replica) == hit else "prefix_on_its_way"
