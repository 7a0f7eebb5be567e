"""Every field of GENERATE changes the answer, and log-probabilities are the real model's."""

import asyncio
from typing import Any

import pytest

from engine import Engine, SamplingParams
from server.api.lmtp.client import connect
from server.api.lmtp.inprocess import in_process
from server.api.lmtp.interactive import PARAMETERS

SERVER = {"model": "bundled"}
PROMPT = "Once upon a time"
COMMA, END = 20, 4  # token ids of the bundled model
BOLD = {"temperature": 2.0, "seed": 1}
COMMAS = {"logit_bias": {str(COMMA): 100}}

# Field -> (common fields, two values of it that give different answers).
CHANGES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "max_tokens": ({}, 3, 5),
    "min_tokens": ({"logit_bias": {str(END): 100}}, 0, 4),
    "temperature": ({"seed": 1}, 0.0, 2.0),
    "top_p": (BOLD, 1.0, 0.01),
    "top_k": (BOLD, 0, 1),
    "min_p": (BOLD, 0.0, 1.0),
    "repetition_penalty": ({"logit_bias": {str(COMMA): 12}}, 1.0, 100.0),
    "presence_penalty": ({"logit_bias": {str(COMMA): 10}}, -2.0, 2.0),
    "frequency_penalty": (COMMAS | {"logit_bias": {str(COMMA): 12}}, -2.0, 2.0),
    "logit_bias": ({}, None, {str(COMMA): 100}),
    "stop": ({}, None, [","]),
    "stop_token_ids": ({}, None, [COMMA]),
    "include_stop_str_in_output": ({"stop": [","]}, False, True),
    "skip_special_tokens": ({"logit_bias": {"5": 100}}, False, True),
    "bad_words": ({}, None, ["prince"]),
    "allowed_token_ids": ({}, None, [COMMA]),
    "ignore_eos": ({"logit_bias": {str(END): 100}}, False, True),
    "seed": ({"temperature": 2.0}, 1, 2),
    "top_logprobs": ({}, 1, 5),
    "structured_outputs": ({}, None, {"choice": ["yes", "no"]}),
}
TESTED_ELSEWHERE = {"keep", "from", "user", "priority", "model"}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("bundled")


def generate(url: str, **fields: Any) -> list[dict[str, Any]]:
    async def run() -> list[dict[str, Any]]:
        async with connect(url) as client:
            return [one async for one in client.generate(PROMPT, **{"max_tokens": 12} | fields)]

    return asyncio.run(run())


def score(url: str, prompt: Any, scored: Any) -> list[dict[str, Any]]:
    async def run() -> list[dict[str, Any]]:
        async with connect(url) as client:
            return await client.score(prompt, scored)

    return asyncio.run(run())


def test_every_field_is_tested() -> None:
    assert set(CHANGES) | TESTED_ELSEWHERE == PARAMETERS


@pytest.mark.parametrize("name", CHANGES)
def test_the_field_changes_the_answer(url: str, name: str) -> None:
    common, one, other = CHANGES[name]
    answers = [generate(url, **common | {name: value}) for value in (one, other)]
    keys = ("token", "finish_reason", "text")
    told = [
        [[token[key] for key in keys] + [len(token["top_logprobs"])] for token in answer]
        for answer in answers
    ]
    assert told[0] != told[1]


def test_the_tokens_and_their_logprobs_are_those_of_the_engine(url: str, engine: Engine) -> None:
    [expected] = engine.complete([PROMPT], SamplingParams(max_tokens=12, logprobs=3))
    tokens = generate(url, top_logprobs=3)
    assert [token["token"] for token in tokens] == expected.token_ids
    assert [token["logprob"] for token in tokens] == pytest.approx(expected.logprobs, abs=1e-4)
    for token, top in zip(tokens, expected.top_logprobs, strict=True):
        theirs = {str(id_): value for id_, value in top}
        assert token["top_logprobs"] == pytest.approx(theirs, abs=1e-4)


def test_the_chosen_token_is_in_top_logprobs_also_if_it_is_not_likely(url: str) -> None:
    for token in generate(url, temperature=5.0, seed=3, top_logprobs=0):
        assert token["top_logprobs"] == {str(token["token"]): token["logprob"]}


def test_scores_are_those_of_the_engine(url: str, engine: Engine) -> None:
    [expected] = engine.score([(PROMPT, " there was a fox")])
    scored = score(url, PROMPT, " there was a fox")
    assert [one["logprob"] for one in scored] == pytest.approx(expected, abs=1e-4)
    assert "".join(one["text"] for one in scored) == " there was a fox"


def test_without_a_socket_the_messages_are_the_same(url: str, engine: Engine) -> None:
    async def session(client: Any) -> list[Any]:
        messages: list[dict[str, Any]] = []
        client.on_message = messages.append
        said = [
            [one async for one in client.generate(PROMPT, max_tokens=20, keep="tale")],
            [one async for one in client.generate(" and", max_tokens=4, **{"from": "tale"})],
            await client.score(PROMPT, " there"),
        ]
        await client.release("tale")
        return [said, [one | {"request": 0} for one in messages]]

    async def run() -> tuple[list[Any], list[Any]]:
        async with connect(url) as client:
            over_socket = await session(client)
        async with in_process(Engine.load("bundled")) as client:
            return over_socket, await session(client)

    over_socket, in_memory = asyncio.run(run())
    for told in (over_socket, in_memory):  # measured on different batches: equal within rounding
        for one in (one for stream in told[0] for one in stream):
            one["logprob"] = round(one["logprob"], 3)
            one["top_logprobs"] = sorted(one.get("top_logprobs", {}))
    assert over_socket == in_memory
