"""Whole runs: complete and best_of, score, and nanochat's generate and generate_batch."""

from itertools import islice

import pytest

from engine import CostRunner, Engine, EngineConfig, RequestError, SamplingParams
from engine.core.log import vocabulary as v
from engine.core.runner import Sampled
from tests.engine.workloads import finish
from tests.facts import raises_naming

BOS, END = 256, 260
PYTHON_START, PYTHON_END, OUTPUT_START, OUTPUT_END = 261, 262, 263, 264
PROMPT = [BOS, *b"What is it?"]


class Script(CostRunner):
    """Request i generates outputs[i]; `logprobs[i]` are its tokens' log-probabilities."""

    def __init__(self, outputs, logprobs=None):
        super().__init__(1, 0, outputs=outputs)
        self.logprobs = logprobs or {}

    def _sample(self, row, sample):
        said = super()._sample(row, sample)
        sure = self.logprobs.get(row.request.root + sample, 0.0)
        return Sampled(said.ids, [sure] * len(said.ids))


def scripted(outputs, logprobs=None, **config):
    runner = Script({id_: list(ids) for id_, ids in outputs.items()}, logprobs)
    config = {"max_batch_size": 8} | config
    return Engine(runner, EngineConfig(**config), clock=runner.clock)


# nanochat


def test_columns_have_the_next_token_of_each_sample_until_the_last_has_ended():
    engine = scripted({1: [*b"ab", END], 2: [*b"c", BOS], 3: [*b"defg", END]})
    columns = list(engine.generate(PROMPT, num_samples=3, max_tokens=20))
    a, b, c, d, e, f, g = b"abcdefg"
    assert columns == [
        ([a, c, d], [1, 1, 1]),
        ([b, BOS, e], [1, 1, 1]),
        ([END, BOS, f], [1, 0, 1]),
        ([END, BOS, g], [0, 0, 1]),
        ([END, BOS, END], [0, 0, 1]),
    ]
    assert not engine.has_work()


def test_forced_tokens_have_mask_0_and_come_at_different_times_in_different_rows():
    call = [PYTHON_START, *b"17+25", PYTHON_END]
    answer = [OUTPUT_START, *b"42", OUTPUT_END]
    engine = scripted({1: [*call, 0, 0, 0, 0, *b"ok", END], 2: [*b"zz", *call, 0, 0, 0, 0, END]})
    rows, masks = engine.generate_batch(PROMPT, num_samples=2)
    assert rows == [[*PROMPT, *call, *answer, *b"ok"], [*PROMPT, *b"zz", *call, *answer]]
    assert masks == [
        [0] * len(PROMPT) + [1] * 7 + [0] * 4 + [1] * 2,
        [0] * len(PROMPT) + [1] * 9 + [0] * 4,
    ]


def test_max_tokens_counts_columns_and_none_means_what_fits():
    assert len(list(scripted({}).generate(PROMPT, max_tokens=7))) == 7
    assert list(scripted({}).generate(PROMPT, max_tokens=0)) == []
    engine = scripted({}, max_kv_tokens=32, block_size=8)
    assert len(list(engine.generate(PROMPT))) == 32 + 1 - len(PROMPT)


@pytest.mark.parametrize("preemption", [True, False])
@pytest.mark.parametrize("num_samples", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [3, 4, 11, 12, 13])
def test_without_max_tokens_the_samples_are_as_long_as_they_can_be(length, num_samples, preemption):
    settings = dict(block_size=4, max_kv_tokens=40, max_batch_size=3, preemption=preemption)
    engine = scripted({}, **settings)
    columns = list(engine.generate(PROMPT[:length], num_samples))
    assert {len(column) for column, _ in columns} == {num_samples}
    fits = scripted({}, **settings)
    fits.submit(PROMPT[:length], SamplingParams(n=num_samples, max_tokens=len(columns)))
    with raises_naming(RequestError, "n" if fits_alone(length, len(columns)) else "max_tokens"):
        fits.submit(PROMPT[:length], SamplingParams(n=num_samples, max_tokens=len(columns) + 1))


def fits_alone(length, output):
    """Whether one sample has room for another token in ten blocks of four."""
    return length + output <= 40


def test_closing_the_generator_ends_its_samples_and_no_others():
    engine = scripted({})
    other = engine.submit("other", SamplingParams(max_tokens=30))
    columns = engine.generate(PROMPT, num_samples=3)
    assert len(list(islice(columns, 4))) == 4
    columns.close()
    assert list(engine.requests) == [other.id]
    finish(engine)
    assert other.finish_reason == "length"


def test_what_cannot_run_is_said_at_the_first_column():
    with pytest.raises(RequestError) as caught:
        next(scripted({}).generate([]))
    assert caught.value.field == "prompt"
    engine = scripted({})
    engine.pause()
    with raises_naming(RuntimeError, "resume"):
        next(engine.generate(PROMPT))
    with raises_naming(RuntimeError, "resume"):
        engine.complete(["q"], progress=False)
    with raises_naming(RequestError, "prompts"):
        engine.complete("one text", progress=False)


def test_a_failing_forward_pass_is_raised():
    class Broken(Script):
        def run(self, rows, copies):
            raise OSError("the cable fell out")

    runner = Broken({})
    engine = Engine(runner, clock=runner.clock)
    with raises_naming(RuntimeError, "the cable fell out"):
        list(engine.generate(PROMPT, num_samples=2))
    assert not engine.has_work()
    done = engine.complete(["a", "b"], SamplingParams(n=3), progress=False)
    assert [one.finish_reason for one in done] == ["error"] * 6


# complete


def test_best_of_does_not_count_the_tokens_that_a_tool_forced():
    """The first sample has less likely tokens and calls the calculator: 8 sampled, 4 forced."""
    call = [PYTHON_START, *b"17+25", PYTHON_END]
    engine = scripted({1: [*call, 0, 0, 0, 0, END], 2: [*b"abcd", END]}, {1: -3.0, 2: -2.5})
    params = SamplingParams(n=1, best_of=2, max_tokens=20)
    [one] = engine.complete(["q"], params, progress=False)
    assert one.request_id == 2
    assert sum(row.forced for event in engine.log.of(v.StepFinished) for row in event.tokens) == 4


# score


def test_a_scored_prompt_is_computed_whole_although_it_is_cached():
    engine = scripted({}, block_size=4)
    text = list(range(40, 60))
    engine.complete([text], SamplingParams(max_tokens=1), progress=False)
    engine.score([(text[:10], text[10:])], progress=False)
    _, second = engine.log.of(v.Admitted)
    assert second.blocks == []
    # Its blocks are the cached ones all the same, once they are computed.
    assert engine.log.of(v.RadixJoined)
