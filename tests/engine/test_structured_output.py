"""Structured output: the bundled model keeps the shape that a request asks for, in every situation."""

import json
import math
import re

import pytest

from engine import (
    Cost,
    CostRunner,
    Engine,
    EngineConfig,
    RequestError,
    SamplingParams,
    Workload,
    simulate,
)
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log import vocabulary as v
from engine.core.sampling_params import StructuredOutput
from engine.extensions.grammars.constraint import GrammarConstraint
from engine.extensions.grammars.grammar import GrammarCompiler
from tests.engine.bundled import bundled, bundled_engine
from tests.engine.workloads import finish
from tests.facts import assert_names, raises_naming
from visualizer import read

ANIMAL = {
    "type": "object",
    "properties": {
        "animal": {"enum": ["owl", "fox", "cat", "dog", "bear"]},
        "legs": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["animal", "legs"],
}
PROMPTS = ["Describe an animal as JSON", "Once upon a time", "Name an animal"]
DEAD_END = 'start: "a" ("b" "x" "y" "z" | "c" DEAD)\nDEAD: /[0-9]+/ & /[a-z]+/'
# A hundred rules that recurse at their end: after 13 letters the library's limit is reached.
LIMITED = "start: " + "|".join(f"r{i}" for i in range(100))
LIMITED += "".join(f'\nr{i}: "a" r{i} | "b" r{i} | "b"' for i in range(100))
TOO_LARGE = "start: T0" + "".join(f"\nT{i}: T{i + 1} T{i + 1}" for i in range(40)) + '\nT40: "a"'
DEEP = "start: r0" + "".join(f"\nr{i}: r{i + 1}" for i in range(4500)) + '\nr4500: "a"'
PLAIN = SamplingParams(max_tokens=30)


def shape(kind, content="", **params):
    text = content if isinstance(content, str) else json.dumps(content)
    return SamplingParams(**{"max_tokens": 60} | params, structured=StructuredOutput(kind, text))


def serve(params, config=None, prompts=PROMPTS, **parts):
    engine = bundled_engine(config, **parts)
    return engine.complete(prompts, params, progress=False), engine


def answer(params, prompt=PROMPTS[0], **config):
    [done], _ = serve([params], EngineConfig(**config), [prompt])
    return done


# The output has the shape


def is_animal(text):
    value = json.loads(text)
    return value["animal"] in ANIMAL["properties"]["animal"]["enum"] and 0 <= value["legs"] <= 9


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("kind", "text", "fits"),
    [
        ("json_schema", ANIMAL, is_animal),
        ("regex", r"[A-Z][a-z]{2,8} \d\d", re.compile(r"[A-Z][a-z]{2,8} \d\d").fullmatch),
        ("choice", (words := ["yes", 'a "no"', "\u00e9\U0001f989"]), words.__contains__),
        ("grammar", 'start: "<" WORD ">"\nWORD: /[a-z]{3}/', re.compile("<[a-z]{3}>").fullmatch),
    ],
)
def test_every_kind_of_shape_is_kept_and_its_end_is_the_end(kind, text, fits, temperature):
    done = answer(shape(kind, text, temperature=temperature))
    assert fits(done.text) and done.finish_reason == "stop"


STRING = {"type": "string"}
NAMES = ["date-time", "email", "hostname", "ipv6", "uri", "uuid"]
REALISTIC = {
    "any object": {"type": "object"},
    "200 properties": {
        "type": "object",
        "properties": {f"property_{i}": STRING for i in range(200)},
    },
    "enum of 1,000 values": {"enum": [f"value number {i}" for i in range(1000)]},
    "formats": {
        "type": "object",
        "properties": {name: STRING | {"format": name} for name in NAMES},
        "required": NAMES,
    },
    "long text": STRING | {"maxLength": 20_000},
    "an optional reference to itself": {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "value": {"type": "integer"}},
        "required": ["value"],
    },
}


@pytest.mark.parametrize("schema", REALISTIC.values(), ids=REALISTIC)
def test_realistic_schemas_stay_below_the_limits_and_add_no_whitespace(schema):
    done = answer(shape("json_schema", schema, max_tokens=80, temperature=1.0, seed=1))
    assert done.finish_reason in ("stop", "length") and not done.error
    if done.finish_reason == "stop":
        assert json.dumps(json.loads(done.text), ensure_ascii=False) == done.text


def test_forced_tokens_cost_no_step():
    params = [shape("regex", "[ab]" + "The lighthouse keeper " * 3 + "[ab]")]
    _, slow = serve(params, EngineConfig(jump_forward=False), PROMPTS[:1])
    _, fast = serve(params, EngineConfig(), PROMPTS[:1])
    assert fast.step_count == 3 < slow.step_count


def test_a_request_for_logprobs_samples_every_token():
    done = answer(shape("json_schema", ANIMAL, logprobs=2))
    assert all(done.logprobs) and all(len(top) == 2 for top in done.top_logprobs)
    jumped = answer(shape("json_schema", ANIMAL))
    assert done.token_ids == jumped.token_ids and not all(jumped.logprobs)
    free = answer(SamplingParams(max_tokens=1, logprobs=3))
    masked = answer(shape("regex", "[xyz]", max_tokens=1, logprobs=3))
    assert masked.top_logprobs == free.top_logprobs, "those of the model itself"
    assert masked.logprobs < free.logprobs


# What the log says


def test_the_log_says_what_the_grammar_left_to_choose_from():
    _, engine = serve([shape("json_schema", ANIMAL), PLAIN, PLAIN])
    masked = [token for token in read(engine.log).token_rows if token.request == 1]
    assert [token.allowed for token in masked if not token.forced] == [1, 14, 10]
    assert all(token.allowed == 1 and token.mass is None for token in masked if token.forced)
    for token in masked:
        if not token.forced:
            assert 0 < token.mass <= 1 and token.wanted != token.id
            named = token.wanted is not None
            assert token.wanted_text == (engine.tokenizer.decode([token.wanted]) if named else None)
    assert any(token.wanted is not None for token in masked)
    plain = [token for token in read(engine.log).token_rows if token.request == 2]
    assert {(token.allowed, token.wanted, token.mass) for token in plain} == {(0, None, None)}
    arrived = next(event for event in engine.log if isinstance(event, v.RequestArrived))
    assert arrived.sampling["structured"] == {"kind": "json_schema", "text": json.dumps(ANIMAL)}


def test_the_mass_is_the_probability_of_the_allowed_tokens():
    params = SamplingParams(max_tokens=1, logprobs=2048)
    free = dict(answer(params).top_logprobs[0])
    _, engine = serve([shape("regex", "[a-z]{2}", max_tokens=1)], prompts=PROMPTS[:1])
    [token] = read(engine.log).token_rows
    mask = engine.submit("x", shape("regex", "[a-z]{2}")).constraint.mask([])
    mass = sum(math.exp(logprob) for id_, logprob in free.items() if mask >> id_ & 1)
    assert token.mass == pytest.approx(mass, rel=1e-2)
    assert token.allowed == mask.bit_count()


def test_a_replay_of_a_log_needs_no_grammar():
    _, engine = serve([shape("json_schema", ANIMAL), PLAIN, shape("regex", "[ab]{9}")])
    replay = simulate(Workload.from_log(engine.log), cost=Cost(1, 1))
    ids = [[token.id for token in read(log).token_rows] for log in (engine.log, replay)]
    assert ids[0] == ids[1]


# Where an output ends


def test_an_output_ends_where_the_grammar_allows_it_and_where_nothing_may_follow():
    ends = bundled_engine().tokenizer.eos_ids
    for kind, text, params, length in (
        ("regex", "abc[a-z]{0,6}", {"logit_bias": dict.fromkeys(ends, 100.0)}, 3),
        ("regex", "[ab]{2,20}", {"ignore_eos": True, "max_tokens": 100}, 20),
        ("choice", ["yes", "way"], {"ignore_eos": True, "min_tokens": 50}, 3),
        ("choice", [""], {"ignore_eos": True, "min_tokens": 50}, 0),
        ("grammar", DEEP, {}, 1),  # 4,500 rules deep: the stack does not overflow
    ):
        done = answer(shape(kind, text, **params))
        assert (len(done.text), done.finish_reason) == (length, "stop")
        assert ends.isdisjoint(done.token_ids[:-1])
        assert "logit_bias" not in params or done.token_ids[-1] in ends


# What cannot be compiled


@pytest.mark.parametrize(
    ("kind", "text", "named"),
    [
        ("json_schema", {"properties": {"a": {"items": {"not": {}}}}}, "$.properties.a.items"),
        ("json_schema", {"$defs": {"A": {"type": "strin"}}, "$ref": "#/$defs/A"}, "$.$defs.A"),
        ("json_schema", {"properties": {"a": {"type": "string", "pattern": "x("}}}, "position 1"),
        ("json_schema", "[" * 5000, "deeply"),
        ("json_schema", '{"items":' * 400 + "{}" + "}" * 400, "deeply"),
        ("json_schema", [1], "[1]"),
        ("json_schema", {"$ref": "#"}, "begin"),
        ("json_schema", {"items": {"multipleOf": 999_983, "type": "integer"}}, "$.items"),
        ("grammar", TOO_LARGE, "100,000"),
        ("grammar", TOO_LARGE, "initial_lexer_fuel"),
        ("json_schema", {"items": {"type": "string", "pattern": "a?" * 5000}}, "$.items"),
        ("regex", "a?" * 5000, "10,000"),
        ("regex", r"(a)\1", "position 3"),
        ("choice", [], "[]"),
        ("choice", [1], "[1]"),
        ("grammar", 'start: x\nx: "a" y', "line 2, column 4"),
    ],
)
def test_a_shape_that_cannot_be_compiled_is_rejected_with_the_part(kind, text, named):
    engine = bundled_engine()
    with raises_naming(RequestError, "structured", named):
        engine.validate([1], shape(kind, text))
    with raises_naming(RequestError, "structured", named):
        engine.submit("x", shape(kind, text))
    assert not engine.has_work()
    assert engine.validate([1], shape("regex", "[xyz]{40}(a?){200}a{200}")) is not None


def test_a_grammar_that_was_compiled_is_not_compiled_again(monkeypatch):
    engine = bundled_engine()
    constraint = engine.validate([1], shape("regex", "a|b"))
    monkeypatch.setattr("engine.extensions.grammars.grammar.GrammarCompiler._compile", None)
    engine.submit("x", shape("regex", "a|b"), constraint=constraint)


BRANCHES = "b{3,20}|[xyz]{10}(a?){200}a{200}"  # the second reaches a limit of the lexer after 132 a


def test_a_limit_that_a_draft_reaches_costs_drafts_only():
    compiler = GrammarCompiler(tokenizer := ByteTokenizer())
    constraint = compiler.constraint(StructuredOutput("regex", BRANCHES))
    letters = {letter: tokenizer.encode_ordinary(letter)[0] for letter in "abx"}
    output, drafts = [letters["x"]] * 10, [letters["a"]] * 140
    assert constraint.takes_drafts
    assert 0 < constraint.count_allowed(output, drafts) < 140 and not constraint.error
    assert constraint.mask(output) >> letters["a"] & 1 and not constraint.error
    assert constraint.count_allowed(output, drafts) == 0 and not constraint.takes_drafts
    constraint.mask(output + drafts)
    assert_names(constraint.error, "step_lexer_fuel", "20,000")


def test_an_output_that_cannot_go_on_ends_with_an_error_and_the_others_go_on():
    class Wild(CostRunner):
        """A machine that ignores the mask of the request labelled "wild"."""

        def run(self, rows, copies):
            hidden = [row.request for row in rows if row.request.label == "wild"]
            kept = [request.constraint for request in hidden]
            for request in hidden:
                request.constraint = None
            sampled = super().run(rows, copies)
            for request, constraint in zip(hidden, kept, strict=True):
                request.constraint = constraint
            return sampled

    engine = Engine(Wild(1, 1), tokenizer=ByteTokenizer())
    wild = engine.submit("a", shape("regex", "[0-9]{5}"), label="wild")
    tame = engine.submit("b", shape("regex", "[0-9]{5}"))
    finish(engine)
    assert wild.finish_reason == "error" and "structured" in wild.error
    assert wild.error_field == ""  # the engine's mistake
    assert tame.finish_reason == "stop" and re.fullmatch("[0-9]{5}", tame.output_text)


# The state is a function of the output

DOOMED = {
    "dead end": (DEAD_END, "ac", "abxyz"),
    "limit of the library": (LIMITED, "b" * 40, "aabab"),
    "token that does not fit": (DEAD_END, "x", "abxyz"),
}


def test_a_constraint_answers_for_any_output_in_any_order():
    engine = bundled_engine()
    encode = engine.tokenizer.encode_ordinary

    def fresh():
        return engine.submit("x", shape("json_schema", ANIMAL)).constraint

    whole = encode('{"animal": "bear", "legs": 4}')
    outputs = [whole[:n] for n in (9, 3, 12, 0, 20, 19, 20)]
    outputs.append(encode('{"animal": "fox'))
    one = fresh()
    masks = [one.mask(output) for output in outputs]
    assert masks == [fresh().mask(output) for output in outputs]
    assert one.is_complete(whole) and not one.is_complete(whole[:-1])
    assert one.fork().mask(outputs[2]) == masks[2]


def test_drafts_are_cut_where_the_grammar_forbids_them():
    engine = bundled_engine()
    constraint: GrammarConstraint = engine.submit("x", shape("regex", "[ab]+")).constraint
    a, b, c = (engine.tokenizer.encode_ordinary(letter)[0] for letter in "abc")
    end = min(engine.tokenizer.eos_ids)
    assert constraint.count_allowed([a], [b, a, c, a]) == 2
    assert constraint.count_allowed([a], [b, end]) == 1
    assert constraint.count_allowed([], [end]) == 0


@pytest.mark.parametrize(("grammar", "bad", "good"), DOOMED.values(), ids=DOOMED)
def test_an_output_that_cannot_go_on_says_nothing_about_others(grammar, bad, good):
    """Drafts are such outputs: the matcher recovers when they are rejected."""
    engine = bundled_engine()
    letters = {letter: engine.tokenizer.encode_ordinary(letter)[0] for letter in "abcxyz"}
    bad, good = ([letters[letter] for letter in text] for text in (bad, good))

    def fresh():
        return engine.submit("x", shape("grammar", grammar)).constraint

    constraint, expected = fresh(), [fresh().mask(good[:n]) for n in range(len(good) + 1)]
    for n, mask in enumerate(expected):
        assert constraint.mask(bad) == sum(1 << end for end in engine.tokenizer.eos_ids)
        assert constraint.error
        assert constraint.is_complete([*bad, min(engine.tokenizer.eos_ids)]) and constraint.error
        assert constraint.mask(good[:n]) == mask and not constraint.error
        constraint.count_allowed(good[:n], bad)
        assert constraint.mask(good[:n]) == mask and not constraint.error


class Doomed:
    """Always drafts tokens that lead to a dead end."""

    def __init__(self, drafts):
        self.drafts = drafts

    def propose(self, _request):
        return list(self.drafts)


@pytest.mark.parametrize("drafts", ["", "c"])
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_dead_end_is_an_error_and_not_a_complete_answer(drafts, ignore_eos):
    """There the mask allows only end tokens, which therefore do not mean that the answer is whole."""
    encode = bundled()[1].encode_ordinary
    likely_c = dict.fromkeys([*encode("a"), *encode("c")], 100.0)
    params = shape("grammar", DEAD_END, logit_bias=likely_c, ignore_eos=ignore_eos)
    drafter = Doomed(encode(drafts)) if drafts else None
    [done], _ = serve(params, prompts=PROMPTS[:1], drafter=drafter)
    assert (done.text, done.finish_reason) == ("ac", "error")
    assert_names(done.error, "structured", "no token can come next")


class _Words(ByteTokenizer):
    """Bytes, special tokens and `words` more tokens. Counts how often its tokens are read."""

    def __init__(self, words):
        super().__init__()
        self._table += [f"w{i}".encode() for i in range(words)]
        self.vocab_size, self.reads = len(self._table), 0

    def token_bytes(self, token_id):
        self.reads += 1
        return super().token_bytes(token_id)
