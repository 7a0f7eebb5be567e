"""Text that goes on after something else, as token ids."""

from engine.text.tokenizer import Tokenizer


def encode_continuation(text: str, tokenizer: Tokenizer) -> list[int]:
    """`encode`, without the beginning-of-sequence token that some tokenizers put in front of any text.

    One that somebody wrote stays.
    """
    ids, bos = tokenizer.encode(text), tokenizer.bos_id
    if bos is not None and ids[:1] == [bos] and not text.startswith(tokenizer.decode([bos])):
        return ids[1:]
    return ids
