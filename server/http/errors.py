"""Errors as clients see them: OpenAI's error object, whatever went wrong and wherever.

Every error body is `{"error": {"message", "type", "param", "code"}}`, with all four keys there, because
that is what OpenAI's SDKs read. `param` names the field that is wrong, so that a client can point
at it.
"""

from collections.abc import Mapping
from email.message import Message
from itertools import islice
from reprlib import Repr
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response


class ErrorObject(BaseModel):
    """What went wrong. `param` names the field, where it is one; `code` is for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    """The body of every answer with a status of 400 and more."""

    error: ErrorObject


class ApiError(Exception):
    """Something a client is told. `status` is HTTP's; the rest is OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": type, "param": param, "code": code}
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The error object as JSON."""
        return msgspec.json.encode({"error": self.error})

    def response(self) -> Response:
        """The error as a whole HTTP response."""
        return Response(self.body(), self.status, self.headers, media_type="application/json")


def bad_request(param: str | None, message: str, code: str | None = None) -> ApiError:
    """400: the request itself is wrong."""
    return ApiError(400, message, param=param, code=code)


def unreadable_body() -> ApiError:
    """400: bytes that are no text, or a number that Python does not read."""
    message = "the body cannot be read: it must be JSON in UTF-8, with numbers of a sensible length"
    return bad_request(None, message)


def not_json(content_type: str) -> ApiError:
    """400: the header says that the body is something else."""
    return bad_request(
        None,
        f"the body must be JSON, Content-Type says {content_type[:100] or 'nothing'}: "
        "send the header Content-Type: application/json",
    )


def unknown_field(name: str) -> ApiError:
    """400: a field that the request does not have."""
    name = _short(name)
    return bad_request(name, f"{name} is not a field of this request; /docs lists its fields")


def invalid_body(complaint: Mapping[str, Any]) -> ApiError:
    """400: one of pydantic's errors in words; its `loc` begins at the body."""
    param = _field(complaint["loc"])
    return bad_request(param, _in_words(param, complaint))


def unavailable(message: str, code: str) -> ApiError:
    """503: the server cannot take requests now; try another, or later."""
    return ApiError(503, message, code=code, type="server_error", headers={"Retry-After": "1"})


def too_many(message: str, code: str, seconds: int) -> ApiError:
    """429: too many wait already; come back in so many seconds."""
    return ApiError(
        429,
        message,
        type="rate_limit_error",
        code=code,
        headers={"Retry-After": str(seconds)},
    )


def internal_error(error: Exception) -> ApiError:
    """500: a mistake of ours. Its words are for our log, its name is enough for the client."""
    message = f"the server failed: {type(error).__name__}"
    return ApiError(500, message, type="server_error", code="internal_error")


def no_route(path: str) -> ApiError:
    """404: there is nothing at this path."""
    message = f"there is no route {path[:200]}; /docs lists those there are"
    return ApiError(404, message, code="not_found")


def no_model(name: str) -> ApiError:
    """404: no such model."""
    message = f"there is no model {name[:100]!r}: /v1/models lists those there are"
    return ApiError(404, message, param="model", code="model_not_found")


def is_json(content_type: str) -> bool:
    """Whether a header says that the body is JSON: application/json, or application/...+json."""
    header = Message()
    header["content-type"] = content_type
    kind, _, subkind = header.get_content_type().partition("/")
    return kind == "application" and (subkind == "json" or subkind.endswith("+json"))


def install(app: FastAPI) -> None:
    """Let every error of the app leave as an error object."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _validation_error(request: Request, error: Exception) -> Response:
    """Answer with the first of pydantic's errors, for what FastAPI itself validates."""
    assert isinstance(error, RequestValidationError)
    content_type = request.headers.get("content-type", "")
    if not is_json(content_type):
        return not_json(content_type).response()
    first = error.errors()[0]
    return invalid_body(first | {"loc": first["loc"][1:]}).response()


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own: no such path, method not allowed."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        return no_route(path).response()
    message, code = str(error.detail), None
    if error.status_code == 400:  # FastAPI's words say less
        return unreadable_body().response()
    if error.status_code == 405:
        message, code = f"{request.method} is not allowed on {path}", "method_not_allowed"
    return ApiError(error.status_code, message, code=code, headers=error.headers).response()


def _field(location: tuple[int | str, ...]) -> str | None:
    """`("messages", 0, "role")` becomes `messages[0].role`.

    Inside a union pydantic appends the name of the type it tried; such a name ends the path.
    """
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]" if path else ""
        elif part.isidentifier() and part not in ("str", "int"):
            path += f".{part}" if path else part
        else:
            break
    return _short(path) or None


def _in_words(param: str | None, complaint: Mapping[str, Any]) -> str:
    kind, got = complaint["type"], complaint.get("input")
    if kind == "json_invalid":
        return f"the body is not valid JSON: {complaint['ctx']['error']}"
    if kind == "missing":
        return "the body is empty: send a JSON object" if param is None else f"{param} is missing"
    if kind == "extra_forbidden":
        return f"{param} is not a field of this request; /docs lists its fields"
    if kind == "too_long":
        return f"{param} may have {complaint['ctx']['max_length']} entries at most: send fewer"
    if kind == "value_error":
        return f"{param}: {complaint['ctx']['error']}"
    message = complaint["msg"].removeprefix("Input ")
    message = message.replace("a valid integer", "an integer").replace("valid ", "")
    return f"{param or 'the body'} {message}, got {_shown(got)}"


def _shown(value: object) -> str:
    """The beginning of a value, which may be a million elements long."""
    if isinstance(value, dict):  # reprlib would sort all its keys
        value = dict(islice(value.items(), 4))
    return _short(_REPR.repr(value))


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
