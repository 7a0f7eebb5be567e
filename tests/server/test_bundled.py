"""The few things that need the real model: its process as a notebook starts it, time, sampling."""

import subprocess
from collections.abc import Iterator

import openai
import pytest

from engine.events.vocabulary import RequestArrived, RunStarted
from server.process import serve_in_background
from tests.server.harness import Feed, get, post, sse_data, trace


@pytest.fixture(scope="module")
def bundled() -> Iterator[str]:
    with serve_in_background(token_budget=48, chunked_prefill=False, policy="sjf") as server:
        yield server.url
    assert server.stop() == 0  # twice is harmless


def curl(url: str) -> subprocess.Popen[str]:
    body = '{"prompt": "Once upon a time", "max_tokens": 40, "ignore_eos": true}'
    command = ["curl", "-sN", f"{url}/v1/completions", "-d", body]
    command += ["-H", "Content-Type: application/json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def read_tokens(process: subprocess.Popen[str], count: int) -> list[str]:
    """The next `count` tokens that a curl receives; fewer when its stream ends before."""
    tokens: list[str] = []
    for line in process.stdout:
        if line.startswith("data"):
            tokens += [event["token"] for event in sse_data(line) if "token" in event]
        if len(tokens) == count:
            break
    return tokens


def test_two_curls_overlap(bundled: str) -> None:
    """Held after six steps, both have received tokens and neither has ended: they interleave."""
    post(bundled, "/engine/pause")
    with Feed(bundled) as feed, curl(bundled) as ada, curl(bundled) as bo:
        feed.keyframe()
        feed.until_kind(RequestArrived, 2)
        post(bundled, "/engine/step", {"steps": 6})
        first = [read_tokens(process, 6) for process in (ada, bo)]
        assert [len(tokens) for tokens in first] == [6, 6]
        assert get(bundled, "/health")["active"] == 2
        post(bundled, "/engine/resume")
        rest = [read_tokens(process, 1000) for process in (ada, bo)]
    assert [len(tokens) for tokens in rest] == [34, 34]
    assert first[0] + rest[0] == first[1] + rest[1]


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
            max_tokens=24,
            temperature=0,
        )
        assert chat.choices[0].message.content
