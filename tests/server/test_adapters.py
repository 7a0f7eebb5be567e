"""LoRA adapters over HTTP: a model's name chooses one, and clients load and unload them as in vLLM."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from engine import Engine, SamplingParams
from engine.core.config import ConfigError
from engine.core.log.vocabulary import RequestArrived, RequestFinished
from server.core.adapters import ALLOWED, lora_module
from server.process import BackgroundServer
from tests.facts import assert_names
from tests.server.adapter_files import save_adapter
from tests.server.gateway.cluster import start_gateway
from tests.server.gateway.conftest import wait_for
from tests.server.harness import get, post, queue, refusal, serve_forked, start, trace, watch
from tests.server.test_two_processes import child

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
PROMPT = "Once upon a time"
GREEDY = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "return_token_ids": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("ada", "bo", "cy")):
        save_adapter(folder / name, seed)
    return folder


@pytest.fixture(scope="module")
def ids(folder) -> dict[str, list[int]]:
    """What the engine itself says, by the model's name."""
    engine = Engine.load("bundled")
    params = SamplingParams(max_tokens=12, temperature=0)
    requests = {"bundled": engine.submit(PROMPT, params)}
    for name in ("ada", "bo", "cy"):
        engine.adapters.add(name, str(folder / name))
        requests[name] = engine.submit(PROMPT, params, adapter=name)
    while engine.has_work():
        engine.step()
    ids = {name: list(request.output_ids) for name, request in requests.items()}
    assert len(set(map(tuple, ids.values()))) == 4, "each has its own text"
    return ids


@pytest.fixture(scope="module")
def allowed() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(ALLOWED, "1")
        yield environment


@pytest.fixture
def server(folder, allowed) -> Iterator[BackgroundServer]:
    with serve_forked("bundled", lora_modules=f"ada={folder / 'ada'}") as server:
        yield server


def said(url: str, model: str) -> list[int]:
    answer = post(url, "/v1/completions", GREEDY | {"model": model})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["token_ids"]


def load(url: str, name: str, path: object, **more: object) -> str:
    answer = post(url, LOAD, {"lora_name": name, "lora_path": str(path)} | more)
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_openai_sdk_streams_two_adapters_and_the_base_at_once(server, folder, ids):
    assert load(server.url, "bo", folder / "bo").startswith("Success: LoRA adapter 'bo' added")
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)

    async def streamed(model: str) -> list[int]:
        body = {"stream": True, "extra_body": GREEDY}
        chunks = await client.completions.create(model=model, prompt=PROMPT, **body)
        return [id_ async for one in chunks for id_ in one.choices[0].token_ids]

    models = ["ada", "bundled", "bo", "bo", "ada"]
    assert await asyncio.gather(*map(streamed, models)) == [ids[name] for name in models]
    listed = {one.id: (one.parent, one.root) async for one in client.models.list()}
    assert listed == {
        "bundled": (None, "bundled"),
        **{name: ("bundled", str(folder / name)) for name in ("ada", "bo")},
    }
    with pytest.raises(openai.NotFoundError):
        await streamed("cy")


def test_a_request_in_flight_keeps_its_weights_and_a_restart_and_a_crash_keep_the_adapters(
    server, folder, ids
):
    url = server.url
    post(url, "/engine/pause")
    [waiting] = queue(url, GREEDY | {"model": "ada"})
    load(url, "ada", folder / "cy", load_inplace=True)
    load(url, "bo", folder / "bo")
    assert post(url, UNLOAD, {"lora_name": "bo"}).status_code == 200
    post(url, "/engine/resume")
    answer = json.loads(waiting.read_all().partition("\r\n\r\n")[2])
    assert answer["choices"][0]["token_ids"] == ids["ada"]
    assert said(url, "ada") == ids["cy"], "the new weights find no KV of the old ones"
    # The run can be repeated only while its adapters are there.
    again = {"prompts": "same_steps"}
    assert_names(post(url, "/engine/restart", again).json()["error"]["message"], "ada")
    assert post(url, "/engine/restart", {"settings": {"max_loras": 0}}).status_code == 400
    assert post(url, "/engine/restart", {"settings": {"max_loras": 1}}).status_code == 200
    assert said(url, "ada") == ids["cy"]
    with watch(url) as feed:
        assert post(url, "/engine/restart", again).status_code == 200
        feed.until_kind(RequestFinished)
    assert [one.extra_key for one in trace(url).of(RequestArrived)] == [["ada@2", ""]]
    with watch(url) as feed:
        run = feed.run
        child(server).kill()
        while feed.run == run:
            next(feed._read())
    assert said(url, "ada") == ids["cy"]
    assert [one["id"] for one in get(url, "/v1/models")["data"]] == ["bundled", "ada"]


def test_what_cannot_be_loaded_is_refused_with_vllms_status(server, tmp_path, folder):
    save_adapter(tmp_path / "rank", 0, rank=600)
    save_adapter(tmp_path / "other model", 0, size=64)
    save_adapter(tmp_path / "endless", 0, alpha_pattern={"(a+)+b": 1})
    for name, size in (("huge", 1 << 21), ("deep", 1 << 19), ("pipe", 0)):
        save_adapter(tmp_path / name, 0)
        if size:
            (tmp_path / name / "adapter_config.json").write_text("[" * size)
    (weights := tmp_path / "pipe" / "adapter_model.safetensors").unlink()
    os.mkfifo(weights)
    ada = str(folder / "ada")
    for status, name, path, named in [
        *((400, "new", str(path), path.name) for path in tmp_path.iterdir()),
        (404, "new", str(tmp_path), "adapter_config.json"),
        (404, "new", "/nowhere\0", "adapter_config.json"),
        (400, "new", "", "lora_path"),
        (400, "new", None, "lora_path"),
        (400, "", ada, "lora_name"),
        (400, "ada", ada, "load_inplace"),
        (400, "bundled", ada, "bundled"),
        (400, "bo@2", ada, "bo@2"),
    ]:
        answer = post(server.url, LOAD, {"lora_name": name, "lora_path": path})
        assert answer.status_code == status, answer.text
        assert_names(answer.json()["error"]["message"], named)
    for status, body in ((404, {"lora_name": "new"}), (400, {"lora_name": ""}), (400, {})):
        assert post(server.url, UNLOAD, body).status_code == status
    assert [one["id"] for one in get(server.url, "/v1/models")["data"]] == ["bundled", "ada"]


def test_salts_and_adapters_share_no_prefix(allowed):
    with start(checking=True, engine={"block_size": 4}) as server:
        load(server.url, "ada", "/any")
        body = {"prompt": "x" * 40, "max_tokens": 1, "model": "alphabet"}
        ada, salted = {"model": "ada"}, {"cache_salt": "tenant 7"}
        cases = (({}, 0), ({}, 40), (ada, 0), (salted, 0), (ada | salted, 0), (ada, 40))
        for more, cached in cases:
            usage = post(server.url, "/v1/completions", body | more).json()["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == cached, more
        for salt in ("", "a@b", "x" * 129, 7):
            answer = post(server.url, "/v1/completions", body | {"cache_salt": salt})
            assert answer.json()["error"]["param"] == "cache_salt"


def test_a_gateway_changes_all_replicas_and_routes_by_adapter(allowed):
    engine = {"checking": True, "engine": {"block_size": 4}}
    with (
        start(**engine) as first,
        start(**engine) as second,
        start_gateway(first.url, second.url) as gateway,
    ):
        wait_for(gateway.url, "0", "1")
        load(gateway.url, "ada", "/any")
        for one in (gateway, first, second):
            assert [model["id"] for model in get(one.url, "/v1/models")["data"]][1:] == ["ada"]
        body = {"prompt": "x" * 40, "max_tokens": 1}
        replicas = [
            post(gateway.url, "/v1/completions", body | {"model": model}).headers
            for model in ("alphabet", "ada", "ada", "alphabet")
        ]
        base, ada, *last = [one["x-underglass-replica"] for one in replicas]
        assert last == [ada, base] and base != ada, "each goes where its own prefix is"
        assert post(gateway.url, UNLOAD, {"lora_name": "ada"}).status_code == 200
        assert refusal(post(gateway.url, UNLOAD, {"lora_name": "ada"}))[0] == 404


def test_adapters_cannot_be_changed_unless_the_environment_allows_it(serve, monkeypatch):
    monkeypatch.setenv(ALLOWED, "0")
    url = serve().url
    for path, more in ((LOAD, {"lora_path": "/any"}), (UNLOAD, {})):
        answer = post(url, path, {"lora_name": "ada"} | more)
        assert answer.status_code == 404
        assert_names(answer.json()["error"]["message"], ALLOWED)
    answer = post(url, "/v1/completions", {"prompt": "x", "model": "any", "max_tokens": 1})
    assert answer.status_code == 200


def test_lora_modules_are_read_as_vllm_reads_them():
    as_json = {"name": "ada", "path": "/a=b", "base_model_name": "story"}
    assert lora_module("ada=/a=b") == lora_module(json.dumps(as_json)) == ("ada", "/a=b")
    for text in ("ada", "=x", "ada=", '{"name": "ada"}', "[1]", json.dumps(as_json | {"x": 1})):
        with pytest.raises(ConfigError, match="lora_modules"):
            lora_module(text)
    for names in (("ada",), ("other",)):
        with pytest.raises(ConfigError, match="ada"):
            lora_module(json.dumps(as_json), names)
