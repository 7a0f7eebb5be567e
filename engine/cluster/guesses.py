"""Guesses: blocks that a replica will have soon, because their prompt was sent to it."""

from collections import Counter
from dataclasses import dataclass

from engine.cluster.block_index import BlockIndex


@dataclass(slots=True)
class _Guess:
    replica: str
    keys: list[int]
    until_us: int


class Guesses:
    """The prompts that are on their way, by request. `index` has their blocks.

    A guess ends when the replica's log says that the prompt's last block is cached, when the guess
    expires, or when the request ends without a token.
    """

    def __init__(self, lifetime_us: int) -> None:
        self.index = BlockIndex()
        self._lifetime_us = lifetime_us
        self._guesses: dict[int, _Guess] = {}  # by request, the oldest first
        self._copies = Counter[tuple[str, int]]()  # (replica, key) -> guesses with this block
        self._ending_in: dict[tuple[str, int], list[int]] = {}  # (replica, last key) -> requests

    def __len__(self) -> int:
        return len(self._guesses)

    def add(self, request: int, replica: str, keys: list[int], now_us: int) -> None:
        """Guess that `replica` will have the blocks with these keys: a prompt from its beginning."""
        self.drop(request)
        self._guesses[request] = _Guess(replica, keys, now_us + self._lifetime_us)
        self._ending_in.setdefault((replica, keys[-1]), []).append(request)
        self._copies.update((replica, key) for key in keys)
        self.index.add(replica, keys)

    def confirm(self, replica: str, key: int) -> None:
        """Drop the guesses that end with this block, which is now cached."""
        for request in self._ending_in.get((replica, key), ())[:]:
            self.drop(request)

    def expire(self, now_us: int) -> None:
        """Drop the expired guesses."""
        while self._guesses:
            request, guess = next(iter(self._guesses.items()))
            if guess.until_us > now_us:
                return
            self.drop(request)

    def drop(self, request: int) -> None:
        """Drop the guess of a request, if there is one."""
        guess = self._guesses.pop(request, None)
        if guess is None:
            return
        end = guess.replica, guess.keys[-1]
        self._ending_in[end].remove(request)
        if not self._ending_in[end]:
            del self._ending_in[end]
        for key in guess.keys:
            self._copies[guess.replica, key] -= 1
            if not self._copies[guess.replica, key]:
                del self._copies[guess.replica, key]
                self.index.discard(guess.replica, [key])

    def leave(self, replica: str) -> None:
        """Drop a replica with all its guesses."""
        for request, guess in list(self._guesses.items()):
            if guess.replica == replica:
                self.drop(request)
        self.index.leave(replica)
