"""Log-probabilities in OpenAI's two forms, and the prompt that `echo` puts in front.

    completions   four lists side by side, one entry per token
    chat          one object per token

A token is named by its own text, whatever is around it. A part of a character has none, so in the
first form several tokens may share the name U+FFFD; the likeliest of them keeps it. `bytes` of the
second form tells them apart.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from engine.scheduling.request import TokenScore
from engine.text.tokenizer import Tokenizer
from server.core.request_stream import Logprobs

# JSON has no infinity. OpenAI uses the same number for a token that cannot come.
_LEAST = -9999.0


class CompletionLogprobs:
    """The first form. Made for one piece of a choice's text, filled token by token.

    `offset` is where the piece begins in the choice's text, in characters. Tokens that a stop
    string took out of the text are listed, too; they begin where it ends, or after.
    """

    def __init__(self, tokenizer: Tokenizer, offset: int) -> None:
        self._tokenizer = tokenizer
        self.offset = offset
        self._tokens: list[str] = []
        self._logprobs: list[float | None] = []
        self._top: list[dict[str, float] | None] = []
        self._offsets: list[int] = []

    def add_prompt(
        self, ids: Sequence[int], pieces: Sequence[str], scores: Sequence[TokenScore]
    ) -> None:
        """The prompt's tokens; `scores` has all but the first, whose probability nobody asks."""
        self._add(ids[0], pieces[0], None, [])
        for token, piece, score in zip(ids[1:], pieces[1:], scores, strict=True):
            self._add(token, piece, score.logprob, score.top)

    def add(self, ids: Sequence[int], told: Logprobs) -> None:
        """Tokens of the output."""
        for token, piece, logprob, top in zip(ids, told.pieces, told.chosen, told.top, strict=True):
            self._add(token, piece, logprob, top)

    def _add(
        self, token: int, piece: str, logprob: float | None, top: Iterable[tuple[int, float]]
    ) -> None:
        self._tokens.append(_text(token, self._tokenizer))
        self._logprobs.append(None if logprob is None else max(logprob, _LEAST))
        self._top.append(None if logprob is None else self._named([*top, (token, logprob)]))
        self._offsets.append(self.offset)
        self.offset += len(piece)

    def _named(self, pairs: Iterable[tuple[int, float]]) -> dict[str, float]:
        named: dict[str, float] = {}
        for token, logprob in pairs:
            name = _text(token, self._tokenizer)
            named[name] = max(logprob, named.get(name, _LEAST))
        return named

    def form(self) -> dict[str, Any]:
        """As it goes over the wire."""
        return {
            "text_offset": self._offsets,
            "token_logprobs": self._logprobs,
            "tokens": self._tokens,
            "top_logprobs": self._top,
        }


def chat_logprobs(ids: Sequence[int], told: Logprobs, tokenizer: Tokenizer) -> dict[str, Any]:
    """The second form."""
    content = [
        _entry(token, logprob, tokenizer)
        | {"top_logprobs": [_entry(*pair, tokenizer) for pair in top]}
        for token, logprob, top in zip(ids, told.chosen, told.top, strict=True)
    ]
    return {"content": content, "refusal": None}


def echoed(prompt: str | list[int], ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """The prompt's text for `echo`, one piece per token.

    A BOS that the tokenizer put in front of a text is a token without text: nobody wrote it.
    """
    pieces = tokenizer.pieces(ids)
    if isinstance(prompt, str) and ids[0] == tokenizer.bos_id and not prompt.startswith(pieces[0]):
        pieces[0] = ""
    return pieces


def _entry(token: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    text = data.decode("utf-8", errors="replace")
    return {"token": text, "logprob": max(logprob, _LEAST), "bytes": list(data)}


def _text(token: int, tokenizer: Tokenizer) -> str:
    return tokenizer.token_bytes(token).decode("utf-8", errors="replace")
