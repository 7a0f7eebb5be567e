"""Request bodies: how large they may be, how they are parsed, and which thread parses them.

A body is checked three times, each time before a more expensive step:

    bytes      as they arrive (`BodyLimit`)
    values     before parsing, because a one-byte value becomes a 100-byte object
    fields     by pydantic or msgspec, which stop at the first error

Parsing and validation hold the GIL. A body larger than `INLINE_BYTES` is read on a separate thread, so
the event loop can serve running streams in between. All requests share that thread, so at most one
large body at a time exists in parsed form.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

import numpy as np
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.core.admission import MAX_CHARACTERS, max_request_tokens
from server.core.models import Models
from server.http.continued import CONTINUED, Continued
from server.http.errors import (
    ApiError,
    bad_request,
    invalid_body,
    is_json,
    not_json,
    unreadable_body,
)

MAX_JSON_DEPTH = 64
INLINE_BYTES = 16 << 10  # about a millisecond

# JSON bytes per token: up to 8 for ids ("151936, "), 4 to 5 for English text, 6 to 12 for escaped
# Chinese.
TOKEN_BYTES = 16
# A larger body would need more than 0.3 s or 100 MB. 196,608 tokens reach this limit.
MAX_BYTES = 4 << 20
# Values other than prompt tokens: biases, stop strings, messages, and batches of short prompts.
OTHER_VALUES = 1 << 16

# A body of the teacher's controls is short: {"until": "first_token", "request": 123456, "steps": 500}.
CONTROL_PATHS = "/engine/"
CONTROL_BYTES = 1 << 10
# The route of this path checks the client's key before it reads the body, which is not JSON and may be
# large.
UNLIMITED_PATH = "/kv/adopt"

_reader = ThreadPoolExecutor(1, thread_name_prefix="bodies")
_T = TypeVar("_T")
_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The limits on a request body.

    bytes    maximum length of the body, or of an LMTP frame
    values   maximum number of JSON values: elements of lists and members of objects
    """

    bytes: int
    values: int


_MAX_TOKENS = (MAX_BYTES - MAX_CHARACTERS) // TOKEN_BYTES
LARGEST_BODY = BodyLimits(MAX_BYTES, OTHER_VALUES + _MAX_TOKENS)


def body_limits(models: Models) -> BodyLimits:
    """Derive the largest legitimate body from the context length.

    The longest prompt fills the context. A request with many prompts can have up to `MAX_CHARACTERS` of
    text even if the context is short, so that much is always allowed. With `--model auto`, the context
    length of a model that is not loaded is unknown, so the largest limit applies.
    """
    if models.directory is not None:
        return LARGEST_BODY
    tokens = min(max_request_tokens(models.first), _MAX_TOKENS)
    return BodyLimits(MAX_CHARACTERS + TOKEN_BYTES * tokens, OTHER_VALUES + tokens)


async def read_apart(size: int, read: Callable[[], _T]) -> _T:
    """Call `read` and return its result; use the reader thread if `size` would delay the event loop."""
    if size <= INLINE_BYTES:
        return read()
    return await asyncio.get_running_loop().run_in_executor(_reader, read)


class BodyLimit:
    """Middleware that rejects a body that is too large, too slow, compressed or nested too deeply.

    limits    the limits on a body
    seconds   how long a body may take to arrive

    A body that is too large is not read to the end, and one with too many values is not parsed. Deep
    nesting would exhaust the stack of the code that traverses the values.
    """

    def __init__(self, app: ASGIApp, limits: BodyLimits, seconds: float) -> None:
        self._app = app
        self._limits = limits
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its complete body, or reject it."""
        has_body = scope["type"] == "http" and scope["method"] in ("POST", "PUT", "PATCH")
        if not has_body or scope["path"] == UNLIMITED_PATH:
            await self._app(scope, receive, send)
            return
        limit = CONTROL_BYTES if scope["path"].startswith(CONTROL_PATHS) else self._limits.bytes
        try:
            body = await read_limited(scope, receive, limit, self._seconds)
            if body is None:  # the client has disconnected
                return
            depth, values = await read_apart(len(body), lambda: depth_and_values(body))
            if depth > MAX_JSON_DEPTH:
                raise bad_request(
                    None,
                    f"the body is nested {depth} deep, but the limit is {MAX_JSON_DEPTH}: flatten it",
                    code="too_deep",
                )
            if values > self._limits.values:
                raise ApiError(
                    413,
                    f"the body has {values} values, but the limit is {self._limits.values}: send a "
                    "smaller body",
                    code="too_many_values",
                )
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        unread = True

        async def receive_again() -> Message:
            nonlocal unread
            if unread:
                unread = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self._app(scope, receive_again, send)


async def read_limited(scope: Scope, receive: Receive, limit: int, seconds: float) -> bytes | None:
    """Return a body; None if the client left. Raises ApiError if it is too large or too slow."""
    _check_headers(dict(scope["headers"]), limit)
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(seconds):
            while more and len(body) <= limit:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                more = message.get("more_body", False)
    except TimeoutError:
        raise ApiError(
            408,
            f"the body did not arrive within {seconds:g} s",
            code="request_timeout",
            headers={"Connection": "close"},
        ) from None
    if len(body) > limit:
        raise _too_large(limit)
    return bytes(body)


def _check_headers(headers: Mapping[bytes, bytes], limit: int) -> None:
    """Raise ApiError if the headers alone are reason to reject the body."""
    encoding = headers.get(b"content-encoding", b"").decode("latin-1")
    if encoding.lower() not in (
        "",
        "identity",
    ):  # the size of its content is known only after decompression
        raise ApiError(
            415,
            f"Content-Encoding {encoding[:40]!r} is not supported: send the body uncompressed",
            code="unsupported_encoding",
            headers={"Accept-Encoding": "identity"},
        )
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and (len(announced) > 15 or int(announced) > limit):
        raise _too_large(limit)


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"the body exceeds this route's limit of {limit} bytes: send a smaller body",
        code="body_too_large",
    )


def depth_and_values(body: bytes) -> tuple[int, int]:
    """Return the nesting depth of JSON and an upper bound on its number of values, without parsing.

    For valid JSON, the number is exact, except that an empty list or object counts as one value. In
    invalid JSON, the parser stops before it reads more values than this number.
    """
    opened = body.count(b"[") + body.count(b"{")
    if opened <= MAX_JSON_DEPTH and len(body) <= INLINE_BYTES:  # true of nearly every body
        return opened, opened + body.count(b",")
    # Once escapes are removed, every quotation mark begins or ends a string.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(plain.translate(_MARKS, _OTHERS), np.int8)
    outside = ~np.bitwise_xor.accumulate(marks == _QUOTE)
    marks = marks[outside]
    depth = np.cumsum(np.where(marks == _COMMA, 0, marks), dtype=np.int32)
    return int(depth.max(initial=0)), int(np.count_nonzero(marks > 0))


_QUOTE, _COMMA = 0, 2
_MARKS = bytes.maketrans(b'"[{]},', bytes([_QUOTE, 1, 1, 255, 255, _COMMA]))
_OTHERS = bytes(set(range(256)) - set(b'"[{]},'))


class JsonRoute(APIRoute):
    """A route whose handler takes `body` and optionally `x_client`.

    FastAPI parses and validates a body on the event loop, where a body of 4 MB would hold up every
    stream for 0.3 s. This route reads a large body on the reader thread instead and reports only the
    first error. It also skips FastAPI's dependency resolution, which takes 80 us per request. That is
    almost as long as all other work before a request enters the queue: of 64 simultaneous requests, the
    last would wait 5 ms longer. A handler with any other parameter raises a TypeError when the route is
    defined; a handler without `body` gets a plain APIRoute. FastAPI still generates the OpenAPI
    document from the handler's signature.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that serves a request.

        Source: FastAPI's documentation, "Custom Request and APIRoute class".
        """
        if self.body_field is None:
            return super().get_route_handler()
        handler = self.endpoint
        parameters = inspect.signature(handler).parameters.keys()
        if "body" not in parameters or parameters - {"body", "x_client"}:
            raise TypeError(
                f"{handler.__name__} may take only body and x_client, got {list(parameters)}"
            )
        model: type[BaseModel] = get_type_hints(handler)["body"]
        takes_client = "x_client" in parameters

        async def handle(request: Request) -> Response:
            content = await request.body()
            if (header := request.headers.get(CONTINUED)) is not None:
                continued, content = Continued.split(header, content)
                request.scope["state"]["continued"] = continued
            content_type = request.headers.get("content-type", "")
            body = await read_apart(len(content), lambda: read_body(model, content, content_type))
            client = (request.headers.get("x-client"),) if takes_client else ()
            response: Response = await handler(body, *client)
            return response

        return handle


def read_body(model: type[_Body], content: bytes, content_type: str) -> _Body:
    """Parse and validate a body. Raises ApiError for the first error found."""
    if content and not is_json(content_type):
        raise not_json(content_type)
    if not content:
        raise bad_request(None, "the body is empty: send a JSON object")
    try:
        values = json.loads(content.decode("utf-8-sig"))  # json would also accept UTF-16
    except json.JSONDecodeError as error:
        raise bad_request(None, f"the body is not valid JSON: {error.msg}") from error
    except ValueError as error:
        raise unreadable_body() from error
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_body(error.errors(include_url=False)) from error
