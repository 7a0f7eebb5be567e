"""langchain-openai: ChatOpenAI for chats, OpenAI for completions."""

from functools import reduce
from operator import add

from langchain_core.messages import HumanMessage, ToolMessage  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI, OpenAI  # type: ignore[import-not-found]

from tests.clients.checks import (
    ANIMAL,
    DESCRIBE,
    KEY,
    PROMPT,
    QUESTION,
    Servers,
    Session,
    completed,
    same,
)

session = Session("langchain-openai")


def common(url: str, **fields: object) -> dict:
    settings = {"model": "bundled", "max_tokens": 24, "temperature": 0, "max_retries": 0}
    return {"base_url": f"{url}/v1", "api_key": KEY, "timeout": 60} | settings | fields


def chat(url: str, **fields: object) -> ChatOpenAI:
    return ChatOpenAI(**common(url, **fields))


@session.check("completion, streamed")
def streamed(servers: Servers) -> None:
    pieces = list(OpenAI(**common(servers.url)).stream(PROMPT))
    same("".join(pieces), completed(servers.url))
    assert len(pieces) > 8, "it came in one piece"


session.texts(
    completion=lambda servers: OpenAI(**common(servers.url)).invoke(PROMPT),
    chat=lambda servers: chat(servers.url).invoke(QUESTION).content,
    chat_streamed=lambda servers: "".join(
        chunk.content for chunk in chat(servers.url).stream(QUESTION)
    ),
)


NOTE = {"type": "function", "function": {"name": "note", "parameters": ANIMAL}}
SHAPE = {"title": "animal", "description": "An animal and its legs."} | ANIMAL


def noted(servers: Servers, **options: object) -> ChatOpenAI:
    return chat(servers.url, max_tokens=80).bind_tools([NOTE], **options)


session.animals(
    {
        "schema": lambda servers: (
            chat(servers.url, max_tokens=60)
            .with_structured_output(SHAPE, method="json_schema")
            .invoke(DESCRIBE)
        ),
        "a tool, required": lambda servers: (
            noted(servers, tool_choice="required", parallel_tool_calls=False)
            .invoke(DESCRIBE)
            .tool_calls[0]["args"]
        ),
        "a tool, streamed": lambda servers: reduce(
            add, noted(servers, tool_choice="note").stream(DESCRIBE)
        ).tool_calls[0]["args"],
    }
)


@session.check("a tool's result")
def tool_result(servers: Servers) -> None:
    model = chat(servers.url, max_tokens=60)
    first = model.bind_tools([NOTE], tool_choice="note").invoke(DESCRIBE)
    result = ToolMessage("noted", tool_call_id=first.tool_calls[0]["id"])
    history = [HumanMessage(DESCRIBE), first, result]
    assert model.bind_tools([NOTE], tool_choice="none").invoke(history).content


@session.cancel
async def endless(servers: Servers) -> None:
    """A call only: a stream that is closed early keeps its connection open, in this client."""
    await chat(servers.url, max_tokens=1000, extra_body={"ignore_eos": True}).ainvoke(QUESTION)
