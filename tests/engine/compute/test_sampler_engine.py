"""Every sampling parameter through the whole engine: tokens of the reference, and exact scores."""

from collections import Counter

import msgspec
import pytest
import torch

from engine import Engine, EngineConfig, RequestError, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.compute import sampling_reference as reference
from engine.core.compute.torch_runner import TorchRunner
from engine.core.log.vocabulary import StepFinished
from engine.core.runner import LogitPosition, uniform
from engine.core.sampling_params import StructuredOutput
from engine.extensions.prompt_lookup import PromptLookup
from engine.models.config_file import read_config
from engine.models.loader import build
from engine.models.weights.checkpoint import Checkpoint
from tests.engine.compute.judge import PROMPT, reference_logits
from tests.facts import raises_naming

LENGTH = 20
WARM = dict(temperature=1.5, seed=3)


class Asker:
    """An engine for every question; `eos` become the model's end tokens."""

    def __init__(self, directory):
        self._model = build(read_config(directory), Checkpoint(directory, torch.float32))

    def engine(self, eos=(), drafter=None, **config):
        tokenizer = ByteTokenizer()
        tokenizer.eos_ids = frozenset(eos)
        config = EngineConfig(**{"max_kv_tokens": 4096} | config)
        return Engine(TorchRunner(self._model), config, tokenizer=tokenizer, drafter=drafter)

    def all(self, prompt=PROMPT, eos=(), **params):
        params = SamplingParams(**{"max_tokens": LENGTH} | params)
        return self.engine(eos).complete([prompt], params, progress=False)

    def one(self, *args, **params):
        (completion,) = self.all(*args, **params)
        assert not completion.error
        return completion

    def ids(self, *args, **params):
        return self.one(*args, **params).token_ids

    def prompt(self, params):
        """The request as it is before its first token."""
        return self.engine().submit(PROMPT, SamplingParams(max_tokens=LENGTH, **params))


@pytest.fixture(scope="module")
def ask(qwen3):
    return Asker(qwen3[0])


@pytest.fixture(scope="module")
def model(qwen3):
    return qwen3[1]


def output_logits(model, ids):
    return reference_logits(model, PROMPT + ids)[len(PROMPT) - 1 : -1]


# Each field that decides about tokens, with values that change the tokens of the plain request.
FIELDS = {
    "min_tokens": lambda plain: dict(stop_token_ids=[plain[2]], min_tokens=10),
    "bad_words": lambda plain: dict(bad_words=[bytes(plain[3:5]).decode(), chr(plain[0])]),
    "allowed_token_ids": dict(allowed_token_ids=[5, 9, 12]),
    "logit_bias": lambda plain: dict(logit_bias={plain[0]: -100, 42: 3.0}),
    "repetition_penalty": dict(repetition_penalty=1.5),
    "frequency_penalty": dict(frequency_penalty=2.0),
    "presence_penalty": dict(presence_penalty=-2.0),
    "temperature": dict(temperature=5.0, seed=3),
    "min_p": WARM | dict(min_p=0.3),
    "top_k": WARM | dict(top_k=3),
    "top_p": WARM | dict(top_p=0.4),
    "seed": WARM | dict(seed=4),
    "n": WARM | dict(n=3),
}
# Their tests are below, or in tests/engine/test_stops.py.
OTHERS = {"max_tokens", "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos"}
OTHERS |= {"skip_special_tokens", "structured", "best_of", "logprobs", "prompt_logprobs"}


def test_every_field_has_its_test():
    assert {field.name for field in msgspec.structs.fields(SamplingParams)} == {*FIELDS, *OTHERS}


@pytest.mark.parametrize("field", FIELDS)
def test_tokens_are_those_of_the_reference_with_the_logits_of_transformers(ask, model, field):
    plain = ask.ids()
    params = FIELDS[field](plain) if callable(FIELDS[field]) else FIELDS[field]
    found = [one.token_ids for one in ask.all(**params)]
    assert plain not in found and ask.ids(**WARM) not in found[field == "n" :]
    request = ask.prompt(params)
    for sample, ids in enumerate(found):
        for place, logits in enumerate(output_logits(model, ids)):
            position = LogitPosition(
                request, request.params, sample, ids[:place], len(request.tokens) + place
            )
            number = uniform(request.seed, sample, position.position)
            assert ids[place] == reference.sample(logits.tolist(), position, number)


def test_skip_special_tokens(ask):
    plain = ask.ids()
    engine = ask.engine()
    engine.tokenizer.special_ids = frozenset({plain[2]})
    params = SamplingParams(max_tokens=LENGTH, skip_special_tokens=True)
    (found,) = engine.complete([PROMPT], params, progress=False)
    assert found.token_ids == plain
    assert found.text == bytes(token for token in plain if token != plain[2]).decode()


def test_min_tokens_with_the_end_as_the_only_allowed_token(ask):
    assert ask.ids(eos=[5], allowed_token_ids=[5], min_tokens=4, **WARM) == [5] * 5


def test_without_a_seed_the_requests_number_decides(ask):
    params = SamplingParams(max_tokens=LENGTH, temperature=1.5)
    one, other = ask.engine().complete([PROMPT] * 2, params, progress=False)
    assert one.token_ids == ask.ids(temperature=1.5, seed=1) != other.token_ids


def test_structured(ask):
    digits = StructuredOutput("regex", "[0-9]*")
    assert set(ask.ids(eos=(0,), structured=digits, ignore_eos=True)) <= set(b"0123456789")
    with raises_naming(RequestError, "structured", "end token"):
        ask.one(structured=digits)


def test_best_of(ask):
    def mean(completion):
        return sum(completion.logprobs) / len(completion.logprobs)

    every = sorted(ask.all(**WARM, n=5), key=mean, reverse=True)
    best = ask.all(**WARM, n=2, best_of=5)
    assert [one.token_ids for one in best] == [one.token_ids for one in every[:2]]


@pytest.mark.parametrize("warm", [{}, WARM])
def test_logprobs(ask, model, warm):
    plain = ask.one(**warm)
    told = ask.one(**warm, logprobs=4, logit_bias={9: 1.5})
    assert not any(plain.top_logprobs)
    assert len(plain.logprobs) == LENGTH
    logits = output_logits(model, told.token_ids)
    logits[:, 9] += 1.5
    expected = logits.log_softmax(-1)
    for place, token in enumerate(told.token_ids):
        top = told.top_logprobs[place]
        assert [value for _, value in top] == pytest.approx(
            expected[place].topk(4).values.tolist(), abs=1e-4
        )
        assert told.logprobs[place] == pytest.approx(expected[place, token].item(), abs=1e-4)
        assert dict(top).get(token, told.logprobs[place]) == told.logprobs[place]
    assert ask.ids(**warm, logprobs=4) == plain.token_ids


def assert_scores(model, prompt, scores, top):
    expected = reference_logits(model, prompt).log_softmax(-1)
    assert len(scores) == len(prompt) - 1
    for place, (token, score) in enumerate(zip(prompt[1:], scores, strict=True)):
        assert score.logprob == pytest.approx(expected[place, token].item(), abs=1e-4)
        assert [value for _, value in score.top] == pytest.approx(
            expected[place].topk(top).values.tolist(), abs=1e-4
        )
        assert dict(score.top).get(token, score.logprob) == score.logprob


# Whatever the scheduler does meanwhile


PROMPTS = [PROMPT[i : i + 30] for i in range(0, 12, 2)]
MIXED = [
    SamplingParams(max_tokens=LENGTH, prompt_logprobs=2, logprobs=2),
    SamplingParams(max_tokens=LENGTH, repetition_penalty=1.3, logprobs=0),
    SamplingParams(max_tokens=LENGTH, prompt_logprobs=0, n=2, frequency_penalty=0.4, **WARM),
    SamplingParams(max_tokens=LENGTH),
    SamplingParams(max_tokens=LENGTH, min_tokens=15, stop_token_ids=tuple(range(40)), **WARM),
    SamplingParams(max_tokens=LENGTH, prompt_logprobs=5, presence_penalty=1.0, min_p=0.05, **WARM),
]


@pytest.mark.parametrize(
    "config",
    [
        dict(token_budget=512),
        dict(token_budget=7),
        dict(token_budget=512, max_kv_tokens=128, block_size=4),
        dict(token_budget=24, max_kv_tokens=96, block_size=8),
        dict(token_budget=64, drafter=PromptLookup(longest=2, shortest=1)),
    ],
    ids=["whole", "chunked", "preempted", "chunked and preempted", "drafted"],
)
def test_mixed_features_give_what_each_gives_alone(ask, model, config):
    """Tokens, and scores of transformers, with prompts cut, requests preempted and tokens drafted."""
    engine = ask.engine(**config)
    found = engine.complete(PROMPTS, MIXED, progress=False)
    alone = [
        one
        for prompt, params in zip(PROMPTS, MIXED, strict=True)
        for one in ask.engine(token_budget=512).complete([prompt], params, progress=False)
    ]
    assert [one.token_ids for one in found] == [one.token_ids for one in alone]
    owners = [i for i, params in enumerate(MIXED) for _ in range(params.n)]
    for owner, one, single in zip(owners, found, alone, strict=True):
        top = MIXED[owner].prompt_logprobs
        if top is None:
            assert one.prompt_scores == []
        else:
            assert_scores(model, PROMPTS[owner], one.prompt_scores, top)
        assert one.logprobs == pytest.approx(single.logprobs, abs=1e-4)
        for found_top, expected_top in zip(one.top_logprobs, single.top_logprobs, strict=True):
            assert dict(found_top) == pytest.approx(dict(expected_top), abs=1e-4)
    happened = Counter(type(event).__name__ for event in engine.log)
    assert (happened["Preempted"] > 0) == (config.get("max_kv_tokens", 4096) < 4096)
    accepted = [row.accepted for e in engine.log if isinstance(e, StepFinished) for row in e.tokens]
    assert (sum(accepted) > 0) == ("drafter" in config)
