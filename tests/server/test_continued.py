"""A stream that another server goes on with: its client gets exactly what it lacks.

Each case is streamed with marks, and then cut after every mark: what was sent before, and what a second
request sends that continues from there, must be the whole stream.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from engine.core.log.vocabulary import RequestArrived
from server.http.access import CLUSTER_KEY_HEADER
from server.http.continued import CONTINUED, MARKS, NAME, split_marks
from tests.server.harness import http, post, refusal, sse_data, start
from visualizer.reading.without_text import without_text

CHAT = "/v1/chat/completions"
ADD = {"name": "add", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": ADD}
LETTERS = {"type": "array", "items": {"enum": ["x", "yy"]}, "minItems": 6, "maxItems": 8}
SCHEMA = {"type": "object", "properties": {"a": LETTERS}, "required": ["a"]}
HELLO = [{"role": "user", "content": "Hello"}]
STREAMED = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "seed": 5}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "teaching": ("/v1/completions", {"prompt": "x", "max_tokens": 24}),
    "stops": (
        "/v1/completions",
        STREAMED | {"prompt": "x", "max_tokens": 20, "temperature": 0, "return_token_ids": True},
    ),
    "logprobs": (
        "/v1/completions",
        STREAMED | {"prompt": "xy", "max_tokens": 24, "logprobs": 2, "echo": True},
    ),
    "samples": ("/v1/completions", STREAMED | {"prompt": ["x?", "yz"], "n": 2, "max_tokens": 8}),
    "seeded": (
        "/v1/completions",
        STREAMED
        | {"prompt": "Once upon", "max_tokens": 12, "n": 2, "top_k": 50}
        | {"frequency_penalty": 0.5, "min_tokens": 8, "logprobs": 1},
    ),
    "chat": (CHAT, STREAMED | {"messages": HELLO, "max_tokens": 9, "logprobs": True}),
    "grammar": (
        "/v1/completions",
        STREAMED | {"prompt": "x", "max_tokens": 30, "structured_outputs": {"json": SCHEMA}},
    ),
    "tools": (
        CHAT,
        STREAMED
        | {"messages": HELLO, "max_tokens": 40, "tools": [TOOL], "tool_choice": "required"},
    ),
    "response": (
        "/v1/responses",
        {"input": "Hello", "stream": True, "max_output_tokens": 9, "seed": 1, "temperature": 1},
    ),
    "calls": (
        "/v1/responses",
        {"input": "Hi", "stream": True, "max_output_tokens": 40, "seed": 2}
        | {"tools": [{"type": "function", **ADD}], "tool_choice": "required"},
    ),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start(engine={"max_kv_tokens": 4096}, model="bundled") as server:
        yield server.url


def streamed(url: str, path: str, body: bytes, **headers: str) -> tuple[str, list[bytes]]:
    """A marked stream: its name, and its writes and marks in turn."""
    headers = {"content-type": "application/json", MARKS: "1"} | headers
    with http(url) as client:
        answer = client.post(path, content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    parts, rest = split_marks(answer.content)
    assert (parts[-1], rest) == (b"e", b"")
    return answer.headers[NAME], parts


def content(data: bytes) -> Any:
    """What a stream says, whatever chunks it comes in."""
    told: dict[Any, Any] = defaultdict(list)
    events = sse_data(data.decode())
    if "sequence_number" in events[0]:
        assert [event["sequence_number"] for event in events] == [*range(len(events))]
        told["text"] = "".join(one["delta"] for one in events if "delta" in one)
        events = [events[0], events[-1] | {"sequence_number": 0}]
    for event in events:
        if event == "[DONE]" or not event.get("choices"):
            told["more"].append(_without_times(event))
            continue
        told["id"] = event["id"], event["created"]
        for choice in event["choices"]:
            told[choice["index"]].append(choice)
    for index, choices in told.items():
        if isinstance(index, int):
            told[index] = merged(choices)
    return told


def _without_times(event: Any) -> Any:
    if not isinstance(event, dict):
        return event
    event.pop("ttft_ms", None)
    for usage in (event.get("usage"), (event.get("response") or {}).get("usage")):
        for name in ("prompt_tokens_details", "input_tokens_details"):
            (usage or {}).pop(name, None)  # a second server may find more of it in its cache
    return event


def merged(pieces: list[Any]) -> Any:
    """Join the pieces of a choice: texts and lists one behind the other, objects field by field."""
    pieces = [piece for piece in pieces if piece is not None]
    if not pieces:
        return None
    if isinstance(pieces[0], str):
        return "".join(pieces)
    if isinstance(pieces[0], list):
        parts = [part for piece in pieces for part in piece]
        if not parts or not isinstance(parts[0], dict) or "index" not in parts[0]:
            return parts
        calls = dict.fromkeys(part["index"] for part in parts)  # their pieces depend on time
        return [merged([part for part in parts if part["index"] == call]) for call in calls]
    if isinstance(pieces[0], dict):
        names = dict.fromkeys(name for piece in pieces for name in piece)
        return {name: merged([piece.get(name) for piece in pieces]) for name in names}
    return pieces[-1]


def without_rounding(value: Any) -> Any:
    """The same, with log-probabilities that a sum in another order does not change."""
    if isinstance(value, dict):
        return {name: without_rounding(one) for name, one in value.items()}
    if isinstance(value, list):
        return [without_rounding(one) for one in value]
    return pytest.approx(value, abs=1e-3) if isinstance(value, float) else value


@pytest.mark.parametrize("case", CASES)
def test_a_stream_is_continued_from_every_mark(url: str, case: str) -> None:
    path, body = CASES[case]
    if case == "stops":  # one begins and is not completed, one ends the output inside a token
        text = post(url, path, body | {"stream": False, "stream_options": None}).json()
        text = text["choices"][0]["text"]
        body = body | {"stop": [text[3:9] + "~", text[20:24]]}
    sent = json.dumps(body).encode()
    name, parts = streamed(url, path, sent)
    whole = without_rounding(content(b"".join(parts[::2])))
    marks = [mark[1:-1] for mark in parts[1::2] if mark.startswith(b"t[")]
    assert marks  # one, where a busy machine sent all output in one write
    for cut in range(len(marks)):
        output = b"[" + b",".join(marks[:cut]) + b"]"
        more = {CONTINUED: f"{name}-{len(output)}"}
        again, rest = streamed(url, path, sent + output, **more)
        assert again == name
        data = b"".join(parts[: 2 * cut : 2] + rest[::2])
        assert content(data) == whole, cut


def test_only_the_gateway_of_a_cluster_continues_a_stream() -> None:
    body = json.dumps({"prompt": "x", "max_tokens": 4}).encode()
    head = {"content-type": "application/json"}

    def asked(output: bytes, header: str, **more: str) -> tuple[int, str]:
        with http(server.url) as client:
            sent = head | {CONTINUED: header} | more
            return refusal(client.post("/v1/completions", content=body + output, headers=sent))

    key = {CLUSTER_KEY_HEADER: "key"}
    with start(server={"cluster_key": "key"}) as server:
        assert asked(b"[[0,97]]", "seed-1-8") == (403, "cluster_key")
        for output, header in (
            (b"[[0,97]]", "seed-1-x"),
            (b"[[0,-1]]", "seed-1-8"),
            (b"[[1,97]]", "seed-1-8"),
            (b"[[0,99,99,99,99,99]]", "seed-1-20"),
        ):
            status, _ = asked(output, header, **key)
            assert status == 400


def test_a_log_without_texts_hides_earlier_output() -> None:
    arrived = RequestArrived(1, [5], ["a", "b"], "", 9, 1, 0, {}, output=[6])
    hidden = without_text(arrived)
    assert (hidden.prompt, hidden.output, hidden.texts) == ([-1], [-1], ["", ""])
