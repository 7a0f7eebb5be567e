"""Requests that the queue admits: limits in requests and in tokens, and when to come back."""

import pytest

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.sampling_params import SamplingParams
from server.core.admission import Admission
from server.core.commands import Prompt
from server.core.measures import Measures
from server.core.settings import ServerSettings
from tests.server.facts import raises_api_error
from tests.server.harness import post, refusal, sse_data, trace, watch


def waiting(*requests: tuple[int, int, int]) -> State:
    """A queue of (prompt tokens, max_tokens, samples)."""
    state = State()
    state.apply(v.RunStarted(1, {"num_blocks": 1, "block_size": 16}, {}, {}, {}, "wall"))
    for id_, (tokens, max_tokens, n) in enumerate(requests):
        arrived = v.RequestArrived(id_ + 1, [0] * tokens, [""] * tokens, "", max_tokens, n, 0, {})
        state.apply(arrived)
    return state


def prompt(tokens: int, max_tokens: int, n: int = 1) -> list[Prompt]:
    return [Prompt([0] * tokens, SamplingParams(max_tokens=max_tokens, n=n))]


def step(tokens: int, seconds: float) -> list[v.Event]:
    rows = [v.ScheduledRow(1, 0, tokens)]
    return [
        v.StepScheduled(rows, []),
        v.StepFinished([], 0, t={"start": 0, "end": int(seconds * 1e6)}),
    ]


def test_tokens_are_prompts_and_all_output_of_all_samples():
    admission = Admission(ServerSettings(max_waiting_tokens=100), waiting((10, 20, 2)), Measures())
    admission.check_tokens(prompt(10, 20, n=2), pending=0)
    with raises_api_error(429, "queue_full", 50, 51, 100):
        admission.check_tokens(prompt(11, 20, n=2), pending=0)
    with raises_api_error(429, "queue_full", 51, 50, 100):
        admission.check_tokens(prompt(10, 20, n=2), pending=1)


def test_an_empty_queue_admits_a_prompt_of_any_size():
    admission = Admission(ServerSettings(max_waiting_tokens=1), waiting(), Measures())
    assert admission.check_tokens(prompt(900, 900), 0) == 1800


def test_requests_on_their_way_count_as_waiting():
    admission = Admission(ServerSettings(max_waiting=2), waiting((1, 1, 1)), Measures())
    admission.check_requests(pending=0)
    with raises_api_error(429, "queue_full", 2):
        admission.check_requests(pending=1)


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ([], 1),  # nothing is known of its speed
        ([step(100, 0.5), step(300, 1.5)], 5),  # 200 tokens a second, half of 2,000 wait
        ([step(1000, 0.001)], 1),
        ([step(1, 100.0)], 60),
    ],
)
def test_retry_after_is_the_time_for_half_of_what_waits(steps, seconds):
    measures = Measures()
    queue = waiting((500, 500, 1), (900, 100, 1))
    admission = Admission(ServerSettings(max_waiting=2), queue, measures)
    for events in steps:
        for event in events:
            measures.apply(event)
    with raises_api_error(429, "queue_full", seconds) as caught:
        admission.check_requests(pending=0)
    assert caught.value.headers["Retry-After"] == str(seconds)


def test_over_the_token_limit_there_is_429(serve):
    url = serve(paused=True, server={"max_waiting_tokens": 60}).url
    body = {"prompt": "x", "max_tokens": 40}
    with watch(url) as feed:
        caller = feed.queued(body)
        assert refusal(post(url, "/v1/completions", body)) == (429, "queue_full")
        small = feed.queued({"prompt": "x", "max_tokens": 5})
        post(url, "/engine/resume")
        assert len(sse_data(caller.read_all())) == 41
        assert len(sse_data(small.read_all())) == 6
    assert len(trace(url).of(v.RequestArrived)) == 2
