"""Random grammars with dead ends and limits, under preemption, with drafts, samples and streaming.

An answer has its shape, or its request ends with the reason, and no other request notices: all tokens
are those of a roomy engine without drafts, up to rounding. At which token a grammar reaches a limit
depends on what its lexer has read before, drafts included. Each grammar is drawn with an equal regular
expression of Python's `re`, where a branch that cannot be satisfied is `(?!)`. `--soak` runs 1,000
workloads; a failure prints the seed that repeats it.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest

from engine import Engine, EngineConfig, RequestError, SamplingParams
from engine.core.compute.randomness import uniforms
from engine.core.compute.torch_runner import TorchRunner
from engine.core.log import vocabulary as v
from engine.core.sampling_params import StructuredOutput
from engine.extensions.draft_model import DraftModel
from engine.extensions.grammars.grammar import GrammarCompiler
from engine.extensions.prompt_lookup import PromptLookup
from tests.engine.bundled import bundled
from tests.engine.workloads import named

LETTERS = "abcx"
LIMIT = "needs more than"
DEAD = "\nDEAD: /[0-9]+/ & /[a-z]+/"
ROOMY = EngineConfig(max_kv_tokens=4096, token_budget=256, jump_forward=False)


@dataclass
class Grammar:
    """A grammar in llguidance's Lark syntax, and the same language as a regular expression."""

    lark: str
    regex: str
    has_limit: bool = False


def expression(rng: Random, depth: int) -> Grammar:
    """Draw an expression; about one in eight of its leaves cannot be satisfied."""
    draw = rng.random() if depth else 0.0
    if draw < 0.3:
        return leaf(rng)
    if draw < 0.6:
        return joined(rng, depth, " ", "")
    if draw < 0.9:
        return joined(rng, depth, " | ", "|")
    part, times = expression(rng, depth - 1), rng.choice(["?", "{1,3}", "{2,4}", "*"])
    return Grammar(f"({part.lark}){times}", f"(?:{part.regex}){times}")


def joined(rng: Random, depth: int, lark: str, regex: str) -> Grammar:
    parts = [expression(rng, depth - 1) for _ in range(rng.randint(2, 3))]
    return Grammar(
        f"({lark.join(one.lark for one in parts)})", f"(?:{regex.join(one.regex for one in parts)})"
    )


def leaf(rng: Random) -> Grammar:
    draw = rng.random()
    if draw < 0.12:
        return Grammar("DEAD", "(?!)")
    if draw < 0.3:
        times = rng.choice(["", "{1,3}", "{2,5}"])
        return Grammar(f"/[a-c]{times}/", f"[a-c]{times}")
    text = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 3)))
    return Grammar(f'"{text}"', text)


def limited(rng: Random) -> Grammar:
    """Draw a grammar that reaches the library's limit of items, or of its lexer, after some tokens."""
    if rng.random() < 0.3:
        times = rng.randint(5, 15)
        lark = f"start: /[ab]{{{times}}}(c?){{200}}c{{200}}/"
        return Grammar(lark, f"[ab]{{{times}}}c{{200,400}}", has_limit=True)
    rules = range(rng.randint(40, 160))
    lark = "start: " + "|".join(f"r{i}" for i in rules)
    lark += "".join(f'\nr{i}: "a" r{i} | "b" r{i} | "b"' for i in rules)
    return Grammar(lark, "[ab]*b", has_limit=True)


def grammar(rng: Random) -> Grammar:
    if rng.random() < 0.12:
        return limited(rng)
    one, times = expression(rng, 3), rng.choice(["{1}", "{2,4}", "{4,8}"])
    return Grammar(f"start: ({one.lark}){times}{DEAD}", f"(?:{one.regex}){times}")


@dataclass
class Workload:
    prompts: list[str]
    params: list[SamplingParams]
    grammars: list[Grammar | None]  # None for a plain request

    @classmethod
    def draw(cls, rng: Random) -> "Workload":
        grammars = [None if rng.random() < 0.25 else grammar(rng) for _ in range(rng.randint(3, 6))]
        prompts = [
            ("".join(rng.choice([*LETTERS, "ab", "cx "]) for _ in range(rng.randint(2, 12))) * 2)[
                :30
            ]
            for _ in grammars
        ]
        params = [
            SamplingParams(
                max_tokens=rng.choice([2, 12, 20, 24]),
                n=rng.choice([1, 1, 1, 2, 3]),
                temperature=rng.choice([0.0, 1.0, 1.0]),
                seed=rng.randrange(100),
                ignore_eos=rng.random() < 0.2,
                structured=None if one is None else StructuredOutput("grammar", one.lark),
            )
            for one in grammars
        ]
        return cls(prompts, params, grammars)


class Noisy:
    """A draft model that draws one of the letters now and then, and whose passes may fail."""

    def __init__(self, runner, rng: Random, ids: list[int], *, fails: bool) -> None:
        self._runner = runner
        self._rng = rng
        self._ids = ids
        self._fails = fails

    def __getattr__(self, name):
        return getattr(self._runner, name)

    def run(self, rows, copies):
        if self._fails and self._rng.random() < 0.2:
            raise FloatingPointError("no finite logits")
        sampled = self._runner.run(rows, copies)
        for row in sampled:
            for one in row:
                if self._rng.random() < 0.4:
                    one.ids[-1] = self._rng.choice(self._ids)
        return sampled


def random_engine(rng: Random, models) -> Engine:
    target, draft, tokenizer = models
    asynchronous = rng.random() < 0.2
    config = EngineConfig(
        max_kv_tokens=rng.choice([56, 56, 64, 80, 4096]),
        block_size=rng.choice([2, 4, 8]),
        token_budget=rng.choice([12, 40, 128]),
        max_batch_size=rng.choice([3, 6, 8]),
        prefix_cache=rng.choice(["radix", "hash", "off"]),
        admission=rng.choice(["first_chunk", "first_chunk", "whole"]),
        jump_forward=rng.random() < 0.5,
        async_scheduling=asynchronous,
    )
    letters = [tokenizer.encode_ordinary(letter)[0] for letter in LETTERS]
    noisy = Noisy(draft, rng, letters, fails=rng.random() < 0.3)
    drafters = [PromptLookup(4, 3, 1), DraftModel(noisy, rng.choice([1, 3, 5]))]
    drafter = None if asynchronous else rng.choice(drafters)
    return Engine(target, config, tokenizer=tokenizer, drafter=drafter)


def serve(engine: Engine, workload: Workload) -> tuple[dict[tuple[int, int], tuple], list[str]]:
    """Serve a workload; return each sample's answer by arrival and sample, and why some are rejected.

    The text is put together from what each step delivers to a client.
    """
    arrivals, streamed, rejected = dict[int, int](), Counter(), list[str]()
    answers, streamed = {}, dict[int, str]()
    for index, (prompt, params) in enumerate(zip(workload.prompts, workload.params, strict=True)):
        try:
            first = engine.submit(prompt, params)
        except RequestError as error:
            assert error.field == "structured"
            rejected.append(str(error))
            continue
        arrivals |= {first.id + sample: index for sample in range(params.n)}
    starts = {index: id_ for id_, index in sorted(arrivals.items(), reverse=True)}
    while engine.has_work():
        output = engine.step()
        for new in output.tokens:
            streamed[new.request.id] = streamed.get(new.request.id, "") + "".join(new.texts)
        for one in output.finished:
            assert streamed[one.id] == one.output_text
            index = arrivals[one.id]
            answers[index, one.id - starts[index]] = (
                one.output_ids, one.output_text, one.finish_reason, one.error,
            )  # fmt: skip
    assert len(answers) == len(arrivals)
    engine.clear_prefix_cache()
    assert len(engine.pool.free) == engine.config.num_blocks
    return answers, rejected


def check(seed: int, models, counts: Counter) -> None:
    rng = Random(seed)
    workload = Workload.draw(rng)
    target, _, tokenizer = models
    expected, refused = serve(Engine(target, ROOMY, tokenizer=tokenizer), workload)
    engine = random_engine(rng, models)
    answers, rejected = serve(engine, workload)
    assert rejected == refused and all(map(is_reason, rejected))
    assert answers.keys() == expected.keys()
    for key in answers:
        one = workload.grammars[key[0]]
        errors = answers[key][3] + expected[key][3]
        may_differ = one and one.has_limit and LIMIT in errors  # the limit, at another token
        if answers[key] != expected[key] and not may_differ:
            assert_rounding(models, workload, key, answers[key][0], expected[key][0])
    for (index, _), (_, text, reason, error) in answers.items():
        one = workload.grammars[index]
        if one is None:
            assert not error
        elif reason == "error":
            assert is_reason(error.removeprefix("structured: "))
            counts["limit" if LIMIT in error else "dead end"] += 1
        else:
            assert not error and reason in ("stop", "length")
            assert reason == "length" or re.fullmatch(one.regex, text), (one, text)
            counts["whole" if reason == "stop" else "cut by max_tokens"] += 1
    plain = [index for index, one in enumerate(workload.grammars) if one is None]
    alone = Workload(*([part[i] for i in plain] for part in vars(workload).values()))
    undisturbed, _ = serve(Engine(target, ROOMY, tokenizer=tokenizer), alone)
    for index, sample in undisturbed:
        own, key = undisturbed[index, sample], (plain[index], sample)
        if answers[key] != own:
            assert_rounding(models, workload, key, answers[key][0], own[0])
    rows = [row for step in engine.log.of(v.StepScheduled) for row in step.rows]
    counts["preemptions"] += len(engine.log.of(v.Preempted))
    counts["drafts"] += sum(len(row.drafts) for row in rows)


def assert_rounding(
    models, workload: Workload, key: tuple[int, int], one: list[int], other: list[int]
) -> None:
    """Assert that the random number of the first different token lies on the border between the two.

    The logits change in their last bits with the shape of a batch (`randomness.py`).
    """
    target, _, tokenizer = models
    params = workload.params[key[0]]
    pairs = zip(one, other, strict=False)
    at = next(i for i, (token, another) in enumerate(pairs) if token != another)
    text = [*tokenizer.encode(workload.prompts[key[0]]), *one[:at]]
    engine = Engine(target, ROOMY, tokenizer=tokenizer)
    asked = SamplingParams(max_tokens=1, temperature=0.0, logprobs=tokenizer.vocab_size)
    [scored] = engine.complete([text], asked, progress=False)
    p = dict.fromkeys(range(tokenizer.vocab_size), 0.0)
    p |= {token: math.exp(logprob) for token, logprob in scored.top_logprobs[0]}
    if params.structured is not None:
        mask = GrammarCompiler(tokenizer).constraint(params.structured).mask(one[:at])
        p = {token: p[token] * (mask >> token & 1) for token in p}
    low, high = sorted([one[at], other[at]])
    if params.temperature == 0:
        assert math.isclose(p[low], p[high], rel_tol=1e-4)
        return
    [number] = uniforms([params.seed], [key[1]], [len(text)])
    for end in (low, high - 1):
        below = sum(p[token] for token in range(end + 1)) / sum(p.values())
        assert math.isclose(below, number, abs_tol=1e-5)


def is_reason(text: str) -> bool:
    return len(text) > 10 and "\n" not in text


@pytest.fixture(scope="module")
def models():
    runner, tokenizer = bundled()
    return runner, TorchRunner(runner._model), tokenizer


def test_every_answer_is_whole_or_ends_with_a_reason(models, soak: bool, first_seed: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + (1000 if soak else 6)):
        with named(seed):
            check(seed, models, counts)
    print("\n" + ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items())))
    for happened in ("whole", "dead end", "limit", "preemptions", "drafts"):
        assert counts[happened], f"no workload had any: {happened}"
