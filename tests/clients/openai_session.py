"""OpenAI's Python SDK, with strict validation of every response. Part of the test suite, too."""

import asyncio
import json
import threading
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI

from tests.clients.animal import Animal
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
    ends_when_cancelled,
    is_animal,
    raised,
    same,
    wait_until_aborted,
)
from tests.server.sdk import lenient, sdk

session = Session(f"openai {openai.__version__}")
ASKED = {"model": "bundled", "max_tokens": 24, "temperature": 0}


def client(url: str, **options: object) -> OpenAI:
    return sdk(url, **{"api_key": KEY, "timeout": 60} | options)


def messages(content: object = QUESTION) -> list:
    return [{"role": "user", "content": content}]


@session.check("models")
def models(servers: Servers) -> None:
    with client(servers.url) as api:
        (model,) = api.models.list()
        same((model.id, model.object, model.owned_by), ("bundled", "model", "underglass"))
        same(api.models.retrieve("bundled").created, model.created)


@session.check("completion")
def completion(servers: Servers) -> None:
    with client(servers.url) as api:
        answer = api.completions.create(prompt=PROMPT, **ASKED)
    same(answer.choices[0].text, completed(servers.url))
    same(answer.choices[0].finish_reason, "length")


@session.check("completion, streamed")
def completion_streamed(servers: Servers) -> None:
    with lenient(client(servers.url)) as api:
        chunks = list(api.completions.create(prompt=PROMPT, stream=True, **ASKED))
    same("".join(chunk.choices[0].text for chunk in chunks), completed(servers.url))
    *before, last = chunks
    same({chunk.choices[0].finish_reason for chunk in before}, {None})
    same({chunk.usage for chunk in before}, {None})
    same(last.choices[0].finish_reason, "length")
    assert last.choices[0].text, "the last text and its reason share a chunk"
    assert len(chunks) > 8, "it came in one piece"
    same(len({(chunk.id, chunk.created) for chunk in chunks}), 1)


@session.check("chat")
def chat(servers: Servers) -> None:
    with client(servers.url) as api:
        answer = api.chat.completions.create(messages=messages(), **ASKED)
    same(answer.choices[0].message.content, answered(servers.url))
    same(answer.choices[0].message.role, "assistant")
    same(answer.choices[0].finish_reason, "stop")


@session.check("chat, streamed")
def chat_streamed(servers: Servers) -> None:
    with client(servers.url) as api:
        chunks = list(api.chat.completions.create(messages=messages(), stream=True, **ASKED))
        with api.chat.completions.stream(messages=messages(), **ASKED) as stream:
            final = stream.get_final_completion()
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    same(text, answered(servers.url))
    same(final.choices[0].message.content, text)
    same([role for chunk in chunks if (role := chunk.choices[0].delta.role)], ["assistant"])
    same(chunks[-1].choices[0].finish_reason, "stop")


@session.check("usage")
def usage(servers: Servers) -> None:
    with client(servers.url) as api, lenient(client(servers.url)) as streaming:
        whole = api.completions.create(prompt=PROMPT, **ASKED).usage
        *_, last = streaming.completions.create(
            prompt=PROMPT, stream=True, stream_options={"include_usage": True}, **ASKED
        )
        *_, chat_last = api.chat.completions.create(
            messages=messages(), stream=True, stream_options={"include_usage": True}, **ASKED
        )
    same((whole.completion_tokens, whole.total_tokens), (24, 24 + whole.prompt_tokens))
    same((last.choices, last.usage.total_tokens), ([], whole.total_tokens))
    assert chat_last.usage.prompt_tokens > 0
    assert whole.prompt_tokens_details.cached_tokens is not None


@session.check("stop")
def stop(servers: Servers) -> None:
    whole = completed(servers.url)
    word = whole.split()[5]
    before = whole[: whole.index(word)]
    with client(servers.url) as api, lenient(client(servers.url)) as streaming:
        for wanted in (word, [word], ["never", word, "nor", "this", "one", "either"]):
            answer = api.completions.create(prompt=PROMPT, stop=wanted, **ASKED).choices[0]
            same((answer.text, answer.finish_reason), (before, "stop"))
        chunks = list(streaming.completions.create(prompt=PROMPT, stop=word, stream=True, **ASKED))
    same("".join(chunk.choices[0].text for chunk in chunks), before)


@session.check("n")
def several(servers: Servers) -> None:
    asked = ASKED | {"temperature": 1, "seed": 7}
    with client(servers.url) as api, lenient(client(servers.url)) as streaming:
        whole = api.completions.create(prompt=PROMPT, n=3, **asked)
        texts = {0: "", 1: "", 2: ""}
        for chunk in streaming.completions.create(prompt=PROMPT, n=3, stream=True, **asked):
            texts[chunk.choices[0].index] += chunk.choices[0].text
        both = api.completions.create(prompt=[PROMPT, "The fox"], n=2, **asked)
        talk = api.chat.completions.create(messages=messages("Tell me a story"), n=3, **asked)
    same([choice.text for choice in whole.choices], list(texts.values()))
    same(len(set(texts.values())), 3)
    same([choice.index for choice in both.choices], [0, 1, 2, 3])
    same([choice.index for choice in talk.choices], [0, 1, 2])


@session.check("seed")
def seed(servers: Servers) -> None:
    with client(servers.url) as api:

        def text(number: int) -> str:
            asked = ASKED | {"temperature": 1, "seed": number}
            return api.completions.create(prompt=PROMPT, **asked).choices[0].text

        same(text(1), text(1))
        assert len({text(number) for number in range(4)}) > 1, "no seed changes anything"


NOTE: Any = {"type": "function", "function": {"name": "note", "parameters": ANIMAL}}
NAMED: Any = {"type": "function", "function": {"name": "note"}}
SHAPED = ASKED | {"max_tokens": 60}


@session.check("schema")
def schema(servers: Servers) -> None:
    with client(servers.url) as api:
        answer = api.chat.completions.parse(
            messages=messages(DESCRIBE), response_format=Animal, **SHAPED
        )
    assert answer.choices[0].message.parsed, answer


@session.check("schema, streamed")
def schema_streamed(servers: Servers) -> None:
    with client(servers.url) as api:
        asked = {"messages": messages(DESCRIBE), "response_format": Animal, **SHAPED}
        with api.chat.completions.stream(**asked) as stream:
            kinds = [event.type for event in stream]
            answer = stream.get_final_completion()
    assert answer.choices[0].message.parsed, answer
    assert kinds.count("content.delta") > 1, "it came in one piece"


@session.check("a tool, streamed")
def tool_streamed(servers: Servers) -> None:
    with client(servers.url) as api:
        asked = {"messages": messages(DESCRIBE), "tools": [NOTE], "tool_choice": NAMED, **SHAPED}
        with api.chat.completions.stream(**asked) as stream:
            for _ in stream:
                pass
            (answer,) = stream.get_final_completion().choices
    (called,) = answer.message.tool_calls or []
    same(called.function.name, "note")
    assert is_animal(json.loads(called.function.arguments))


@session.check("a wrong field")
def wrong_field(servers: Servers) -> None:
    with client(servers.url) as api:
        for asked, param in (
            ({"max_tokens": -1}, "max_tokens"),
            ({"temperature": -1}, "temperature"),
            ({"extra_body": {"no_such_field": 1}}, "no_such_field"),
        ):
            asked = ASKED | {"prompt": PROMPT} | asked
            error = raised(openai.BadRequestError, api.completions.create, **asked)
            same((error.param, error.type), (param, "invalid_request_error"))
            assert param in error.message


@session.check("404")
def not_found(servers: Servers) -> None:
    with client(servers.auto) as api:
        same([model.id for model in api.models.list()], ["bundled"])
        asked = ASKED | {"prompt": PROMPT, "model": "gpt-4"}
        error = raised(openai.NotFoundError, api.completions.create, **asked)
    same((error.code, error.param), ("model_not_found", "model"))
    with client(servers.url) as api:
        raised(openai.NotFoundError, api.post, path="/images", cast_to=object)


@session.check("401")
def unauthorized(servers: Servers) -> None:
    with OpenAI(base_url=f"{servers.auto}/v1", api_key="another", max_retries=0) as api:
        same(raised(openai.AuthenticationError, api.models.list).code, "invalid_api_key")


@session.check("429, then retried")
def full(servers: Servers) -> None:
    call(servers.full, "/engine/pause", {})
    with lenient(client(servers.full)) as api, client(servers.full, max_retries=8) as patient:
        first = api.completions.create(prompt=PROMPT, stream=True, **ASKED)  # the one that may wait
        error = raised(openai.RateLimitError, api.completions.create, prompt=PROMPT, **ASKED)
        same(error.code, "queue_full")
        assert int(error.response.headers["retry-after"]) >= 1
        threading.Timer(0.3, call, (servers.full, "/engine/resume", {})).start()
        answer = patient.completions.create(prompt=PROMPT, **ASKED).choices[0].text
        same("".join(chunk.choices[0].text for chunk in first), answer)


@session.check("parallel")
def parallel(servers: Servers) -> None:
    async def test() -> list[str]:
        async with AsyncOpenAI(base_url=f"{servers.url}/v1", api_key=KEY, max_retries=0) as api:

            async def one(streamed: bool) -> str:
                answer = await api.completions.create(prompt=PROMPT, stream=streamed, **ASKED)
                if not streamed:
                    return answer.choices[0].text
                return "".join([chunk.choices[0].text async for chunk in answer])

            return await asyncio.gather(*(one(number % 2 == 0) for number in range(24)))

    same(set(asyncio.run(test())), {completed(servers.url)})


@session.check("timeout")
def timed_out(servers: Servers) -> None:
    call(servers.url, "/engine/pause", {})
    try:
        with client(servers.url, timeout=0.3) as api:
            raised(openai.APITimeoutError, api.completions.create, prompt=PROMPT, **ASKED)
    finally:
        call(servers.url, "/engine/resume", {})
    wait_until_aborted(servers.url)


@session.check("cancel")
def cancelled(servers: Servers) -> None:
    long = ASKED | {"max_tokens": 1000, "extra_body": {"ignore_eos": True}}
    with lenient(client(servers.url)) as api:
        stream = api.completions.create(prompt=PROMPT, stream=True, **long)
        next(iter(stream))
        stream.close()
        wait_until_aborted(servers.url)

    async def endless(servers: Servers) -> None:
        async with AsyncOpenAI(base_url=f"{servers.url}/v1", api_key=KEY) as api:
            await api.completions.create(prompt=PROMPT, **long)

    ends_when_cancelled(endless, servers)
