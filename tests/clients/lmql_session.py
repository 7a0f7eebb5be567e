"""LMQL, whose protocol LMTP is: its queries, its scoring, and its client by itself.

Its own constraints come over the wire as masks in `logit_bias`, its choices as SCORE.
"""

import asyncio
import math

import aiohttp
import lmql  # type: ignore[import-not-found]
from lmql.models.lmtp.errors import LMTPStreamError  # type: ignore[import-not-found]
from lmql.models.lmtp.lmtp_client import LMTPWebSocketClient  # type: ignore[import-not-found]

from tests.clients.checks import (
    MODEL,
    PROMPT,
    Servers,
    Session,
    call,
    completed,
    raised,
    same,
    wait_until_aborted,
)

session = Session("lmql")


def model(servers: Servers) -> lmql.LLM:
    return lmql.model("bundled", endpoint=servers.url, tokenizer=str(MODEL))


def tokens(servers: Servers, text: str) -> list[int]:
    ids: list[int] = call(servers.url, "/tokenize", {"prompt": text})["tokens"]
    return ids


async def with_client(servers: Servers, talk):
    """`talk` with LMQL's client, connected."""
    async with aiohttp.ClientSession() as http, http.ws_connect(servers.url) as socket:
        client = LMTPWebSocketClient("bundled", socket)
        client.connect()
        try:
            return await talk(client)
        finally:
            client.handler.cancel()


@session.check("models")
def models(servers: Servers) -> None:
    async def talk(client: LMTPWebSocketClient) -> dict:
        return await client.request("MODEL_INFO", {})

    info = asyncio.run(with_client(servers, talk))
    assert "bundled" in str(info), info


session.texts(
    completion=lambda servers: model(servers).generate_sync(PROMPT, max_tokens=24, temperature=0)
)


@session.check("completion, streamed")
def streamed(servers: Servers) -> None:
    async def talk(client: LMTPWebSocketClient) -> list[dict]:
        asked = client.generate(tokens(servers, PROMPT), max_tokens=24, temperature=0)
        return [token async for token in asked]

    received = asyncio.run(with_client(servers, talk))
    ids = [token["token"] for token in received if token["token"] is not None]
    text = call(servers.url, "/detokenize", {"tokens": ids[:24]})["prompt"]
    same(text, completed(servers.url))
    same([token["finish_reason"] for token in received][-1], "length")


@session.check("stop")
def stop(servers: Servers) -> None:
    @lmql.query(model=model(servers), max_len=64)
    def sentence():
        """lmql
        "Once upon a time[REST]" where STOPS_AT(REST, ".")
        return REST
        """

    text = completed(servers.url, max_tokens=60)
    same(sentence(), text[: text.index(".") + 1])


@session.check("choices")
def choices(servers: Servers) -> None:
    @lmql.query(model=model(servers))
    def hero():
        """lmql
        "Once upon a time there was a[WHO]" where WHO in [" fox", " zebra", " king"]
        return WHO
        """

    assert hero() in (" fox", " zebra", " king")


@session.check("logprobs")
def logprobs(servers: Servers) -> None:
    """LMQL's score of a text is that of the same text over HTTP."""
    scored = model(servers).score_sync(PROMPT, [" there was", " zebra"])
    for text, score in zip((" there was", " zebra"), scored.seqs, strict=False):
        body = {"model": "bundled", "prompt": PROMPT + text, "echo": True, "logprobs": 0}
        answer = call(servers.url, "/v1/completions", body | {"max_tokens": 0})
        found = answer["choices"][0]["logprobs"]["token_logprobs"]
        expected = sum(found[len(tokens(servers, PROMPT)) :])
        assert math.isclose(score.logprobs.sum(), expected, abs_tol=1e-4), (score, expected)


@session.check("a wrong field")
def wrong_field(servers: Servers) -> None:
    async def talk(client: LMTPWebSocketClient) -> None:
        async for _ in client.generate([1, 2], max_tokens=-1):
            pass

    error = raised(LMTPStreamError, lambda: asyncio.run(with_client(servers, talk)))
    assert "max_tokens" in str(error), error


@session.check("parallel")
def parallel(servers: Servers) -> None:
    async def test() -> list[str]:
        shared = model(servers)
        asked = (shared.generate(PROMPT, max_tokens=24, temperature=0) for _ in range(24))
        return await asyncio.gather(*asked)

    same(set(asyncio.run(test())), {completed(servers.url)})


@session.check("cancel")
def cancelled(servers: Servers) -> None:
    async def talk(client: LMTPWebSocketClient) -> None:
        async for _ in client.generate(tokens(servers, PROMPT), max_tokens=1000, temperature=0):
            return

    asyncio.run(with_client(servers, talk))
    wait_until_aborted(servers.url)
