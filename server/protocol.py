"""HTTP itself: what is no request at all is refused as an error object, and a head has an end.

uvicorn answers what it cannot parse in plain text, which OpenAI's SDKs do not read, and collects
headers for as long as they come: a client that never stops would fill the memory, with or without the
key (measured: 500 MB after two million headers).
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.errors import ApiError, bad_request

MAX_HEAD_BYTES = 64 << 10

_INVALID = bad_request(None, "this is not a valid HTTP request", code="bad_http")
_TOO_LARGE = ApiError(
    431, f"the headers are larger than {MAX_HEAD_BYTES} bytes: send less", code="head_too_large"
)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, with a limit and with OpenAI's error object."""

    _head_bytes: int | None = None  # of the head that is being read, if one is

    def data_received(self, data: bytes) -> None:
        """Parse what has come, unless the head has become too large."""
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large", _TOO_LARGE)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._head_bytes = None
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's words are not for clients)
        """Refuse what cannot be parsed."""
        self._refuse(b"400 Bad Request", _INVALID)

    def _refuse(self, status: bytes, error: ApiError) -> None:
        body = error.body()
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        self.transport.write(head % (status, len(body)) + b"connection: close\r\n\r\n" + body)
        self.transport.close()
        self._head_bytes = None
