"""Every field that is accepted changes the answer: over HTTP, whole and streamed, with a real model."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from engine.events.vocabulary import RequestArrived
from server.api.openai.chat import ChatRequest, with_one_system_message
from server.api.openai.completions import CompletionRequest
from tests.facts import assert_names
from tests.server.harness import post, trace
from tests.server.sdk import lenient

SERVER = {"model": "bundled"}
PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "Tell me a story."}]
COMMA, END = 20, 4  # token ids of the bundled model
ALWAYS_COMMA = {"logit_bias": {str(COMMA): 100}}
BOLD = {"temperature": 2.0, "seed": 1}
ANSWERS = [("completions", False), ("completions", True), ("chat", False), ("chat", True)]


@dataclass
class Answer:
    """A client's view of an answer: the same for both endpoints, whole and streamed."""

    texts: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    reasons: dict[int, str] = field(default_factory=dict)
    tokens: int = 0
    model: str = ""


def ask(client: openai.OpenAI, endpoint: str, stream: bool, **fields: Any) -> Answer:
    body = {"temperature": 0, "max_tokens": 8} | fields
    if stream:
        body |= {"stream_options": {"include_usage": True}}
    if endpoint == "chat":
        create = client.chat.completions.create
        response = create(model="any", messages=MESSAGES, stream=stream, extra_body=body)
    else:
        create = (lenient(client) if stream else client).completions.create
        response = create(model="any", prompt=PROMPT, stream=stream, extra_body=body)
    answer = Answer()
    for part in response if stream else [response]:
        answer.model = part.model
        if part.usage is not None:
            answer.tokens = part.usage.completion_tokens
        for choice in part.choices:
            if endpoint == "completions":
                text = choice.text
            else:
                text = (choice.delta if stream else choice.message).content
            answer.texts[choice.index] += text or ""
            if choice.finish_reason is not None:
                answer.reasons[choice.index] = choice.finish_reason
    return answer


@pytest.fixture(params=ANSWERS, ids=lambda one: f"{one[0]}-{'stream' if one[1] else 'whole'}")
def answer(request: pytest.FixtureRequest, client: openai.OpenAI) -> Any:
    return lambda **fields: ask(client, *request.param, **fields)


# Fields whose effect is another text than without them: what both requests have, and the field.
OTHER_TEXT = [
    ({"seed": 1}, {"temperature": 2.0}),
    ({"temperature": 2.0}, {"seed": 77}),
    (BOLD, {"top_p": 0.5}),
    (BOLD, {"top_k": 2}),
    (BOLD, {"min_p": 0.5}),
    ({}, ALWAYS_COMMA),
    ({"max_tokens": 60}, {"frequency_penalty": 2.0}),
    ({"max_tokens": 60}, {"presence_penalty": 2.0}),
    ({"max_tokens": 60}, {"repetition_penalty": 2.0}),
]
# Other fields are tested below, or in test_openai.py and test_teaching_stream.py.
OTHERWISE = {
    *("model", "prompt", "messages", "stream", "stream_options", "n", "priority"),
    *("user", "safety_identifier"),
    *("request_id", "rid"),  # in test_fields.py
    *("add_special_tokens", "documents", "chat_template_kwargs"),  # in test_routes.py
    *("max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos"),
    *("logprobs", "top_logprobs", "echo", "best_of"),  # in test_openai_logprobs.py
    *("response_format", "structured_outputs"),  # in test_structured.py
    *("tools", "tool_choice", "parallel_tool_calls"),  # in test_tools.py
    # In test_vllm_fields.py:
    *("skip_special_tokens", "include_stop_str_in_output", "bad_words", "allowed_token_ids"),
    *("return_token_ids", "prompt_logprobs", "truncate_prompt_tokens", "truncation_side"),
    *("add_generation_prompt", "continue_final_message"),
}


def test_every_field_that_is_accepted_is_tested() -> None:
    tested = OTHERWISE | {name for _, changed in OTHER_TEXT for name in changed}
    assert tested == set(CompletionRequest.model_fields) | set(ChatRequest.model_fields)


@pytest.mark.parametrize(("common", "changed"), OTHER_TEXT, ids=lambda fields: "-".join(fields))
def test_the_field_changes_the_text(answer: Any, common: dict, changed: dict) -> None:
    assert answer(**common, **changed).texts == answer(**common, **changed).texts
    assert answer(**common, **changed).texts != answer(**common).texts


@pytest.mark.parametrize("cut", [{"top_p": 1e-9}, {"top_k": 1}, {"min_p": 1.0}], ids=str)
def test_the_hardest_cut_leaves_the_likeliest_token(answer: Any, cut: dict) -> None:
    assert answer(**BOLD, **cut).texts == answer().texts != answer(**BOLD).texts


def test_a_bias_of_100_forces_a_token_and_minus_100_forbids_it(answer: Any) -> None:
    assert answer(**ALWAYS_COMMA).texts[0] == "," * 8
    likeliest = {str(COMMA): 40, "22": 30}
    assert answer(logit_bias=likeliest).texts[0] == "," * 8
    assert answer(logit_bias=likeliest | {str(COMMA): -100}).texts[0] == "." * 8


def test_max_tokens_limits_the_output(answer: Any) -> None:
    for limit in (1, 5):
        limited = answer(max_tokens=limit, ignore_eos=True)
        assert (limited.tokens, limited.reasons) == (limit, {0: "length"})


@pytest.mark.parametrize("stream", [False, True])
def test_max_completion_tokens_wins_over_max_tokens(client: openai.OpenAI, stream: bool) -> None:
    limited = ask(client, "chat", stream, max_tokens=8, max_completion_tokens=3)
    assert (limited.tokens, limited.reasons) == (3, {0: "length"})


@pytest.mark.parametrize("many", [0, 1, 7])
def test_a_stop_string_ends_the_text_before_it(answer: Any, many: int) -> None:
    """As a string, in a list, and in a list longer than OpenAI's four."""
    whole = answer(max_tokens=40).texts[0]
    stop = whole[20:26]  # in the middle of words: it is spread over tokens
    never = [f"<<{number}>>" for number in range(many)]
    stopped = answer(max_tokens=40, stop=[*never, stop] if many else stop)
    assert stopped.texts == {0: whole[: whole.index(stop)]}
    assert stopped.reasons == {0: "stop"}


def test_no_stop_string_at_all_is_none(answer: Any) -> None:
    assert answer(stop="") == answer(stop=[]) == answer()


def test_a_stop_token_ends_the_output(answer: Any) -> None:
    stopped = answer(stop_token_ids=[COMMA], **ALWAYS_COMMA)
    assert (stopped.tokens, stopped.reasons) == (1, {0: "stop"})


def test_ignore_eos_goes_on_past_the_end_token(answer: Any) -> None:
    always_end = {"logit_bias": {str(END): 100}}
    ended, went_on = answer(**always_end), answer(ignore_eos=True, **always_end)
    assert (ended.tokens, ended.reasons) == (1, {0: "stop"})
    assert (went_on.tokens, went_on.reasons) == (8, {0: "length"})


def test_min_tokens_come_before_an_end_counts(answer: Any) -> None:
    for end in ({"stop": ","}, {"stop_token_ids": [COMMA]}):
        assert answer(**ALWAYS_COMMA, **end).tokens == 1
    assert answer(stop=",", min_tokens=5, **ALWAYS_COMMA).tokens == 6
    bold = {"logit_bias": {str(END): 20}}
    assert answer(**bold).tokens == 1
    assert answer(min_tokens=5, **bold).tokens >= 5


def test_n_samples_differ_and_the_first_is_that_of_one(answer: Any) -> None:
    three = answer(n=3, **BOLD).texts
    assert len(three) == len(set(three.values())) == 3
    assert three[0] == answer(**BOLD).texts[0]


def test_the_model_is_echoed(answer: Any) -> None:
    assert answer(model="gpt-4o-mini").model == "gpt-4o-mini"


def test_user_and_priority_reach_the_log(answer: Any, url: str) -> None:
    answer(user="Ada", priority=7)
    asked = trace(url).of(RequestArrived)[-1]
    assert (asked.label, asked.priority) == ("Ada", 7)
    answer(user="Ada", safety_identifier="Bo")
    assert trace(url).of(RequestArrived)[-1].label == "Bo"


def test_developer_is_the_newer_name_of_system(client: openai.OpenAI, url: str) -> None:
    for role in ("system", "developer"):
        messages = [{"role": role, "content": "Be short."}, *MESSAGES]
        client.chat.completions.create(model="any", messages=messages, max_tokens=1)
    system, developer = trace(url).of(RequestArrived)[-2:]
    assert system.prompt == developer.prompt
    assert "Be short." in "".join(developer.texts)


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_instructions_come_anywhere(client: openai.OpenAI, url: str, role: str, place: int) -> None:
    """The bundled template takes one system message, at the beginning."""
    talk = ["Hello.", "Hi!", "A story."]
    messages: list[Any] = [
        {"role": ("user", "assistant")[index % 2], "content": text}
        for index, text in enumerate(talk)
    ]
    late = [{"role": role, "content": text} for text in ("Be short.", "Be kind.")]
    messages[place:place] = late
    client.chat.completions.create(model="any", messages=messages, max_tokens=1)
    prompt = "".join(trace(url).of(RequestArrived)[-1].texts)
    talk[place:place] = ["Be short.", "Be kind."]
    assert [text for text in re.split(r"<[^>]*>|\n\n", prompt) if text] == talk


def test_instructions_that_are_late_are_the_users() -> None:
    def roles(conversation: str) -> str:
        names = {"s": "system", "u": "user", "a": "assistant"}
        messages = [
            {"role": names[letter], "content": f"{letter}{at}"}
            for at, letter in enumerate(conversation)
        ]
        before = [message | {} for message in messages]
        joined = with_one_system_message(messages)
        assert messages == before
        assert "\n\n".join(one["content"] for one in joined) == "\n\n".join(
            one["content"] for one in messages
        )
        return "".join(message["role"][0] for message in joined)

    assert roles("sua") == "sua"
    assert roles("uu") == "uu"  # only system messages are joined
    assert roles("ssu") == "su"
    assert roles("usuau") == "uau"
    assert roles("suasa") == "suaua"
    assert roles("uas") == "uau"


def test_an_unknown_role_is_still_the_templates_error(url: str) -> None:
    messages = [*MESSAGES, {"role": "system", "content": "x"}, {"role": "critic", "content": "y"}]
    answer = post(url, "/v1/chat/completions", {"messages": messages})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert_names(answer.json()["error"]["message"], "role")


def test_one_model_and_none(client: openai.OpenAI) -> None:
    (listed,) = client.models.list().data
    assert client.models.retrieve(listed.id) == listed
    with pytest.raises(openai.NotFoundError) as unknown:
        client.models.retrieve("someone/else")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
