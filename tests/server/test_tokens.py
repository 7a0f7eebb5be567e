"""/tokenize and /detokenize: the ids are those that a request computes."""

import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from engine.events.vocabulary import RequestArrived
from engine.scheduling.admission import RequestError
from engine.text.byte_tokenizer import ByteTokenizer
from server.api.openai.chat import encode_conversation
from server.core.admission import (
    CHARACTERS_PER_TOKEN,
    LEAST_CHARACTERS,
    MAX_CHARACTERS,
    check_length,
)
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
    "more",
    [
        {"reasoning_content": "x" * 1_100_000},
        {"tool_calls": [{"function": {"name": "f", "x": "x" * 1_100_000}}]},
        {"tool_calls": [{"function": {"name": "f"}, "x" * 1_100_000: 1}]},
    ],
    ids=["flat", "nested", "key"],
)
@pytest.mark.parametrize("path", ["/tokenize", "/v1/chat/completions"])
def test_text_anywhere_in_a_message_counts(url: str, path: str, more: dict) -> None:
    """A chat template may render all of it, and tokenizing it would delay all other requests."""
    answer = post(url, path, {"messages": [{"role": "assistant", "content": "x"} | more]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert_names(answer.json()["error"]["message"], LEAST_CHARACTERS)


@pytest.mark.parametrize(
    ("context", "limit"),
    [(1024, LEAST_CHARACTERS), (1 << 15, CHARACTERS_PER_TOKEN << 15), (1 << 30, MAX_CHARACTERS)],
)
def test_the_limit_in_characters_follows_the_context(context: int, limit: int) -> None:
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


def test_no_content_makes_a_conversation_slow_to_encode() -> None:
    assert lines_run(nested=300) == lines_run(nested=3)
