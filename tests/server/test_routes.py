"""Routes that clients of vLLM expect: what they answer, and their protection."""

import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log.vocabulary import RequestArrived
from engine.core.scheduling.admission import RequestError
from server.api.openai.conversation import encode_conversation
from server.core.admission import (
    CHARACTERS_PER_TOKEN,
    LEAST_CHARACTERS,
    MAX_CHARACTERS,
    check_length,
)
from tests.facts import assert_names
from tests.server.harness import Caller, get, http, post, trace, until
from tests.server.test_wrong_fields import VALID

MESSAGES = [{"role": "user", "content": "Tell me."}]
# Every route that a client may call at any time, with a body that it accepts.
ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/health", None),
    ("GET", "/ready", None),
    ("GET", "/ping", None),
    ("POST", "/ping", None),
    ("GET", "/version", None),
    ("GET", "/load", None),
    ("GET", "/metrics", None),
    ("GET", "/trace", None),
    ("GET", "/regimes", None),
    ("GET", "/tour", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/alphabet", None),
    *(("POST", path, body) for path, body in VALID.items() if not path.startswith("/engine")),
]
NEED_NO_KEY = {"/health", "/ready", "/ping"}


@pytest.mark.parametrize("end", ["", "/", "//"])
def test_each_route_needs_the_key_and_a_known_host_with_and_without_a_slash(serve, end):
    with http(serve(server={"api_key": "secret"}).url, follow_redirects=False) as client:
        for method, path, body in ROUTES:
            key = {"Authorization": "Bearer secret"}
            for headers, status in (
                ({}, 200 if path in NEED_NO_KEY else 401),
                (key | {"Host": "evil.example"}, 403),
                (key, 200),
            ):
                answer = client.request(method, path + end, json=body, headers=headers)
                assert answer.status_code == status, path


def test_the_load_counts_unfinished_requests(serve):
    url = serve(paused=True).url
    assert get(url, "/load") == {"server_load": 0}
    callers = [Caller(url, "/v1/completions", {"prompt": "x", "stream": True}) for _ in range(3)]
    until(url, "/load", lambda answer: answer.json()["server_load"] == 3)
    for caller in callers:
        caller.close()
    until(url, "/load", lambda answer: answer.json()["server_load"] == 0)


def test_a_rendered_completion_is_what_a_completion_computes(url):
    body = {"prompt": ["one", "two"], "max_tokens": 3, "temperature": 0.5, "model": "any"}
    steps = get(url, "/health")["step"]
    first, second = post(url, "/v1/completions/render", body | {"request_id": "r"}).json()
    assert get(url, "/health")["step"] == steps  # nothing was generated
    post(url, "/v1/completions", body)
    arrived = trace(url).of(RequestArrived)[-2:]
    assert [first["token_ids"], second["token_ids"]] == [one.prompt for one in arrived]
    assert (first["request_id"], second["request_id"]) == ("r-0", "r-1")
    sampling = first["sampling_params"]
    assert (sampling["max_tokens"], sampling["temperature"]) == (3, 0.5)
    assert first["features"] is None


def test_max_model_len_is_what_a_prompt_and_its_output_may_have(url):
    [model] = get(url, "/v1/models")["data"]
    longest = model["max_model_len"]
    assert get(url, f"/v1/models/{model['id']}")["max_model_len"] == longest
    assert post(url, "/tokenize", {"prompt": "x"}).json()["max_model_len"] == longest
    body = {"prompt": [104] * (longest - 2), "model": "any", "ignore_eos": True}
    assert post(url, "/v1/completions/render", body | {"max_tokens": 2}).status_code == 200
    assert post(url, "/v1/completions/render", body | {"max_tokens": 3}).status_code == 400


def test_tokenize_leaves_out_the_beginning_token_and_the_texts(url):
    whole = post(url, "/tokenize", {"prompt": "hi"}).json()
    bare = post(url, "/tokenize", {"prompt": "hi", "add_special_tokens": False}).json()
    assert bare["tokens"] == whole["tokens"][1:]
    assert post(url, "/tokenize", {"prompt": "hi", "add_special_tokens": True}).json() == whole
    without = post(url, "/tokenize", {"prompt": "hi", "return_token_strs": False}).json()
    assert without == whole | {"token_strs": None}
    refused = post(url, "/tokenize", {"messages": MESSAGES, "add_special_tokens": True})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "add_special_tokens")


def test_a_completion_leaves_out_the_beginning_token(url):
    for given, bos in ((None, 1), (True, 1), (False, 0)):
        body = {"prompt": "hi", "model": "any", "max_tokens": 1, "add_special_tokens": given}
        assert post(url, "/v1/completions", body).json()["usage"]["prompt_tokens"] == bos + 2


def test_detokenize_leaves_out_special_tokens_on_request(url):
    tokens = post(url, "/tokenize", {"prompt": "<|user_end|>hi"}).json()["tokens"]
    for skip, text in (
        (True, "hi"),
        (False, "<|bos|><|user_end|>hi"),
        (None, "<|bos|><|user_end|>hi"),
    ):
        body = {"tokens": tokens, "skip_special_tokens": skip}
        assert post(url, "/detokenize", body).json() == {"prompt": text}


@pytest.mark.parametrize(
    "fields",
    [
        {"add_generation_prompt": False},
        {"continue_final_message": True},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
    ids=str,
)
def test_tokenize_has_the_ids_of_a_chat_with_the_same_fields(url, fields):
    messages = [*MESSAGES, {"role": "assistant", "content": "Well"}]
    tokens = post(url, "/tokenize", {"messages": messages} | fields).json()["tokens"]
    body = {"messages": messages, "max_tokens": 1} | fields
    assert post(url, "/v1/chat/completions", body).status_code == 200
    assert tokens == trace(url).of(RequestArrived)[-1].prompt
    more = {"model": "any", "stream": True, "priority": 2}
    rendered = post(url, "/v1/chat/completions/render", body | more).json()
    assert tokens == rendered["token_ids"]
    assert {name: rendered[name] for name in more} == more


def test_tokenize_takes_the_tools_that_a_template_does_not_read(url):
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    plain = post(url, "/tokenize", {"messages": MESSAGES}).json()
    assert post(url, "/tokenize", {"messages": MESSAGES, "tools": [tool]}).json() == plain


TEXTS = ["Once", "", "naïve 🙂", "<|user_end|> is a token", "tab\tand\nline"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_has_the_ids_that_a_request_computes_there_and_back(url, text):
    answer = post(url, "/tokenize", {"prompt": text}).json()
    post(url, "/v1/completions", {"prompt": text, "max_tokens": 1})
    assert answer["tokens"] == trace(url).of(RequestArrived)[-1].prompt
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    back = post(url, "/detokenize", {"tokens": answer["tokens"]}).json()["prompt"]
    assert back == "".join(answer["token_strs"]) == f"<|bos|>{text}"


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_content": "x" * 1_100_000},
        {"tool_calls": [{"function": {"name": "f", "x": "x" * 1_100_000}}]},
        {"tool_calls": [{"function": {"name": "f"}, "x" * 1_100_000: 1}]},
    ],
    ids=["flat", "nested", "key"],
)
@pytest.mark.parametrize("path", ["/tokenize", "/v1/chat/completions"])
def test_text_anywhere_in_a_message_counts(url, path, more):
    """A chat template may render all of it, and tokenizing it would delay all other requests."""
    answer = post(url, path, {"messages": [{"role": "assistant", "content": "x"} | more]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert_names(answer.json()["error"]["message"], LEAST_CHARACTERS)


@pytest.mark.parametrize(
    ("context", "limit"),
    [(1024, LEAST_CHARACTERS), (1 << 15, CHARACTERS_PER_TOKEN << 15), (1 << 30, MAX_CHARACTERS)],
)
def test_the_limit_in_characters_follows_the_context(context, limit):
    config = SimpleNamespace(num_blocks=1 << 30, block_size=1)
    bridge: Any = SimpleNamespace(config=config, max_context=context)
    check_length([1] * limit, bridge)
    with pytest.raises(RequestError):
        check_length([1] * (limit + 1), bridge)


def lines_run(nested: int) -> int:
    """Lines of `encode_conversation` that run for a client that guesses placeholders."""
    guesses = ["[" * n + "content 0" + "]" * n for n in range(nested)]
    lines = 0

    def trace_lines(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        if frame.f_code is not encode_conversation.__code__:
            return None
        lines += event == "line"
        return trace_lines

    before = sys.gettrace()
    sys.settrace(trace_lines)
    try:
        messages = [{"role": "user", "content": text} for text in ("<|bos|>", "".join(guesses))]
        encode_conversation(messages, ByteTokenizer())
    finally:
        sys.settrace(before)
    return lines


def test_no_content_makes_a_conversation_slow_to_encode():
    assert lines_run(nested=300) == lines_run(nested=3)
