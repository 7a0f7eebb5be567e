"""The end of an output and its text: stop strings, stop tokens, min_tokens."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine import CostRunner, Engine, EngineConfig, RequestError, SamplingError, SamplingParams
from engine.events import vocabulary as v
from engine.output.stop_strings import StopStrings
from engine.speculation.drafter import Drafter
from tests.engine.workloads import first_stop
from tests.facts import raises_naming

BOS, END = 256, 260
OUTPUT_START = 263


def says(text, *, after=(), drafter: Drafter | None = None, **config):
    """Return an engine whose requests all generate these bytes (or ids), then letters."""
    runner = CostRunner(1, 0)
    ids = list(text.encode()) if isinstance(text, str) else list(text)
    runner.outputs = {request: [*ids, *after] for request in range(1, 50)}
    return Engine(runner, EngineConfig(**config), clock=runner.clock, drafter=drafter)


def run(engine, **params):
    """(what was streamed step by step, the request when it has ended)"""
    request = engine.submit("q", SamplingParams(**{"max_tokens": 40} | params))
    streamed = []
    while engine.has_work():
        streamed += [text for gained in engine.step().tokens for text in gained.texts]
    assert "".join(streamed) == request.output_text
    return streamed, request


# The text between pieces


@settings(max_examples=500, deadline=None)
@given(
    pieces=st.lists(st.text("ab\n", max_size=4), max_size=12),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
)
@example(pieces=["abcd"], stops=["bcd", "c"])
@example(pieces=["a", "a", "a", "b"], stops=["aab"])
def test_any_cutting_gives_the_text_before_the_first_complete_stop_string(pieces, stops):
    watcher, shown = StopStrings(stops), ""
    for piece in pieces:
        shown += watcher.push(piece)
        if watcher.matched:
            break
        text = "".join(pieces)[: len(shown)]
        assert shown == text, "what is shown is a beginning of the text"
    if not watcher.matched:
        shown += watcher.flush()
    assert (shown, watcher.matched) == first_stop("".join(pieces), stops)


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(st.text("ab\n", max_size=4), max_size=12),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_with_the_stop_string_included_nothing_is_held_back(pieces, stops):
    watcher, shown, text = StopStrings(stops, include=True), "", ""
    for piece in pieces:
        text += piece
        shown += watcher.push(piece)
        if watcher.matched:
            break
        assert shown == text
    before, stop = first_stop(text, stops)
    assert (shown + watcher.flush(), watcher.matched) == (before + stop, stop)


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(st.text("ab", min_size=1, max_size=3), max_size=10),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_no_more_is_held_back_than_could_become_a_stop_string(pieces, stops):
    watcher, shown, text = StopStrings(stops), "", ""
    for piece in pieces:
        text += piece
        shown += watcher.push(piece)
        if watcher.matched:
            return
        held = text[len(shown) :]
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)
        longer = (text[at:] for at in range(len(shown)))
        assert not any(stop.startswith(one) for one in longer for stop in stops)


# Through the engine


def test_the_text_ends_before_a_stop_string_and_the_log_says_which():
    engine = says("one. two. three")
    streamed, request = run(engine, stop=["two", ". t"])
    assert request.output_text == "one"
    assert request.finish_reason == "stop"
    assert "".join(streamed) == "one"
    [finished] = engine.log.of(v.RequestFinished)
    assert finished.matched == ". t"
    # The tokens are computed and stay in the log, whole.
    pieces = [text for e in engine.log.of(v.StepFinished) for row in e.tokens for text in row.texts]
    assert "".join(pieces) == "one. t"
    assert len(request.output_ids) == 6


def test_half_a_stop_string_is_held_back_and_given_out_when_it_is_none():
    streamed, request = run(says("a\nb\n\nc"), stop="\n\n")
    assert streamed == ["a", "", "\nb", "", ""]
    assert request.output_text == "a\nb"


def test_held_back_text_is_given_out_at_the_end():
    for params in ({"max_tokens": 3}, {}):
        _, request = run(says("ab\n", after=[END]), stop="\n\n", **params)
        assert request.output_text == "ab\n"


def test_held_back_text_is_given_out_when_the_request_is_aborted():
    engine = says("ab\n")
    request = engine.submit("q", SamplingParams(max_tokens=9, stop="\n\n"))
    for _ in range(3):
        engine.step()
    assert request.output_text == "ab"
    engine.abort(request.id)
    assert request.output_text == "ab\n"


def test_a_stop_string_over_the_bytes_of_characters():
    _, request = run(says("héé!"), stop="é!")
    assert request.output_text == "hé"


def test_many_stop_strings():
    stops = [f"<{letter}>" for letter in "abcdefgh"]
    _, request = run(says("x<g>y"), stop=stops)
    assert request.output_text == "x"


def test_a_stop_token_ends_the_output_and_gives_no_text():
    _, request = run(says("ab;cd"), stop_token_ids=[ord(";")])
    assert request.output_text == "ab"
    assert request.output_ids == list(b"ab;")
    assert request.finish_reason == "stop"


def test_stops_stay_in_the_text_on_request():
    streamed, request = run(says("one. two"), stop=". t", include_stop_str_in_output=True)
    assert request.output_text == "".join(streamed) == "one. t"
    _, request = run(says("ab;cd"), stop_token_ids=[ord(";")], include_stop_str_in_output=True)
    assert request.output_text == "ab;"
    _, request = run(says("ab", after=[END]), include_stop_str_in_output=True)
    assert request.output_text == "ab", "the model's end token has no text"


@pytest.mark.parametrize(
    ("params", "matched", "token"),
    [
        ({"stop": "b"}, "b", None),
        ({"stop_token_ids": [ord("b")]}, "", ord("b")),
        ({"max_tokens": 2}, "", None),
        ({}, "", None),
    ],
)
def test_the_output_says_what_ended_it(params, matched, token):
    engine = says("ab", after=[END])
    engine.submit("q", SamplingParams(**{"max_tokens": 9} | params))
    gained = []
    while engine.has_work():
        gained += engine.step().tokens
    assert (gained[-1].matched, gained[-1].stop_token) == (matched, token)


def test_ignore_eos_ignores_the_model_s_end_but_no_stop_token():
    text = [*b"ab", END, *b"cd;e"]
    _, request = run(says(text), ignore_eos=True, stop_token_ids=[ord(";")])
    assert request.output_text == "abcd"


@pytest.mark.parametrize("least, kept", [(0, ""), (1, "x"), (2, "xab"), (5, "xabyz")])
def test_min_tokens_come_before_an_end_counts(least, kept):
    """Stop strings are searched in the text after the first min_tokens tokens."""
    text = [*b"xabyz", END]
    if least == 0:
        _, request = run(says([END]), min_tokens=0)
        assert request.output_ids == [END]
        return
    stop = {1: "ab", 2: "y", 5: "ab"}[least]
    _, request = run(says(text), min_tokens=least, stop=stop)
    assert request.output_text == kept


def test_an_end_token_before_min_tokens_does_not_end_it():
    _, request = run(says([END, *b"abc", END]), min_tokens=3)
    assert request.output_ids == [END, *b"abc", END]


def test_a_stop_inside_accepted_drafts_drops_what_was_drafted_behind_it():
    class Right(Drafter):
        def propose(self, request):
            at = len(request.tokens) - request.prompt_length
            return list(b"one. two. three"[at : at + 4])

    engine = says("one. two. three", drafter=Right())
    _, request = run(engine, stop=". t")
    assert request.output_text == "one"
    assert request.output_ids == list(b"one. t")
    assert engine.step_count < 6
    assert engine.snapshot()["requests"] == []


def test_each_sample_has_its_own_stops():
    runner = CostRunner(1, 0)
    runner.outputs = {1: [*b"aa!b"], 2: [*b"b!"], 3: [*b"cccc!"]}
    engine = Engine(runner, EngineConfig(), clock=runner.clock)
    done = engine.complete(["q"], SamplingParams(max_tokens=9, n=3, stop="!"), progress=False)
    assert [one.text for one in done] == ["aa", "b", "cccc"]


# Bad input


@pytest.mark.parametrize(
    "field, value",
    [
        ("stop", [""]),
        ("stop", [3]),
        ("stop", 3),
        ("stop_token_ids", [1.5]),
        ("stop_token_ids", 7),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("best_of", 1),
        ("best_of", 0),
        ("logprobs", -1),
        ("logprobs", True),
        ("prompt_logprobs", 1.0),
        ("min_p", 1.5),
        ("min_p", float("nan")),
        ("repetition_penalty", 0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", "1"),
        ("logit_bias", [1]),
        ("logit_bias", {1: 101}),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {1: float("inf")}),
        ("temperature", float("inf")),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(field, value):
    with raises_naming(SamplingError, field) as caught:
        SamplingParams(n=2, **{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize("field, value", [("logit_bias", {999: 1}), ("stop_token_ids", [999])])
def test_ids_beyond_the_vocabulary_are_refused_by_name(field, value):
    with raises_naming(RequestError, field, 999):
        says("x").submit("q", SamplingParams(**{field: value}))
