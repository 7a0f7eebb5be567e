"""Routes that take a JSON body: read it, validate it and call the handler.

FastAPI parses and validates a body on the event loop, where a body of 4 MB would hold up every stream
for 0.3 s. `JsonRoute` reads a large body on the reader thread instead (`server/http/bodies.py`) and
reports only the first error. It also skips FastAPI's dependency resolution, which takes 80 us per
request. That is almost as long as everything else before the queue takes: with 64 requests at once, the
last one would wait 5 ms longer. A handler may therefore take only `body` and `x_client`; any other
parameter raises a TypeError when the route is defined. FastAPI still generates the OpenAPI document
from the handler's signature.
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


class JsonRoute(APIRoute):
    """A route whose handler takes `body` and maybe `x_client`; a plain APIRoute without `body`."""

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
    _check_names(model, values)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # pydantic reports an error for each member of a union. If one error is "too long", the
        # value has that member's type, so this error is the useful one.
        raise invalid_body(next((e for e in found if e["type"] == "too_long"), found[0])) from error


def _check_names(model: type[BaseModel], values: Any) -> None:
    """Raise ApiError for the first unknown field; pydantic would collect an error for each."""
    if model.model_config.get("extra") == "forbid" and isinstance(values, dict):
        for name in values:
            if name not in model.model_fields:
                raise unknown_field(name)
