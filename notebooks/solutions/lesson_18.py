"""Lesson 18: which replica gets a request?"""

from collections.abc import Iterable, Mapping, Sequence


def route(
    blocks: Sequence[int],
    load: Mapping[str, int],
    known: Mapping[str, set[int]],
    in_flight: Iterable[tuple[str, Sequence[int], int, bool]],
    now: int,
) -> str:
    """Compute as little as possible, but send nothing to an overloaded replica."""
    cached = {replica: set(known.get(replica, ())) for replica in load}
    for replica, sent_blocks, sent_at, reported in in_flight:
        if replica in load and not reported and now - sent_at <= 5_000:
            cached[replica].update(sent_blocks)

    def missing(replica: str) -> int:
        for count, block in enumerate(blocks):
            if block not in cached[replica]:
                return len(blocks) - count
        return 0

    mean = sum(load.values()) / len(load)
    free = [replica for replica in load if load[replica] <= max(8, 2 * mean)]
    return min(free, key=lambda replica: (missing(replica), load[replica]))
