"""Drafters with known quality: they know the answer, or draft at random."""

import random
from collections.abc import Iterable, Sequence

from engine import EventLog
from engine.core.log import vocabulary as v
from engine.core.request import Request


def another(token: int) -> int:
    """Return another token."""
    return token - 1 if token else 1


def drafted(log: EventLog) -> tuple[int, int]:
    """Count the drafts of a log, and those that were accepted."""
    rows = [row for event in log.of(v.StepScheduled) for row in event.rows]
    accepted = sum(row.accepted for event in log.of(v.StepFinished) for row in event.tokens)
    return sum(len(row.drafts) for row in rows), accepted


class Knowing:
    """Proposes the request's known continuation, with wrong tokens at chosen positions.

    `texts` are whole texts, prompt and output; `wrong(position)` says where a wrong token is put.
    Behind it the right ones follow, which may not be accepted either.
    """

    def __init__(
        self, texts: Iterable[Sequence[int]], length: int = 4, wrong=lambda position: False
    ) -> None:
        self.texts = [list(text) for text in texts]
        self.length = length
        self.wrong = wrong

    def propose(self, request: Request) -> list[int]:
        done = len(request.tokens)
        for text in self.texts:
            if text[:done] == request.tokens:
                drafts = text[done : done + self.length]
                return [
                    another(token) if self.wrong(done + i) else token
                    for i, token in enumerate(drafts)
                ]
        return []


class Guessing:
    """Proposes random tokens, mostly ones that are already in the text."""

    def __init__(self, vocab_size: int, length: int = 4) -> None:
        self.rng = random.Random(7)
        self.vocab_size = vocab_size
        self.length = length

    def propose(self, request: Request) -> list[int]:
        return [
            self.rng.choice([*request.tokens[-6:], self.rng.randrange(self.vocab_size)])
            for _ in range(self.rng.randint(0, self.length))
        ]
