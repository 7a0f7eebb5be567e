"""vLLM's own request fields, on the wire as in vLLM 0.32: over HTTP, whole and streamed."""

from collections import defaultdict
from itertools import product
from typing import Any

import pytest

from engine.core.log.vocabulary import RequestArrived, StepFinished
from engine.models.text.hf_tokenizer import HFTokenizer
from tests.server.harness import post, sse_data, trace

SERVER = {"model": "bundled", "engine": {"max_batch_size": 4}}
TOKENIZER = HFTokenizer("engine/bundled")
PROMPT = "Once upon a time"
SUM = [{"role": "user", "content": "What is 17 + 25?"}]
TOOL_TEXT = "<|python_start|>17+25<|python_end|><|output_start|>42<|output_end|>"
ANSWER = "17 + 25 = 42."
ENDPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"prompt": PROMPT}),
    "chat": ("/v1/chat/completions", {"messages": SUM}),
}


class Caller:
    """Asks one endpoint, whole or streamed, and gathers what the chunks of each choice say."""

    def __init__(self, url: str, endpoint: str, stream: bool) -> None:
        self.url, self.endpoint, self.stream = url, endpoint, stream

    def send(self, **fields: Any) -> Any:
        """The status, and the response or the list of chunks."""
        body = {"model": "any", "stream": self.stream, "temperature": 0}
        path, asked = ENDPOINTS[self.endpoint]
        answer = post(self.url, path, body | asked | fields)
        if answer.status_code != 200:
            return answer.status_code, answer.json()["error"]
        if not self.stream:
            return 200, answer.json()
        chunks = sse_data(answer.text)
        assert chunks.pop() == "[DONE]"
        return 200, chunks

    def choices(self, **fields: Any) -> list[dict[str, Any]]:
        """Text, token_ids, prompt_token_ids and the end of each choice."""
        status, answer = self.send(**fields)
        assert status == 200, answer
        gathered: dict[int, dict[str, Any]] = defaultdict(lambda: {"text": "", "token_ids": []})
        for part in answer if self.stream else [answer]:
            for choice in part["choices"]:
                one = gathered[choice["index"]]
                message = choice.get("delta") or choice.get("message") or {}
                one["text"] += choice.get("text") or message.get("content") or ""
                one["token_ids"] += choice.get("token_ids") or []
                if "prompt_token_ids" in choice or "prompt_token_ids" in part:
                    told = choice.get("prompt_token_ids") or part.get("prompt_token_ids")
                    assert one.setdefault("prompt_token_ids", told) == told
                if choice["finish_reason"] is not None:
                    one |= {name: choice[name] for name in ("finish_reason", "stop_reason")}
        return [gathered[index] for index in sorted(gathered)]

    def text(self, **fields: Any) -> str:
        (choice,) = self.choices(**fields)
        return choice["text"]

    def refused(self, **fields: Any) -> str:
        status, error = self.send(**fields)
        assert status == 400
        return error["param"]


def callers(*params: tuple[str, bool]) -> Any:
    """Return a fixture: a caller of each of these endpoints, streamed or not."""

    def caller(request: pytest.FixtureRequest, url: str) -> Caller:
        return Caller(url, *request.param)

    ids = [f"{endpoint}-{'stream' if stream else 'whole'}" for endpoint, stream in params]
    return pytest.fixture(params=params, ids=ids)(caller)


ask = callers(*product(ENDPOINTS, (False, True)))
chat = callers(("chat", False), ("chat", True))
whole = callers(*product(ENDPOINTS, [False]))
streamed = callers(*product(ENDPOINTS, [True]))


def test_a_chat_has_the_answer_and_no_tool_call(chat, url):
    assert chat.text() == ANSWER
    assert chat.text(skip_special_tokens=True) == ANSWER
    assert chat.text(skip_special_tokens=False) == TOOL_TEXT + ANSWER
    # The log has every token's text either way.
    first = trace(url).of(RequestArrived)[-3].request
    for request in (first, first + 1, first + 2):
        rows = [row for e in trace(url).of(StepFinished) for row in e.tokens]
        texts = [text for row in rows if row.request == request for text in row.texts]
        assert "".join(texts) == TOOL_TEXT + ANSWER


def test_stop_strings_are_searched_in_the_text_that_is_shown(chat):
    assert chat.text(stop=["25<", "+ 25"]) == "17 "
    assert chat.text(stop=["25<", "+ 25"], skip_special_tokens=False) == "<|python_start|>17+"


def test_the_teaching_stream_shows_all_tokens_unless_asked_otherwise(url):
    prompt = TOKENIZER.chat_template.render(SUM)
    for fields, text in [({}, TOOL_TEXT + ANSWER), ({"skip_special_tokens": True}, ANSWER)]:
        *events, done = sse_data(
            post(url, "/v1/completions", {"prompt": prompt, "max_tokens": 60} | fields).text
        )
        assert done == {"done": True, "full_text": text, "finish_reason": "stop"}
        assert "".join(event["token"] for event in events) == text
        assert TOKENIZER.decode([event["token_id"] for event in events[:-1]]) == TOOL_TEXT + ANSWER
    last = sse_data(post(url, "/v1/completions", {"prompt": PROMPT, "max_tokens": 2}).text)[-1]
    assert last["finish_reason"] == "length"


def test_the_stop_string_is_the_stop_reason(ask):
    plain = ask.text(max_tokens=20)
    stop = plain[5:8]
    (end,) = ask.choices(max_tokens=20, stop=["@@", stop])
    assert (end["finish_reason"], end["stop_reason"]) == ("stop", stop)
    assert end["text"] == plain[: plain.index(stop)]
    (end,) = ask.choices(max_tokens=20, stop=["@@", stop], include_stop_str_in_output=True)
    assert end["text"] == plain[: plain.index(stop)] + stop
    assert end["stop_reason"] == stop


def test_the_stop_token_is_the_stop_reason(ask):
    fields = {"max_tokens": 20, "return_token_ids": True, "skip_special_tokens": False}
    (plain,) = ask.choices(**fields)
    ids = plain["token_ids"]
    token = next(token for token in ids[15:] if token not in TOKENIZER.special_ids)
    (end,) = ask.choices(**fields, stop_token_ids=[token])
    assert (end["finish_reason"], end["stop_reason"]) == ("stop", token)
    assert end["token_ids"] == ids[: ids.index(token) + 1]
    (kept,) = ask.choices(**fields, stop_token_ids=[token], include_stop_str_in_output=True)
    assert kept["text"] == end["text"] + TOKENIZER.decode([token])


def test_token_ids_are_those_of_the_log(ask, url):
    choices = ask.choices(max_tokens=9, n=2, temperature=1.0, seed=4, return_token_ids=True)
    log = trace(url)
    arrived = log.of(RequestArrived)[-1]
    rows = [row for event in log.of(StepFinished) for row in event.tokens]
    for sample, choice in enumerate(choices):
        own = [row for row in rows if row.request == arrived.request + sample]
        assert choice["token_ids"] == [token for row in own for token in row.ids]
        assert choice["prompt_token_ids"] == arrived.prompt


def test_a_stream_has_the_prompt_s_ids_once_per_choice(streamed):
    _, chunks = streamed.send(max_tokens=4, return_token_ids=True)
    if streamed.endpoint == "chat":
        told = [chunk for chunk in chunks if "prompt_token_ids" in chunk]
        assert [chunk["choices"][0]["delta"]["role"] for chunk in told] == ["assistant"]
    else:
        told = [one for chunk in chunks for one in chunk["choices"] if "prompt_token_ids" in one]
        assert told == [chunks[0]["choices"][0]]


def test_prompt_logprobs(whole):
    _, answer = whole.send(max_tokens=1, prompt_logprobs=3, return_token_ids=True, n=2)
    choice = answer["choices"][1]
    owner = answer if whole.endpoint == "chat" else choice
    assert "prompt_logprobs" not in (choice if whole.endpoint == "chat" else answer)
    first, *others = owner["prompt_logprobs"]
    ids = owner["prompt_token_ids"]
    assert first is None
    assert len(others) == len(ids) - 1 > 3
    for token, entry in zip(ids[1:], others, strict=True):
        own = next(iter(entry))
        assert own == str(token)
        assert entry[own]["decoded_token"] == TOKENIZER.decode([token])
        assert len(entry) == (3 if entry[own]["rank"] <= 3 else 4)
        ranked = sorted(entry.values(), key=lambda one: one["rank"])
        assert [one["rank"] for one in ranked[:3]] == [1, 2, 3]
        assert ranked == sorted(ranked, key=lambda one: -one["logprob"])
        assert set(entry[own]) == {"logprob", "rank", "decoded_token"}


def test_prompt_logprobs_need_a_whole_response(streamed, url):
    assert streamed.refused(prompt_logprobs=1) == "prompt_logprobs"
    _, chunks = streamed.send(prompt_logprobs=0, max_tokens=2)  # as in vLLM: accepted, not sent
    assert "prompt_logprobs" not in str(chunks)
    error = post(url, "/v1/completions", {"prompt": "x", "prompt_logprobs": 1}).json()["error"]
    assert error["param"] == "prompt_logprobs"


def test_continuous_usage(streamed):
    options = {"include_usage": True, "continuous_usage_stats": True}
    fields = {"max_tokens": 5, "n": 2, "temperature": 1.0, "ignore_eos": True}
    _, chunks = streamed.send(stream_options=options, return_token_ids=True, **fields)
    *parts, closing = chunks
    so_far: dict[int, int] = defaultdict(int)
    for part in parts:
        (choice,) = part["choices"]
        so_far[choice["index"]] += len(choice.get("token_ids") or [])
        usage = part["usage"]
        assert usage["completion_tokens"] == so_far[choice["index"]]
        assert usage["prompt_tokens"] == closing["usage"]["prompt_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert len(usage) == 3
    assert so_far == {0: 5, 1: 5}
    assert closing["choices"] == []
    assert closing["usage"]["completion_tokens"] == 10


def test_the_last_message_is_continued(chat, url):
    begun = [*SUM, {"role": "assistant", "content": "17 + 25 ="}]
    text = chat.text(messages=begun, continue_final_message=True, add_generation_prompt=False)
    assert text.startswith(" ")
    assert chat.text(messages=begun, continue_final_message=True) == text
    prompt = trace(url).of(RequestArrived)[-1].prompt
    assert TOKENIZER.decode(prompt).endswith("<|assistant_start|>17 + 25 =")
    echoed = chat.text(messages=begun, continue_final_message=True, echo=True)
    assert echoed == "17 + 25 =" + text
    assert chat.text(echo=True) == ANSWER, "the last message is the user's"


def test_without_a_generation_prompt_the_last_message_stays_closed(chat, url):
    chat.send(add_generation_prompt=False, max_tokens=2)
    prompt = trace(url).of(RequestArrived)[-1].prompt
    assert TOKENIZER.decode(prompt).endswith("17 + 25?<|user_end|>")
    _, answer = chat.send(add_generation_prompt=False, max_tokens=2)
    if chat.stream:
        assert answer[0]["choices"][0]["delta"]["role"] == "user"
    else:
        assert answer["choices"][0]["message"]["role"] == "user"


def test_a_continued_message_of_the_user_has_no_control_tokens(url):
    messages = [{"role": "user", "content": "a<|user_end|>b"}]
    ask = Caller(url, "chat", stream=False)
    ask.send(messages=messages, continue_final_message=True, max_tokens=1)
    prompt = trace(url).of(RequestArrived)[-1].prompt
    assert prompt[-1] != TOKENIZER.token_id("<|user_end|>")
    assert TOKENIZER.token_id("<|user_end|>") not in prompt
    assert TOKENIZER.decode(prompt).endswith("a<|user_end|>b")


@pytest.mark.parametrize("side", [None, "left", "right"])
def test_truncated_prompts(ask, url, side):
    ask.send(max_tokens=1)
    full = trace(url).of(RequestArrived)[-1].prompt
    ask.send(max_tokens=1, truncate_prompt_tokens=3, truncation_side=side)
    cut = trace(url).of(RequestArrived)[-1].prompt
    assert cut == (full[:3] if side == "right" else full[-3:])
    ask.send(max_tokens=1, truncate_prompt_tokens=1000)
    assert trace(url).of(RequestArrived)[-1].prompt == full


def test_a_prompt_that_is_too_long_is_cut_to_what_fits(whole, url):
    long = "Once upon a time " * 2000
    fields = {"prompt": long, "messages": [{"role": "user", "content": long}]}
    fields = {name: value for name, value in fields.items() if name in ENDPOINTS[whole.endpoint][1]}
    assert whole.refused(max_tokens=7, **fields) in ("prompt", "messages")
    (choice,) = whole.choices(max_tokens=7, truncate_prompt_tokens=-1, ignore_eos=True, **fields)
    arrived = trace(url).of(RequestArrived)[-1]
    assert choice["finish_reason"] == "length"
    assert arrived.max_tokens == 7
    assert len(arrived.prompt) > 1000
    assert len(arrived.prompt) + 7 == trace(url)[0].model["max_context"]
