"""Which lane a request is drawn in: its own, or with many requests one whose request has ended.

`visualizer/frontend/src/drawing/lane_packing.js` does the same for the timeline. Here lanes are given
out while the log is read, by time: a request may have been submitted before the last one ended.
"""

import heapq

A_LANE_EACH = 64


class Lanes:
    """Lanes count from 1. At any time a lane holds at most one request; without `reuse`, ever."""

    def __init__(self, reuse: bool) -> None:
        self.count = 0
        self.reuse = reuse
        self._free: list[tuple[int, int]] = []  # lane, when it became free

    def take(self, begin: int) -> int:
        """The topmost lane that is free from `begin` on."""
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

    def give_back(self, lane: int, end: int) -> None:
        """The lane's request ended."""
        if self.reuse:
            heapq.heappush(self._free, (lane, end))
