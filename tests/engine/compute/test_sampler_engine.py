"""Every sampling parameter through the whole engine: what it changes, and that scores are exact."""

from collections import Counter

import msgspec
import pytest
import torch

from engine import Engine, EngineConfig, SamplingParams
from engine.compute.loader import build
from engine.compute.model.config_file import read_config
from engine.compute.torch_runner import TorchRunner
from engine.compute.weights.checkpoint import Checkpoint
from engine.events.vocabulary import StepFinished
from engine.scheduling.admission import RequestError
from engine.scheduling.structured_output import StructuredOutput
from engine.speculation.prompt_lookup import PromptLookup
from engine.text.byte_tokenizer import ByteTokenizer
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


@pytest.fixture(scope="module")
def ask(qwen3):
    return Asker(qwen3[0])


@pytest.fixture(scope="module")
def model(qwen3):
    return qwen3[1]


def repeats(ids):
    """Output tokens that were in the output before."""
    return len(ids) - len(set(ids))


def likeliest(logits, count):
    """Per place, the ids of the `count` greatest logits."""
    return [set(row.topk(count).indices.tolist()) for row in logits]


def output_logits(model, ids):
    return reference_logits(model, PROMPT + ids)[len(PROMPT) - 1 : -1]


# One test for each field, named after it; the last test of this part counts them.


def test_max_tokens(ask):
    assert ask.ids(max_tokens=7) == ask.ids()[:7]


def test_min_tokens(ask):
    plain = ask.ids()
    end = plain[2]
    assert len(ask.ids(stop_token_ids=[end])) <= 3
    forbidden = ask.ids(stop_token_ids=[end], min_tokens=10)
    assert len(forbidden) > 10
    assert end not in forbidden[:10]
    assert forbidden[:2] == plain[:2]
    assert len(ask.ids(eos=[end])) <= 3 < 10 < len(ask.ids(eos=[end], min_tokens=10))


def test_stop(ask):
    text = ask.one().text
    found = ask.one(stop=[text[4:6]])
    assert found.text == text[: text.index(text[4:6])]
    assert found.finish_reason == "stop"


def test_stop_token_ids(ask):
    plain = ask.ids()
    found = ask.one(stop_token_ids=[plain[5]])
    assert found.token_ids == plain[: plain.index(plain[5]) + 1]
    assert found.finish_reason == "stop"


def test_include_stop_str_in_output(ask):
    plain = ask.one()
    stop = plain.text[4:6]
    found = ask.one(stop=[stop], include_stop_str_in_output=True)
    assert found.text == plain.text[: plain.text.index(stop) + 2]
    end = plain.token_ids[5]
    texts = [
        ask.one(stop_token_ids=[end], include_stop_str_in_output=keep).text
        for keep in (False, True)
    ]
    assert texts[1] == texts[0] + ByteTokenizer().decode([end])


def test_skip_special_tokens(ask):
    plain = ask.ids()
    engine = ask.engine()
    engine.tokenizer.special_ids = frozenset({plain[2]})
    params = SamplingParams(max_tokens=LENGTH, skip_special_tokens=True)
    (found,) = engine.complete([PROMPT], params, progress=False)
    assert found.token_ids == plain
    assert found.text == bytes(token for token in plain if token != plain[2]).decode()


def test_bad_words(ask):
    plain = ask.ids()
    pair = bytes(plain[3:5]).decode()
    found = ask.ids(bad_words=[pair])
    assert found[:4] == plain[:4]
    assert found[4] != plain[4]
    assert pair not in bytes(found).decode()
    assert plain[0] not in ask.ids(bad_words=[chr(plain[0])])


def test_allowed_token_ids(ask, model):
    allowed = [5, 9, 12]
    ids = ask.ids(allowed_token_ids=allowed)
    logits = output_logits(model, ids)[:, allowed]
    assert ids == [allowed[place] for place in logits.argmax(-1)]
    assert set(ask.ids(allowed_token_ids=allowed, **WARM | {"temperature": 9.0})) == set(allowed)
    # Its only token is an end that comes too early: still no other token.
    assert ask.ids(eos=[5], allowed_token_ids=[5], min_tokens=4, **WARM) == [5] * 5


def test_ignore_eos(ask):
    plain = ask.ids()
    assert ask.ids(eos=[plain[0]]) == plain[:1]
    assert ask.ids(eos=[plain[0]], ignore_eos=True) == plain


def test_structured(ask):
    digits = StructuredOutput("regex", "[0-9]*")
    assert set(ask.ids(eos=(0,), structured=digits, ignore_eos=True)) <= set(b"0123456789")
    with raises_naming(RequestError, "structured", "end token"):
        ask.one(structured=digits)


def test_logit_bias(ask):
    plain = ask.ids()
    assert plain[0] not in ask.ids(logit_bias={plain[0]: -100})
    forced = ask.one(logit_bias={42: 100})
    assert forced.token_ids == [42] * LENGTH
    assert forced.logprobs == pytest.approx([0] * LENGTH, abs=1e-3)


def test_repetition_penalty(ask):
    plain, penalised = ask.ids(max_tokens=50), ask.ids(max_tokens=50, repetition_penalty=50.0)
    assert repeats(plain) > 0
    # The prompt's tokens count as well: a strong penalty leaves none that was there.
    assert set(plain) & set(PROMPT)
    new = [token for token in range(97) if token not in PROMPT]
    first = penalised[: len(new) // 2]
    assert not set(first) & set(PROMPT)
    assert repeats(first) == 0


@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty"])
def test_frequency_and_presence_penalty(ask, penalty):
    plain = ask.ids(max_tokens=60)
    assert repeats(ask.ids(max_tokens=60, **{penalty: 2.0})) < repeats(plain)
    assert repeats(ask.ids(max_tokens=60, **{penalty: -2.0})) > repeats(plain)


def test_frequency_penalty_grows_with_each_time(ask):
    forced = dict(logit_bias={5: 60.0}, max_tokens=60)
    assert ask.ids(**forced, presence_penalty=2.0) == [5] * 60
    assert len(set(ask.ids(**forced, frequency_penalty=2.0))) > 1


def test_temperature(ask):
    assert ask.ids(temperature=1e-4) == ask.ids()
    draws = [ask.ids(temperature=t, seed=s) for t in (0.7, 5.0) for s in range(4)]
    assert sum(map(repeats, draws[4:])) < sum(map(repeats, draws[:4])), "bolder means more words"


def test_min_p(ask, model):
    free = ask.ids(**WARM)
    kept = ask.ids(**WARM, min_p=0.3)
    for ids, all_likely in ((free, False), (kept, True)):
        probabilities = (output_logits(model, ids) / WARM["temperature"]).softmax(-1)
        own = probabilities[range(LENGTH), ids] / probabilities.amax(-1)
        assert bool((own >= 0.3 - 1e-4).all()) == all_likely


def test_top_k(ask, model):
    for top_k, among in ((0, False), (3, True)):
        ids = ask.ids(**WARM, top_k=top_k)
        best = likeliest(output_logits(model, ids), 3)
        assert all(token in three for token, three in zip(ids, best, strict=True)) == among
    assert ask.ids(**WARM, top_k=1) == ask.ids()


def test_top_p(ask, model):
    for top_p, among in ((1.0, False), (0.4, True)):
        ids = ask.ids(**WARM, top_p=top_p)
        probabilities = (output_logits(model, ids) / WARM["temperature"]).softmax(-1)
        own = probabilities[range(LENGTH), ids]
        before = (probabilities * (probabilities > own[:, None])).sum(-1)
        assert bool((before < 0.4 + 1e-4).all()) == among
    assert ask.ids(**WARM, top_p=1e-6) == ask.ids()


def test_seed(ask):
    assert ask.ids(**WARM) == ask.ids(**WARM)
    assert ask.ids(**WARM) != ask.ids(**WARM | {"seed": 4})


def test_n(ask):
    samples = [one.token_ids for one in ask.all(**WARM, n=4)]
    assert len(set(map(tuple, samples))) == 4
    assert samples[0] == ask.ids(**WARM)
    assert [one.token_ids for one in ask.all(n=2)] == [ask.ids()] * 2


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


def test_prompt_logprobs(ask, model):
    assert ask.one().prompt_scores == []
    for one in ask.all(prompt_logprobs=3, **WARM, n=2, logit_bias={9: 5.0}):
        assert_scores(model, PROMPT, one.prompt_scores, 3)
    assert one.token_ids == ask.all(**WARM, n=2, logit_bias={9: 5.0})[1].token_ids


def test_every_field_has_its_test():
    fields = {field.name for field in msgspec.structs.fields(SamplingParams)}
    tests = {name.removeprefix("test_") for name in globals()}
    joint = {"frequency_penalty", "presence_penalty"}
    assert fields <= tests | joint


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
    for owner, one, reference in zip(owners, found, alone, strict=True):
        top = MIXED[owner].prompt_logprobs
        if top is None:
            assert one.prompt_scores == []
        else:
            assert_scores(model, PROMPTS[owner], one.prompt_scores, top)
        assert one.logprobs == pytest.approx(reference.logprobs, abs=1e-4)
        for found_top, expected_top in zip(one.top_logprobs, reference.top_logprobs, strict=True):
            assert dict(found_top) == pytest.approx(dict(expected_top), abs=1e-4)
    happened = Counter(type(event).__name__ for event in engine.log)
    assert (happened["Preempted"] > 0) == (config.get("max_kv_tokens", 4096) < 4096)
    accepted = [row.accepted for e in engine.log if isinstance(e, StepFinished) for row in e.tokens]
    assert (sum(accepted) > 0) == ("drafter" in config)
