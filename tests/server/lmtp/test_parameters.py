"""Every field of GENERATE reaches the engine, and log-probabilities are the real model's."""

import json
from typing import Any

import msgspec
import pytest

from engine import Engine, SamplingParams
from server.api.lmtp.client import connect
from server.api.lmtp.frames import GenerateCall, parse_call
from server.api.lmtp.inprocess import in_process
from server.api.lmtp.interactive import PARAMETERS
from tests.server.test_openai_fields import SAME

SERVER = {"model": "bundled"}
PROMPT = "Once upon a time"
TESTED_ELSEWHERE = {"keep", "from", "output", "user", "priority", "model"}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("bundled")


async def generate(url: str, **fields: Any) -> list[dict[str, Any]]:
    async with connect(url) as client:
        return [one async for one in client.generate(PROMPT, **{"max_tokens": 12} | fields)]


def test_a_field_reaches_the_engine():
    """What it does there, the sampler's tests show."""
    others = {
        "top_logprobs": (3, {"logprobs": 3}),
        "stop": ("a", {"stop": ["a"]}),
        "structured_outputs": ({"regex": "a"}, {"structured": {"kind": "regex", "text": "a"}}),
    }
    same = {name: (value, {name: value}) for name, value in SAME.items() if name != "n"}
    assert same.keys() | others.keys() | TESTED_ELSEWHERE == PARAMETERS

    def sampling(**fields: Any) -> dict[str, Any]:
        call = parse_call("GENERATE", json.dumps({"stream_id": 1, "prompt": [1]} | fields))
        assert isinstance(call, GenerateCall)
        return json.loads(msgspec.json.encode(call.sampling(vocab_size=2048, room=99)))

    for name, (value, expected) in [*same.items(), *others.items()]:
        more = {"max_tokens": 16} if name == "min_tokens" else {}
        assert sampling(**more | {name: value}) == sampling() | more | expected, name
    assert sampling(logit_bias={"20": 1, "2048": 1})["logit_bias"] == {"20": 1}


async def test_the_tokens_and_their_logprobs_are_those_of_the_engine(url, engine):
    [expected] = engine.complete([PROMPT], SamplingParams(max_tokens=12, logprobs=3))
    tokens = await generate(url, top_logprobs=3)
    assert [token["token"] for token in tokens] == expected.token_ids
    assert [token["logprob"] for token in tokens] == pytest.approx(expected.logprobs, abs=1e-4)
    for token, top in zip(tokens, expected.top_logprobs, strict=True):
        theirs = {str(id_): value for id_, value in top}
        assert token["top_logprobs"] == pytest.approx(theirs, abs=1e-4)


async def test_the_chosen_token_is_in_top_logprobs_also_if_it_is_not_likely(url):
    for token in await generate(url, temperature=5.0, seed=3, top_logprobs=0):
        assert token["top_logprobs"] == {str(token["token"]): token["logprob"]}


async def test_scores_are_those_of_the_engine(url, engine):
    [expected] = engine.score([(PROMPT, " there was a fox")])
    async with connect(url) as client:
        scored = await client.score(PROMPT, " there was a fox")
    assert [one["logprob"] for one in scored] == pytest.approx(expected, abs=1e-4)
    assert "".join(one["text"] for one in scored) == " there was a fox"


async def test_without_a_socket_the_messages_are_the_same(url, engine):
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

    async with connect(url) as client:
        over_socket = await session(client)
    async with in_process(Engine.load("bundled")) as client:
        in_memory = await session(client)
    for told in (over_socket, in_memory):  # measured on different batches: equal within rounding
        for one in (one for stream in told[0] for one in stream):
            one["logprob"] = round(one["logprob"], 3)
            one["top_logprobs"] = sorted(one.get("top_logprobs", {}))
    assert over_socket == in_memory
