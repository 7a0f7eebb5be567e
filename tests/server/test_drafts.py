"""A server with a draft model: same tokens, both models in the log, and vLLM's metrics about drafts."""

from collections.abc import Iterator

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.core.log import vocabulary as v
from server.core.loading import load
from server.core.settings import Start
from server.process import BackgroundServer
from tests.server.harness import metrics, post, serve_forked, trace

PROMPT = "Once upon a time there was a fox"
LENGTH = 3


@pytest.fixture(scope="module")
def server() -> Iterator[BackgroundServer]:
    """The bundled model is its own draft model."""
    with serve_forked(draft_model="bundled", draft_length=LENGTH) as running:
        yield running


def test_drafts_reach_the_log_and_the_metrics_and_change_no_token(server):
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0.8, "seed": 5, "stream": False}
    text = post(server.url, "/v1/completions", body).json()["choices"][0]["text"]
    params = SamplingParams(max_tokens=24, temperature=0.8, seed=5)
    [alone] = Engine.load("bundled").complete([PROMPT], params, progress=False)
    assert text == alone.text

    log = trace(server.url)
    assert log[0].model["draft_model"]["draft_length"] == LENGTH
    rows = [row for event in log.of(v.StepScheduled) for row in event.rows if row.drafts]
    drafted = sum(len(row.drafts) for row in rows)
    accepted = sum(row.accepted for event in log.of(v.StepFinished) for row in event.tokens)
    assert drafted == accepted > 10
    values = metrics(server.url)
    names = ("drafts", "draft_tokens", "accepted_tokens")
    told = [values[(f"vllm:spec_decode_num_{name}_total",)] for name in names]
    assert told == [len(rows), drafted, accepted]


def test_a_restart_keeps_the_draft_model(server):
    answer = post(server.url, "/engine/restart", {"settings": {"max_batch_size": 2}})
    assert answer.status_code == 200, answer.text
    assert trace(server.url)[0].model["draft_model"]["name"] == "bundled"
    body = {"settings": {"async_scheduling": True}}
    assert post(server.url, "/engine/restart", body).status_code == 400


@pytest.mark.parametrize("drafter", ["prompt-lookup", None])
def test_an_engine_in_this_process_gets_the_same_drafter(drafter):
    more = {"drafter": drafter, "draft_model": None if drafter else "bundled", "draft_length": 2}
    client = load(Start(model="bundled", **more), EngineConfig(), texts=True)  # type: ignore[arg-type]
    [started] = client.started
    assert isinstance(started, v.RunStarted)
    assert started.classes["drafter"] == ("PromptLookup" if drafter else "DraftModel")
    assert client.engine.drafter is not None and client.engine.drafter.length == 2  # type: ignore[attr-defined]
    client.close()
    assert not hasattr(client.engine, "drafter"), "the weights stay in memory"
