"""From a POST to its handler by the shortest way: the body, the header, nothing else to work out.

FastAPI finds out for each request what its handler depends on, which takes longer than everything that
this server does until the request is in the queue; with 64 requests at once, the last one waits for
all that. These routes depend on a JSON body and on X-Client only. What the OpenAPI document says of
them is still read off their signature.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from server.errors import is_json, unreadable_body


class BodyRoute(APIRoute):
    """A route whose handler takes a body and a label, if it takes a body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's way to a handler, replaced; see "Custom Request and APIRoute class" there."""
        if self.body_field is None:
            return super().get_route_handler()
        handler = self.endpoint
        model: type[BaseModel] = get_type_hints(handler)["body"]

        async def handle(request: Request) -> Response:
            body = _read(await request.body(), request.headers.get("content-type", ""))
            try:
                validated = model.model_validate(body)
            except ValidationError as error:
                raise _complaint(error) from error
            response: Response = await handler(validated, request.headers.get("x-client"))
            return response

        return handle


def _read(body: bytes, content_type: str) -> Any:
    """The JSON in a body. Raises what FastAPI raises."""
    if not body:
        raise RequestValidationError([{"type": "missing", "loc": ("body",)}])
    if not is_json(content_type):
        return body  # which is no object, and refused as such
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        found = {"type": "json_invalid", "loc": ("body", error.pos), "ctx": {"error": error.msg}}
        raise RequestValidationError([found]) from error
    except ValueError as error:
        raise unreadable_body() from error


def _complaint(error: ValidationError) -> RequestValidationError:
    found = error.errors(include_url=False)
    return RequestValidationError([one | {"loc": ("body", *one["loc"])} for one in found])
