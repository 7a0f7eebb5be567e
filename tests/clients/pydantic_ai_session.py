"""pydantic-ai: an agent with typed output and tools."""

import asyncio
from typing import Any

from pydantic_ai import Agent, ModelSettings, NativeOutput, ToolOutput  # type: ignore[import-not-found]
from pydantic_ai.models.openai import OpenAIChatModel  # type: ignore[import-not-found]
from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]

from tests.clients.animal import Animal
from tests.clients.checks import DESCRIBE, KEY, QUESTION, Servers, Session

session = Session("pydantic-ai")


def agent(url: str, output: Any = str, key: str = KEY, **settings: Any) -> Agent:
    model = OpenAIChatModel("bundled", provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key))
    asked = ModelSettings(max_tokens=120, temperature=0, timeout=60)
    return Agent(model, output_type=output, model_settings=asked | settings, retries=0)  # type: ignore[operator]


async def streamed(servers: Servers) -> str:
    async with agent(servers.url).run_stream(QUESTION) as result:
        return "".join([piece async for piece in result.stream_text(delta=True)])


session.texts(
    chat=lambda servers: agent(servers.url).run_sync(QUESTION).output,
    chat_streamed=lambda servers: asyncio.run(streamed(servers)),
)


async def shaped(servers: Servers, output: Any) -> Any:
    async with agent(servers.url, output(Animal)).run_stream(DESCRIBE) as result:
        return await result.get_output()


session.animals(
    {
        "schema": lambda servers: (
            agent(servers.url, NativeOutput(Animal)).run_sync(DESCRIBE).output.model_dump()
        ),
        "schema, streamed": lambda servers: asyncio.run(shaped(servers, NativeOutput)).model_dump(),
        "a tool, required": lambda servers: (
            agent(servers.url, ToolOutput(Animal)).run_sync(DESCRIBE).output.model_dump()
        ),
        "a tool, streamed": lambda servers: asyncio.run(shaped(servers, ToolOutput)).model_dump(),
    }
)


@session.check("usage")
def usage(servers: Servers) -> None:
    used = agent(servers.url).run_sync(QUESTION).usage
    used = used() if callable(used) else used
    assert used.input_tokens > 0
    assert used.output_tokens > 0
