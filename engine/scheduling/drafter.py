"""A drafter guesses the next tokens; the model checks several guesses in one forward pass."""

from typing import Protocol

from engine.part_errors import DrafterError, named
from engine.scheduling.request import Request


class Drafter(Protocol):
    """Proposes tokens for a request that has caught up. See arXiv:2211.17192 for why it is exact."""

    def propose(self, request: Request) -> list[int]:
        """Tokens that may follow `request.tokens`; [] when there is nothing to guess.

        A wrong guess costs computation and changes no token. Of a long list the beginning is taken,
        as much as budget and memory allow. `request` is only read.
        """
        ...


def checked_drafts(drafter: Drafter, drafts: object, vocab_size: int | None) -> list[int]:
    """`drafts`, copied, if it is a list of token ids; raises DrafterError otherwise."""
    name = named(drafter, "propose")
    if not isinstance(drafts, list):
        raise DrafterError(f"{name} must return a list of token ids, got {drafts!r}")
    for token in drafts:
        whole = isinstance(token, int) and not isinstance(token, bool)
        if not whole or not 0 <= token < (vocab_size or token + 1):
            most = f" (0 to {vocab_size - 1})" if vocab_size else ""
            raise DrafterError(f"{name} proposed {token!r}, no token of the vocabulary{most}")
    return list(drafts)
