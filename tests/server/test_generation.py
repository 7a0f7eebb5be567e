"""The output that waits for a slow reader: merged per choice, nothing lost, and bounded."""

import asyncio

from engine.scheduling.request import TokenScore
from engine.scheduling.sampling_params import SamplingParams
from server.core.messages import Logprobs, OutputDelta, Prompt
from server.core.request_stream import RequestStream
from tests.server.facts import raises_api_error


def step(choice: int, token: int, *, forced: bool = False) -> OutputDelta:
    text = chr(token)
    logprobs = Logprobs([text], [-0.5], [[(token, -0.5), (1, -2.0)]], [forced])
    return OutputDelta(choice, at=token, ids=[token], texts=[text], logprobs=logprobs)


def generation(buffer_bytes: int = 10_000) -> RequestStream:
    one = RequestStream(0, buffer_bytes, lambda: None)
    one.queued([Prompt([1, 2], SamplingParams(n=2, logprobs=2))], [1])
    return one


def test_steps_that_wait_are_merged_per_choice_with_their_logprobs() -> None:
    one = generation()
    first = step(0, 97)
    first.prompt_scores = [TokenScore(-1.0, [])]
    for gain in (first, step(1, 98), step(0, 99, forced=True), step(1, 100)):
        one.put(gain)
    one.put(OutputDelta(0, at=101, finish_reason="abort"))  # an end that brings no token
    zero, other = asyncio.run(one.deltas(1))
    assert (zero.ids, zero.texts, zero.finish_reason) == ([97, 99], ["a", "c"], "abort")
    assert zero.logprobs == Logprobs(
        ["a", "c"], [-0.5, -0.5], [[(97, -0.5), (1, -2.0)], [(99, -0.5), (1, -2.0)]], [False, True]
    )
    assert zero.prompt_scores == [TokenScore(-1.0, [])]
    assert (other.ids, other.logprobs.pieces) == ([98, 100], ["b", "d"])


def test_logprobs_count_for_the_buffer_limit() -> None:
    one = generation(buffer_bytes=500)
    one.put(step(0, 97))
    one.put(step(0, 98))
    with raises_api_error(500, "slow_reader", 500):
        asyncio.run(one.deltas(1))
