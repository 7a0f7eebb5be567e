"""The teaching stream: one event per token, nothing else to understand.

    POST /v1/completions {"prompt": "Once upon a time", "max_tokens": 50}

    data: {"token": " there", "token_id": 311, "is_first": true, "ttft_ms": 12.4}
    data: {"token": " was", "token_id": 285, "is_first": false}
    ...
    data: {"done": true, "full_text": " there was ..."}

`token` may be empty: a token can end inside a character, and the next one carries it. Joined they
are `full_text`. `ttft_ms` runs from the moment the server read the request to the end of the step
that brought its first token, exactly as the event log has it.

With `logprobs` an event tells how probable its token was, and which tokens were likeliest:

    {..., "logprob": -0.3, "top_logprobs": [{"token": " there", "logprob": -0.3, "bytes": [...]}]}
"""

from typing import Any

from engine.text.tokenizer import Tokenizer
from server.api.openai.logprobs import chat_logprobs
from server.core.request_stream import OutputDelta, RequestStream
from server.http.streaming import sse


class TeachingStream:
    """The teaching stream's Form."""

    done = b""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces: list[str] = []
        self._submitted_at = 0

    def begin(self, generation: RequestStream) -> None:
        """See `ResponseSerializer`."""
        self._submitted_at = generation.submitted_at

    def chunk(self, gain: OutputDelta) -> bytes:
        """One event per token."""
        events = []
        told = None
        if gain.logprobs is not None:
            told = chat_logprobs(gain.ids, gain.logprobs, self._tokenizer)["content"]
        for index, (token_id, text) in enumerate(zip(gain.ids, gain.texts, strict=True)):
            event: dict[str, Any] = {"token": text, "token_id": token_id}
            event["is_first"] = not self._pieces
            if not self._pieces:
                event["ttft_ms"] = (gain.at - self._submitted_at) / 1000
            if told is not None:
                event["logprob"] = told[index]["logprob"]
                event["top_logprobs"] = told[index]["top_logprobs"]
            self._pieces.append(text)
            events.append(sse(event))
        return b"".join(events)

    def closing(self) -> bytes:
        """The whole text."""
        return sse({"done": True, "full_text": "".join(self._pieces)})
