"""instructor: answers as pydantic models, by tools or by a JSON schema."""

from collections.abc import Iterable
from typing import Any

import instructor  # type: ignore[import-not-found]
from openai import OpenAI

from tests.clients.animal import Animal
from tests.clients.checks import DESCRIBE, KEY, Servers, Session

session = Session("instructor")


def create(servers: Servers, mode: instructor.Mode, **fields: Any) -> Any:
    api = OpenAI(base_url=f"{servers.url}/v1", api_key=KEY, max_retries=0, timeout=60)
    asked = {"model": "bundled", "max_tokens": 80, "temperature": 0, "response_model": Animal}
    asked |= {"messages": [{"role": "user", "content": DESCRIBE}], "max_retries": 0}
    return instructor.from_openai(api, mode=mode).chat.completions.create(**asked | fields)


def last(pieces: Iterable[Any]) -> dict[str, Any]:
    """The answer of a stream, which comes in several pieces."""
    *before, answer = pieces
    assert before, "it came in one piece"
    return answer.model_dump()


STREAMED: Any = {"response_model": instructor.Partial[Animal], "stream": True}
session.animals(
    {
        "schema": lambda servers: create(servers, instructor.Mode.JSON_SCHEMA).model_dump(),
        "schema, streamed": lambda servers: last(
            create(servers, instructor.Mode.JSON_SCHEMA, **STREAMED)
        ),
        "a tool, named": lambda servers: create(servers, instructor.Mode.TOOLS).model_dump(),
        "a tool, streamed": lambda servers: last(
            create(servers, instructor.Mode.TOOLS, **STREAMED)
        ),
    }
)


@session.check("tools, parallel")
def tools(servers: Servers) -> None:
    found = create(servers, instructor.Mode.TOOLS, response_model=list[Animal], max_tokens=400)
    assert all(isinstance(one, Animal) for one in found)
