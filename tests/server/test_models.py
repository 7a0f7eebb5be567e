"""`--model auto`: models of a directory, loaded when a request names one, unloaded for others."""

import asyncio
import gc
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from engine.core.engine import Engine
from engine.core.log.vocabulary import RequestArrived
from engine.core.sampling_params import SamplingParams
from server.api.lmtp.client import StreamError
from server.api.lmtp.inprocess import client_of
from server.app import create_app
from server.core.models import Models
from server.http.errors import ApiError
from tests.engine.compute.gguf_files import write
from tests.engine.compute.models import add_tokenizer, save
from tests.server.bridges import order, read
from tests.server.facts import raises_api_error
from tests.server.harness import Feed, fetch, get, post, refusal, serve_forked, trace, watch
from tests.server.shelf import registry

IDS = [5, 6, 7, 8]  # a prompt for every vocabulary
PATIENCE = 60.0


async def answer(models: Models, name: str | None) -> str:
    async with (
        models.lease(name) as bridge,
        bridge.generate(order("x", max_tokens=3)) as generation,
    ):
        return (await read(generation))[0]


def loaded(models: Models) -> list[str]:
    return [name for name, is_loaded in models.names().items() if is_loaded]


async def test_requests_during_a_model_load_share_that_load(shelf):
    async with registry(shelf) as models:
        shelf.gate.clear()
        waiting = [asyncio.create_task(answer(models, "a")) for _ in range(3)]
        assert await answer(models, None) == "abc"  # meanwhile the first one serves
        assert loaded(models) == ["bundled"]
        waiting[0].cancel()  # a request that leaves does not end the load for the others
        shelf.gate.set()
        assert await asyncio.gather(*waiting[1:]) == ["abc", "abc"]
        assert shelf.loads == ["a"]
        assert loaded(models) == ["bundled", "a"]


async def test_the_one_that_was_not_asked_for_the_longest_makes_room(shelf):
    async with registry(shelf, limit=2) as models:
        for name in ("a", "b", "a", "c"):
            await answer(models, name)
        assert loaded(models) == ["bundled", "a", "c"]
        await answer(models, "b")
        assert loaded(models) == ["bundled", "b", "c"]
        assert shelf.loads == ["a", "b", "c", "b"]


async def test_what_is_unloaded_gives_its_memory_back_at_once(shelf):
    gc.disable()  # reference counts alone
    try:
        async with registry(shelf) as models:
            await answer(models, "a")
            gone = shelf.runners["a"]
            assert gone() is not None
            await answer(models, "b")
            assert gone() is None
    finally:
        gc.enable()


async def test_a_model_with_a_request_in_it_is_never_unloaded(shelf):
    async with registry(shelf) as models:
        async with models.lease("a") as bridge:
            await bridge.classroom.pause()
            async with bridge.generate(order("x", max_tokens=3)) as generation:
                with raises_api_error(503, "models_busy"):
                    await answer(models, "b")
                await bridge.classroom.resume()
                assert await read(generation) == {0: "abc"}
        assert await answer(models, "b") == "abc"


async def test_a_request_that_waits_for_a_load_is_served_before_the_unload(shelf):
    async with registry(shelf) as models:
        shelf.gate.clear()
        first = asyncio.create_task(answer(models, "a"))
        await asyncio.sleep(0)
        with raises_api_error(503, "models_busy"):  # while it is being loaded
            await answer(models, "b")
        shelf.gate.set()
        while not models.is_loaded("a"):
            await asyncio.sleep(0)
        with raises_api_error(503, "models_busy"):  # and before the first request goes on
            await answer(models, "b")
        assert await first == "abc"
        assert await answer(models, "b") == "abc"
        assert shelf.loads == ["a", "b"]


async def test_a_failed_load_is_reported_and_retried(shelf):
    async with registry(shelf) as models:
        shelf.broken.add("a")
        with raises_api_error(503, "model_not_loadable", "a", "a/config.json is no good") as caught:
            await answer(models, "a")
        assert str(shelf.path) not in str(caught.value)
        assert loaded(models) == ["bundled"]
        shelf.broken.clear()
        assert await answer(models, "a") == "abc"


async def test_a_model_whose_engine_has_failed_is_loaded_again(shelf):
    async with registry(shelf) as models:
        async with models.lease("a") as bridge:
            bridge._fail(RuntimeError("told to break"))  # what its thread says as it ends
            with raises_api_error(503, "engine_failed", "told to break"):
                await answer(models, "a")
        assert await answer(models, "a") == "abc"
        assert shelf.loads == ["a", "a"]


async def test_a_server_that_drains_loads_nothing_more(shelf):
    async with registry(shelf) as models:
        shelf.gate.clear()
        waiting = asyncio.create_task(answer(models, "a"))
        await asyncio.sleep(0)
        await models.drain()
        for refused_one in (waiting, answer(models, "b"), answer(models, None)):
            with raises_api_error(503, "shutdown"):
                await refused_one
        shelf.gate.set()


# Leases: from the lookup to the end of a request, whichever way it ends

CHAT = [{"role": "user", "content": "x"}]
COMPLETE = {"prompt": "x", "max_tokens": 3}


class AsgiCall:
    """A POST to the app without a socket: `status` and `body` so far; `leave` disconnects."""

    def __init__(self, models: Models, path: str, body: dict[str, Any]) -> None:
        self.status = 0
        self.body = b""
        self._left = asyncio.Event()
        self._content: list[bytes] = [json.dumps(body).encode()]
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
        scope |= {"headers": headers, "client": ("127.0.0.1", 1)}
        self.task = asyncio.create_task(create_app(models)(scope, self._receive, self._send))

    def leave(self) -> None:
        self._left.set()

    def cancel(self) -> None:
        self.task.cancel()

    async def answered(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            await self.task
        return {"status": self.status, "body": self.body.decode()}

    async def _receive(self) -> Message:
        if self._content:
            return {"type": "http.request", "body": self._content.pop()}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")


async def test_two_models_requested_at_once_over_lmtp_are_answered(shelf):
    async with registry(shelf) as models, client_of(models) as client:
        for first, second in ("ab", "ba"):
            await answer(models, first)
            async with asyncio.timeout(PATIENCE):
                asked = (client.score("x", "yy", model=name) for name in (first, second))
                served, rejected = await asyncio.gather(*asked, return_exceptions=True)
            assert served and not isinstance(served, BaseException)
            assert isinstance(rejected, StreamError)
            assert (rejected.code, rejected.retry) == ("models_busy", True)
            assert await answer(models, second) == "abc"


async def is_evicted(models: Models, name: str, by: str) -> bool:
    """Whether the one model that may be loaded makes room for another."""
    try:
        await answer(models, by)
    except ApiError as error:
        assert error.error["code"] == "models_busy"
        return False
    return not models.is_loaded(name)


def stream(models: Models, **fields: Any) -> AsgiCall:
    body = {"model": "a", "prompt": "x", "max_tokens": 100, "stream": True}
    return AsgiCall(models, "/v1/completions", body | fields)


@pytest.mark.parametrize("leave", [AsgiCall.leave, AsgiCall.cancel])
async def test_a_lease_ends_once_when_a_client_disconnects_or_its_request_is_cancelled(
    shelf, leave
):
    """The other of two streams still has its own."""

    async with registry(shelf) as models:
        await answer(models, "a")
        bridge = models.viewed("a")
        await bridge.classroom.pause()
        first, second = stream(models), stream(models)
        while len(bridge.window.state.waiting) < 2:
            await asyncio.sleep(0)
        leave(first)
        await asyncio.wait({first.task})
        assert not await is_evicted(models, "a", by="b")
        leave(second)
        await asyncio.wait({second.task})
        while not await is_evicted(models, "a", by="b"):  # a cancelled request ends a turn later
            await asyncio.sleep(0)


async def test_a_client_that_leaves_during_a_load_has_no_lease(shelf):
    async with registry(shelf) as models:
        shelf.gate.clear()
        call = stream(models)
        while not shelf.loads:
            await asyncio.sleep(0)
        call.leave()
        await call.answered()
        assert call.status == 0
        shelf.gate.set()
        while not models.is_loaded("a"):
            await asyncio.sleep(0)
        assert await is_evicted(models, "a", by="b")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    for name in ("llama", "gpt2"):
        save(path / name, name)
        add_tokenizer(path / name)
    write(path / "small.gguf", "qwen3")
    (path / "notes.txt").touch()
    (path / "empty").mkdir()
    shutil.copytree(path / "gpt2", path / ".hidden")
    shutil.copytree(path / "gpt2", path.parent / "outside", dirs_exist_ok=True)
    return path


@pytest.fixture(scope="module")
def auto(directory: Path) -> Iterator[str]:
    with serve_forked("auto", model_dir=directory, max_models=2, one_process=True) as server:
        yield server.url


def complete(url: str, model: str | None, **fields: object) -> dict[str, object]:
    body = {"model": model, "prompt": IDS, "max_tokens": 8, "temperature": 0, "stream": False}
    answered = post(url, "/v1/completions", body | fields)
    return {"status": answered.status_code} | json.loads(answered.content)


def arrivals(url: str, model: str) -> int:
    return len(trace(url, model=model).of(RequestArrived))


def serving_now(url: str) -> dict[str, bool]:
    return {model["id"]: model["loaded"] for model in get(url, "/v1/models")["data"]}


def test_the_list_names_what_is_there_and_what_is_loaded(auto):
    models = get(auto, "/v1/models")["data"]
    assert models[0]["id"] == "bundled"
    names = {model["id"] for model in models}
    assert names == {"bundled", "llama", "gpt2", "small.gguf"}
    assert models[0]["loaded"] is True


@pytest.mark.parametrize("name", ["llama", "gpt2", "small.gguf"])
def test_a_request_that_names_a_model_is_answered_by_it(auto, directory, name):
    alone = Engine.load(directory / name)
    (expected,) = alone.complete([IDS], SamplingParams(max_tokens=8), progress=False)
    answered = complete(auto, name)
    assert answered["choices"][0]["text"] == expected.text
    assert answered["model"] == name
    assert serving_now(auto)[name] is True
    # It has a log of its own.
    before = arrivals(auto, "bundled")
    mine = arrivals(auto, name)
    complete(auto, name)
    assert (arrivals(auto, name), arrivals(auto, "bundled")) == (mine + 1, before)


NO_NAMES = (
    "nope . .. ./llama llama/ llama/../gpt2 ../outside .hidden notes.txt empty owner/name small"
)


@pytest.mark.parametrize("name", [*NO_NAMES.split(), "{directory}/llama", "llama\x00", "x" * 200])
def test_a_name_is_a_name_and_never_a_path(auto, directory, name):
    name = name.replace("{directory}", str(directory))
    answered = complete(auto, name)
    assert answered["status"] == 404
    assert (answered["error"]["code"], answered["error"]["param"]) == ("model_not_found", "model")
    for path in ("/health", "/ready", "/trace", "/events", "/regimes", "/tour"):
        assert fetch(auto, path, params={"model": name}).status_code == 404


def test_viewers_and_controls_name_a_model_and_load_none(auto):
    complete(auto, "llama")
    complete(auto, "gpt2")
    assert post(auto, "/engine/pause?model=llama").json()["paused"] is True
    assert get(auto, "/health?model=llama")["paused"] is True
    assert get(auto, "/health?model=gpt2")["paused"] is False
    assert get(auto, "/health")["paused"] is False
    with Feed(auto, model="llama") as feed:
        feed.until_status(model="llama", paused=True)
    assert post(auto, "/engine/step?model=gpt2").json()["error"]["code"] == "not_paused"
    assert post(auto, "/engine/resume?model=llama").json()["paused"] is False
    complete(auto, "small.gguf")  # the third of two: llama has to go
    assert serving_now(auto)["llama"] is False
    for path in ("/health", "/ready", "/trace", "/events"):
        assert refusal(fetch(auto, path, params={"model": "llama"})) == (503, "model_not_loaded")
    assert serving_now(auto)["llama"] is False


def test_a_feed_ends_when_its_model_is_unloaded(auto):
    complete(auto, "llama")
    with watch(auto, model="llama") as feed:
        complete(auto, "gpt2")
        complete(auto, "small.gguf")
        assert all(feed)  # it would wait for ever
