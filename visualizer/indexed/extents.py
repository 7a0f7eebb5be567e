"""What each part of the facts has, so that a reader finds the part of a request or of a step."""

from collections.abc import Iterable

import msgspec

from visualizer.indexed.facts import Fact, Finished, Request, Steps


class Extent(msgspec.Struct, array_like=True, gc=False):
    """What a part of the facts has.

    least, most  ids of its requests, samples included; 0 and -1 if it has none
    step         the last step that is in this part or in one before it
    scheduled, finished   how many steps were scheduled, and have finished, up to its end
    sizes        the numbers of requests in those of its finished steps that only decode
    """

    least: int = 0
    most: int = -1
    step: int = 0
    scheduled: int = 0
    finished: int = 0
    sizes: list[int] = []


def extent_of(facts: Iterable[Fact], before: Extent) -> Extent:
    """Return the extent of a part, given that of the part before it."""
    extent = Extent(step=before.step, scheduled=before.scheduled, finished=before.finished)
    ids, sizes = list[int](), set[int]()
    for one in facts:
        if isinstance(one, Request):
            ids += one.id, one.id + one.samples - 1
        elif isinstance(one, Steps):
            extent.step = one.step[-1]
            extent.scheduled += len(one.step) - one.scheduled.count(None)
        elif isinstance(one, Finished):
            extent.finished += len(one.number)
            rows = zip(one.decodes, one.prefills, one.failed, strict=True)
            sizes.update(decodes for decodes, prefills, failed in rows if not (prefills or failed))
    if ids:
        extent.least, extent.most = min(ids), max(ids)
    extent.sizes = sorted(sizes - {0})
    return extent
