"""Log-probabilities in OpenAI's two formats, and the prompt that `echo` returns.

    completions   four lists with one entry per token
    chat          one object per token

A token is named by its own text, regardless of its neighbours. A token that holds only part of a
character is named U+FFFD. In the first format several tokens may share that name, and only the most
likely one is listed under it. In the second format, `bytes` tells them apart.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from engine.scheduling.request import TokenScore
from engine.text.tokenizer import Tokenizer
from server.core.request_stream import Logprobs

# JSON has no infinity. OpenAI uses the same number for a token with probability 0.
_LEAST = -9999.0


class CompletionLogprobs:
    """The first format, for one piece of a choice's text; built token by token.

    `offset` is where the piece begins in the choice's text, in characters. Tokens that a stop string
    removed from the text are also listed; their offsets are at the end of the text or beyond.
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
        """Add the prompt's tokens. `scores` starts with the second: the first has no context."""
        self._add(ids[0], pieces[0], None, [])
        for token, piece, score in zip(ids[1:], pieces[1:], scores, strict=True):
            self._add(token, piece, score.logprob, score.top)

    def add(self, ids: Sequence[int], logprobs: Logprobs) -> None:
        """Add tokens of the output."""
        pieces, chosen, top = logprobs.pieces, logprobs.chosen, logprobs.top
        for token, piece, logprob, likeliest in zip(ids, pieces, chosen, top, strict=True):
            self._add(token, piece, logprob, likeliest)

    def _add(
        self, token: int, piece: str, logprob: float | None, top: Iterable[tuple[int, float]]
    ) -> None:
        self._tokens.append(_text(token, self._tokenizer))
        self._logprobs.append(None if logprob is None else max(logprob, _LEAST))
        self._top.append(None if logprob is None else self._by_text([*top, (token, logprob)]))
        self._offsets.append(self.offset)
        self.offset += len(piece)

    def _by_text(self, pairs: Iterable[tuple[int, float]]) -> dict[str, float]:
        largest: dict[str, float] = {}
        for token, logprob in pairs:
            text = _text(token, self._tokenizer)
            largest[text] = max(logprob, largest.get(text, _LEAST))
        return largest

    def to_json(self) -> dict[str, Any]:
        """Return the lists under OpenAI's names."""
        return {
            "text_offset": self._offsets,
            "token_logprobs": self._logprobs,
            "tokens": self._tokens,
            "top_logprobs": self._top,
        }


def chat_logprobs(ids: Sequence[int], logprobs: Logprobs, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return log-probabilities in the second format."""
    content = [
        _entry(token, logprob, tokenizer)
        | {"top_logprobs": [_entry(*pair, tokenizer) for pair in top]}
        for token, logprob, top in zip(ids, logprobs.chosen, logprobs.top, strict=True)
    ]
    return {"content": content, "refusal": None}


def echoed_pieces(prompt: str | list[int], ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Return the prompt's text for `echo`, one piece per token.

    A BOS token that the tokenizer added to a text has an empty piece: it is not part of the text.
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
