"""Bodies that cannot be read, and requests that fit no route: an error object, never a 422 or a 500."""

import gzip
import json

import pytest

from tests.facts import assert_names
from tests.server.harness import Serve, http, post


@pytest.mark.parametrize("content", ["", "{", "[1]", "nonsense", '"text"', "\x00", "NaN"])
def test_bodies_that_are_no_object(url: str, content: str) -> None:
    with http(url) as client:
        headers = {"Content-Type": "application/json"}
        answer = client.post("/v1/completions", content=content, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_body_without_a_json_content_type_gets_an_error_naming_the_header(url: str) -> None:
    with http(url) as client:
        answer = client.post("/v1/completions", data={"prompt": "x"})
    assert answer.status_code == 400
    assert_names(answer.json()["error"]["message"], "Content-Type", "application/json")


@pytest.mark.parametrize("kind", ["Application/JSON; charset=utf-8", "application/x+json"])
def test_json_by_another_name_is_json(url: str, kind: str) -> None:
    for body, status, param in (({"prompt": "x"}, 200, None), ({"prompt": 1}, 400, "prompt")):
        with http(url) as client:
            content = json.dumps(body)
            answer = client.post("/v1/completions", content=content, headers={"Content-Type": kind})
        assert answer.status_code == status, answer.text
        assert status == 200 or answer.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
@pytest.mark.parametrize("content", [b'{"prompt": "\xe9"}', b'{"n": ' + b"9" * 5000 + b"}"])
def test_an_unreadable_body_gets_an_error_naming_the_expected_format(
    url: str, path: str, content: bytes
) -> None:
    with http(url) as client:
        answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", None)
    assert_names(error["message"], "JSON", "UTF-8")


def test_a_compressed_body_is_refused_by_its_encoding(url: str) -> None:
    content = gzip.compress(json.dumps({"prompt": "x"}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with http(url) as client:
        answer = client.post("/v1/completions", content=content, headers=headers)
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")
    assert_names(answer.json()["error"]["message"], "gzip")


def test_unknown_routes_and_wrong_methods(url: str) -> None:
    with http(url) as client:
        for method, path, status, allowed, code in (
            ("GET", "/v1/nothing", 404, None, "not_found"),
            ("GET", "/v1/completions", 405, "POST", "method_not_allowed"),
            ("DELETE", "/health", 405, "GET", "method_not_allowed"),
            ("PUT", "/engine/step", 405, "POST", "method_not_allowed"),
        ):
            answer = client.request(method, path)
            assert (answer.status_code, answer.headers.get("allow")) == (status, allowed)
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
            assert answer.json()["error"]["code"] == code


def test_a_prompt_that_is_longer_than_the_context(serve: Serve) -> None:
    url = serve(max_context=32).url
    for field, body in (
        ("prompt", {"prompt": "x" * 40}),
        ("max_tokens", {"prompt": "x" * 20, "max_tokens": 20}),
    ):
        answer = post(url, "/v1/completions", body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    # Chat without a limit takes what is left of the context.
    answer = post(url, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert answer.json()["usage"]["total_tokens"] == 32
