"""instructor: answers as pydantic models, by tools or by a JSON schema."""

from typing import Any, Literal

import instructor  # type: ignore[import-not-found]
from openai import OpenAI
from pydantic import BaseModel, Field

from tests.clients.checks import DESCRIBE, KEY, Servers, Session

session = Session("instructor")


class Animal(BaseModel):
    """An animal and its legs."""

    animal: Literal["owl", "cat", "ant"]
    legs: int = Field(ge=0, le=9)


def create(servers: Servers, mode: instructor.Mode, **fields: Any) -> Any:
    api = OpenAI(base_url=f"{servers.url}/v1", api_key=KEY, max_retries=0, timeout=60)
    asked = {"model": "bundled", "max_tokens": 80, "temperature": 0, "response_model": Animal}
    asked |= {"messages": [{"role": "user", "content": DESCRIBE}], "max_retries": 0}
    return instructor.from_openai(api, mode=mode).chat.completions.create(**asked | fields)


@session.check("schema")
def schema(servers: Servers) -> None:
    assert isinstance(create(servers, instructor.Mode.JSON_SCHEMA), Animal)


@session.check("schema, streamed")
def schema_streamed(servers: Servers) -> None:
    partial = instructor.Partial[Animal]
    pieces = list(create(servers, instructor.Mode.JSON_SCHEMA, response_model=partial, stream=True))
    Animal.model_validate(pieces[-1].model_dump())
    assert len(pieces) > 1, "it came in one piece"


@session.check("a tool, named")
def tool(servers: Servers) -> None:
    assert isinstance(create(servers, instructor.Mode.TOOLS), Animal)


@session.check("a tool, streamed")
def tool_streamed(servers: Servers) -> None:
    pieces = list(
        create(
            servers, instructor.Mode.TOOLS, response_model=instructor.Partial[Animal], stream=True
        )
    )
    Animal.model_validate(pieces[-1].model_dump())


@session.check("tools, parallel")
def tools(servers: Servers) -> None:
    found = create(servers, instructor.Mode.TOOLS, response_model=list[Animal], max_tokens=400)
    assert all(isinstance(one, Animal) for one in found)


if __name__ == "__main__":
    session.main()
