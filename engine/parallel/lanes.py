"""Who computed, sent and waited when, in one step.

An operation among devices begins when the last of them has entered it. Until then, the others wait.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Span(NamedTuple):
    """A time of one device: kind is compute, wait or the name of a `Call`. Times in microseconds."""

    kind: str
    start: int
    end: int
    bytes: int


class Call(NamedTuple):
    """One operation of a device.

    kind     all_reduce, gather, all_gather and all_to_all among the devices of a stage; send and recv
             between stages. sent: the end of the step, when a send had to be complete
    entered  when it began, in nanoseconds of `time.perf_counter_ns`, which all processes share
    left     when it returned
    bytes    the tensor's size: a device's own part of a gather, of an all-to-all what leaves it,
             otherwise the whole tensor
    """

    kind: str
    entered: int
    left: int
    bytes: int


def lanes(
    began: int,
    steps: Sequence[tuple[int, Sequence[Call], int]],
    tensor: int,
) -> list[list[Span]]:
    """Return the spans of each device, in order and without gaps between its first and last.

    began  when the engine began the step, in nanoseconds; it is time 0
    steps  of each device: when it began, its operations, when it ended
    """
    result: list[list[Span]] = []
    for rank, (start, calls, end) in enumerate(steps):
        first = rank - rank % tensor
        sends = [one.entered for one in steps[rank - tensor][1] if one.kind == "send"]
        stage = [_shared(steps[other][1]) for other in range(first, first + tensor)]
        ready = iter([max(entered) for entered in zip(*stage, strict=True)])
        sent = iter(sends if first else [])
        times = [(start, "", 0)]
        for call in calls:
            begun = call.entered
            if call.kind == "recv":
                begun = next(sent)
            elif call.kind in _SHARED:
                begun = next(ready)
            elif call.kind == "sent":
                begun = call.left
            times += [
                (call.entered, "compute", 0),
                (min(max(begun, call.entered), call.left), "wait", 0),
                (call.left, call.kind, call.bytes),
            ]
        times.append((end, "compute", 0))
        result.append(
            [
                Span(kind, (at - began) // 1000, (until - began) // 1000, size)
                for (at, *_), (until, kind, size) in pairwise(times)
                if until > at
            ]
        )
    return result


_SHARED = "all_reduce", "gather", "all_gather", "all_to_all"


def _shared(calls: Sequence[Call]) -> list[int]:
    """Return when a device entered each operation that its whole stage takes part in."""
    return [call.entered for call in calls if call.kind in _SHARED]
