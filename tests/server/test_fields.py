"""Request fields that clients of vLLM and SGLang send: accepted, or rejected by name."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from authoring.generated.fields import BODIES, recorded, supported
from recorders.fixtures.record_fields import REQUIRED
from server.api.openai.fields import UNSUPPORTED
from tests.facts import assert_names
from tests.server.harness import http

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "tokenize": "/tokenize",
    "detokenize": "/detokenize",
}
LEAST: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "hi"}], "model": "any", "max_tokens": 1},
    "completions": {"prompt": "hi", "model": "any", "max_tokens": 1},
    "tokenize": {"prompt": "hi"},
    "detokenize": {"tokens": [104]},
}
DECLARED = [(server, endpoint) for server in ("vllm", "sglang") for endpoint in PATHS]
# A value that no field has, and that asks for something.
OTHER = {"asks for": "something"}


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[httpx.Client]:
    with http(url) as client:
        yield client


def body(endpoint: str, **fields: Any) -> dict[str, Any]:
    """The least body with these fields; `stream_options.x` becomes a member of stream_options."""
    options = {name.partition(".")[2]: fields.pop(name) for name in list(fields) if "." in name}
    given = LEAST[endpoint] | fields
    return given | ({"stream": True, "stream_options": options} if options else {})


def unsupported(endpoint: str) -> list[str]:
    names = set(UNSUPPORTED) - supported(endpoint)
    if endpoint in ("tokenize", "detokenize"):
        names = {name for name in names if "." not in name}
    return sorted(names)


@pytest.mark.parametrize(("server", "endpoint"), DECLARED)
def test_every_field_of_vllm_and_sglang_works_or_is_in_the_table(server, endpoint):
    declared = set(recorded()[server][endpoint])
    assert declared <= supported(endpoint) | set(UNSUPPORTED)


def test_a_field_that_works_everywhere_is_not_in_the_table():
    assert not set(UNSUPPORTED) & supported("chat") & supported("completions")


@pytest.mark.parametrize(("server", "endpoint"), DECLARED)
def test_a_client_may_send_every_field_with_its_default(client, server, endpoint):
    defaults = {
        name: value
        for name, value in recorded()[server][endpoint].items()
        if value != REQUIRED and name not in LEAST[endpoint]
    }
    answer = client.post(PATHS[endpoint], json=body(endpoint, **defaults))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("endpoint", PATHS)
def test_neutral_values_are_accepted(client, endpoint):
    for name in unsupported(endpoint):
        field = UNSUPPORTED[name]
        for value in (None, *field.neutral, *([OTHER] if field.hint else [])):
            answer = client.post(PATHS[endpoint], json=body(endpoint, **{name: value}))
            assert answer.status_code == 200, (name, value, answer.text)


@pytest.mark.parametrize("endpoint", PATHS)
def test_other_values_are_rejected_by_name(client, endpoint):
    for name in unsupported(endpoint):
        field = UNSUPPORTED[name]
        if field.hint:
            continue
        numbers = (0, 1) if any(one is False for one in field.neutral) else ()
        for value in (OTHER, 7, "something", *numbers):
            answer = client.post(PATHS[endpoint], json=body(endpoint, **{name: value}))
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, name), (name, value)
            assert_names(error["message"], name, field.instead)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("endpoint", "prefix"), [("chat", "chatcmpl-"), ("completions", "cmpl-")])
def test_a_client_chooses_the_id_of_the_answer(client, endpoint, prefix, stream):
    for fields, expected in (({"request_id": "a-1"}, f"{prefix}a-1"), ({"rid": "b-2"}, "b-2")):
        answer = client.post(PATHS[endpoint], json=body(endpoint, stream=stream, **fields))
        assert f'"id":"{expected}"' in answer.text


def test_every_kind_of_body_is_sent():
    assert set(BODIES) == set(PATHS)
