"""HTTP itself: what is no request at all is refused as an error object, and a head has an end.

uvicorn answers what it cannot parse in plain text, which OpenAI's SDKs do not read, and collects
headers for as long as they come: a client that never stops would fill the memory, with or without the
key (measured: 500 MB after two million headers). Nor does it mind how slowly they come: a thousand
connections that send a byte now and then ("slowloris") would cost nobody but the server.

A client may send its next request before the last one is answered (*pipelining*). uvicorn then stops
reading, and so does not see such a client leave; and when it does, it tells the request that came last,
not the one that is being answered. Here reading goes on, up to a limit, and all of them are told.

Java's HTTP client and `curl --http2` offer to go on in HTTP/2 with every request (*upgrade*). A server
may ignore that (RFC 9110, section 7.8); the parser however takes what follows the head for another
protocol, and uvicorn loses the body. Here the request is parsed once more without the offer.
"""

import asyncio

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

from server.http.errors import ApiError, bad_request

MAX_HEAD_BYTES = 64 << 10
MOST_PIPELINED = 16  # unanswered requests on one connection beyond which no more is read from it

_INVALID = bad_request(None, "this is not a valid HTTP request", code="bad_http")
_TOO_LARGE = ApiError(
    431, f"the headers are larger than {MAX_HEAD_BYTES} bytes: send less", code="head_too_large"
)
_TOO_SLOW = ApiError(408, "no complete request arrived in time", code="request_timeout")


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, with limits and with OpenAI's error object.

    head_seconds   from connecting, or a later request's first byte, to the end of the headers
    """

    head_seconds = 30.0

    _impatience: asyncio.TimerHandle | None = None
    _head_bytes: int | None = None  # of the head that is being read, if one is
    _unanswered: tuple[RequestResponseCycle, ...] = ()  # the one that is being answered comes first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected: a request is expected."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._head_is_there()
        for cycle in self._still_unanswered():
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, unless the head has become too large."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except HttpParserError:
            self.logger.warning("Something that is no HTTP was received, perhaps https.")
            self._refuse(b"400 Bad Request", _INVALID)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large", _TOO_LARGE)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_bytes = 0
        self._expect_head()

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._head_is_there()
        if self.parser.should_upgrade():
            return  # `_upgrade` comes next
        before = self._still_unanswered()
        super().on_headers_complete()
        self._unanswered = (*before, self.cycle)
        if len(before) < MOST_PIPELINED:
            self.flow.resume_reading()

    def on_message_complete(self) -> None:
        """The body is complete."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _upgrade(self, rest: bytes) -> None:
        """The head that was read offers another protocol; `rest` follows it."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        websocket = method == b"GET" and self._get_upgrade() == b"websocket"
        if method == b"CONNECT" or (websocket and self._still_unanswered()):
            self._refuse(b"400 Bad Request", _INVALID)  # this is no proxy, and speaks in turn
        elif websocket:
            self.scope |= {"method": "GET"}
            self.handle_websocket_upgrade()
        else:
            head = [b"%b %b HTTP/%b" % (method, self.url, version)]
            head += [b"%b: %b" % one for one in self.headers if one[0] != b"upgrade"]
            self.parser = HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self.data_received(b"\r\n".join([*head, b"", rest]))

    def _still_unanswered(self) -> tuple[RequestResponseCycle, ...]:
        return tuple(cycle for cycle in self._unanswered if not cycle.response_complete)

    def _refuse(self, status: bytes, error: ApiError) -> None:
        if any(not cycle.more_body for cycle in self._still_unanswered()):
            # What was asked before is being answered: words in the middle of that would pass for its.
            self.transport.close()
            return
        body = error.body()
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        self.transport.write(head % (status, len(body)) + b"connection: close\r\n\r\n" + body)
        self.transport.close()
        self._head_is_there()

    def _expect_head(self) -> None:
        if self._impatience is None:
            self._impatience = self.loop.call_later(self.head_seconds, self._too_slow)

    def _head_is_there(self) -> None:
        self._head_bytes = None
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

    def _too_slow(self) -> None:
        if self._head_bytes is None:  # nothing was asked: a browser may connect in advance
            self.transport.close()
        else:
            self._refuse(b"408 Request Timeout", _TOO_SLOW)
