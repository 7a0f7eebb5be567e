"""Bad words as token sequences.

A tokenizer writes a word differently at the beginning of a text and after a space, so a word may have
two sequences. The text itself is not searched: a model may still spell the word with other tokens.

Source: `SamplingParams.update_from_tokenizer` in vLLM (`vllm/sampling_params.py`), with its limits
(VLLM_MAX_NUM_BAD_WORDS, VLLM_MAX_BAD_WORDS_TOTAL_TOKENS).

Differs from vLLM: the sequence after a space always counts. vLLM drops it if it has more or fewer
tokens than the word alone; the word then stays possible after a space.
"""

from functools import lru_cache

from engine.core.tokenizer import Tokenizer, encode_continuation

MAX_SEQUENCES = 128
MAX_TOKENS = 1024


def bad_word_ids(words: tuple[str, ...], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences of bad words, in order.

    The result is kept, so that a server's tokenizer thread does the work and its engine thread does
    not. Raises ValueError for a word without tokens, and for too many sequences or tokens.
    """
    return _bad_word_ids(words, tokenizer)  # type: ignore[arg-type] # hashed by identity


@lru_cache(maxsize=64)
def _bad_word_ids(words: tuple[str, ...], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    found: list[tuple[int, ...]] = []
    for word in dict.fromkeys(words):
        alone = encode_continuation(word.lstrip(), tokenizer)
        if not alone:
            raise ValueError(f"must be words with at least one token, got {word!r}")
        found.append(tuple(alone))
        after_space = encode_continuation(" " + word.lstrip(), tokenizer)
        if after_space != alone:
            found.append(tuple(after_space))
    tokens = sum(map(len, found))
    if len(found) > MAX_SEQUENCES or tokens > MAX_TOKENS:
        raise ValueError(
            f"must be at most {MAX_SEQUENCES} token sequences with {MAX_TOKENS} tokens together, got "
            f"{len(found)} with {tokens}: give fewer or shorter words"
        )
    return tuple(found)
