"""From token ids to text, one token at a time, without incomplete characters.

A byte-level token is a run of bytes, and a character may span several tokens: "é" has two bytes,
most emoji have four. Decoding each token by itself would print U+FFFD for an incomplete character.
So a token that ends inside a character yields only the text before it, and the token that completes
the character yields the character. Joined, the pieces are the text.

vLLM (`vllm/v1/engine/detokenizer.py`) streams the same way, with the stream decoder of the
`tokenizers` library; older engines decode a sliding window, as `WindowDetokenizer` does.
"""

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"


class IncrementalDetokenizer(Protocol):
    """Turns the tokens of one sample into text."""

    def push(self, token_id: int) -> str:
        """Add a token and return the text that it completes, "" while a character is incomplete."""

    def flush(self) -> str:
        """Return the remaining text at the end: U+FFFD for an incomplete character, else ""."""


class ByteDetokenizer:
    """For vocabularies in which each token is a fixed run of bytes.

    table       the bytes of each id; ids beyond it have no text (models pad their vocabulary)
    silent      ids that yield no text
    prompt_ids  tokens before the first output token, because a prompt may end inside a character
    """

    def __init__(
        self,
        table: Sequence[bytes],
        silent: frozenset[int] = frozenset(),
        prompt_ids: Sequence[int] = (),
    ) -> None:
        self._table = table
        self._silent = silent
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token_id in prompt_ids[-4:]:  # a character has at most four bytes
            if token_id < len(table):
                self._utf8.decode(table[token_id])

    def push(self, token_id: int) -> str:
        """See `IncrementalDetokenizer`. Costs about 0.3 microseconds."""
        if token_id in self._silent or token_id >= len(self._table):
            return ""
        return self._utf8.decode(self._table[token_id])

    def flush(self) -> str:
        """See `IncrementalDetokenizer`."""
        return self._utf8.decode(b"", final=True)


class WindowDetokenizer:
    """For all other vocabularies: decode the last few tokens with and without the new one.

    A token's text may depend on its neighbours (a SentencePiece token loses its leading space at
    the start of a text). So the window starts at the last token that gave text, and a piece is the
    text that the new token added to the window. Text that ends in U+FFFD is held back.

    decode      ids -> text
    silent      ids that yield no text
    prompt_ids  tokens before the first output token
    """

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        silent: frozenset[int] = frozenset(),
        prompt_ids: Sequence[int] = (),
    ) -> None:
        self._decode = decode
        self._silent = silent
        self._window: list[int] = []
        self._shown = 0  # leading tokens of the window whose text was returned
        self._shown_text = ""
        # Start at the last prompt token that decodes to whole characters; add the tokens after it.
        start = len(prompt_ids) - 1
        while start > 0 and REPLACEMENT in decode([prompt_ids[start]]):
            start -= 1
        for token_id in prompt_ids[max(start, 0) :]:
            self._add(token_id)

    def push(self, token_id: int) -> str:
        """See `IncrementalDetokenizer`. Costs one decoding of a few tokens."""
        return "" if token_id in self._silent else self._add(token_id)

    def flush(self) -> str:
        """See `IncrementalDetokenizer`."""
        return self._next_piece(self._decode(self._window))

    def _add(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._decode(self._window)
        if len(text) <= len(self._shown_text) or text.endswith(REPLACEMENT):
            return ""
        return self._next_piece(text)

    def _next_piece(self, text: str) -> str:
        piece = text[len(self._shown_text) :]
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        self._shown_text = self._decode(self._window)
        return piece
