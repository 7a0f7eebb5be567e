"""A drafter guesses the next tokens; the model checks several guesses in one forward pass."""

from typing import Protocol

from engine.scheduling.request import Request


class Drafter(Protocol):
    """Proposes tokens for a request that has caught up. See arXiv:2211.17192 for why it is exact."""

    def propose(self, request: Request) -> list[int]:
        """Tokens that may follow `request.tokens`; [] when there is nothing to guess."""
        ...
