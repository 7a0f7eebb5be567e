"""HTTP parsing: errors in OpenAI's format, and limits on the request head.

This overrides private methods of uvicorn's protocol, so `pyproject.toml` pins uvicorn's minor version.
uvicorn has no setting for any of the following:

Error format    uvicorn answers invalid HTTP in plain text, which OpenAI's SDKs cannot parse.
Head size       uvicorn's `httptools` protocol collects headers without a limit. A client that keeps
                sending them fills the memory (measured: 500 MB after two million headers), with or
                without the key. Only uvicorn's slower `h11` protocol has a limit
                (`h11_max_incomplete_event_size`).
Head time       uvicorn keeps connections open that send a byte now and then ("slowloris"), even if
                there are a thousand of them.
Pipelining      A client may send its next request before the previous response ends. uvicorn then stops
                reading, so it does not notice when the client disconnects. When it does notice, it
                notifies the last request instead of the current one. Here, reading continues up to a
                limit, and all requests are notified.
Upgrades        Java's HTTP client and `curl --http2` offer HTTP/2 with every request. A server may
                ignore the offer (RFC 9110, section 7.8), but the parser treats the body as another
                protocol, and uvicorn loses the body. Here, the request is parsed again without the
                offer.
"""

import asyncio

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

from server.http.errors import ApiError, bad_request

MAX_HEAD_BYTES = 64 << 10
MAX_PIPELINED = 16  # maximum number of unanswered requests before reading from a connection stops

_INVALID = bad_request(None, "this is not a valid HTTP request", code="bad_http")
_TOO_LARGE = ApiError(
    431,
    f"the headers are larger than {MAX_HEAD_BYTES} bytes: send fewer or shorter headers",
    code="head_too_large",
)
_TOO_SLOW = ApiError(408, "the head of the request did not arrive in time", code="request_timeout")


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits and with errors in OpenAI's format.

    head_seconds   time limit for a request's head; it starts when the client connects, or with the
                   first byte of a later request
    """

    head_seconds = 30.0

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes: int | None = None  # size of the head that is being read, if any
    _unanswered: tuple[RequestResponseCycle, ...] = ()  # the current request comes first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the head timer on a new connection."""
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify all unanswered requests that the client has disconnected."""
        self._end_head()
        for cycle in self._still_unanswered():
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; reject the request if the head becomes too large."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except HttpParserError:
            self.logger.warning("Received data that is not HTTP, perhaps HTTPS.")
            self._reject(b"400 Bad Request", _INVALID)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._reject(b"431 Request Header Fields Too Large", _TOO_LARGE)

    def on_message_begin(self) -> None:
        """Start counting the bytes of the head, and start its timer."""
        super().on_message_begin()
        self._head_bytes = 0
        self._start_head_timer()

    def on_headers_complete(self) -> None:
        """Start the request, and keep reading unless too many are unanswered."""
        self._end_head()
        if self.parser.should_upgrade():
            return  # `_upgrade` comes next
        before = self._still_unanswered()
        super().on_headers_complete()
        self._unanswered = (*before, self.cycle)
        if len(before) < MAX_PIPELINED:
            self.flow.resume_reading()

    def on_message_complete(self) -> None:
        """End the body, unless `_upgrade` is about to parse the request again."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _upgrade(self, rest: bytes) -> None:
        """Handle a head that offers another protocol; `rest` is the data after it."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        websocket = method == b"GET" and self._get_upgrade() == b"websocket"
        if method == b"CONNECT" or (websocket and self._still_unanswered()):
            # This server is not a proxy, and responses must stay in order.
            self._reject(b"400 Bad Request", _INVALID)
        elif websocket:
            self.scope |= {"method": "GET"}
            self.handle_websocket_upgrade()
        else:
            head = [b"%b %b HTTP/%b" % (method, self.url, version)]
            head += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
            self.parser = HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self.data_received(b"\r\n".join([*head, b"", rest]))

    def _still_unanswered(self) -> tuple[RequestResponseCycle, ...]:
        return tuple(cycle for cycle in self._unanswered if not cycle.response_complete)

    def _reject(self, status: bytes, error: ApiError) -> None:
        if any(not cycle.more_body for cycle in self._still_unanswered()):
            # Another response is being sent, and the error would look like part of it.
            self.transport.close()
            return
        body = error.body()
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        self.transport.write(head % (status, len(body)) + b"connection: close\r\n\r\n" + body)
        self.transport.close()
        self._end_head()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._on_head_timeout)

    def _end_head(self) -> None:
        self._head_bytes = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        if self._head_bytes is None:  # no request has begun: browsers may connect in advance
            self.transport.close()
        else:
            self._reject(b"408 Request Timeout", _TOO_SLOW)
