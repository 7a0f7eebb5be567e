"""Log-probabilities, echo and best_of over HTTP: what each says, and that they agree."""

import unicodedata
from itertools import pairwise
from typing import Any

import pytest

from engine import Engine
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.request import TokenScore
from engine.core.sampling_params import SamplingParams
from engine.models.loader import BUNDLED
from engine.models.text.hf_tokenizer import HFTokenizer
from server.api.openai.completions import CompletionRequest, CompletionSerializer
from server.core.commands import Logprobs, OutputDelta, Prompt
from server.core.request_stream import RequestStream
from tests.server.harness import post, sse_data

SERVER = {"model": "bundled"}
TOKENIZER = HFTokenizer(BUNDLED)
END = 4  # the bundled model's end token
PROMPT = "Once upon a time"
HARD = "The 😀 é"  # the bundled model writes the emoji as four tokens of a byte each
ASKED = {"model": "m", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 12}
LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def complete(url: str, **fields: Any) -> dict[str, Any]:
    answer = post(url, "/v1/completions", ASKED | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed(url: str, **fields: Any) -> dict[int, dict[str, Any]]:
    """A completion stream's choices, put together: what must equal the same answer whole."""
    choices: dict[int, dict[str, Any]] = {}
    body = ASKED | {"stream": True} | fields
    for chunk in sse_data(post(url, "/v1/completions", body).text)[:-1]:
        (choice,) = chunk["choices"]
        known = choices.setdefault(choice["index"], choice)
        if known is not choice:
            known["text"] += choice["text"]
            known |= {name: choice[name] for name in ("finish_reason", "stop_reason")}
            for name in LISTS if choice["logprobs"] else ():
                known["logprobs"][name] += choice["logprobs"][name]
    return choices


@pytest.mark.parametrize("count", [0, 1, 3, 20])
def test_completions_tell_of_every_token_and_of_the_likeliest(client, count):
    answer = client.completions.create(
        model="m", prompt=PROMPT, max_tokens=12, temperature=1, seed=5, logprobs=count
    )
    choice, told = answer.choices[0], answer.choices[0].logprobs
    assert {len(getattr(told, name)) for name in LISTS} == {answer.usage.completion_tokens}
    assert "".join(told.tokens) == choice.text
    ends = [*told.text_offset[1:], len(choice.text)]
    cut = [choice.text[a:b] for a, b in zip(told.text_offset, ends, strict=True)]
    assert cut == told.tokens
    for token, logprob, top in zip(
        told.tokens, told.token_logprobs, told.top_logprobs, strict=True
    ):
        assert top[token] == logprob <= 0
        assert len(top) in (count, count + 1)  # the chosen one comes on top of the likeliest
    if count:  # at this temperature others are chosen, too
        chosen_likeliest = [
            logprob == max(top.values())
            for logprob, top in zip(told.token_logprobs, told.top_logprobs, strict=True)
        ]
        assert True in chosen_likeliest and False in chosen_likeliest


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": 2},
        {"echo": True},
        {"echo": True, "logprobs": 2},
        {"echo": True, "logprobs": 0, "max_tokens": 0},
        {"echo": True, "prompt": [PROMPT, HARD, "x"], "n": 2, "logprobs": 1, "temperature": 1},
        {"logprobs": 1, "stop": " prince called"},
        {"logprobs": 1, "stop": "a prince called nobody"},
        {"logprobs": 1, "max_tokens": 400},
    ],
    ids=str,
)
def test_a_stream_tells_the_same_as_the_whole_answer(url, fields):
    whole = complete(url, seed=3, **fields)["choices"]
    assert list(streamed(url, seed=3, **fields).values()) == whole


def test_the_log_probabilities_of_a_prompt_are_those_of_the_engine(url):
    """They are transformers' as well, as the sampler's tests show. The request is lm-eval's."""
    ids = TOKENIZER.encode(HARD)
    params = SamplingParams(max_tokens=1, logprobs=1, prompt_logprobs=1)
    [expected] = Engine.load("bundled").complete([ids], params, progress=False)
    told = complete(url, prompt=ids, echo=True, logprobs=1, max_tokens=1)["choices"][0]["logprobs"]
    scores = [one.logprob for one in expected.prompt_scores]
    assert told["token_logprobs"][0] is None
    assert told["token_logprobs"][1:] == pytest.approx([*scores, *expected.logprobs], abs=1e-4)


def test_stop_string_tokens_have_logprobs_although_their_text_is_hidden(url):
    free = complete(url, logprobs=1, max_tokens=40)["choices"][0]
    stop = free["text"][2:9]
    answer = complete(url, logprobs=1, max_tokens=40, stop=stop)
    choice, told = answer["choices"][0], answer["choices"][0]["logprobs"]
    assert choice["text"] == free["text"][:2]
    count = answer["usage"]["completion_tokens"]
    assert [told[name] for name in LISTS] == [free["logprobs"][name][:count] for name in LISTS]
    assert stop in "".join(told["tokens"])


def test_max_tokens_0_with_echo_is_the_prompt_alone(url):
    for prompt in (PROMPT, TOKENIZER.encode(PROMPT)):
        # The token that the engine makes nevertheless would be the end.
        fields = {"max_tokens": 0, "logprobs": 2, "logit_bias": {str(END): 100}}
        answer = complete(url, prompt=prompt, echo=True, **fields)
        (choice,) = answer["choices"]
        assert choice["text"].removeprefix("<|bos|>") == PROMPT
        assert choice["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 0
        assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"]


def test_after_a_prompt_that_the_tokenizer_rewrites_output_begins_where_the_prompt_ends():
    class Composing(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            return super().encode(unicodedata.normalize("NFC", text))

    tokenizer, prompt = Composing(), "e\u0301"
    stream = RequestStream(0, 1000, lambda: None)
    params = SamplingParams(logprobs=0, prompt_logprobs=0)
    stream.queued([Prompt(tokenizer.encode(prompt), params)], [1])
    body = CompletionRequest(model="m", prompt=prompt, echo=True, logprobs=0)
    serializer = CompletionSerializer(body, "m", stream, tokenizer)
    scores = [TokenScore(-1.0, [])] * 2
    delta = OutputDelta(
        0, 0, [120], ["x"], Logprobs(["x"], [-1.0], [[]], [False]), scores, "length"
    )
    (choice,) = serializer.render([delta])["choices"]
    assert choice["text"] == prompt + "x"
    assert choice["logprobs"]["text_offset"][-1] == 2


def test_an_implicit_bos_has_no_length_in_the_text_offsets(url):
    told = complete(url, echo=True, logprobs=0)["choices"][0]["logprobs"]
    assert told["tokens"][:2] == ["<|bos|>", "Once"]
    assert told["text_offset"][:3] == [0, 0, 4]


def test_a_character_of_several_tokens_begins_where_it_is_complete(url):
    choice = complete(url, prompt=HARD, echo=True, logprobs=5, max_tokens=0)["choices"][0]
    told = choice["logprobs"]
    assert choice["text"] == HARD
    assert told["tokens"][2:7] == [" ", "\ufffd", "\ufffd", "\ufffd", "\ufffd"]
    assert told["text_offset"][2:8] == [3, 4, 4, 4, 4, 5]
    assert all(a <= b for a, b in pairwise(told["text_offset"]))


def test_of_tokens_with_the_same_name_the_likeliest_keeps_it(url):
    """Bytes are all called U+FFFD. The chosen one must not hide a likelier one: it is not greedy."""
    forced = {"logit_bias": {str(token): 30 for token in range(180, 260)}, "temperature": 3}
    choice = complete(url, logprobs=20, max_tokens=30, seed=2, **forced)["choices"][0]
    told = choice["logprobs"]
    shadowed = 0  # the likelier one is among the 20 likeliest, or it would not keep the name
    for name, logprob, top in zip(
        told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True
    ):
        assert top[name] >= logprob
        shadowed += top[name] > logprob
    assert shadowed


def test_best_of_returns_the_likeliest_samples_best_first(client):
    def ask(**fields: Any) -> Any:
        return client.completions.create(
            model="m", prompt=[PROMPT, "The end"], max_tokens=6, seed=9, logprobs=0, **fields
        )

    samples = ask(n=6)
    best = ask(n=2, best_of=6)
    assert [choice.index for choice in best.choices] == [0, 1, 2, 3]
    for prompt in (0, 1):
        mine = samples.choices[6 * prompt : 6 * prompt + 6]
        logprobs = [choice.logprobs.token_logprobs for choice in mine]
        means = [
            (sum(each) / len(each), one.text) for each, one in zip(logprobs, mine, strict=True)
        ]
        expected = [text for _, text in sorted(means, reverse=True)[:2]]
        assert [choice.text for choice in best.choices[2 * prompt : 2 * prompt + 2]] == expected
    assert best.usage.completion_tokens == samples.usage.completion_tokens


@pytest.mark.parametrize("count", [None, 0, 2])
def test_chat_tells_of_every_token(client, count):
    fields = CHAT | {"model": "m", "seed": 1, "logprobs": True}
    if count is not None:
        fields["top_logprobs"] = count
    answer = client.chat.completions.create(**fields)
    (choice,) = answer.choices
    told = choice.logprobs.content
    assert len(told) == answer.usage.completion_tokens
    assert b"".join(bytes(one.bytes) for one in told).decode() == choice.message.content
    assert [one.token.encode() for one in told] == [bytes(one.bytes) for one in told]
    for one in told:
        assert one.logprob <= 0
        assert len(one.top_logprobs) == (count or 0)
        likeliest = [other.logprob for other in one.top_logprobs]
        assert likeliest == sorted(likeliest, reverse=True)

    streamed = []
    for chunk in client.chat.completions.create(**fields, stream=True):
        if chunk.choices[0].logprobs is not None:
            streamed += chunk.choices[0].logprobs.content
    assert [one.to_dict() for one in streamed] == [one.to_dict() for one in told]


def test_tokens_that_a_tool_forces_were_certain(client):
    """The calculator's answer: no token was chosen, so no others were likely."""
    question = [{"role": "user", "content": "What is 17 + 25?"}]
    answer = client.chat.completions.create(
        model="m", messages=question, temperature=0, max_tokens=12, logprobs=True, top_logprobs=1
    )
    told = answer.choices[0].logprobs.content
    names = [one.token for one in told]
    first, last = names.index("<|output_start|>"), names.index("<|output_end|>")
    assert "".join(names[first + 1 : last]) == "42"
    for index, one in enumerate(told):
        forced = first <= index <= last
        assert len(one.top_logprobs) == (0 if forced else 1)
        assert one.logprob == (0.0 if forced else one.top_logprobs[0].logprob)


def test_the_teaching_stream_tells_as_well(url):
    asked = {"prompt": PROMPT, "max_tokens": 5, "stop": " lived", "min_tokens": 0}
    *tokens, last = sse_data(post(url, "/v1/completions", asked | {"logprobs": 2}).text)
    assert last["full_text"] == " there"
    told = [event["top_logprobs"] for event in tokens]
    assert [event["logprob"] for event in tokens] == [top[0]["logprob"] for top in told]
    assert {len(top) for top in told} == {2}
    plain = sse_data(post(url, "/v1/completions", asked | {"best_of": 1}).text)
    assert not any("logprob" in event for event in plain)
