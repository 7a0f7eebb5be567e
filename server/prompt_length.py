"""Texts that cannot fit are refused before they are tokenized.

All requests share one tokenizer thread, and it needs some 5 microseconds a character (measured: 43 s
for a body of 8 MB): everybody would be held up by a prompt that is then found to be too long. No
token is longer than the longest of the vocabulary, which says how many a text has at least.
"""

from collections.abc import Iterable
from functools import lru_cache

from engine.scheduling.admission import RequestError
from engine.text.tokenizer import Tokenizer
from server.bridge import Bridge


def check_length(texts: Iterable[str], bridge: Bridge) -> None:
    """Raise RequestError if these texts together can be no prompt of this engine's."""
    characters = sum(map(len, texts))
    slots = bridge.config.num_blocks * bridge.config.block_size
    limit = min(slots, bridge.max_context or slots)
    if (
        characters <= limit
    ):  # so is nearly every text, and the vocabulary need not be looked through
        return
    longest = _longest_token(bridge.tokenizer)  # type: ignore[arg-type] # as an object, by identity
    if characters > limit * longest:
        raise RequestError(
            "prompt",
            f"{characters} characters are more than the limit of {limit} tokens, {longest} bytes long "
            "at most, can hold: shorten the prompt",
        )


@lru_cache(maxsize=16)
def _longest_token(tokenizer: Tokenizer) -> int:
    return max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size))
