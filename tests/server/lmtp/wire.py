"""A client of LMTP that shares nothing with ours: it speaks as LMQL's does, frame by frame."""

import json
from typing import Any

from websockets.sync.client import connect

from tests.server.harness import TIMEOUT


class Wire:
    """A WebSocket. Received items wait until a test asks for those of their stream."""

    def __init__(self, url: str, path: str = "/", **options: Any) -> None:
        options = {
            "max_size": None,
            "compression": None,
            "proxy": None,
            "max_queue": None,
        } | options
        self._connection = connect("ws" + url.removeprefix("http") + path, **options)
        self.items: list[tuple[str, dict[str, Any]]] = []

    def __enter__(self) -> "Wire":
        self.socket = self._connection.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._connection.__exit__(*error)

    def send(self, word: str, **payload: Any) -> None:
        self.socket.send(f"{word} {json.dumps(payload)}")

    def generate(self, stream_id: Any, prompt: Any, **fields: Any) -> None:
        """As LMQL's client sends it."""
        payload = {"max_tokens": 16, "temperature": 0.0, "top_logprobs": 1} | fields
        self.send("GENERATE", model="any", prompt=prompt, stream_id=stream_id, **payload)

    def say(self, stream_id: Any, prompt: Any, **fields: Any) -> str:
        """Generate to the end; return the letters that the alphabet runner wrote."""
        self.generate(stream_id, prompt, **fields)
        return letters(self.tokens(stream_id))

    def queued(self, stream_id: Any, prompt: Any, **fields: Any) -> dict[str, Any]:
        """Generate; return the first message about it, which says that the stream is queued."""
        self.generate(stream_id, prompt, **fields)
        message = self.next("MSG", stream_id)
        assert message["status"] == "queued"
        return message

    def refused(self, stream_id: Any, prompt: Any, **fields: Any) -> dict[str, Any]:
        """Generate; return the error that the stream ends with."""
        self.generate(stream_id, prompt, **fields)
        return self.error(stream_id)

    def receive(self) -> list[tuple[str, dict[str, Any]]]:
        """The next frame's items, each with the frame's word."""
        word, content = self.socket.recv(TIMEOUT).split(" ", 1)
        items = json.loads(content)
        assert isinstance(items, list)  # both TOKEN and MSG are lists
        return [(word, item) for item in items]

    def next(self, word: str, stream_id: Any, field: str = "stream_id") -> dict[str, Any]:
        """The next item of this word and stream that has a field; what else comes is kept."""
        while True:
            for index, (kind, item) in enumerate(self.items):
                if kind == word and item["stream_id"] == stream_id and field in item:
                    del self.items[index]
                    return item
            self.items += self.receive()

    def tokens(self, stream_id: Any) -> list[dict[str, Any]]:
        """A stream to its end."""
        tokens = [self.next("TOKEN", stream_id)]
        while tokens[-1].get("finish_reason") is None and "error" not in tokens[-1]:
            tokens.append(self.next("TOKEN", stream_id))
        return tokens

    def error(self, stream_id: Any) -> dict[str, Any]:
        """The error that a stream ends with."""
        last = self.tokens(stream_id)[-1]
        assert "error" in last
        return last


def letters(tokens: list[dict[str, Any]]) -> str:
    """What the alphabet runner wrote."""
    return "".join(chr(token["token"]) for token in tokens)
