"""Cut a run into regimes: the steps of each have one limit.

Each step has a weight: half is its share of the run's steps, half its share of the run's time, so that
a regime counts if it is long in either. The weight is divided among the labels: a step in which many
requests wait for blocks is memory-bound, one in which few wait is calm in part. Then neighbours join,
first those whose joining misplaces the least weight, until what is left is worth a name.

This is region merging in one dimension. It needs O(n log n) time for n steps, and most neighbours have
the same label and join at once.
"""

from array import array
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate
from operator import add

from visualizer.reading.regimes.columns import Columns

LABELS = ("calm", "seats", "memory", "thrash", "prefill", "waiting", "idle")
_LABEL_OF = {
    "batch_full": "seats",
    "static_batch": "seats",
    "no_free_blocks": "memory",
    "whole_sequence": "memory",
    "reserved_blocks": "memory",
    "expected_tokens": "memory",
    "after_preemption": "memory",
    "preempted": "memory",
    "token_budget": "prefill",
    "unknown": "waiting",
}
_MOST = 7  # regimes of a run
_MOST_RUNS = (
    20_000  # before they are joined: of a longer log, first those that cost least up to there
)
_LEAST_SHARE = 0.04  # of the run's steps and time: a shorter regime joins a neighbour
_LEAST_STEPS = 1.25
_ENOUGH = 4  # a step is not calm at all if one request waits for each so many that compute
THRASH_SHARE, THRASH_VICTIMS = 0.1, 3  # tokens computed again and preemptions that make it thrash
_Weights = list[float]


@dataclass(slots=True)
class Segment:
    """Steps with the indexes `begin` up to, not including, `end`, and their weight by label."""

    begin: int
    end: int
    weights: _Weights

    @property
    def label(self) -> str:
        """The label with the most weight."""
        return LABELS[self.weights.index(max(self.weights))]


def segments_of(columns: Columns) -> list[Segment]:
    """Return the segments of a log, in order; none if it has no finished step."""
    whole = _runs(columns)
    least = 2 * max(_LEAST_SHARE, _LEAST_STEPS / max(1, len(columns.steps.number)))
    return _joined(whole, least, _MOST)


def _runs(columns: Columns) -> list[Segment]:
    """Return neighbours with one label together: that misplaces nothing."""
    steps, runs = columns.steps, list[Segment]()
    count, whole = len(steps.number), sum(steps.busy) + sum(steps.idle)
    is_thrash = _thrashing(columns)
    for index in range(count):
        time = steps.busy[index] + steps.idle[index]
        weight = 1 / count + (time / whole if whole else 1 / count)
        weights = [weight * share for share in _shares(columns, index, is_thrash[index])]
        segment = Segment(index, index + 1, weights)
        if runs and runs[-1].label == segment.label:
            runs[-1].end = segment.end
            runs[-1].weights = list(map(add, runs[-1].weights, weights))
        else:
            runs.append(segment)
            if len(runs) > _MOST_RUNS:
                runs = _joined(runs, 0, _MOST_RUNS // 2)
    return runs


def _shares(columns: Columns, index: int, is_thrash: int) -> _Weights:
    """Divide a step among the labels; the shares add up to 1."""
    steps, shares = columns.steps, dict.fromkeys(LABELS, 0.0)
    time = steps.busy[index] + steps.idle[index]
    shares["idle"] = steps.idle[index] / time if time else 0.0
    rest, amounts = 1 - shares["idle"], dict[str, int]()
    if steps.waiting[index]:
        amounts = {c: n for c, n in columns.amounts(index).items() if n and c in _LABEL_OF}
    if steps.stalled[index]:
        amounts["token_budget"] = amounts.get("token_budget", 0) + steps.stalled[index]
    limited = sum(amounts.values())
    pressed = rest * min(1.0, _ENOUGH * limited / max(1, steps.rows[index]))
    shares["calm"] = rest - pressed
    for cause, amount in amounts.items():
        label = _LABEL_OF[cause]
        if is_thrash and label in ("memory", "prefill"):  # the budget goes to lost tokens
            label = "thrash"
        shares[label] += pressed * amount / limited
    return list(shares.values())


def _thrashing(columns: Columns) -> bytearray:
    """Return for each step whether the preemptions around it cost many tokens."""
    steps = columns.steps
    count = len(steps.number)
    reach = max(5, count // 40)
    sums = [
        array("q", accumulate(values, initial=0))
        for values in (steps.again, steps.tokens, steps.preempted)
    ]
    found = bytearray()
    for index in range(count):
        begin, end = max(0, index - reach), min(count, index + reach + 1)
        again, tokens, victims = (values[end] - values[begin] for values in sums)
        found.append(victims >= THRASH_VICTIMS and again >= THRASH_SHARE * tokens)
    return found


def _both(one: Segment, other: Segment) -> Segment:
    weights = [a + b for a, b in zip(one.weights, other.weights, strict=True)]
    return Segment(one.begin, other.end, weights)


def _misplaced(one: Segment, other: Segment) -> float:
    """Return how much weight is under the wrong label only because the two are joined."""
    return max(one.weights) + max(other.weights) - max(_both(one, other).weights)


def _joined(segments: list[Segment], least: float, most: int) -> list[Segment]:
    """Join neighbours, the cheapest first, while there are more than `most`; then as long as that
    misplaces less than `least`.
    """
    alive = dict(enumerate(segments))
    after = {number: number + 1 for number in alive}
    before = {number: number - 1 for number in alive}
    heap = [(_misplaced(alive[n], alive[n + 1]), n, n + 1) for n in alive if n + 1 in alive]
    heapify(heap)
    following = len(segments) + 1  # a joined segment gets a new number: so old pairs are recognized
    while heap:
        cost, left, right = heappop(heap)
        if left not in alive or right not in alive:
            continue
        if cost >= least and len(alive) <= most:
            break
        new, following = following, following + 1
        alive[new] = _both(alive.pop(left), alive.pop(right))
        before[new], after[new] = before[left], after[right]
        for neighbour, links in ((before[new], after), (after[new], before)):
            if neighbour in alive:
                links[neighbour] = new
                pair = (neighbour, new) if links is after else (new, neighbour)
                heappush(heap, (_misplaced(alive[pair[0]], alive[pair[1]]), *pair))
    return sorted(alive.values(), key=lambda segment: segment.begin)
