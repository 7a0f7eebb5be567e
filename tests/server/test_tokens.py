"""/tokenize and /detokenize: the ids are those that a request computes."""

import pytest

from engine.events.vocabulary import RequestArrived
from server.api import tokens
from server.core import prompt_length
from tests.facts import assert_names
from tests.server.harness import post, trace

TEXTS = ["Once", "", "naïve 🙂", "<|user_end|> is a token", "tab\tand\nline"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_has_the_ids_that_a_request_computes(url: str, text: str) -> None:
    answer = post(url, "/tokenize", {"prompt": text}).json()
    post(url, "/v1/completions", {"prompt": text, "max_tokens": 1})
    assert answer["tokens"] == trace(url).of(RequestArrived)[-1].prompt
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])


def test_a_conversation_has_the_ids_that_a_request_computes(url: str) -> None:
    messages = [{"role": "user", "content": "<|bos|> is text here"}]
    answer = post(url, "/tokenize", {"messages": messages}).json()
    post(url, "/v1/chat/completions", {"messages": messages, "max_tokens": 1})
    assert answer["tokens"] == trace(url).of(RequestArrived)[-1].prompt


@pytest.mark.parametrize("text", TEXTS)
def test_there_and_back(url: str, text: str) -> None:
    answer = post(url, "/tokenize", {"prompt": text}).json()
    back = post(url, "/detokenize", {"tokens": answer["tokens"]}).json()["prompt"]
    assert back == "".join(answer["token_strs"]) == f"<|bos|>{text}"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": []}, "prompt"),
        ("/tokenize", {"prompt": 7}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "nobody", "content": "x"}]}, "messages"),
        ("/tokenize", {"prompt": "x", "text": "x"}, "text"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [10**30]}, "tokens"),
        ("/detokenize", {"tokens": [265]}, "tokens"),
        ("/detokenize", {"tokens": ["x"]}, "tokens[0]"),
    ],
)
def test_bad_input_is_named(url: str, path: str, body: dict, param: str) -> None:
    answer = post(url, path, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_content": "x" * 1_100_000},
        {"tool_calls": [{"function": {"arguments": "x" * 1_100_000}}]},
        {"tool_calls": [{"x" * 1_100_000: 1}]},
    ],
    ids=["flat", "nested", "key"],
)
@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/tokenize", tokens.MAX_CHARACTERS),
        ("/v1/chat/completions", prompt_length.MAX_CHARACTERS),
    ],
)
def test_text_anywhere_in_a_message_counts(url: str, path: str, limit: int, more: dict) -> None:
    """A chat template may render all of it, and tokenizing it would hold up everybody."""
    answer = post(url, path, {"messages": [{"role": "assistant", "content": "x"} | more]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert_names(answer.json()["error"]["message"], limit)
