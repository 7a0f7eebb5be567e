"""pydantic-ai: an agent with typed output and tools."""

import asyncio
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic_ai import (  # type: ignore[import-not-found]
    Agent,
    ModelSettings,
    NativeOutput,
    ToolOutput,
)
from pydantic_ai.models.openai import OpenAIChatModel  # type: ignore[import-not-found]
from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]

from tests.clients.checks import DESCRIBE, KEY, QUESTION, Servers, Session, answered, same

session = Session("pydantic-ai")


class Animal(BaseModel):
    """An animal and its legs."""

    animal: Literal["owl", "cat", "ant"]
    legs: int = Field(ge=0, le=9)


def agent(url: str, output: Any = str, key: str = KEY, **settings: Any) -> Agent:
    model = OpenAIChatModel("bundled", provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key))
    asked = ModelSettings(max_tokens=120, temperature=0, timeout=60)
    return Agent(model, output_type=output, model_settings=asked | settings, retries=0)  # type: ignore[operator]


@session.check("chat")
def chat(servers: Servers) -> None:
    same(agent(servers.url).run_sync(QUESTION).output, answered(servers.url))


@session.check("chat, streamed")
def chat_streamed(servers: Servers) -> None:
    async def ask() -> str:
        async with agent(servers.url).run_stream(QUESTION) as result:
            return "".join([piece async for piece in result.stream_text(delta=True)])

    same(asyncio.run(ask()), answered(servers.url))


@session.check("schema")
def schema(servers: Servers) -> None:
    found = agent(servers.url, NativeOutput(Animal)).run_sync(DESCRIBE).output
    assert isinstance(found, Animal)


@session.check("schema, streamed")
def schema_streamed(servers: Servers) -> None:
    async def ask() -> Any:
        async with agent(servers.url, NativeOutput(Animal)).run_stream(DESCRIBE) as result:
            return await result.get_output()

    assert isinstance(asyncio.run(ask()), Animal)


@session.check("a tool, required")
def tool(servers: Servers) -> None:
    found = agent(servers.url, ToolOutput(Animal)).run_sync(DESCRIBE).output
    assert isinstance(found, Animal)


@session.check("a tool, streamed")
def tool_streamed(servers: Servers) -> None:
    async def ask() -> Any:
        async with agent(servers.url, ToolOutput(Animal)).run_stream(DESCRIBE) as result:
            return await result.get_output()

    assert isinstance(asyncio.run(ask()), Animal)


@session.check("usage")
def usage(servers: Servers) -> None:
    used = agent(servers.url).run_sync(QUESTION).usage
    used = used() if callable(used) else used
    assert used.input_tokens > 0
    assert used.output_tokens > 0


if __name__ == "__main__":
    session.main()
