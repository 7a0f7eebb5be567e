"""Which prefixes are in demand: of the latest requests, how many have which prefix."""

from collections import Counter, deque

FIRST = 1  # requests of a prefix that show no demand
LATEST = 256  # requests per replica


class Demand:
    """The longest known prefixes of the latest requests, each as the key of its last block.

    Only the longest one counts. The instructions that all conversations begin with are in demand among
    first turns; a later turn matches its own conversation, which is not.

    Source: Preble (arXiv:2407.00023) counts the requests of a prefix in a window, too, and copies it to
    more replicas when they serve too many of them.
    """

    def __init__(self) -> None:
        self._latest: deque[int] = deque()
        self._counts = Counter[int]()

    def add(self, prefix: int, replicas: int) -> None:
        """Count a request, which went to one of `replicas`."""
        self._latest.append(prefix)
        self._counts[prefix] += 1
        while len(self._latest) > LATEST * replicas:
            oldest = self._latest.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def exceeds(self, prefix: int, holders: int, replicas: int) -> bool:
        """Return whether a prefix's share of the requests is above its holders' share of replicas."""
        return replicas * (self._counts[prefix] - FIRST) > holders * len(self._latest)
