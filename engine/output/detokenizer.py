"""From token ids to text, one token at a time, never showing half a character.

A byte-level token is a run of bytes, and a character may be spread over several of them: "é" is two
bytes, most emoji are four. Decoding each token by itself would print U+FFFD where a character is
still on its way. The rule here: a token that ends inside a character gives the text before that
character, and the token that completes the character carries it. Joined pieces are the text.

vLLM (`vllm/v1/engine/detokenizer.py`) streams the same way, on the stream decoder of the
`tokenizers` library; older engines decode a sliding window, as `WindowDetokenizer` does.
"""

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"


class IncrementalDetokenizer(Protocol):
    """The text of one output, token by token. Each sample has its own."""

    def push(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is still incomplete."""
        ...

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed, else ""."""
        ...


class ByteDetokenizer:
    """For vocabularies in which every token is a fixed run of bytes: a table and a UTF-8 decoder.

    table   the bytes of each id; ids beyond it have no text (models pad their vocabulary)
    prefix  bytes before the first token: a prompt may end inside a character
    """

    def __init__(self, table: Sequence[bytes], prefix: bytes = b"") -> None:
        self._table = table
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._utf8.decode(prefix)

    def push(self, token_id: int) -> str:
        """See `IncrementalDetokenizer`. Costs about 0.3 microseconds."""
        table = self._table
        return self._utf8.decode(table[token_id]) if token_id < len(table) else ""

    def flush(self) -> str:
        """See `IncrementalDetokenizer`."""
        return self._utf8.decode(b"", final=True)


class WindowDetokenizer:
    """For all other vocabularies: decode the last few tokens with and without the new one.

    What a token looks like may depend on its neighbours (a SentencePiece token loses its leading
    space at the start of a text), so the window starts at the last token that gave text, and the
    piece is what the window's text gained. Text is held back while it ends in U+FFFD.

    decode      ids -> text
    silent      ids that give no text
    prompt_ids  tokens before the first one
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
        self._shown = 0  # leading tokens of the window whose text was given out
        self._shown_text = ""
        # The prompt's last token that is whole characters, and the broken ones behind it.
        start = len(prompt_ids) - 1
        while start > 0 and REPLACEMENT in decode([prompt_ids[start]]):
            start -= 1
        for token_id in prompt_ids[max(start, 0) :]:
            self._take(token_id)

    def push(self, token_id: int) -> str:
        """See `IncrementalDetokenizer`. Costs one decoding of a few tokens."""
        return "" if token_id in self._silent else self._take(token_id)

    def flush(self) -> str:
        """See `IncrementalDetokenizer`."""
        return self._give_out(self._decode(self._window))

    def _take(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._decode(self._window)
        if len(text) <= len(self._shown_text) or text.endswith(REPLACEMENT):
            return ""
        return self._give_out(text)

    def _give_out(self, text: str) -> str:
        piece = text[len(self._shown_text) :]
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        self._shown_text = self._decode(self._window)
        return piece
