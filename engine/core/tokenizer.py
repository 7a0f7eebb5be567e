"""The tokenizer interface; `engine/models/text` has the tokenizers of models.

- `encode` recognises special tokens that are written out in the text.
- `encode_ordinary` is for text that must not contain special tokens, such as a tool's result.
- Decoding shows every token, special tokens by their names, so the pieces in the log join to exactly
  the text that the model read. Only an end token in the output produces no text.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from engine.core.output.detokenizer import IncrementalDetokenizer


class TokenizerError(ValueError):
    """A tokenizer file or a text cannot be used. The message names the fix."""


class Tokenizer(Protocol):
    """Converts text to token ids and back.

    eos_ids        ids that end an output
    bos_id         the beginning-of-sequence id; None if the model has none
    special_ids    ids of special tokens, such as those that frame a chat; plain text has none
    vocab_size     ids are 0 .. vocab_size - 1
    chat_template  turns a conversation into a prompt
    """

    eos_ids: frozenset[int]
    bos_id: int | None
    special_ids: frozenset[int]
    vocab_size: int

    @property
    def chat_template(self) -> Any:
        """A `ChatTemplate` of `engine/models/text/chat_template.py`."""

    def describe(self) -> dict[str, Any]:
        """Return a summary for the log's first event: JSON values only."""

    def encode(self, text: str) -> list[int]:
        """Return a prompt's ids: special tokens are recognised, and the model's BOS is prepended."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the ids of plain text: no special tokens, no BOS."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the whole text; bytes that are not UTF-8 become U+FFFD."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one piece of text per id; joined they are `decode(ids)`.

        A character that the last id leaves incomplete is in no piece: `detokenizer(ids)` adds it to
        the first piece of the output.
        """

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token, independent of its context; perhaps part of a character.

        Special tokens, including end tokens, give their names; ids without a token give b"".
        """

    def token_id(self, text: str) -> int | None:
        """Return the id of a special token; None if the model has no such token."""

    def detokenizer(self, prompt_ids: Sequence[int]) -> IncrementalDetokenizer:
        """Return a detokenizer for an output that follows `prompt_ids`. End tokens give ""."""


def encode_continuation(text: str, tokenizer: Tokenizer) -> list[int]:
    """Encode text that follows other text.

    Removes the beginning-of-sequence token that some tokenizers add to every text. If the text itself
    begins with that token, it stays.
    """
    ids, bos = tokenizer.encode(text), tokenizer.bos_id
    if bos is not None and ids[:1] == [bos] and not text.startswith(tokenizer.decode([bos])):
        return ids[1:]
    return ids


def checked(text: str) -> str:
    """Return the text. Raises TokenizerError for half a surrogate pair, which JSON can express."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text is not valid Unicode: character {error.start} is a lone surrogate "
            f"({text[error.start]!r}); remove it"
        ) from error
    return text
