"""The end of an output and its text: stop strings, stop tokens, min_tokens."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine import CostRunner, Engine, EngineConfig, RequestError, SamplingParams
from engine.core.log import vocabulary as v
from engine.core.output.stop_strings import StopStrings
from engine.core.speculation.drafter import Drafter
from engine.extensions.bad_words import bad_word_ids
from tests.engine.bundled import bundled, bundled_engine
from tests.engine.workloads import first_stop
from tests.facts import raises_naming

BOS, END = 256, 260


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


@settings(max_examples=300)
@given(
    pieces=st.lists(st.text("ab\n", max_size=4), max_size=12),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
    include=st.booleans(),
)
@example(pieces=["abcd"], stops=["bcd", "c"], include=False)
@example(pieces=["a", "a", "a", "b"], stops=["aab"], include=False)
def test_the_text_up_to_a_stop_string_is_shown_as_soon_as_it_is_certain(pieces, stops, include):
    watcher, shown, text = StopStrings(stops, include=include), "", ""
    for piece in pieces:
        text += piece
        shown += watcher.push(piece)
        if watcher.matched:
            break
        held = text[len(shown) :]
        assert text == shown + held, "what is shown is a beginning of the text"
        assert not (held and include)
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)
        longer = (text[at:] for at in range(len(shown)))
        assert include or not any(stop.startswith(one) for one in longer for stop in stops)
    before, stop = first_stop(text, stops)
    assert (shown + watcher.flush(), watcher.matched) == (before + stop * include, stop)


# Through the engine


def test_held_back_text_is_given_out_when_the_request_is_aborted():
    engine = says("ab\n")
    request = engine.submit("q", SamplingParams(max_tokens=9, stop="\n\n"))
    for _ in range(3):
        engine.step()
    assert request.output_text == "ab"
    engine.abort(request.id)
    assert request.output_text == "ab\n"


SEMICOLON = {"stop_token_ids": [ord(";")]}
INCLUDED = {"include_stop_str_in_output": True}


@pytest.mark.parametrize(
    ("said", "params", "text", "tokens"),
    [
        ("a\nb\n\nc", {"stop": "\n\n"}, "a\nb", 5),
        ("one. two. three", {"stop": ["two", ". t"]}, "one", 6),
        ("ab\n", {"stop": "\n\n"}, "ab\n", 4),  # held back until the end
        ("ab\n", {"stop": "\n\n", "max_tokens": 3}, "ab\n", 3),
        ("héé!", {"stop": "é!"}, "hé", 6),
        ("ab;cd", SEMICOLON, "ab", 3),
        ("ab;cd", SEMICOLON | INCLUDED, "ab;", 3),
        ("one. two", {"stop": ". t"} | INCLUDED, "one. t", 6),
        ("ab", INCLUDED, "ab", 3),  # the model's end token has no text
        ([*b"ab", END, *b"cd;e"], SEMICOLON | {"ignore_eos": True}, "abcd", 6),
        # Stop strings are searched in the text after the first min_tokens tokens.
        ("xabyz", {"stop": "ab", "min_tokens": 1}, "x", 3),
        ("xabyz", {"stop": "y", "min_tokens": 2}, "xab", 4),
        ("xabyz", {"stop": "ab", "min_tokens": 5}, "xabyz", 6),
        ([END, *b"abc", END], {"min_tokens": 3}, "abc", 5),
    ],
)
def test_where_an_output_ends(said, params, text, tokens):
    _, request = run(says(said, after=[END]), **params)
    assert request.output_text.replace("<|assistant_end|>", "") == text
    assert len(request.output_ids) == tokens


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
    assert engine.log.of(v.RequestFinished)[0].matched == matched


# Bad words


def test_a_bad_word_has_a_sequence_of_its_own_after_a_space():
    _, tokenizer = bundled()
    texts = [tokenizer.decode(ids) for ids in bad_word_ids(("prince", " there"), tokenizer)]
    assert texts == ["prince", " prince", "there", " there"]


@pytest.mark.parametrize("words", [["x" * 1025], [str(number) for number in range(129)], [" "]])
def test_words_that_cannot_be_banned_are_rejected_by_name(words):
    with raises_naming(RequestError, "bad_words"):
        bundled_engine().submit("a", SamplingParams(bad_words=words))
