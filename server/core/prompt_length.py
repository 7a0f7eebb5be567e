"""Texts that cannot fit are refused before they are tokenized.

All requests share one tokenizer thread, and it needs some 5 microseconds a character (measured: 43 s
for a body of 8 MB): everybody would be held up by a prompt that is then found to be too long, or by a
batch of prompts each of which just fits. No token is longer than the longest of the vocabulary, which
says how many a text has at least.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from engine.scheduling.admission import RequestError
from engine.text.tokenizer import Tokenizer
from server.core.bridge import Bridge

MAX_CHARACTERS = 1 << 20  # of one request; some five seconds of the tokenizer thread


def room(bridge: Bridge) -> int:
    """Tokens that a prompt and its output may have together; the last one needs no slot in memory."""
    slots = bridge.config.num_blocks * bridge.config.block_size + 1
    return min(slots, bridge.max_context or slots)


def check_length(characters: Iterable[int], bridge: Bridge) -> None:
    """Raise RequestError if texts of so many characters cannot be a request's prompts, one for each."""
    given = list(characters)
    if sum(given) > MAX_CHARACTERS:
        raise RequestError(
            "prompt",
            f"{sum(given)} characters are more than the limit of {MAX_CHARACTERS}: send fewer prompts, "
            "or shorter ones",
        )
    longest_text, limit = max(given, default=0), room(bridge)
    if longest_text <= limit:  # so is nearly every text: no need to look through the vocabulary
        return
    longest = _longest_token(bridge.tokenizer)  # type: ignore[arg-type] # as an object, by identity
    if longest_text > limit * longest:
        raise RequestError(
            "prompt",
            f"{longest_text} characters are more than the limit of {limit} tokens, {longest} bytes "
            "long at most, can hold: shorten the prompt",
        )


def characters_in(messages: Iterable[Mapping[str, object]]) -> int:
    """Characters in a conversation, however deep: a chat template may render any of them."""
    return sum(_characters(value) for message in messages for value in message.values())


def _characters(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(key) + _characters(one) for key, one in value.items())
    return sum(map(_characters, value)) if isinstance(value, list) else 0


@lru_cache(maxsize=16)
def _longest_token(tokenizer: Tokenizer) -> int:
    return max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size))
