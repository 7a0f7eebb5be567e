"""Large bodies: bounded before they are parsed, one error at most, and read beside the event loop."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Message

from server.api.lmtp.frames import parse_call
from server.api.lmtp.session import Session
from server.api.models import DetokenizeRequest, TokenizeRequest
from server.api.openai.chat import ChatRequest
from server.api.openai.completions import CompletionRequest
from server.core.models import ModelDirectory, Models
from server.http import bodies
from server.http.bodies import BodyLimits, JsonRoute, body_limits, depth_and_values, read_body
from server.http.errors import ApiError
from tests.server.bridges import running
from tests.server.harness import post, refusal

JSON = "application/json"
MANY = 2000


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (CompletionRequest, {"prompt": [1.5] * MANY}),
        (CompletionRequest, {"prompt": [[1.5]] * MANY}),
        (CompletionRequest, {"prompt": [[1.5] * MANY]}),
        (CompletionRequest, {"prompt": [[1]] * MANY}),
        (CompletionRequest, {"prompt": [None] * MANY}),
        (CompletionRequest, {"prompt": "x", "stop": [1] * MANY}),
        (CompletionRequest, {"prompt": "x", "stop_token_ids": [1.5] * MANY}),
        (CompletionRequest, {"prompt": "x", "logit_bias": {f"{n}": "x" for n in range(MANY)}}),
        (ChatRequest, {"messages": [5] * MANY}),
        (ChatRequest, {"messages": [{}] * MANY}),
        (ChatRequest, {"messages": [{"role": "user", "content": [5] * MANY}]}),
        (ChatRequest, {"messages": [{"role": "user", "content": [{}] * MANY}]}),
        (TokenizeRequest, {"messages": [5] * MANY}),
        (DetokenizeRequest, {"tokens": [-1] * MANY}),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else value.__name__,
)
def test_validation_stops_at_the_first_error(model, body):
    """One error for each member of a union, none for each element."""
    with pytest.raises(ValidationError) as wrong:
        model.model_validate(body)
    assert wrong.value.error_count() <= 4  # `prompt` may be four things


@pytest.mark.parametrize("model", [TokenizeRequest, DetokenizeRequest, CompletionRequest])
def test_many_unknown_fields_are_one_error(model):
    given = {f"field{n}": 1 for n in range(MANY)}
    given |= {"tokens": [1]} if model is DetokenizeRequest else {"prompt": "x"}
    with pytest.raises(ApiError) as wrong:
        read_body(model, json.dumps(given).encode(), JSON)
    assert wrong.value.error["param"] == "field0"


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": "x", "user": "u" * 100_000},
        {"prompt": [["u" * 100_000], 1]},
        {"prompt": {"u" * 100_000: 1}},
        {"prompt": {f"field{n}": [n] * 100 for n in range(MANY)}},
        {"prompt": "x", "u" * 100_000: 1},
        {"prompt": "x", "logit_bias": {"u" * 100_000: "x"}},
    ],
)
def test_an_error_shows_the_beginning_of_what_was_sent(given):
    with pytest.raises(ApiError) as wrong:
        read_body(CompletionRequest, json.dumps(given).encode(), JSON)
    assert len(wrong.value.body()) < 1000


def test_an_error_of_a_frame_is_short_as_well():
    with pytest.raises(ApiError) as wrong:
        parse_call("RELEASE", json.dumps({"stream_id": 1, "u" * 100_000: 1}))
    assert len(wrong.value.body()) < 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", (0, 0)),
        ("[1, 2, 3]", (1, 3)),
        ('{"a": [1, {"b": []}], "c": "d"}', (4, 6)),
        ('["[[[,,,", "]{,", "\\"[,"]', (1, 3)),
        ('["\\\\", "[,\\\\\\"", [[]]]', (3, 5)),
        ("[" * 500 + "]" * 500, (500, 500)),
        ("[[]," * 100 + "[]" + "]" * 100, (101, 301)),
        ('"' + "[,{" * 1000 + '"', (0, 0)),
    ],
)
def test_depth_and_values_are_counted_without_parsing(text, expected):
    padded = text + " " * bodies.INLINE_BYTES  # a short text may be counted too high
    assert depth_and_values(padded.encode()) == expected
    assert all(a >= b for a, b in zip(depth_and_values(text.encode()), expected, strict=True))


def limits_with(slots: int, context: int | None = None, directory: object = None) -> BodyLimits:
    config = SimpleNamespace(num_blocks=slots, block_size=1)
    first: Any = SimpleNamespace(settings=None, config=config, max_context=context)
    return body_limits(Models(first, directory))  # type: ignore[arg-type]


def test_the_limits_follow_the_context():
    short, long = limits_with(8192, 2048), limits_with(8192, 4096)
    assert long.bytes - short.bytes == 16 * 2048
    assert long.values - short.values == 2048
    assert limits_with(1 << 30) == limits_with(1 << 30, 1 << 24)  # bounded all the same
    unknown = ModelDirectory(Path(), 1, lambda _path: pytest.fail("loads nothing"))
    assert limits_with(2048, directory=unknown) == limits_with(1 << 30)


@pytest.mark.parametrize(
    "path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"]
)
def test_a_body_beyond_a_limit_is_413_and_names_the_limit(url, path):
    limits = limits_with(4096)  # the memory of the tests' server
    answers = {
        "body_too_large": (limits.bytes, {"prompt": "x" * limits.bytes}),
        "too_many_values": (limits.values, {"prompt": [1.5] * limits.values}),
    }
    for code, (limit, body) in answers.items():
        answer = post(url, path, body)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == code
        assert str(limit) in answer.json()["error"]["message"]


def test_controls_take_small_bodies_only(url):
    for end in ("", "/"):
        answer = post(url, f"/engine/step{end}", {f"field{n}": n for n in range(100)})
        assert refusal(answer) == (413, "body_too_large")
        assert "1024" in answer.json()["error"]["message"]


@pytest.fixture
def held_reader() -> Iterator[Callable[[], None]]:
    """The reader thread is busy until the test calls this; then all that is queued there runs."""
    free = threading.Event()
    bodies._reader.submit(free.wait, 60)
    yield free.set
    free.set()


def message_of(body: bytes) -> Callable[[], Any]:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def scope(path: str = "/v1/completions") -> dict[str, Any]:
    headers = [(b"content-type", JSON.encode())]
    return {"type": "http", "method": "POST", "path": path, "headers": headers}


def body_with(text: str) -> bytes:
    return json.dumps({"prompt": text}).encode()


SMALL, LARGE = body_with("small"), body_with("large" * bodies.INLINE_BYTES)


async def test_the_loop_handles_a_small_body_while_a_large_one_is_validated(held_reader):
    passed: list[int] = []

    async def handler(body: CompletionRequest) -> Any:
        passed.append(len(str(body.prompt)))

    route = JsonRoute("/", handler, methods=["POST"]).get_route_handler()
    large = asyncio.create_task(route(Request(scope(), message_of(LARGE))))
    await route(Request(scope(), message_of(SMALL)))
    assert passed == [5]
    held_reader()
    await large
    assert passed == [5, 5 * bodies.INLINE_BYTES]


def test_a_json_route_ignores_no_parameter():
    async def handler(body: CompletionRequest, limit: int = 1) -> Any:
        return body, limit

    with pytest.raises(TypeError, match="limit"):
        JsonRoute("/", handler, methods=["POST"])


async def test_the_loop_serves_one_session_while_a_large_frame_of_another_is_parsed(held_reader):
    async with running() as bridge:
        sent: dict[str, asyncio.Queue[str]] = {"large": asyncio.Queue(), "small": asyncio.Queue()}
        serving = []
        for name, size in (("large", bodies.INLINE_BYTES), ("small", 0)):

            async def frames(size: int = size) -> Any:
                data = " " * size
                yield 'MODEL_INFO {"stream_id": 1, "data": "' + data + '"}'
                await asyncio.Future()

            session = Session(Models(bridge), sent[name].put)
            serving.append(asyncio.create_task(session.serve(frames())))
        assert "model_info" in await sent["small"].get()
        assert sent["large"].empty()
        held_reader()
        assert "model_info" in await sent["large"].get()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
