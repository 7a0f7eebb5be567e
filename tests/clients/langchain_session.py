"""langchain-openai: ChatOpenAI for chats, OpenAI for completions."""

import asyncio
import threading

import openai
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
    call,
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


@session.check("stop")
def stop(servers: Servers) -> None:
    text = completed(servers.url)
    word = text.split()[5]
    answer = OpenAI(**common(servers.url)).invoke(PROMPT, stop=[word])
    same(answer, text[: text.index(word)])


@session.check("n")
def several(servers: Servers) -> None:
    story = [[HumanMessage("Tell me a story")]]
    (answers,) = chat(servers.url, n=3, temperature=1, seed=7).generate(story).generations
    same(len({one.text for one in answers}), 3)


@session.check("logprobs")
def logprobs(servers: Servers) -> None:
    answer = chat(servers.url, logprobs=True, top_logprobs=2).invoke(QUESTION)
    content = answer.response_metadata["logprobs"]["content"]
    # The token that ends the answer is no text, but it has a probability.
    # They have the calculator's tokens, too, which the text leaves out.
    assert "".join(one["token"] for one in content[:-1]).endswith(answer.content)


@session.check("seed")
def seed(servers: Servers) -> None:
    def text(number: int) -> str:
        return OpenAI(**common(servers.url, temperature=1, seed=number)).invoke(PROMPT)

    same(text(1), text(1))
    assert len({text(number) for number in range(4)}) > 1


@session.check("parts")
def parts(servers: Servers) -> None:
    split = [{"type": "text", "text": "What is "}, {"type": "text", "text": "17 + 25?"}]
    same(chat(servers.url).invoke([HumanMessage(split)]).content, answered(servers.url))


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


@session.check("a tool, named")
def tool_named(servers: Servers) -> None:
    model = chat(servers.url, max_tokens=60).with_structured_output(
        SHAPE, method="function_calling"
    )
    assert is_animal(model.invoke(DESCRIBE))


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


@session.check("a wrong field")
def wrong_field(servers: Servers) -> None:
    try:
        chat(servers.url, temperature=-1).invoke(QUESTION)
    except openai.BadRequestError as error:
        same(error.param, "temperature")
    else:
        raise AssertionError("it was taken")


@session.check("404")
def not_found(servers: Servers) -> None:
    try:
        chat(servers.auto, model="gpt-4").invoke(QUESTION)
    except openai.NotFoundError as error:
        same(error.code, "model_not_found")
    else:
        raise AssertionError("a model that is not there answered")


@session.check("401")
def unauthorized(servers: Servers) -> None:
    try:
        chat(servers.auto, api_key="another").invoke(QUESTION)
    except openai.AuthenticationError as error:
        same(error.code, "invalid_api_key")
    else:
        raise AssertionError("a wrong key opened the door")


@session.check("429, then retried")
def full(servers: Servers) -> None:
    call(servers.full, "/engine/pause", {})
    first = threading.Thread(target=chat(servers.full).invoke, args=(QUESTION,))
    first.start()
    while not call(servers.full, "/health")["waiting"]:
        pass
    try:
        chat(servers.full).invoke(QUESTION)
    except openai.RateLimitError as error:
        same(error.code, "queue_full")
    else:
        raise AssertionError("it was let in")
    threading.Timer(0.3, call, (servers.full, "/engine/resume", {})).start()
    same(chat(servers.full, max_retries=8).invoke(QUESTION).content, answered(servers.full))
    first.join()


@session.check("parallel")
def parallel(servers: Servers) -> None:
    answers = chat(servers.url).batch([QUESTION] * 24, config={"max_concurrency": 24})
    same({answer.content for answer in answers}, {answered(servers.url)})


@session.check("timeout")
def timed_out(servers: Servers) -> None:
    call(servers.url, "/engine/pause", {})
    try:
        chat(servers.url, timeout=0.3).invoke(QUESTION)
    except openai.APITimeoutError:
        pass
    else:
        raise AssertionError("a held engine answered")
    finally:
        call(servers.url, "/engine/resume", {})
    wait_until_aborted(servers.url)


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
