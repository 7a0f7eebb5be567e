"""litellm, as the gateway that many tools put in front of a model."""

import json
import os
import threading
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its list of prices comes from the network

import litellm  # type: ignore[import-not-found]

from tests.clients.checks import (
    ANIMAL,
    DESCRIBE,
    KEY,
    PROMPT,
    QUESTION,
    Servers,
    Session,
    call,
    raised,
    same,
)

session = Session("litellm")
litellm.suppress_debug_info = True
MESSAGES = [{"role": "user", "content": QUESTION}]


def common(url: str, **fields: object) -> dict:
    asked = {"max_tokens": 24, "temperature": 0, "max_retries": 0, "timeout": 60}
    return {"api_base": f"{url}/v1", "api_key": KEY} | asked | fields


def chat(url: str, **fields: object) -> Any:
    return litellm.completion(model="openai/bundled", **common(url, messages=MESSAGES) | fields)


def completion(url: str, **fields: object) -> Any:
    return litellm.text_completion(
        model="text-completion-openai/bundled", **common(url, prompt=PROMPT) | fields
    )


@session.check("models")
def models(servers: Servers) -> None:
    found = litellm.get_valid_models(
        check_provider_endpoint=True,
        custom_llm_provider="openai",
        api_key=KEY,
        api_base=servers.url,
    )
    assert any(name.endswith("bundled") for name in found), found


def text_of(chunks: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


session.texts(
    completion=lambda servers: completion(servers.url).choices[0].text,
    completion_streamed=lambda servers: "".join(
        chunk.choices[0].text or "" for chunk in completion(servers.url, stream=True)
    ),
    chat=lambda servers: chat(servers.url).choices[0].message.content,
    chat_streamed=lambda servers: text_of(chat(servers.url, stream=True)),
)


SHAPED = {"messages": [{"role": "user", "content": DESCRIBE}], "max_tokens": 80}
TOOLS = {"tools": [{"type": "function", "function": {"name": "note", "parameters": ANIMAL}}]}
NAMED = {"tool_choice": {"type": "function", "function": {"name": "note"}}}


SCHEMA = {"type": "json_schema", "json_schema": {"name": "animal", "schema": ANIMAL}}


def noted(answer: Any) -> Any:
    return json.loads(answer.choices[0].message.tool_calls[0].function.arguments)


session.animals(
    {
        "schema": lambda servers: json.loads(
            chat(servers.url, response_format=SCHEMA, **SHAPED).choices[0].message.content
        ),
        "a tool, required": lambda servers: noted(
            chat(servers.url, tool_choice="required", **SHAPED | TOOLS)
        ),
        "a tool, streamed": lambda servers: noted(
            litellm.stream_chunk_builder(
                list(chat(servers.url, stream=True, **SHAPED | TOOLS | NAMED))
            )
        ),
    }
)


@session.check("a prompt that is too long")
def too_long(servers: Servers) -> None:
    messages = [{"role": "user", "content": "owl " * 3000}]
    error = raised(litellm.ContextWindowExceededError, chat, url=servers.url, messages=messages)
    assert "maximum context length" in str(error)


@session.check("404")
def not_found(servers: Servers) -> None:
    asked = common(servers.auto, messages=MESSAGES, model="openai/gpt-4")
    error = raised(litellm.NotFoundError, litellm.completion, **asked)
    assert "there is no model 'gpt-4'" in str(error)


@session.check("429, then retried")
def full(servers: Servers) -> None:
    call(servers.full, "/engine/pause", {})
    first = chat(servers.full, stream=True)
    raised(litellm.RateLimitError, chat, url=servers.full)
    threading.Timer(0.3, call, (servers.full, "/engine/resume", {})).start()
    text = chat(servers.full, max_retries=8).choices[0].message.content
    same(text_of(first), text)


@session.cancel
async def endless(servers: Servers) -> None:
    asked = common(servers.url, messages=MESSAGES, max_tokens=1000)
    asked["extra_body"] = {"ignore_eos": True}
    await litellm.acompletion(model="openai/bundled", **asked)
