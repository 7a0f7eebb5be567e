"""The model in the page: everything that an engine computes with it, it computes with torch, too."""

import random
import string
from array import array

import pytest

from checks.lesson_01 import YourDistribution
from engine import ConfigError, Engine, EngineConfig, SamplingParams
from engine.core.sampling_params import StructuredOutput
from engine.extensions.prompt_lookup import PromptLookup
from engine.models.text.byte_pair_tokenizer import BytePairTokenizer
from engine.models.text.hf_tokenizer import HFTokenizer
from page_model import BUNDLED, PageLoader
from solutions import lesson_01
from tests.site.page_models import NODE, NodeModel
from visualizer import read

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node")

EXACT = 1e-4  # how far a log-probability may be from torch's
STORY = "Once upon a time, a fox called Theo lived near a quiet river. One day"
PROMPTS = [
    STORY,
    "One day Mia found a golden key.",
    "It was a rainy day. The little boat was all alone on the big lake.",
    "Ted had a secret.",
    "<|user_start|>What is 17 + 25?<|user_end|><|assistant_start|>",
    "Every morning the old bear",
    "A naïve café — 😀?",
    STORY + " he found a small key under the old mill. He was happy. He ran home, and",
]


@pytest.fixture(scope="module")
def node():
    model = NodeModel()
    yield model
    model.close()


@pytest.fixture
def in_page(node, monkeypatch):
    """Within a test, `Engine.load` loads as it does in a page if it is told so."""

    def load(loader, *args, **kwargs):
        monkeypatch.setattr(Engine, "loader", loader)
        return Engine.load(*args, **kwargs)

    return lambda *args, **kwargs: [
        load(loader, *args, **kwargs) for loader in (None, PageLoader(lambda: node))
    ]


def run(engine, asked):
    requests = [engine.submit(prompt, params) for prompt, params in asked]
    done = []
    while engine.has_work():
        done += engine.step().finished
    assert all(request in done for request in requests)
    return sorted(done, key=lambda request: request.id)


def near(values):
    return pytest.approx(values, abs=EXACT)


def assert_equal(theirs, ours):
    """Compare finished requests with torch's."""
    for torch, page in zip(theirs, ours, strict=True):
        assert page.error == torch.error == ""
        assert page.tokens == torch.tokens
        assert page.logprobs == near(torch.logprobs)
        assert page.finish_reason == torch.finish_reason
        assert page.preemptions == torch.preemptions
        pairs = [*zip(torch.top_logprobs, page.top_logprobs, strict=True)]
        assert len(page.prompt_scores) == len(torch.prompt_scores)
        for theirs_, ours_ in zip(torch.prompt_scores, page.prompt_scores, strict=True):
            assert (ours_.logprob, ours_.rank) == (near(theirs_.logprob), theirs_.rank)
            pairs.append((theirs_.top, ours_.top))
        for expected, top in pairs:
            assert [one[1] for one in top] == near([one[1] for one in expected])
            # Two tokens that are almost equally likely may change places.
            assert {one[0] for one in top[:3]} == {one[0] for one in expected[:3]}


GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)


def sampled(seed, **params):
    params = {"temperature": 0.9, "max_tokens": 20, "ignore_eos": True} | params
    return SamplingParams(seed=seed, **params)


CASES = {
    "eight at once": (EngineConfig(), [(prompt, GREEDY) for prompt in PROMPTS]),
    "chunks, few blocks, preemption": (
        EngineConfig(token_budget=12, max_kv_tokens=160, block_size=4),
        [(prompt, GREEDY) for prompt in PROMPTS],
    ),
    "forks and copies": (
        EngineConfig(block_size=8),
        [(STORY, sampled(3, n=4)), (STORY, GREEDY), (STORY + " he", sampled(4, best_of=3))],
    ),
    "a block for each token": (EngineConfig(block_size=1), [(STORY, GREEDY)]),
    "log-probabilities": (
        EngineConfig(token_budget=16),
        [
            (STORY, SamplingParams(max_tokens=4, logprobs=2048, prompt_logprobs=5)),
            (PROMPTS[1], SamplingParams(max_tokens=6, logprobs=3, logit_bias={300: 4.0, 12: -100})),
        ],
    ),
    "sampled": (
        EngineConfig(),
        [
            (STORY, sampled(1)),
            (STORY, sampled(2, top_k=5)),
            (STORY, sampled(3, top_p=0.7, temperature=1.5)),
            (STORY, sampled(-4, min_p=0.1)),
            (STORY, sampled(2**70, top_k=50, top_p=0.95, min_p=0.01)),
        ],
    ),
    "penalties and bans": (
        EngineConfig(),
        [
            (STORY, sampled(5, repetition_penalty=1.3, logprobs=2)),
            (STORY, sampled(6, temperature=0, frequency_penalty=0.5, presence_penalty=0.4)),
            (STORY, sampled(7, allowed_token_ids=[*range(300, 700)])),
            (STORY, sampled(8, temperature=0, bad_words=[" the", " he", "."])),
            (PROMPTS[4], SamplingParams(max_tokens=30, min_tokens=25)),
        ],
    ),
    "a shape": (
        EngineConfig(jump_forward=False),
        [(STORY, sampled(9, structured=StructuredOutput("regex", " (he|she) (ran|sat)[.!]")))],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_engine_computes_what_it_computes_with_torch(in_page, case):
    config, asked = CASES[case]
    theirs, ours = in_page("bundled", config)
    assert_equal(run(theirs, asked), run(ours, asked))
    for event in ("StepScheduled", "PrefixHit", "BlockCopied"):
        kinds = [
            [one for one in log if type(one).__name__ == event] for log in (theirs.log, ours.log)
        ]
        assert len(kinds[0]) == len(kinds[1])


def test_masks_are_reported_as_with_torch(in_page):
    shape = StructuredOutput("regex", '"(cat|dog)"')
    logs = []
    for engine in in_page("bundled", EngineConfig(jump_forward=False)):
        run(engine, [(STORY, SamplingParams(structured=shape))])
        logs.append([(row.allowed, row.wanted, row.mass) for row in read(engine.log).token_rows])
    theirs, ours = logs
    assert [one[:2] for one in ours] == [one[:2] for one in theirs]
    assert [one[2] for one in ours] == near([one[2] for one in theirs])


class Half:
    """A verifier that accepts drafts by the general rule, with a drafter that is certain."""

    def accept(self, p, drafts, numbers, pick):
        for j, (draft, number) in enumerate(zip(drafts, numbers, strict=True)):
            if number >= p[j][draft]:
                return [*drafts[:j], pick([0 if i == draft else w for i, w in enumerate(p[j])])]
        return [*drafts, pick(p[-1])]


@pytest.mark.parametrize("parts", ["lookup", "model", "verifier"])
def test_drafts_are_verified_as_with_torch(in_page, parts):
    given = {
        "lookup": lambda: {"drafter": PromptLookup()},
        "model": lambda: {"draft_model": "bundled", "draft_length": 3},
        "verifier": lambda: {"drafter": PromptLookup(), "verifier": Half()},
    }[parts]
    asked = [
        ("a b c d a b c d a b", GREEDY),
        (STORY * 2, sampled(1)),
        (STORY * 2, sampled(2, logprobs=2)),
    ]
    theirs, ours = (engine for engine in in_page("bundled", EngineConfig(), **given()))
    assert_equal(run(theirs, asked), run(ours, asked))
    drafted = [
        sum(step.drafted_tokens for step in read(engine.log).step_rows) for engine in (theirs, ours)
    ]
    assert drafted[0] == drafted[1] > 0


def test_a_distribution_of_a_learner_is_used_as_with_torch(in_page):
    """Lesson 01: the check wraps what a learner wrote."""
    distribution = YourDistribution(lesson_01.distribution)
    asked = [(STORY, sampled(1, top_p=0.8)), (STORY, sampled(2, top_k=3)), (STORY, GREEDY)]
    theirs, ours = in_page("bundled", EngineConfig(), logits_to_probs=distribution)
    assert_equal(run(theirs, asked), run(ours, asked))
    always = YourDistribution(lambda logits, *_: [float(i == 301) for i in range(len(logits))])
    for engine in in_page("bundled", EngineConfig(), logits_to_probs=always):
        assert run(engine, asked[:1])[0].output_ids == [301] * 20


def test_a_page_holds_the_keys_and_values_that_torch_computes(in_page):
    pages = []
    for engine in in_page("bundled", EngineConfig()):
        engine.submit(STORY, GREEDY)
        engine.step()
        [request] = engine.requests.values()
        page = engine.runner.read_pages(request.block_table[:1])
        kv_format = engine.runner.kv_format()
        assert len(page) == kv_format.page_bytes
        engine.runner.write_pages([50, 51], memoryview(page * 2))
        assert engine.runner.read_pages([51]) == page
        pages.append((kv_format[1:], array("f", page)))
    (form, theirs), (same, ours) = pages
    assert same == form
    assert list(ours) == pytest.approx(list(theirs), abs=1e-3)


def test_engines_do_not_share_kv_memory(in_page):
    """Lessons keep several engines, and compare them."""
    _, first = in_page("bundled", EngineConfig())
    _, second = in_page("bundled", EngineConfig())
    request = first.submit(STORY, GREEDY)
    first.step()
    run(second, [(PROMPTS[1], GREEDY)])
    while first.has_work():
        first.step()
    alone, _ = in_page("bundled", EngineConfig())
    assert request.tokens == run(alone, [(STORY, GREEDY)])[0].tokens


def test_the_model_is_fetched_once_and_only_if_it_is_used(node):
    fetched = []
    loader = PageLoader(lambda: fetched.append(node) or node)
    with pytest.raises(ConfigError):
        loader.load("org/model", engine=EngineConfig())
    assert not fetched
    for _ in range(2):
        loader.load("bundled", engine=EngineConfig())
    assert len(fetched) == 1


def test_a_damaged_model_ends_the_request_and_not_the_engine(node, monkeypatch):
    monkeypatch.setattr(Engine, "loader", PageLoader(lambda: node))
    engine = Engine.load()
    damaged = array("f", [float("nan")] * (engine.runner.kv_format().page_bytes // 4))
    first = engine.submit(STORY, GREEDY)
    engine.step()
    engine.runner.write_pages(first.block_table[:1], memoryview(damaged).cast("B"))
    engine.step()
    assert first.error.startswith("FloatingPointError: the model's logits are not finite")
    assert run(engine, [(PROMPTS[1], GREEDY)])[0].error == ""


def test_ids_are_those_of_the_library():
    chance = random.Random(19)
    ours, library = BytePairTokenizer(BUNDLED), HFTokenizer(BUNDLED)
    alphabets = [
        string.printable,
        " aeiou'\"nst\n",
        "".join(map(chr, range(0x20, 0x250))),
        "é😀한\u0301\u200d\x85\xa0\u2003\x1c\ufffd\0",
        [library.decode([id_]) for id_ in (*library.special_ids, *range(300, 400))] + ["<|", "|>"],
    ]
    for count in range(1000):
        text = "".join(chance.choices(alphabets[count % len(alphabets)], k=chance.randrange(80)))
        assert ours.encode(text) == library.encode(text)
        assert ours.encode_ordinary(text) == library.encode_ordinary(text)
