"""From a POST to its handler by the shortest way: the body, the header, nothing else to work out.

FastAPI finds out for each request what its handler depends on, which takes longer than everything that
this server does until the request is in the queue; with 64 requests at once, the last one waits for
all that. These routes depend on a JSON body and on X-Client only. What the OpenAPI document says of
them is still read off their signature.

FastAPI would also parse and validate on the event loop; a large body is read on a thread here.
"""

import inspect
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, get_type_hints

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from server.http.bodies import read_apart
from server.http.errors import (
    bad_request,
    invalid_body,
    is_json,
    not_json,
    unknown_field,
    unreadable_body,
)

_Body = TypeVar("_Body", bound=BaseModel)


class BodyRoute(APIRoute):
    """A route whose handler takes a body, and perhaps X-Client, if it takes a body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's way to a handler, replaced; see "Custom Request and APIRoute class" there."""
        if self.body_field is None:
            return super().get_route_handler()
        handler = self.endpoint
        model: type[BaseModel] = get_type_hints(handler)["body"]
        labelled = "x_client" in inspect.signature(handler).parameters

        async def handle(request: Request) -> Response:
            content = await request.body()
            content_type = request.headers.get("content-type", "")
            body = await read_apart(len(content), lambda: read_body(model, content, content_type))
            label = (request.headers.get("x-client"),) if labelled else ()
            response: Response = await handler(body, *label)
            return response

        return handle


def read_body(model: type[_Body], content: bytes, content_type: str) -> _Body:
    """The validated body. Raises ApiError for the first thing that is wrong with it."""
    if content and not is_json(content_type):
        raise not_json(content_type)
    if not content:
        raise bad_request(None, "the body is empty: send a JSON object")
    try:
        given = json.loads(content.decode("utf-8-sig"))  # json would take UTF-16, too
    except json.JSONDecodeError as error:
        raise bad_request(None, f"the body is not valid JSON: {error.msg}") from error
    except ValueError as error:
        raise unreadable_body() from error
    _check_names(model, given)
    try:
        body = model.model_validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # Of a union's members, the one that only has a length to complain about was meant.
        told = next((one for one in found if one["type"] == "too_long"), found[0])
        raise invalid_body(told) from error
    if check := getattr(body, "check_fields", None):
        check()
    return body


def _check_names(model: type[BaseModel], given: Any) -> None:
    """Raise ApiError for the first unknown field; pydantic would make an error of each."""
    if model.model_config.get("extra") == "forbid" and isinstance(given, dict):
        for name in given:
            if name not in model.model_fields:
                raise unknown_field(name)
