"""Errors in OpenAI's format, for every route.

Every error body is `{"error": {"message", "type", "param", "code"}}`, always with all four keys,
because OpenAI's SDKs read them. `param` names the field that is wrong, so that a client can show it.
"""

import re
from collections.abc import Mapping, Sequence
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
    """An error. `param` names the field that is wrong, if any; `code` is for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    """The body of every response with a status of 400 or more."""

    error: ErrorObject


class ApiError(Exception):
    """An error for the client, with an HTTP status and OpenAI's error object."""

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
        """Return the error object as JSON."""
        return msgspec.json.encode({"error": self.error})

    def response(self) -> Response:
        """Return the error as an HTTP response."""
        return Response(self.body(), self.status, self.headers, media_type="application/json")


def bad_request(param: str | None, message: str, code: str | None = None) -> ApiError:
    """Return a 400: the request itself is wrong."""
    return ApiError(400, message, param=param, code=code)


def unreadable_body() -> ApiError:
    """Return a 400 for bytes that are not UTF-8, or for a number too long for Python to parse."""
    message = "the body cannot be read: it must be JSON in UTF-8, with numbers of reasonable length"
    return bad_request(None, message)


def not_json(content_type: str) -> ApiError:
    """Return a 400: Content-Type names another format, or is missing."""
    return bad_request(
        None,
        f"the body must be JSON, but Content-Type says {content_type[:100] or 'nothing'}: "
        "send the header Content-Type: application/json",
    )


def unknown_field(name: str) -> ApiError:
    """Return a 400 for an unknown field."""
    name = _short(name)
    return bad_request(name, f"{name} is not a field of this request; /docs lists its fields")


def invalid_body(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """Return a 400 with the most useful of pydantic's errors, whose `loc` starts at the body.

    For a union, pydantic reports an error for each member. If one of the errors is not about a type,
    the value has the type of that error's member. Otherwise, the error deepest in the value is the most
    useful.
    """
    param = _field(errors[0]["loc"])
    same = [error for error in errors if _field(error["loc"]) == param]
    values = [error for error in same if error["type"] not in _TYPES]
    error = values[0] if values else max(same, key=lambda error: _indices(error["loc"]))
    if error["type"] in _TYPES:
        indices = _indices(error["loc"])
        types = [_TYPES[each["type"]] for each in same if _indices(each["loc"]) == indices]
        *others, last = dict.fromkeys(types)
        text = f"must be {', '.join(others)}{' or ' if others else ''}{last}, got {{got}}"
    else:
        text = _MESSAGES.get(error["type"], "is invalid, got {got}: {msg}")
    if param is None and error["type"] == "missing":
        return bad_request(None, "the body is empty: send a JSON object")
    bounds = {
        name: f"{bound:g}" if isinstance(bound, float) else bound
        for name, bound in error.get("ctx", {}).items()
    }
    problem = in_json(text.format(got=shown(error["input"]), msg=error["msg"], **bounds))
    return bad_request(param, f"{_short(_path(error['loc'])) or 'the body'} {problem}")


def unavailable(message: str, code: str) -> ApiError:
    """Return a 503: the server cannot accept requests now, but may do so later."""
    return ApiError(503, message, code=code, type="server_error", headers={"Retry-After": "1"})


def too_many(message: str, code: str, seconds: int) -> ApiError:
    """Return a 429: the queue is full, and the client should try again after `seconds`."""
    return ApiError(
        429,
        message,
        type="rate_limit_error",
        code=code,
        headers={"Retry-After": str(seconds)},
    )


def internal_error(error: Exception) -> ApiError:
    """Return a 500 for a bug in the server. The client gets only the exception's name."""
    message = f"the server failed: {type(error).__name__}"
    return ApiError(500, message, type="server_error", code="internal_error")


def no_route(path: str) -> ApiError:
    """Return a 404 for a path without a route."""
    message = f"there is no route {path[:200]}; /docs lists the routes"
    return ApiError(404, message, code="not_found")


def no_model(name: str) -> ApiError:
    """Return a 404 for an unknown model."""
    message = f"there is no model {name[:100]!r}: /v1/models lists the models"
    return ApiError(404, message, param="model", code="model_not_found")


def is_json(content_type: str) -> bool:
    """Return whether a Content-Type is JSON: application/json, or application/...+json."""
    header = Message()
    header["content-type"] = content_type
    kind, _, subkind = header.get_content_type().partition("/")
    return kind == "application" and (subkind == "json" or subkind.endswith("+json"))


def install(app: FastAPI) -> None:
    """Turn every error of the app into an error object."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _validation_error(request: Request, error: Exception) -> Response:
    """Report a wrong value that FastAPI's own validation found."""
    assert isinstance(error, RequestValidationError)
    content_type = request.headers.get("content-type", "")
    if not is_json(content_type):
        return not_json(content_type).response()
    return invalid_body([each | {"loc": each["loc"][1:]} for each in error.errors()]).response()


async def _http_error(request: Request, error: Exception) -> Response:
    """Handle Starlette's own errors: no such path, method not allowed."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        return no_route(path).response()
    message, code = str(error.detail), None
    if error.status_code == 400:  # FastAPI's message says less
        return unreadable_body().response()
    if error.status_code == 405:
        message, code = f"{request.method} is not allowed on {path}", "method_not_allowed"
    return ApiError(error.status_code, message, code=code, headers=error.headers).response()


def _field(location: Sequence[int | str]) -> str | None:
    """Return the field for `param`: `("messages", 0, "role")` becomes `messages[0].role`.

    Inside a union, pydantic appends the name of the type that it tried. Such a name is not part of the
    field, so the field ends before it.
    """
    ends = (index for index, part in enumerate(location) if not _is_in_body(part))
    return _short(_path(location[: next(ends, None)])) or None


def _path(location: Sequence[int | str]) -> str:
    """Return the place of a value in the body, without the names of types."""
    path = ""
    for part in filter(_is_in_body, location):
        if isinstance(part, int):
            path += f"[{part}]" if path else ""
        else:
            path += f".{part}" if path else part
    return path


def _is_in_body(part: int | str) -> bool:
    return isinstance(part, int) or (part.isidentifier() and part not in ("str", "int"))


def _indices(location: Sequence[int | str]) -> list[int]:
    return [part for part in location if isinstance(part, int)]


# pydantic's error types for a value of a wrong type -> the expected type.
_TYPES = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_type": "an integer",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "a string",
}
# pydantic's other error types -> the rest of the message, after the name of the field.
_MESSAGES = {
    "extra_forbidden": "is not a field of this request; /docs lists its fields",
    "greater_than": "must be greater than {gt}, got {got}",
    "greater_than_equal": "must be at least {ge}, got {got}",
    "json_invalid": "is not valid JSON: {error}",
    "less_than_equal": "must be at most {le}, got {got}",
    "literal_error": "must be {expected}, got {got}",
    "missing": "is missing",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters, got {got}",
    "string_unicode": "must be valid Unicode, got {got}",
    "too_short": "must not be empty",
    "too_long": "may have at most {max_length} entries: send fewer",
}


def in_json(message: str) -> str:
    """Write true, false and null in place of Python's names for them, because clients send JSON."""
    return _WORDS.sub(lambda found: _IN_JSON.get(found[0], found[0]), message)


_IN_JSON = {"True": "true", "False": "false", "None": "null"}
_WORDS = re.compile(rf"""'[^']*'|"[^"]*"|\b(?:{"|".join(_IN_JSON)})\b""")  # or a text in quotes


def shown(value: object) -> str:
    """Return the beginning of a value, which may have a million elements."""
    if isinstance(value, dict):  # reprlib would sort all its keys
        value = dict(islice(value.items(), 4))
    return _short(_REPR.repr(value))


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
