"""langchain-openai: ChatOpenAI for chats, OpenAI for completions."""

import asyncio

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
    answered,
    completed,
    is_animal,
    same,
    wait_until_aborted,
)

session = Session("langchain-openai")


def common(url: str, **fields: object) -> dict:
    settings = {"model": "bundled", "max_tokens": 24, "temperature": 0, "max_retries": 0}
    return {"base_url": f"{url}/v1", "api_key": KEY, "timeout": 60} | settings | fields


def chat(url: str, **fields: object) -> ChatOpenAI:
    return ChatOpenAI(**common(url, **fields))


@session.check("completion")
def whole(servers: Servers) -> None:
    same(OpenAI(**common(servers.url)).invoke(PROMPT), completed(servers.url))


@session.check("completion, streamed")
def streamed(servers: Servers) -> None:
    pieces = list(OpenAI(**common(servers.url)).stream(PROMPT))
    same("".join(pieces), completed(servers.url))
    assert len(pieces) > 8, "it came in one piece"


@session.check("chat")
def talk(servers: Servers) -> None:
    answer = chat(servers.url).invoke(QUESTION)
    same(answer.content, answered(servers.url))
    same(answer.response_metadata["finish_reason"], "stop")


@session.check("chat, streamed")
def talk_streamed(servers: Servers) -> None:
    pieces = [chunk.content for chunk in chat(servers.url).stream(QUESTION)]
    same("".join(pieces), answered(servers.url))


@session.check("usage")
def usage(servers: Servers) -> None:
    whole = chat(servers.url).invoke(QUESTION).usage_metadata
    counted = None
    for chunk in chat(servers.url, stream_usage=True).stream(QUESTION):
        counted = chunk if counted is None else counted + chunk
    same(counted.usage_metadata["total_tokens"], whole["total_tokens"])
    assert whole["input_token_details"]["cache_read"] >= 0


@session.check("logprobs")
def logprobs(servers: Servers) -> None:
    answer = chat(servers.url, logprobs=True, top_logprobs=2).invoke(QUESTION)
    content = answer.response_metadata["logprobs"]["content"]
    # The token that ends the answer is no text, but it has a probability.
    # They have the calculator's tokens, too, which the text leaves out.
    assert "".join(one["token"] for one in content[:-1]).endswith(answer.content)


NOTE = {"type": "function", "function": {"name": "note", "parameters": ANIMAL}}
SHAPE = {"title": "animal", "description": "An animal and its legs."} | ANIMAL


@session.check("schema")
def schema(servers: Servers) -> None:
    model = chat(servers.url, max_tokens=60).with_structured_output(SHAPE, method="json_schema")
    assert is_animal(model.invoke(DESCRIBE))


@session.check("a tool, required")
def tool_required(servers: Servers) -> None:
    model = chat(servers.url, max_tokens=80)
    answer = model.bind_tools([NOTE], tool_choice="required", parallel_tool_calls=False).invoke(
        DESCRIBE
    )
    (called,) = answer.tool_calls
    assert is_animal(called["args"])


@session.check("a tool, streamed")
def tool_streamed(servers: Servers) -> None:
    model = chat(servers.url, max_tokens=60).bind_tools([NOTE], tool_choice="note")
    answer = None
    for chunk in model.stream(DESCRIBE):
        answer = chunk if answer is None else answer + chunk
    (called,) = answer.tool_calls
    assert is_animal(called["args"])


@session.check("a tool's result")
def tool_result(servers: Servers) -> None:
    model = chat(servers.url, max_tokens=60)
    first = model.bind_tools([NOTE], tool_choice="note").invoke(DESCRIBE)
    result = ToolMessage("noted", tool_call_id=first.tool_calls[0]["id"])
    history = [HumanMessage(DESCRIBE), first, result]
    assert model.bind_tools([NOTE], tool_choice="none").invoke(history).content


@session.check("cancel")
def cancelled(servers: Servers) -> None:
    """A call only: a stream that is closed early keeps its connection open, in this client."""

    async def test() -> None:
        endless = chat(servers.url, max_tokens=1000, extra_body={"ignore_eos": True})
        task = asyncio.create_task(endless.ainvoke(QUESTION))
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(test())
    wait_until_aborted(servers.url)


if __name__ == "__main__":
    session.main()
