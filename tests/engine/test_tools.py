"""The calculator's tokens under continuous batching: each sample gets the answers to its own calls."""

from collections.abc import Sequence

import pytest

from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.part_errors import ToolError
from engine.core.request import Request
from tests.engine.tool_scripts import (
    CALL,
    END_CALL,
    END_OUTPUT,
    answered,
    engine_that_says,
    forced,
    ids,
    script,
    submit,
)
from tests.engine.workloads import finish
from tests.facts import raises_naming
from visualizer import read

TURN = "ab{1+1}c{20*3}de"  # two calls with text around them


# What is forced


@pytest.mark.parametrize(
    ("prompt", "said", "answers"),
    [
        *(("q", f"{{{text}}}a", "") for text in ("1/0", "", "2**9", "1+", "[5]", " ", "1;2")),
        ("q", "a{1+1", ""),
        ("q", "}a", ""),
        ("q", "{{}}a", ""),
        ("q", "{1+{2+2}a", "[4]"),  # the inner start begins again
        ("q", "{1+1}}a", "[2]"),  # the second end closes nothing
        ("q", "{1/0}{1+1}{2+2}a", "[2][4]"),
        # As in nanochat, only sampled tokens count: a prompt can neither make nor open a call.
        ("{1+1}", "a", ""),
        ("{1+", "{2+2}a", "[4]"),
        ("{", "1+1}a", ""),
    ],
)
def test_a_call_forces_its_answer_and_anything_else_nothing(
    prompt: str, said: str, answers: str
) -> None:
    engine = engine_that_says(said + "$")
    if not answers:
        engine.runner.outputs[1] = ids(said + "$")  # the same tokens, also those of an answer
    request = submit(engine, prompt)
    finish(engine)
    assert forced(engine, request.id) == ids(answers)
    assert request.output_ids == ids((answered(said) if answers else said) + "$")
    assert engine.step_count == len(said + "$"), "forced tokens cost no step"


def test_skipped_special_tokens_take_the_call_and_its_answer_with_them() -> None:
    engine = engine_that_says(TURN + "$")
    request = submit(engine, skip_special_tokens=True)
    gained = []
    while engine.has_work():
        gained += engine.step().tokens
    assert request.output_text == "abcde"
    assert "".join(text for one in gained for text in one.texts) == "abcde"
    assert "".join(text for one in gained for text in one.visible) == "abcde"
    assert request.output_ids == ids("ab{1+1}[2]c{20*3}[60]de$")
    logged = [row for event in engine.log.of(v.StepFinished) for row in event.tokens]
    text = "".join(text for row in logged for text in row.texts)
    assert text == "".join(request.texts[request.prompt_length :])
    assert forced(engine, request.id) == ids("[2][60]")
    assert [one.ids[-one.forced :] for one in gained if one.forced] == [ids("[2]"), ids("[60]")]
    tokens = read(engine.log).tokens
    assert tokens[tokens.forced].id.tolist() == ids("[2][60]")
    assert "<|python_start|>1+1<|python_end|><|output_start|>2<|output_end|>" in text


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("a{1", "a"),  # the call is still open at the end
        ("a}b]c", "abc"),
        ("a{}b", "ab"),
        ("a{{1}b", "ab"),
        ("a{1\xe9", "a"),  # ends inside a character, inside a call
        ("a\xe9{1}", "a"),  # a call ends a broken character
    ],
)
def test_skipped_special_tokens_of_odd_calls(said: str, text: str) -> None:
    engine = engine_that_says(said + "$")
    request = submit(engine, skip_special_tokens=True, max_tokens=len(answered(said)))
    finish(engine)
    assert request.output_text == text


def test_a_model_without_all_four_tokens_has_no_tool() -> None:
    class Lacks(ByteTokenizer):
        def token_id(self, text: str) -> int | None:
            return None if text == "<|output_end|>" else super().token_id(text)

    engine = engine_that_says("{1+1}$", tokenizer=Lacks())
    request = submit(engine)
    finish(engine)
    assert request.output_ids == ids("{1+1}???$")


# Samples, batches, memory


def test_the_state_of_a_call_starts_with_the_sample_and_ends_with_it() -> None:
    texts = ["{1+1}", "1+2}", "{1+3}", "}{4}", "{10*10}{3-5}", "no call", "{1/0}ab{6*7}"]
    engine = engine_that_says(*(text + "$" for text in texts))
    submit(engine, "{9", n=len(texts), temperature=1.0)
    ended = finish(engine)
    said = [ended[i].output_ids for i in range(1, len(texts) + 1)]
    assert said == [ids(answered(text) + "$") for text in texts]
    assert not engine.loop.outputs


def test_a_sample_preempted_in_a_call_or_before_its_answer_is_computed_loses_nothing() -> None:
    texts = [
        "abc{1+1}d{123*456}efgh{7*7}ij",
        "{100-1}kl{6*7}mnop{3*3*3}qrst",
        "uv{2*2}wxyz{9*9}abc",
    ]
    in_call = unread = 0
    for blocks in range(12, 24):
        engine = engine_that_says(
            *(text + "$" for text in texts), max_kv_tokens=blocks * 4, token_budget=6
        )
        requests = [submit(engine, prompt, max_tokens=44) for prompt in ("q", "rs", "tuv")]
        finish(engine)
        assert [r.output_ids for r in requests] == [ids(answered(text) + "$") for text in texts]
        state = State()
        for event in engine.log:
            if isinstance(event, v.Preempted):
                victim = state.requests[event.request]
                last = [t for t in victim.tokens if t in (CALL, END_CALL)][-1:]
                in_call += last == [CALL]
                unread += victim.tokens[-1] == END_OUTPUT and victim.num_computed_tokens < len(
                    victim.tokens
                )
            state.apply(event)
    assert in_call >= 3
    assert unread >= 3


# Drafts


class Prophet:
    """Proposes the script's next tokens, with the answers or with guesses in their place."""

    def __init__(self, tokens: Sequence[int], length: int) -> None:
        self.tokens, self.length = list(tokens), length

    def propose(self, request: Request) -> list[int]:
        at = len(request.output_ids)
        return self.tokens[at : at + self.length]


@pytest.mark.parametrize("length", [0, 1, 3, 9, 30])
@pytest.mark.parametrize("knows_answers", [True, False])
def test_drafts_over_a_call_change_steps_and_no_token(length: int, knows_answers: bool) -> None:
    """The model does not say the answer, so a draft of it is never accepted: it is forced."""
    whole = ids(answered(TURN) + "$")
    drafts = whole if knows_answers else script(TURN + "$")
    for most in range(1, len(whole) + 1):
        engine = engine_that_says(TURN + "$", drafter=Prophet(drafts, length))
        request = submit(engine, max_tokens=most)
        finish(engine)
        assert request.output_ids == whole[:most]
        assert request.finish_reason == ("length" if most < len(whole) else "stop")
        assert len(request.logprobs) == len(request.texts) - 1 == most
        rows = [row for event in engine.log.of(v.StepFinished) for row in event.tokens]
        assert all(row.accepted + row.forced <= len(row.ids) for row in rows)
    assert any(row.accepted for row in rows) == bool(length)
    assert (engine.step_count < len(TURN + "$")) == bool(length)
    answers = [t for t, said in zip(whole, script(TURN + "$"), strict=True) if t != said]
    assert forced(engine, request.id) == answers


# A tool of one's own


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        (lambda: 1 / 0, ZeroDivisionError.__name__),
        (lambda: None, None),
        (lambda: ["42"], "'42'"),
        (lambda: [-1], -1),
        (lambda: [10**6], 10**6),
    ],
)
def test_a_tools_mistake_is_named_and_stops_the_engine(answer, given: object) -> None:
    class Wrong:
        def __init__(self, *_: object) -> None:
            pass

        def feed(self, token: int) -> list[int]:
            return answer()

    runner = CostRunner(1, 0)
    engine = Engine(runner, EngineConfig(), clock=runner.clock, tool=Wrong)
    engine.submit("hi", SamplingParams(max_tokens=6))
    with raises_naming(ToolError, "Wrong.feed", given):
        engine.step()
    with raises_naming(RuntimeError, "Wrong.feed", given):
        engine.step()
