"""Number the block hashes of a recording: a hash's number is its node in the tree of prefixes."""

from collections.abc import Collection

MOST_EVICTED = 1_000_000  # evicted hashes that keep their numbers


class HashNumbers:
    """The number of each hash.

    A hash keeps its number after an eviction, so that a block that is cached again gets the same node.
    A recording may run for weeks, so the oldest evicted hashes lose their numbers.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._last = 0

    def of(self, hash_: str, cached: Collection[int]) -> int:
        """Return the number of a hash; a new hash gets the next number.

        cached  the numbers of the hashes that are cached now
        """
        if hash_ not in self._numbers:
            if len(self._numbers) >= MOST_EVICTED + 2 * len(cached):
                evicted = [one for one, node in self._numbers.items() if node not in cached]
                for one in evicted[: len(evicted) // 2]:
                    del self._numbers[one]
            self._last += 1
            self._numbers[hash_] = self._last
        return self._numbers[hash_]
