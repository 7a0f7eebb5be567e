"""What every document of the corpus must keep, whatever the seed."""

import re
from itertools import islice, pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.output.calculator import evaluate as calculate
from engine.training import evaluate, numbers, serving, stories, words
from engine.training.corpus import PLAIN, documents
from engine.training.documents import (
    ASSISTANT_END,
    ASSISTANT_START,
    BOS,
    OUTPUT_END,
    OUTPUT_START,
    PYTHON_END,
    PYTHON_START,
    SPECIAL_TOKENS,
    USER_END,
    USER_START,
)

seeds = st.integers(0, 10**9)
CALL = re.compile(
    rf"{re.escape(PYTHON_START)}(.*?){re.escape(PYTHON_END)}"
    rf"{re.escape(OUTPUT_START)}(.*?){re.escape(OUTPUT_END)}(.*?){re.escape(ASSISTANT_END)}"
)


def some(seed, count=40):
    return list(islice(documents(seed), count))


def test_the_same_seed_gives_the_same_documents():
    assert some(7) == some(7)
    assert some(7) != some(8)


TURN = (
    f"({USER_START}{USER_END}{ASSISTANT_START}"
    f"({PYTHON_START}{PYTHON_END}{OUTPUT_START}{OUTPUT_END})?{ASSISTANT_END})"
)
OUTLINE = f"<|bos|>({TURN}+|<|assistant_end|>)".replace("<|", r"<\|").replace("|>", r"\|>")


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_every_document_keeps_the_rules(seed):
    for document in some(seed):
        check_calls(document)
        check_mask(document)
        for piece in document.pieces:
            assert piece.text in SPECIAL_TOKENS or "<|" not in piece.text
        outline = "".join(p.text for p in document.pieces if p.text in SPECIAL_TOKENS)
        assert re.fullmatch(OUTLINE, outline), outline


def check_calls(document):
    """Forced output is what the calculator says, and held-out pairs never appear."""
    for expression, output, after in CALL.findall(document.text):
        assert output == calculate(expression)
        assert output.partition(".")[0] in after
        if "count" not in expression:
            operands = re.findall(r"\d[\d,.]*", expression)
            assert not any(numbers.held_out("+".join(pair)) for pair in pairwise(operands))


def check_mask(document):
    """The mask leaves out exactly what others write: walk the text as an engine would."""
    writer = "model" if document.kind in PLAIN else "frame"
    for piece in document.pieces:
        if piece.text in {USER_START, OUTPUT_START}:
            writer = "other"
        assert piece.learned == (writer == "model" and piece.text != BOS), piece
        if piece.text in {ASSISTANT_START, OUTPUT_END}:
            writer = "model"
        elif piece.text in {USER_END, ASSISTANT_END}:
            writer = "frame"


def test_held_out_pairs_are_one_in_sixteen_in_either_order():
    pairs = [(a, b) for a in range(100) for b in range(a)]
    held = [pair for pair in pairs if numbers.held_out("{}+{}".format(*pair))]
    assert 0.04 < len(held) / len(pairs) < 0.09
    assert all(numbers.held_out(f"{b}*{a}") for a, b in held)


def test_held_out_and_unseen_sentences_are_not_trained_on():
    own = {"plus", "minus", "times", "over"}
    trained = {*numbers.SUMS["frames"], *numbers.LETTERS["frames"], *serving.WHAT, *serving.WHY}
    trained |= {frame for name in own for frame in numbers.SUMS[name]["frames"]}
    tested = {*numbers.SUMS["held_out"], *numbers.LETTERS["held_out"], *serving.WHAT_HELD_OUT}
    tested |= {frame for name in own for frame in numbers.SUMS[name]["held_out"]}
    tested |= {*evaluate.UNSEEN["concepts"]}
    tested |= {question for group in evaluate.UNSEEN["sums"] for question in group["questions"]}
    assert not trained & tested


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_stories_keep_to_their_two_characters(seed):
    rng = Random(seed)
    hero = words.character(rng)
    text, friend = stories.story(rng, hero)
    assert evaluate.names_are_consistent(text, hero.name)
    assert {hero.name, friend.name} >= {
        w for w in re.findall(r"[A-Z]\w+", text) if w in words.NAMES
    }
    assert "{" not in text
    assert " a owl" not in text


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_letter_counts_name_the_word_and_the_right_number(seed):
    for turn in numbers.letter_turns(Random(seed)):
        word, letter = re.fullmatch(r'"([a-z]+)"\.count\("([a-z])"\)', turn.expression).groups()
        assert f"occurs {word.count(letter)} time" in turn.answer
        assert f'"{word}"' in turn.answer
