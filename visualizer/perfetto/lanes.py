"""Assign a lane to each request. If there are many requests, reuse the lanes of ended ones.

`visualizer/frontend/src/drawing/lane_packing.ts` does the same for the timeline. Here, lanes are
assigned while the log is read, by the times at which requests begin and end.
"""

import heapq

MAX_OWN_LANES = 64  # with more requests, lanes are reused


class Lanes:
    """Lanes, numbered from 1. A lane holds one request at a time, or only one ever if not `reuse`."""

    def __init__(self, reuse: bool) -> None:
        self.count = 0
        self.reuse = reuse
        self._free: list[tuple[int, int]] = []  # a lane and the time when it became free

    def allocate(self, begin: int) -> int:
        """Return the topmost lane that is free at `begin`."""
        later = []
        lane = 0
        while self._free and not lane:
            free = heapq.heappop(self._free)
            if free[1] <= begin:
                lane = free[0]
            else:
                later.append(free)
        for free in later:
            heapq.heappush(self._free, free)
        if not lane:
            self.count += 1
            lane = self.count
        return lane

    def release(self, lane: int, end: int) -> None:
        """Free the lane of a request that ended."""
        if self.reuse:
            heapq.heappush(self._free, (lane, end))
