"""Bad words and allowed tokens through the whole engine, with drafts, preemption and chunks."""

import random

import pytest

from engine import EngineConfig, SamplingParams
from engine.events import vocabulary as v
from engine.scheduling.admission import RequestError
from engine.text.bad_words import bad_word_ids
from tests.engine.bundled import Silent, bundled, bundled_engine, token_prompts
from tests.engine.drafters import Guessing, Knowing
from tests.facts import raises_naming

CONFIGS = {
    "roomy": dict(token_budget=64, max_kv_tokens=1024),
    "preempting, in chunks": dict(token_budget=7, max_kv_tokens=72),
    "asynchronous": dict(token_budget=64, max_kv_tokens=1024, async_scheduling=True),
}


def random_params(rng: random.Random) -> SamplingParams:
    """Words of one to three letters among few allowed ones, so that bans are met all the time."""
    letters = [chr(code) for code in range(40, 52)]
    words = ["".join(rng.choices(letters, k=rng.randint(1, 3))) for _ in range(rng.randint(0, 40))]
    allowed = rng.choice([None, bundled()[1].encode_ordinary(" ".join(letters))])
    return SamplingParams(
        bad_words=words if words and rng.random() < 0.8 else [],
        allowed_token_ids=allowed,
        temperature=rng.choice([0.0, 1.0, 3.0]),
        n=rng.choice([1, 2]),
        seed=rng.randrange(100),
        max_tokens=20,
        ignore_eos=True,
    )


def serve(work, drafter=None, **config):
    engine = bundled_engine(
        EngineConfig(max_batch_size=4, block_size=4, **config), drafter=drafter, tool=Silent
    )
    for prompt, params in work:
        engine.submit(prompt, params)
    seen = dict(engine.requests)
    while engine.has_work():
        engine.step()
        seen |= engine.requests
    return engine, [seen[id_] for id_ in sorted(seen)]


def breaks(request) -> bool:
    """Whether the output has a token that is not allowed, or a bad word."""
    params, output = request.params, request.output_ids
    if params.allowed_token_ids is not None and not set(output) <= set(params.allowed_token_ids):
        return True
    words = bad_word_ids(params.bad_words, bundled()[1])
    return any(
        tuple(output[at : at + len(word)]) == word for word in words for at in range(len(output))
    )


@pytest.mark.parametrize("seed", range(2))
def test_no_run_breaks_a_ban_and_all_runs_give_the_same_tokens(seed):
    rng = random.Random(seed)
    work = [(prompt, random_params(rng)) for prompt in token_prompts(4)]
    free = [
        (prompt, SamplingParams(temperature=3.0, seed=1, max_tokens=20, ignore_eos=True))
        for prompt, _ in work
    ]
    engine, expected = serve([*work, *free], **CONFIGS["roomy"])
    assert not any(map(breaks, expected))
    texts = [request.tokens for request in expected]
    for name, config in CONFIGS.items():
        drafters = [Guessing(vocab_size=97), Knowing(texts, wrong=lambda at: at % 3 == 0)]
        for drafter in [None] if "async_scheduling" in config else drafters:
            engine, requests = serve([*work, *free], drafter, **config)
            assert [request.tokens for request in requests] == texts
            preempted = any(isinstance(event, v.Preempted) for event in engine.log)
            assert preempted == (name == "preempting, in chunks")
    # The neighbours are those of a run without bans.
    _, alone = serve(free, **CONFIGS["roomy"])
    assert [one.output_ids for one in alone] == [one.output_ids for one in expected[-4:]]


def test_a_word_has_a_sequence_of_its_own_after_a_space():
    _, tokenizer = bundled()
    texts = [tokenizer.decode(ids) for ids in bad_word_ids(("prince", " there"), tokenizer)]
    assert texts == ["prince", " prince", "there", " there"]


@pytest.mark.parametrize("words", [["x" * 1025], [str(number) for number in range(129)], [" "]])
def test_words_that_cannot_be_banned_are_rejected_by_name(words):
    engine = bundled_engine()
    with raises_naming(RequestError, "bad_words"):
        engine.submit("a", SamplingParams(bad_words=words))
    assert not engine.requests
