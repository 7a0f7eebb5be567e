"""Streams that name a model, with `--model auto`: it is loaded for them, and they learn of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.api.lmtp.client import Client, StreamError
from server.api.lmtp.inprocess import client_of
from tests.facts import assert_names
from tests.server.shelf import Shelf, registry


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path, "a", "b")


async def text(client: Client, **fields: Any) -> str:
    return "".join([token["text"] async for token in client.generate("x", **fields)])


async def test_a_stream_reports_that_its_model_is_loading_while_others_run(shelf: Shelf) -> None:
    async with registry(shelf) as models, client_of(models) as client:
        messages: list[dict[str, Any]] = []
        client.on_message = messages.append
        shelf.gate.clear()
        waiting = asyncio.create_task(text(client, model="a", max_tokens=2))
        info = asyncio.create_task(client.model_info("a"))
        assert await text(client, max_tokens=3) == "abc"
        assert [one["model"] for one in messages if one.get("status") == "loading"] == ["a"] * 2
        shelf.gate.set()
        assert await waiting == "ab"
        assert (await info)["model"] == "a"
        messages.clear()
        assert await text(client, model="a", max_tokens=1) == "a"
        assert [one["status"] for one in messages] == ["queued"]


async def test_a_model_that_is_not_there_ends_the_stream(shelf: Shelf) -> None:
    async with registry(shelf) as models, client_of(models) as client:
        for ask in (text(client, model="../a"), client.model_info("c")):
            with pytest.raises(StreamError) as error:
                await ask
            assert (error.value.code, error.value.retry) == ("model_not_found", False)


async def test_a_buffer_outlives_its_model(shelf: Shelf) -> None:
    """After unloading and loading, the model computes the kept tokens again."""

    async with registry(shelf) as models, client_of(models) as client:
        await text(client, model="a", max_tokens=20, keep="tale")
        await text(client, model="b", max_tokens=1)
        assert await text(client, model="a", max_tokens=1, **{"from": "tale"}) == "a"
        assert shelf.loads == ["a", "b", "a"]
        await client.release("tale")


async def test_a_buffer_is_of_one_model(shelf: Shelf) -> None:
    async with registry(shelf, limit=2) as models, client_of(models) as client:
        await text(client, model="a", max_tokens=20, keep="tale")
        with pytest.raises(StreamError) as error:
            await text(client, model="b", **{"from": "tale"})
        assert error.value.code != "no_such_buffer"
        assert_names(str(error.value), "tale")
        assert await text(client, model="a", max_tokens=1, **{"from": "tale"}) == "a"
        await text(client, model="b", max_tokens=20, keep="tale")  # it is b's from now on
        assert await text(client, model="b", max_tokens=1, **{"from": "tale"}) == "a"
