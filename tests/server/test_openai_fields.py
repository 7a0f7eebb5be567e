"""Every field that is accepted reaches the engine; what it does there, the sampler's tests show."""

import re
from typing import Any

import pytest

from engine.core.log.vocabulary import RequestArrived
from server.api.openai.chat import ChatRequest
from server.api.openai.completions import CompletionRequest
from server.api.openai.conversation import with_one_system_message
from server.core.settings import ServerSettings
from tests.facts import assert_names
from tests.server.harness import post, trace

SERVER = {"model": "bundled"}
MESSAGES = [{"role": "user", "content": "Tell me a story."}]
BODIES: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "Once upon a time", "model": "any"},
    "chat/completions": {"messages": MESSAGES, "model": "any"},
}
# Fields with the same name, value and meaning in SamplingParams.
SAME: dict[str, Any] = {
    "max_tokens": 7,
    "min_tokens": 3,
    "stop": ["a", "b", "c", "d", "e", "f"],
    "stop_token_ids": [20],
    "include_stop_str_in_output": True,
    "ignore_eos": True,
    "skip_special_tokens": False,
    "logit_bias": {"20": 40.0},
    "repetition_penalty": 1.5,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "bad_words": ["prince"],
    "allowed_token_ids": [20, 22],
    "temperature": 0.5,
    "min_p": 0.1,
    "top_k": 5,
    "top_p": 0.9,
    "seed": 77,
    "n": 3,
}
# Others: the fields of a body, and the parameters that they become.
OTHERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((one, {"stop": "a"}, {"stop": ["a"]}) for one in BODIES),
    *((one, {"stop": ""}, {"stop": []}) for one in BODIES),
    *((one, {"stop": []}, {"stop": []}) for one in BODIES),
    *((one, {"top_k": -1}, {"top_k": 0}) for one in BODIES),
    *((one, {"prompt_logprobs": 2}, {"prompt_logprobs": 2}) for one in BODIES),
    ("completions", {}, {"max_tokens": 16, "temperature": 1.0}),
    ("completions", {"logprobs": 2}, {"logprobs": 2}),
    ("completions", {"echo": True, "logprobs": 2}, {"logprobs": 2, "prompt_logprobs": 2}),
    ("completions", {"best_of": 5, "n": 2}, {"best_of": 5, "n": 2}),
    ("chat/completions", {}, {"max_tokens": ServerSettings().chat_max_tokens}),
    ("chat/completions", {"max_tokens": 8, "max_completion_tokens": 3}, {"max_tokens": 3}),
    ("chat/completions", {"logprobs": True}, {"logprobs": 0}),
    ("chat/completions", {"logprobs": True, "top_logprobs": 4}, {"logprobs": 4}),
]
# Fields that are no parameters of sampling.
OTHERWISE = {
    *("model", "prompt", "messages", "stream", "stream_options", "user", "safety_identifier"),
    *("request_id", "rid", "priority"),  # in test_fields.py, and below
    *("add_special_tokens", "documents", "chat_template_kwargs"),  # in test_routes.py
    *("response_format", "structured_outputs"),  # in test_structured.py
    *("tools", "tool_choice", "parallel_tool_calls"),  # in test_tools.py
    "cache_salt",  # in test_adapters.py
    # In test_vllm_fields.py:
    *("return_token_ids", "truncate_prompt_tokens", "truncation_side"),
    *("add_generation_prompt", "continue_final_message"),
}


def rendered(url: str, endpoint: str, **fields: Any) -> dict[str, Any]:
    answer = post(url, f"/v1/{endpoint}/render", BODIES[endpoint] | fields)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    one: dict[str, Any] = (told[0] if isinstance(told, list) else told)["sampling_params"]
    return one


def test_every_field_that_is_accepted_is_tested():
    tested = OTHERWISE | SAME.keys() | {name for _, fields, _ in OTHERS for name in fields}
    assert tested == set(CompletionRequest.model_fields) | set(ChatRequest.model_fields)


@pytest.mark.parametrize("endpoint", BODIES)
def test_a_field_reaches_the_engine(url, endpoint):
    without = rendered(url, endpoint)
    assert all(without[name] != value for name, value in SAME.items())
    for name, value in SAME.items():
        least = {"max_tokens": 16, "min_tokens": 3} if name == "min_tokens" else {name: value}
        assert rendered(url, endpoint, **least) == without | least, name
    assert rendered(url, endpoint, **SAME) == without | SAME


def test_what_is_written_in_another_way_reaches_the_engine_too(url):
    for endpoint, fields, expected in OTHERS:
        told = rendered(url, endpoint, **fields)
        assert {name: told[name] for name in expected} == expected, fields


def test_user_and_priority_reach_the_log(url):
    for endpoint, body in BODIES.items():
        for fields, label in (({"user": "Ada"}, "Ada"), ({"safety_identifier": "Bo"}, "Bo")):
            more = {"max_tokens": 1, "priority": 7, "user": "Ada"} | fields
            assert post(url, f"/v1/{endpoint}", body | more).status_code == 200
            asked = trace(url).of(RequestArrived)[-1]
            assert (asked.label, asked.priority) == (label, 7)


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_instructions_come_anywhere(url, role, place):
    """The bundled template takes one system message, at the beginning."""
    talk = ["Hello.", "Hi!", "A story."]
    messages: list[Any] = [
        {"role": ("user", "assistant")[index % 2], "content": text}
        for index, text in enumerate(talk)
    ]
    late = [{"role": role, "content": text} for text in ("Be short.", "Be kind.")]
    messages[place:place] = late
    post(url, "/v1/chat/completions", {"messages": messages, "max_tokens": 1})
    prompt = "".join(trace(url).of(RequestArrived)[-1].texts)
    talk[place:place] = ["Be short.", "Be kind."]
    assert [text for text in re.split(r"<[^>]*>|\n\n", prompt) if text] == talk


def test_instructions_that_are_late_are_the_users():
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


def test_an_unknown_role_is_still_the_templates_error(url):
    messages = [*MESSAGES, {"role": "system", "content": "x"}, {"role": "critic", "content": "y"}]
    answer = post(url, "/v1/chat/completions", {"messages": messages})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert_names(answer.json()["error"]["message"], "role")
