"""Prompts of LMTP calls as token ids. Runs on the tokenizer thread.

LMQL's client tokenizes by itself and sends ids, with the beginning-of-sequence token in front. Where
its tokenizer has no such token, an empty prompt arrives as `[null]`.
"""

from collections.abc import Sequence

from engine.scheduling.admission import RequestError
from engine.text.tokenizer import Tokenizer
from server.api.lmtp.calls import Tokens
from server.core.continuation import encode_continuation


def prompt_ids(prompt: Tokens, before: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """The ids of a prompt that follows the ids `before`.

    A prompt with nothing in it begins with the beginning-of-sequence token. Raises RequestError where
    the tokenizer has none.
    """
    if isinstance(prompt, str) and not before:
        ids = tokenizer.encode(prompt)
    else:
        ids = [*before, *continuation_ids(prompt, tokenizer)]
    if not ids:
        if tokenizer.bos_id is None:
            raise RequestError("prompt", "is empty; give it at least one token")
        ids = [tokenizer.bos_id]
    return ids


def continuation_ids(text: Tokens, tokenizer: Tokenizer) -> list[int]:
    """The ids of what follows something else: without a beginning-of-sequence token of its own."""
    if isinstance(text, str):
        return encode_continuation(text, tokenizer)
    return [id_ for id_ in text if id_ is not None]
