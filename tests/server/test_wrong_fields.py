"""Wrong bodies: a 400 with OpenAI's error object that names field, value and what is allowed there."""

import json
import re
from typing import Any

import pytest

from engine.core.log.vocabulary import RunStarted
from tests.facts import assert_names
from tests.server.harness import get, http, post, trace

GONE = object()  # a field of the valid body that is left out
HALF = "\ud800"  # of a surrogate pair: it can be written in JSON
LONG = "x" * 100_000
INF, NAN = float("inf"), float("nan")
JSON = {"Content-Type": "application/json"}
USER = {"role": "user", "content": "x"}
TOOL = {"type": "function", "function": {"name": "f"}}
OTHER_TOOL = {"type": "function", "function": {"name": "get_weather"}}
TYPO = {"name": "f", "parameters": {"properties": {"x": {"type": "int"}}}}
RESPONSE_TOOL = {"type": "function", "name": "f", "parameters": {}}
IMAGE = {"type": "image_url", "image_url": {}}
OPTIONAL = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(900)}}
ENDLESS = {"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}
REQUIRED = {"tools": [TOOL], "tool_choice": "required"}


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [USER | {"content": content} | fields]}


def schema(value: Any) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": value}}
    }


def shape(**fields: Any) -> dict[str, Any]:
    return {"structured_outputs": fields}


def options(**fields: Any) -> dict[str, Any]:
    return {"stream": True, "stream_options": fields}


# A body that each route accepts. Here, wrong fields are put into it.
VALID: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "x"},
    "/v1/completions/render": {"prompt": "x"},
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/chat/completions/render": {"messages": [USER]},
    "/v1/responses": {"input": "Once"},
    "/v1/responses/render": {"input": "Once"},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [104]},
    "/engine/step": {},
    "/engine/run_until": {"until": "finish"},
    "/engine/restart": {},
    "/engine/screen": {},
}
# The fields, the error's `param`, and what its message names.
Case = tuple[dict[str, Any], str | None, *tuple[object, ...]]


def each(**fields: list[Any]) -> list[Case]:
    """Fields with values that are wrong by themselves."""
    return [({name: value}, name) for name, values in fields.items() for value in values]


SAMPLING: list[Case] = [  # for completions and chat completions
    *each(
        max_tokens=[0, "16", 1.5, 10**9],
        temperature=[-1, "hot", NAN, INF, 10**400],
        top_k=[-2, 2**64],
        min_p=[1.5],
        n=[0],
        seed=[1.5],
        priority=["high", 2**64],
        user=[7, HALF],
        model=[7, HALF, "x" * 257],
        stop=[HALF, ["a", ""], ["a"] * 65, "a" * 257],
        stop_token_ids=[[1000], [-1], [1] * 1025],
        logit_bias=[{"x": 1}, {"-1": 1}, {"9" * 5000: 1}, {"1000": 1}, {"50": 101}],
        presence_penalty=[2.5],
        frequency_penalty=[-2.5],
        repetition_penalty=[0],
        bad_words=[[""], [" "], "word", ["a"] * 129, [f"word {n}" for n in range(128)]],
        allowed_token_ids=[[], [2048], [-1], [1] * 1025],
        skip_special_tokens=[1],
        include_stop_str_in_output=["no"],
        return_token_ids=[1],
        prompt_logprobs=[-1, 21],
        truncate_prompt_tokens=[-2, 10**7],
        truncation_side=["middle"],
        echo=["yes"],
        temprature=[0],
    ),
    ({"max_tokens": -1}, "max_tokens", "max_tokens", "at least", -1),
    ({"top_p": 0}, "top_p", "top_p", "greater", 0),
    ({"top_p": 1.5}, "top_p", "top_p", 1, 1.5),
    ({"n": 1025, "stream": False}, "n"),
    ({"seed": 2**64}, "seed", "seed", 2**63 - 1, 2**64),
    ({"stream": "yes"}, "stream", "true", "false", "'yes'"),
    ({"stream_options": {"include_usage": True}, "model": "m"}, "stream_options"),
    (options(usage=1), "stream_options.usage"),
    (options(include_obfuscation=True), "stream_options.include_obfuscation"),
    ({"user": "y" * 257}, "user", "user", 256),
    ({"stop": 7}, "stop", "stop", "string", "list", 7),
    ({"stop": ["a", HALF]}, "stop", "stop[1]", "Unicode"),
    ({"stop": ["a", 7]}, "stop", "stop[1]", "string", 7),
    ({"min_tokens": 2000, "max_tokens": 51}, "min_tokens"),
    ({"logit_bias": [50]}, "logit_bias", "object", "[50]"),
    ({"bad_words": ["a" * 257]}, "bad_words[0]"),
    ({"allowed_token_ids": ["a"]}, "allowed_token_ids[0]"),
    ({"response_format": {"type": "json"}}, "response_format.type"),
    ({"response_format": {"type": "structural_tag"}}, "response_format.type", "structural_tag"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema"),
    (schema({"description": LONG}), "response_format.json_schema.schema", "characters"),
    (
        schema({"properties": {"a": {"type": "whole"}}}),
        "response_format.json_schema.schema",
        *("properties.a", "whole"),
    ),
    (
        schema(OPTIONAL),
        "response_format.json_schema.schema",
        *("max_items_in_row", "2,000", "optional properties"),
    ),
    (shape(), "structured_outputs", "none"),
    (shape(json_object=False), "structured_outputs", "none"),
    (shape(regex="a", choice=["a"]), "structured_outputs", "regex and choice"),
    (shape(structural_tag="{}"), "structured_outputs.structural_tag", "not supported"),
    (shape(schema={}), "structured_outputs.schema"),
    (shape(choice=[]), "structured_outputs.choice"),
    (shape(regex="(a"), "structured_outputs.regex", "position 0"),
    (shape(regex="a" * 70_000), "structured_outputs.regex", "65536"),
    (shape(regex="(a?){200}a{200}"), "structured_outputs.regex", "step_lexer_fuel", "20,000"),
    (shape(regex="((a{100}){100}){100}"), "structured_outputs.regex", "step_lexer_fuel"),
    (shape(json="{"), "structured_outputs.json", "JSON"),
    (shape(json={"enum": [HALF]}), "structured_outputs.json"),
    (shape(json=ENDLESS), "structured_outputs.json", "step_max_items", "5,000", "its own schema"),
    (shape(grammar="start: b"), "structured_outputs.grammar"),
    (
        shape(regex="a") | {"response_format": {"type": "json_object"}},
        *("structured_outputs", "response_format"),
    ),
    ({"guided_json": {}}, "guided_json", "structured_outputs", "json"),
    ({"guided_regex": "x"}, "guided_regex", "structured_outputs", "regex"),
    ({"ebnf": "root ::= x"}, "ebnf", "structured_outputs", "grammar"),
]
TOO_LONG_COMPLETIONS: list[Case] = [
    *each(prompt=["x" * 5000], max_tokens=[5000]),
    ({"prompt": LONG}, "prompt", 100_000),  # characters are counted: BOS is not among them
    ({"prompt": "x" * 50_000}, "prompt", 50_001),  # tokens are counted: BOS is among them
]
TOO_LONG_CHATS: list[Case] = [
    (user("x" * 5000), "messages"),
    ({"max_completion_tokens": 5000}, "max_completion_tokens"),
]
TEMPLATE: list[Case] = [  # for what a chat template writes
    ({"chat_template_kwargs": {"a": ["<|user_end|>"]}}, "chat_template_kwargs.a"),
    *each(
        documents=[
            [{"text": "<|assistant_start|>"}],
            [{"text": "a template that does not read it"}],
        ],
        chat_template=["{{ messages }}"],
    ),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
    ({"chat_template_kwargs": {"a": LONG}}, "messages"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
]
WRONG: dict[str, list[Case]] = {
    "/v1/completions": [
        *SAMPLING,
        *TOO_LONG_COMPLETIONS,
        *each(
            prompt=[
                GONE,
                None,
                [],
                [[]],
                {"text": "x"},
                [-1],
                [100_000],
                [2**64],
                f"half a {HALF} pair",
            ],
            logprobs=[-1, 21, True],
            prompt_logprobs=[1],
            best_of=[3],
            max_completion_tokens=[2],
            tools=[[TOOL]],
            suffix=["y"],
        ),
        ({"prompt": [1, "y"]}, "prompt", "prompt[1]", "integer", "'y'"),
        ({"prompt": [[1.5]]}, "prompt", "prompt[0][0]", "integer", 1.5),
        ({"prompt": ["x"] * 1025}, "prompt", "prompt", 1024),
        ({"prompt": [[1]] * 1025, "stream": False}, "prompt", 1024),
        ({"prompt": ["y", LONG], "stream": False}, "prompt", 100_001),
        ({"prompt": ["x" * 2_000] * 36, "stream": False}, "prompt", 1 << 16),
        ({"prompt": "x" * 1_100_000, "stream": False}, "prompt", 1 << 16),
        ({"n": 2}, "n"),  # the teaching stream has one answer
        ({"prompt": ["x", "y"]}, "prompt"),  # and one prompt
        ({"prompt": ["x"] * 129, "n": 8, "stream": False}, "prompt"),
        ({"prompt": ["x"] * 600, "n": 2, "model": "m"}, "prompt"),
        ({"echo": True}, "echo"),  # the teaching stream has no room for it
        ({"max_tokens": 0, "model": "m"}, "max_tokens"),  # nothing to do without echo
        ({"truncate_prompt_tokens": 0}, "prompt"),
        ({"best_of": 2, "n": 3, "stream": False}, "best_of"),
        ({"best_of": 1025, "stream": False}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 2, "n": 3, "stream": True}, "best_of"),
        ({"top_logprobs": 2}, "top_logprobs"),  # chat's
    ],
    "/v1/chat/completions": [
        *SAMPLING,
        *TOO_LONG_CHATS,
        *TEMPLATE,
        *each(
            messages=[GONE, [], [{"role": "nobody", "content": "hi"}]],
            max_completion_tokens=[-1],
            logprobs=[1],
            top_logprobs=[2],
            best_of=[2],
            reasoning_effort=["low"],
            tools=[[]],
            functions=[[{"name": "f"}]],
        ),
        ({"messages": "hi"}, "messages", "messages", "list", "'hi'"),
        ({"messages": [5]}, "messages[0]", "messages[0]", "object", 5),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "critic", "content": "y"}]}, "messages", "critic"),
        ({"messages": [{"role": HALF, "content": "hi"}]}, "messages[0].role"),
        ({"messages": [USER] * 4097}, "messages", 4096),
        (user(HALF), "messages"),
        (user(5), "messages[0].content"),
        (user([IMAGE]), "messages[0].content[0]"),
        (user([{}]), "messages[0].content", "messages[0].content[0].type", "missing"),
        ({"messages": [USER | {"content": "x" * 50_000}] * 2}, "messages", 100_008),
        (user("x", name=LONG), "messages", 100_005),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"truncate_prompt_tokens": 0}, "messages"),
        ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].type", "custom"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [TOOL] * 129}, "tools", 128),
        ({"tools": [TOOL]}, "tool_choice", "auto", "required"),  # the template shows no tools
        ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice", "auto", "required"),
        ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice", "required", "always"),
        ({"tools": [TOOL], "tool_choice": {"name": "f"}}, "tool_choice", "function"),
        ({"tools": [TOOL], "tool_choice": OTHER_TOOL}, "tool_choice", "get_weather"),
        ({"tool_choice": "required"}, "tool_choice", "tools"),
        ({"tool_choice": OTHER_TOOL}, "tool_choice", "tools"),
        (REQUIRED | shape(regex="a"), "structured_outputs"),
        (REQUIRED | {"tools": [{"function": TYPO}]}, "tools", "f.properties.x", "int"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls[0].function",
        ),
    ],
    "/v1/completions/render": TOO_LONG_COMPLETIONS,
    "/v1/chat/completions/render": TOO_LONG_CHATS,
    "/v1/responses": [
        *each(
            previous_response_id=["resp_1"],
            background=[True],
            truncation=["auto"],
            include=[["file_search_call.results"]],
            max_tokens=[4],
            temperature=[-1],
            seed=["x"],
            input=[[], LONG],
            max_output_tokens=[10**6],
            unknown=[1],
            enable_response_messages=[True],
        ),
        ({"input": [USER | {"content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [RESPONSE_TOOL], "tool_choice": OTHER_TOOL["function"]}, "tool_choice"),
        ({"top_logprobs": 3}, "include"),
    ],
    "/tokenize": [
        *((fields | {"messages": [USER], "prompt": GONE}, *told) for fields, *told in TEMPLATE),
        *each(
            prompt=[GONE, 7],
            text=["x"],
            temprature=[0],
            chat_template_kwargs=[{"a": 1}],
            documents=[[{"text": "a"}]],
            tools=[[TOOL]],
        ),
        ({"prompt": "x", "messages": []}, "prompt"),
        ({"prompt": GONE, "messages": []}, "messages"),
        (user("x", role="nobody") | {"prompt": GONE}, "messages"),
        ({"prompt": LONG}, "prompt", "context length", 100_000, 1 << 16),
        (user("x" * 300_000) | {"prompt": GONE}, "messages", 1 << 16),
        ({"continue_final_message": True}, "continue_final_message"),  # a text has no template
    ],
    "/detokenize": [
        *each(tokens=[GONE, [10**30], [265]], temprature=[0]),
        ({"tokens": [1, -1]}, "tokens[1]", "tokens[1]", 0, -1),
        ({"tokens": ["x"]}, "tokens[0]"),
    ],
    "/engine/step": [({"steps": 0}, "steps"), ({"steps": "many"}, "steps"), ({"step": 1}, "step")],
    "/engine/run_until": [
        ({"until": GONE}, "until", "until"),
        ({"until": "doomsday"}, "until", "until"),
        ({"until": "steps", "steps": 501}, "steps", "steps"),
        ({"until": "steps", "steps": 0}, "steps", "steps"),
        ({"until": "steps", "steps": "2"}, "steps", "steps"),
        ({"until": "first_token"}, "request", "request"),
        ({"until": "first_token", "request": 10**6}, "request", "request"),
        ({"until": "first_token", "request": 0}, "request", "request"),
        ({"until": "finish", "request": 1}, "request", "request"),
        ({"until": "finish", "forever": True}, "forever", "forever"),
    ],
    "/engine/restart": [
        ({"settings": {"polcy": "sjf"}}, "settings.polcy", "polcy"),
        ({"settings": {"policy": "shortest"}}, "settings.policy", "policy"),
        ({"settings": {"prefix_cache": "tree"}}, "settings.prefix_cache", "prefix_cache"),
        ({"settings": {"prefix_cache": "hash", "eviction": "lfu"}}, "settings.eviction"),
        ({"settings": {"max_batch_size": 0}}, "settings.max_batch_size", "max_batch_size"),
        ({"settings": {"max_batch_size": "4"}}, "settings.max_batch_size", "max_batch_size"),
        ({"settings": {"max_kv_tokens": 4}}, "settings.max_kv_tokens", "max_kv_tokens"),
        ({"settings": {"max_kv_tokens": 10**12}}, "settings.max_kv_tokens"),
        ({"settings": {"preemption": 1}}, "settings.preemption", "preemption"),
        ({"prompts": "all"}, "prompts", "prompts"),
        ({"keep": True}, "keep", "keep"),
    ],
    "/engine/screen": [({"step": -1}, "step"), ({"step": "3"}, "step"), ({}, "step")],
}
# What asks for nothing, or only looks wrong.
ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": ""}),  # BOS makes it one token
    ("/v1/completions", {"prompt": ["x", ""], "stream": True}),
    ("/v1/completions", options(include_obfuscation=False)),
    ("/v1/completions", {"n": 2, "best_of": 2, "stream": True}),
    ("/v1/completions", {"prompt": "<|user_start|>" * 1000, "max_tokens": 1}),
    ("/v1/chat/completions", {"tools": None}),
    ("/v1/chat/completions", {"tool_choice": "none"}),
    ("/v1/chat/completions", {"tool_choice": "auto"}),
    ("/v1/chat/completions", {"parallel_tool_calls": True}),
    ("/v1/responses", {"store": True}),
    ("/v1/responses", {"store": False, "background": False, "truncation": "disabled"}),
    ("/v1/responses", {"reasoning": {"effort": None, "summary": None}}),
    ("/v1/responses", {"include": ["reasoning.encrypted_content"]}),
    ("/v1/responses", {"metadata": {"run": "1"}, "service_tier": "auto"}),
    ("/v1/responses", {"text": {"verbosity": "medium"}, "top_k": 5, "seed": 3, "ignore_eos": True}),
    ("/v1/responses", {"enable_response_messages": False, "include_reasoning": True}),
    ("/v1/responses", {"mm_payload": "tensors"}),
]
# Words of Python and pydantic: a client sends JSON.
FOREIGN = re.compile("Traceback|Input|instance of|dictionary|should be|boolean|Request\\b")


def body(path: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (VALID[path] | fields).items() if value is not GONE}


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_field_is_named(url, path):
    with http(url) as client:
        for fields, param, *facts in WRONG[path]:
            content = json.dumps(body(path, fields))  # httpx would neither write HALF nor NaN
            answer = client.post(path, content=content, headers=JSON)
            told = f"{str(fields)[:200]} was answered with {answer.text[:500]}"
            assert answer.status_code == 400, told
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}, told
            assert (error["param"], error["type"]) == (param, "invalid_request_error"), told
            assert error["message"] and not FOREIGN.search(error["message"]), told
            assert_names(error["message"], *facts)
            too_long = path.endswith("/render") or (fields, param, *facts) in TOO_LONG_COMPLETIONS
            assert not too_long or error["code"] == "context_length_exceeded", told


def test_what_asks_for_nothing_is_accepted(url):
    for path, fields in ACCEPTED:
        answer = post(url, path, body(path, fields))
        assert answer.status_code == 200, (path, fields, answer.text)


def test_nothing_is_left_behind(url):
    """After everything above: one run, no request waits, and all blocks are free or cached."""
    health = get(url, "/health")
    assert (health["waiting"], health["active"], health["pending_submit"]) == (0, 0, 0)
    assert health["blocks"]["free"] + health["blocks"]["cached"] == health["blocks"]["total"]
    assert get(url, "/ready") == {"status": "ready", "trace_error": ""}
    assert health["paused"] is False
    assert isinstance(trace(url)[0], RunStarted)
    assert get(url, "/trace?previous=true")["error"]["code"] == "no_previous_run"
