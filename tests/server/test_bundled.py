"""The few things that need the real model: its process as a notebook starts it, time, sampling."""

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from engine.events.vocabulary import RequestArrived, RunStarted
from server.process import serve_in_background
from tests.server.harness import TIMEOUT, Feed, get, post, sse_data, trace


@pytest.fixture(scope="module")
def bundled() -> Iterator[str]:
    with serve_in_background(token_budget=48, chunked_prefill=False, policy="sjf") as server:
        yield server.url
    assert server.stop() == 0  # twice is harmless


def receipts(url: str) -> list[tuple[float, str]]:
    """When a curl received each event, and its text."""
    body = '{"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": true}'
    command = ["curl", "-sN", f"{url}/v1/completions", "-d", body]
    command += ["-H", "Content-Type: application/json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        received = [(time.perf_counter(), line.decode()) for line in process.stdout]
    events = [(at, sse_data(line)[0]) for at, line in received if line.startswith("data")]
    return [(at, event.get("token", event.get("full_text"))) for at, event in events]


def test_two_curls_overlap(bundled: str) -> None:
    """Both wait when the engine is let go, so their tokens arrive interleaved."""
    post(bundled, "/engine/pause")
    with Feed(bundled) as feed, ThreadPoolExecutor() as pool:
        feed.keyframe()
        reading = [pool.submit(receipts, bundled) for _ in range(2)]
        feed.until_kind(RequestArrived, 2)
        post(bundled, "/engine/resume")
        ada, bo = (one.result(TIMEOUT) for one in reading)
    assert [text for _, text in ada] == [text for _, text in bo]
    assert len(ada) == 301
    assert max(ada[0][0], bo[0][0]) < min(ada[-1][0], bo[-1][0])


def test_settings_reach_the_engine(bundled: str) -> None:
    (started,) = trace(bundled).of(RunStarted)
    settings = started.settings
    assert (settings["token_budget"], settings["chunked_prefill"]) == (48, False)
    assert settings["policy"] == "sjf"
    assert get(bundled, "/health")["paused"] is False


def test_temperature_and_seed_change_the_answer(bundled: str) -> None:
    """Greedy repeats itself, seeds differ, the same seed repeats itself."""
    with openai.OpenAI(base_url=f"{bundled}/v1", api_key="-", max_retries=0) as client:

        def text(**fields: float) -> str:
            answer = client.completions.create(
                model="bundled", prompt="Once upon a time", max_tokens=8, **fields
            )
            return answer.choices[0].text

        assert text(temperature=0) == text(temperature=0)
        assert text(seed=1) == text(seed=1)
        assert len({text(seed=seed) for seed in range(4)}) > 1
        assert text(seed=1, top_p=1e-9) == text(temperature=0)
        chat = client.chat.completions.create(
            model="bundled",
            messages=[{"role": "user", "content": "What is 17 + 25?"}],
            max_tokens=8,
            temperature=0,
        )
        assert chat.choices[0].message.content
