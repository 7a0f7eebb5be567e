"""The teaching stream: one event per token, and nothing else to understand.

    POST /v1/completions {"prompt": "Once upon a time", "max_tokens": 50}

    data: {"token": " there", "token_id": 311, "is_first": true, "ttft_ms": 12.4}
    data: {"token": " was", "token_id": 285, "is_first": false}
    ...
    data: {"done": true, "full_text": " there was ..."}

`token` may be empty: a token can end inside a character, which is then sent with the next token.
`full_text` is all the tokens joined.

`ttft_ms` is the time from the moment the server read the request to the end of the step that sampled
its first token, exactly as in the event log.

With `logprobs`, an event has the token's log-probability and the most likely tokens at its position:

    {..., "logprob": -0.3, "top_logprobs": [{"token": " there", "logprob": -0.3, "bytes": [...]}]}
"""

from typing import Any

from engine.text.tokenizer import Tokenizer
from server.api.openai.logprobs import chat_logprobs
from server.core.request_stream import OutputDelta, RequestStream
from server.http.streaming import sse


class TeachingSerializer:
    """Writes the teaching stream."""

    done = b""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def begin(self, stream: RequestStream, tokenizer: Tokenizer) -> None:
        """See `ResponseSerializer`."""
        self._submitted_at = stream.submitted_at
        self._tokenizer = tokenizer

    def chunk(self, delta: OutputDelta) -> bytes:
        """Write one event per token."""
        events = []
        logprobs = None
        if delta.logprobs is not None:
            logprobs = chat_logprobs(delta.ids, delta.logprobs, self._tokenizer)["content"]
        for index, (token_id, text) in enumerate(zip(delta.ids, delta.texts, strict=True)):
            event: dict[str, Any] = {"token": text, "token_id": token_id}
            event["is_first"] = not self._pieces
            if not self._pieces:
                event["ttft_ms"] = (delta.at - self._submitted_at) / 1000
            if logprobs is not None:
                event["logprob"] = logprobs[index]["logprob"]
                event["top_logprobs"] = logprobs[index]["top_logprobs"]
            self._pieces.append(text)
            events.append(sse(event))
        return b"".join(events)

    def closing(self) -> bytes:
        """Write the whole text."""
        return sse({"done": True, "full_text": "".join(self._pieces)})
