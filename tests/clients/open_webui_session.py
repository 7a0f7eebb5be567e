"""The calls that Open WebUI 0.12.4 makes, sent live, because the application itself is too large.

Source: `open_webui/routers/openai.py`, `routers/tasks.py` and `utils/payload.py`.
"""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from tests.clients.checks import (
    ANIMAL,
    DESCRIBE,
    KEY,
    QUESTION,
    Servers,
    Session,
    answered,
    call,
    is_animal,
    same,
)

session = Session("Open WebUI")
USER = {"role": "user", "content": QUESTION}


def ask(url: str, body: dict[str, Any]) -> Any:
    """Return the answer of a chat, or the text of a streamed one with its usage."""
    body = {"model": "bundled", "messages": [USER]} | body
    if not body.get("stream"):
        return call(url, "/v1/chat/completions", body)
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        lines = response.read().decode().splitlines()
        same((response.status, lines[-2]), (200, "data: [DONE]"))
        return [json.loads(line.removeprefix("data: ")) for line in lines if line[:7] == "data: {"]
    finally:
        connection.close()


@session.check("models")
def models(servers: Servers) -> None:
    (model,) = call(servers.url, "/v1/models")["data"]
    assert model["id"]
    assert model["object"] == "model"


@session.check("chat, streamed")
def streamed(servers: Servers) -> None:
    body = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = ask(servers.url, body | {"temperature": 0.0, "max_tokens": 24})
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    same(text, answered(servers.url))
    assert chunks[-1]["usage"]["total_tokens"] > 0


@session.check("a title")
def title(servers: Servers) -> None:
    answer = ask(servers.url, {"stream": False, "max_completion_tokens": 1000})
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")


@session.check("every setting of the page")
def settings(servers: Servers) -> None:
    page = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0.0, "max_tokens": 24}
    page |= {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.1}
    page |= {"seed": 42, "stop": ["\n\n"], "logit_bias": {"100": -5}, "reasoning_effort": "none"}
    assert ask(servers.url, page)["choices"][0]["message"]["content"]


@session.check("schema")
def schema(servers: Servers) -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "animal", "schema": ANIMAL}}
    messages = [{"role": "user", "content": DESCRIBE}]
    answer = ask(servers.url, {"response_format": shape, "max_tokens": 60, "messages": messages})
    assert is_animal(json.loads(answer["choices"][0]["message"]["content"]))


@session.check("a tool's result")
def tool_result(servers: Servers) -> None:
    function = {"name": "note", "description": "Note an animal.", "parameters": ANIMAL}
    offered = {"tools": [{"type": "function", "function": function}], "tool_choice": "none"}
    arguments = json.dumps({"animal": "owl", "legs": 2})
    called = {"id": "call_1", "type": "function"}
    called |= {"function": {"name": "note", "arguments": arguments}}
    messages = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noted"},
    ]
    assert ask(servers.url, offered | {"messages": messages, "max_tokens": 24})["choices"]


@session.check("tools, auto: the bundled model cannot")
def tools_auto(servers: Servers) -> None:
    function = {"name": "note", "description": "Note an animal.", "parameters": ANIMAL}
    answer = ask(servers.url, {"tools": [{"type": "function", "function": function}]})
    same(answer["error"]["param"], "tool_choice")


if __name__ == "__main__":
    session.main()
