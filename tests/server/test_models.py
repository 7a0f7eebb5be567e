"""`--model auto`: models of a directory, loaded when a request names one, unloaded for others."""

import asyncio
import gc
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.events.log import EventLog
from engine.events.vocabulary import RequestArrived
from engine.scheduling.sampling_params import SamplingParams
from server.models import Models
from server.process import serve_in_background
from tests.engine.compute.gguf_files import write
from tests.engine.compute.models import save
from tests.engine.compute.test_loading import add_tokenizer
from tests.server.bridges import order, read
from tests.server.console import invoke, refused
from tests.server.facts import assert_names, raises_api_error
from tests.server.harness import Feed, get, http, post
from tests.server.shelf import Shelf, registry

IDS = [5, 6, 7, 8]  # a prompt for every vocabulary


# The registry by itself, over models that recite the alphabet


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path, "a", "b", "c")


async def answer(models: Models, name: str | None) -> str:
    bridge = await models.serving(name)
    async with bridge.generate(order("x", max_tokens=3)) as generation:
        return (await read(generation))[0]


def loaded(models: Models) -> list[str]:
    return [name for name, is_loaded in models.names().items() if is_loaded]


def test_who_comes_while_a_model_is_loaded_waits_for_the_same_load(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf) as models:
            shelf.gate.clear()
            waiting = [asyncio.create_task(answer(models, "a")) for _ in range(3)]
            assert await answer(models, None) == "abc"  # meanwhile the first one serves
            assert loaded(models) == ["bundled"]
            waiting[0].cancel()  # one who leaves does not end it for the others
            shelf.gate.set()
            assert await asyncio.gather(*waiting[1:]) == ["abc", "abc"]
            assert shelf.loads == ["a"]
            assert loaded(models) == ["bundled", "a"]

    asyncio.run(test())


def test_the_one_that_was_not_asked_for_the_longest_makes_room(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf, limit=2) as models:
            for name in ("a", "b", "a", "c"):
                await answer(models, name)
            assert loaded(models) == ["bundled", "a", "c"]
            await answer(models, "b")
            assert loaded(models) == ["bundled", "b", "c"]
            assert shelf.loads == ["a", "b", "c", "b"]

    asyncio.run(test())


def test_what_is_unloaded_gives_its_memory_back_at_once(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf) as models:
            await answer(models, "a")
            gone = shelf.runners["a"]
            assert gone() is not None
            await answer(models, "b")
            assert gone() is None

    gc.disable()  # reference counts alone
    try:
        asyncio.run(test())
    finally:
        gc.enable()


def test_a_model_with_a_request_in_it_is_never_unloaded(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf) as models:
            bridge = await models.serving("a")
            await bridge.pause()
            async with bridge.generate(order("x", max_tokens=3)) as generation:
                with raises_api_error(503, "models_busy"):
                    await models.serving("b")
                await bridge.resume()
                assert await read(generation) == {0: "abc"}
            assert await answer(models, "b") == "abc"

    asyncio.run(test())


def test_whoever_waits_for_a_load_is_served_before_the_model_may_go(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf) as models:
            shelf.gate.clear()
            first = asyncio.create_task(answer(models, "a"))
            await asyncio.sleep(0)
            with raises_api_error(503, "models_busy"):  # while it is being loaded
                await models.serving("b")
            shelf.gate.set()
            while not models.is_loaded("a"):
                await asyncio.sleep(0)
            with raises_api_error(503, "models_busy"):  # and before who waited has gone on
                await models.serving("b")
            assert await first == "abc"
            assert await answer(models, "b") == "abc"
            assert shelf.loads == ["a", "b"]

    asyncio.run(test())


def test_no_more_wait_for_a_load_than_may_wait_in_a_queue(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf, max_waiting=2) as models:
            shelf.gate.clear()
            waiting = [asyncio.create_task(answer(models, "a")) for _ in range(3)]
            with raises_api_error(429, "queue_full", 2, "a"):
                await waiting[2]
            shelf.gate.set()
            assert await asyncio.gather(*waiting[:2]) == ["abc", "abc"]

    asyncio.run(test())


def test_a_load_that_fails_is_told_and_tried_again(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf) as models:
            shelf.broken.add("a")
            with raises_api_error(
                503, "model_not_loadable", "a", "a/config.json is no good"
            ) as caught:
                await models.serving("a")
            assert str(shelf.path) not in str(caught.value)
            assert loaded(models) == ["bundled"]
            shelf.broken.clear()
            assert await answer(models, "a") == "abc"

    asyncio.run(test())


def test_a_model_whose_engine_has_failed_is_loaded_again(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf) as models:
            bridge = await models.serving("a")
            bridge._fail(RuntimeError("told to break"))  # what its thread says as it ends
            with raises_api_error(503, "engine_failed", "told to break"):
                async with bridge.generate(order("x")):
                    pass
            assert await answer(models, "a") == "abc"
            assert shelf.loads == ["a", "a"]

    asyncio.run(test())


def test_a_server_that_drains_loads_nothing_more(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf) as models:
            shelf.gate.clear()
            waiting = asyncio.create_task(answer(models, "a"))
            await asyncio.sleep(0)
            await models.drain()
            for refused_one in (waiting, models.serving("b"), answer(models, None)):
                with raises_api_error(503, "shutdown"):
                    await refused_one
            shelf.gate.set()

    asyncio.run(test())


def test_a_directory_that_is_gone_leaves_what_is_loaded(shelf: Shelf) -> None:
    async def test() -> None:
        async with registry(shelf) as models:
            await answer(models, "a")
            shutil.rmtree(shelf.path)
            assert list(models.names()) == ["bundled", "a"]
            assert await answer(models, "a") == "abc"

    asyncio.run(test())


# A server, over real checkpoints


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    for name in ("llama", "gpt2"):
        save(path / name, name)
        add_tokenizer(path / name)
    write(path / "small.gguf", "qwen3")
    shutil.copytree(path / "gpt2", path / "broken")
    (path / "broken" / "model.safetensors").write_bytes(b"no weights")
    (path / "notes.txt").touch()
    (path / "empty").mkdir()
    shutil.copytree(path / "gpt2", path / ".hidden")
    shutil.copytree(path / "gpt2", path.parent / "outside", dirs_exist_ok=True)
    return path


@pytest.fixture(scope="module")
def auto(directory: Path) -> Iterator[str]:
    with serve_in_background("auto", model_dir=directory, max_models=2) as server:
        yield server.url


def complete(url: str, model: str | None, **fields: object) -> dict[str, object]:
    body = {"model": model, "prompt": IDS, "max_tokens": 8, "temperature": 0, "stream": False}
    answered = post(url, "/v1/completions", body | fields)
    return {"status": answered.status_code} | json.loads(answered.content)


def serving_now(url: str) -> dict[str, bool]:
    return {model["id"]: model["loaded"] for model in get(url, "/v1/models")["data"]}


def arrivals(url: str, model: str) -> int:
    with http(url) as client:
        log = EventLog.from_bytes(client.get("/trace", params={"model": model}).content)
    return len(list(log.of(RequestArrived)))


def test_the_list_names_what_is_there_and_what_is_loaded(auto: str) -> None:
    models = get(auto, "/v1/models")["data"]
    assert models[0]["id"] == "bundled"
    names = {model["id"] for model in models}
    assert names == {"bundled", "llama", "gpt2", "broken", "small.gguf"}
    assert models[0]["loaded"] is True


@pytest.mark.parametrize("name", ["llama", "gpt2", "small.gguf"])
def test_a_request_that_names_a_model_is_answered_by_it(
    auto: str, directory: Path, name: str
) -> None:
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


def test_a_request_that_names_none_goes_to_the_first(auto: str) -> None:
    before = arrivals(auto, "bundled")
    assert complete(auto, None)["model"] == "bundled"
    assert arrivals(auto, "bundled") == before + 1


@pytest.mark.parametrize(
    "name",
    [
        "nope",
        "",
        ".",
        "..",
        "./llama",
        "llama/",
        "llama/../gpt2",
        "../outside",
        ".hidden",
        "notes.txt",
        "empty",
        "{directory}/llama",
        "owner/name",
        "small",
        "llama\x00",
        "x" * 200,
    ],
)
def test_a_name_is_a_name_and_never_a_path(auto: str, directory: Path, name: str) -> None:
    name = name.replace("{directory}", str(directory))
    answered = complete(auto, name)
    assert answered["status"] == 404
    assert (answered["error"]["code"], answered["error"]["param"]) == ("model_not_found", "model")
    assert answered["error"]["type"] == "invalid_request_error"
    with http(auto) as client:
        for path in ("/health", "/ready", "/trace", "/events"):
            assert client.get(path, params={"model": name}).status_code == 404


def test_a_model_that_cannot_be_loaded_says_why_without_its_path(
    auto: str, directory: Path
) -> None:
    answered = complete(auto, "broken")
    assert (answered["status"], answered["error"]["code"]) == (503, "model_not_loadable")
    assert_names(answered["error"]["message"], "broken/model.safetensors")
    assert str(directory) not in answered["error"]["message"]


def test_viewers_and_controls_name_a_model_and_load_none(auto: str) -> None:
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
    with http(auto) as client:
        for path in ("/health", "/ready", "/trace", "/events"):
            told = client.get(path, params={"model": "llama"})
            assert (told.status_code, told.json()["error"]["code"]) == (503, "model_not_loaded")
    assert serving_now(auto)["llama"] is False


def test_a_feed_ends_when_its_model_is_unloaded(auto: str) -> None:
    complete(auto, "llama")
    with Feed(auto, model="llama") as feed:
        feed.keyframe()
        complete(auto, "gpt2")
        complete(auto, "small.gguf")
        assert all(feed)  # it would wait for ever


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "auto"], ["--model auto", "--model-dir"]),
        (["--model-dir", "."], ["--model auto", "--model-dir"]),
        (["--model", "auto", "--model-dir", "nowhere"], ["--model-dir", "nowhere"]),
        (["--model", "auto", "--model-dir", ".", "--trace-file", "x"], ["--trace-file"]),
    ],
)
def test_settings_that_do_not_go_together_are_one_line(
    arguments: list[str], words: list[str]
) -> None:
    refused(invoke("serve", "--port", "0", *arguments), *words)
