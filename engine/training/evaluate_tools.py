"""Evaluation of tool calls, answers in JSON, and references to earlier turns.

The functions, the values and the sentences were all kept from training. Where a server would force a
shape (a required call, the arguments of a named function, a ``response_format``), the engine forces
it here with the same schema.
"""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from engine import Engine, SamplingParams
from engine.core.sampling_params import StructuredOutput
from engine.training import corpus, numbers, recall, records, serving, tools
from engine.training.documents import Turn
from engine.training.tools import Asked, Function

SEED = 2
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class Case(NamedTuple):
    """A conversation whose next message is judged.

    messages, tools  as a client of OpenAI's API sends them
    schema           the JSON schema that a grammar forces, or None
    expected         what `right` compares with
    right            returns how many parts of an answer are right, and of how many
    """

    messages: list[dict[str, Any]]
    expected: Any
    right: Callable[[Any, str], tuple[int, int]]
    tools: list[dict[str, Any]] | None = None
    schema: dict[str, Any] | None = None


def cases(count: int) -> dict[str, list[Case]]:
    """Return the cases of each measurement, about ``count`` of them."""
    rng = Random(SEED)
    called = [_call(rng) for _ in range(count)]
    forced = [_call(rng) for _ in range(count)]
    return {
        "a call or an answer, held-out functions": [
            *(case._replace(right=_decided) for case in called),
            *(_no_call(rng, index) for index in range(count)),
        ],
        "the right function, of those that were not seen": [
            case._replace(right=_chosen) for case in called
        ],
        "arguments right in held-out calls": called,
        "arguments right, call required": [_required(case) for case in forced],
        "arguments right, function named": [_named(case) for case in forced],
        "answers from a held-out tool's result": [_result(rng) for _ in range(count)],
        "fields of JSON right, held-out sentences": [_record(rng) for _ in range(count)],
        "references to earlier turns, held-out values": [_recall(rng) for _ in range(count)],
    }


def measure(engine: Engine, of: Sequence[Case]) -> dict[str, Any]:
    """Answer each case greedily; return counts and some of the answers that were wrong."""
    prompts, params = [], []
    for case in of:
        prompts.append(engine.tokenizer.chat_template.render(case.messages, tools=case.tools))
        shape = None
        if case.schema is not None:
            shape = StructuredOutput("json_schema", json.dumps(case.schema))
        params.append(SamplingParams(max_tokens=160, temperature=0, structured=shape))
    texts = [one.text for one in engine.complete(prompts, params, progress=False)]
    judged = [case.right(case.expected, text) for case, text in zip(of, texts, strict=True)]
    missed = [
        {"question": case.messages[-1]["content"], "answer": text, "expected": case.expected}
        for case, text, (right, total) in zip(of, texts, judged, strict=True)
        if right < total
    ]
    return {
        "correct": sum(right for right, _ in judged),
        "total": sum(total for _, total in judged),
        "missed": missed,
    }


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _asked(rng: Random) -> tuple[Function, Asked]:
    about = tools.function(rng, new=True)
    return about, tools.ask(rng, about, new=True)


def _call(rng: Random) -> Case:
    about, asked = _asked(rng)
    expected = {"name": about.name, "arguments": asked.arguments}
    offered = tools.offer(rng, about, new=True).schemas
    return Case([_user(asked.text)], expected, _same_call, offered)


def _no_call(rng: Random, index: int) -> Case:
    """Offer tools for a question that needs none: sums, concepts, small talk, stories."""
    kind = ("sum", "concept", "talk", "story")[index % 4]
    if kind == "sum":
        operands = (str(rng.randint(2, 99)), str(rng.randint(2, 99)))
        question = numbers.ask(rng, "plus", *operands, "held_out")
    elif kind == "concept":
        concept = rng.choice(serving.CONCEPTS)
        question = rng.choice(serving.WHAT_HELD_OUT).format(c=concept["names"][0])
    else:
        question = corpus.CHAT["talk" if kind == "talk" else "story chat"][1](rng)[0].question
    return Case([_user(question)], None, _decided, tools.offer(rng, None, new=True).schemas)


def _required(case: Case) -> Case:
    assert case.tools is not None
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool["function"]["name"]},
                "parameters": tool["function"]["parameters"],
            },
            "required": ["name", "parameters"],
        }
        for tool in case.tools
    ]
    schema = {"type": "array", "minItems": 1, "maxItems": 3, "items": {"anyOf": calls}}
    expected = [{"name": case.expected["name"], "parameters": case.expected["arguments"]}]
    return case._replace(expected=expected, right=_same_json, schema=schema)


def _named(case: Case) -> Case:
    assert case.tools is not None
    functions = {tool["function"]["name"]: tool["function"] for tool in case.tools}
    schema = functions[case.expected["name"]]["parameters"]
    return case._replace(expected=case.expected["arguments"], right=_same_json, schema=schema)


def _result(rng: Random) -> Case:
    about, asked = _asked(rng)
    while not about.gives:
        about, asked = _asked(rng)
    given, _ = tools.answered(rng, about, asked)
    call = {"type": "function", "function": {"name": about.name, "arguments": asked.arguments}}
    messages = [
        _user(asked.text),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": given},
    ]
    values = list(found.values()) if isinstance(found := _parsed(given), dict) else [given]
    expected = [str(value) for value in values]
    return Case(messages, expected, _has_words, tools.offer(rng, about, new=True).schemas)


def _record(rng: Random) -> Case:
    turn, fields = records.record(rng, new=True)
    properties = {name: _type_of(value) for name, value in fields.items()}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(fields),
        "additionalProperties": False,
    }
    return Case([_user(turn.question)], fields, _same_fields, schema=schema)


def _type_of(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"type": "array", "items": _type_of(value[0]), "maxItems": 5}
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": names[type(value)]}


def _recall(rng: Random) -> Case:
    turns: list[Turn] = recall.turns(rng, new=True)
    *before, last = turns
    messages = []
    for turn in before:
        messages += [_user(turn.question), {"role": "assistant", "content": turn.answer}]
    return Case([*messages, _user(last.question)], last.answer, _same_words)


def calls_in(text: str) -> list[Any]:
    """Return the calls in an answer; a call that is not JSON is None."""
    found = []
    for body in _CALL.findall(text):
        try:
            found.append(json.loads(body))
        except ValueError:
            found.append(None)
    return found


def _decided(expected: Any, text: str) -> tuple[int, int]:
    """Whether there is a call if one is needed, and only then."""
    return int(("<tool_call>" in text) == bool(expected)), 1


def _chosen(expected: Any, text: str) -> tuple[int, int]:
    """Whether the right function is called, once, whatever its arguments."""
    return int([call and call.get("name") for call in calls_in(text)] == [expected["name"]]), 1


def _same_call(expected: Any, text: str) -> tuple[int, int]:
    return int(calls_in(text) == [expected]), 1


def _same_words(expected: Any, text: str) -> tuple[int, int]:
    return int(text == expected), 1


def _has_words(expected: Any, text: str) -> tuple[int, int]:
    return int(all(one in text for one in expected)), 1


def _same_json(expected: Any, text: str) -> tuple[int, int]:
    return int(_parsed(text) == expected), 1


def _same_fields(expected: Any, text: str) -> tuple[int, int]:
    found = _parsed(text)
    found = found if isinstance(found, dict) else {}
    return sum(found.get(name) == value for name, value in expected.items()), len(expected)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
