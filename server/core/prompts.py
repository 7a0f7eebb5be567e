"""Turn a client's text into token ids; reject texts that cannot fit before tokenizing them.

All requests share one tokenizer thread, which takes 1 to 2 microseconds per character (measured with
the bundled tokenizer; a chat takes three times as long). Without a limit, one body could delay every
other request by seconds, either with a single prompt that turns out to be too long or with a batch of
prompts that each just fit. There are two limits, and both depend on the context length:

    all texts of a request    `CHARACTERS_PER_TOKEN` per token of context, at least
                              `LEAST_CHARACTERS` and at most `MAX_CHARACTERS`
    each text                 the length of the vocabulary's longest token, per token of context
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from engine.scheduling.admission import RequestError
from engine.text.tokenizer import Tokenizer
from server.core.bridge import Bridge

CHARACTERS_PER_TOKEN = 8  # English text has 4 to 5 characters per token
LEAST_CHARACTERS = 1 << 16  # about 0.1 s of the tokenizer thread; allows a batch of short prompts
MAX_CHARACTERS = 1 << 20


def max_request_tokens(bridge: Bridge) -> int:
    """Return how many tokens a prompt and its output may have; the last token needs no KV slot."""
    slots = bridge.config.num_blocks * bridge.config.block_size + 1
    return min(slots, bridge.max_context or slots)


def max_characters(bridge: Bridge) -> int:
    """Return how many characters all texts of a request may have in total."""
    return min(
        MAX_CHARACTERS, max(LEAST_CHARACTERS, CHARACTERS_PER_TOKEN * max_request_tokens(bridge))
    )


def check_length(characters: Iterable[int], bridge: Bridge, field: str = "prompt") -> None:
    """Raise RequestError if texts of these lengths are too long to tokenize.

    characters   the length of each text
    field        the request field with these texts, for the error message
    """
    lengths = list(characters)
    total, limit = sum(lengths), max_characters(bridge)
    if total > limit:
        raise RequestError(
            field,
            f"has {total} characters, but the limit is {limit}: send fewer or shorter texts",
        )
    longest_text, tokens = max(lengths, default=0), max_request_tokens(bridge)
    if longest_text <= tokens:  # true of nearly every text; skips the search through the vocabulary
        return
    longest = _longest_token(bridge.tokenizer)  # type: ignore[arg-type] # hashed by identity
    if longest_text > tokens * longest:
        raise RequestError(
            field,
            f"has {longest_text} characters, and {tokens} tokens of at most {longest} bytes cannot "
            "hold them: shorten it",
        )


def characters_in(messages: Iterable[Mapping[str, object]]) -> int:
    """Count a conversation's characters at any depth; a chat template may render all of them."""
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


def encode_continuation(text: str, tokenizer: Tokenizer) -> list[int]:
    """Encode text that follows other text.

    Removes the beginning-of-sequence token that some tokenizers add to every text. If the text itself
    begins with that token, it stays.
    """
    ids, bos = tokenizer.encode(text), tokenizer.bos_id
    if bos is not None and ids[:1] == [bos] and not text.startswith(tokenizer.decode([bos])):
        return ids[1:]
    return ids
