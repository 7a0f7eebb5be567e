"""The tokenizer: nothing is lost, digits and quoted letters stand alone, no token is forged."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.training.corpus import documents
from engine.training.documents import SPECIAL_TOKENS
from engine.training.tokenizer import IGNORED, encode_document, encode_text

text = st.text(max_size=80)
written = st.lists(
    st.sampled_from([*SPECIAL_TOKENS, "<|", "|>", "bos", " ", "a", "'", '"', "7", "é", "\n", "😀"]),
    max_size=15,
).map("".join)


def pieces(tokenizer, string):
    return [tokenizer.decode([token]) for token in encode_text(tokenizer, string)]


@given(st.one_of(text, written))
@settings(max_examples=300, deadline=None)
def test_any_text_survives_and_forges_no_special_token(tokenizer, string):
    ids = encode_text(tokenizer, string)
    assert tokenizer.decode(ids, skip_special_tokens=False) == string
    assert not set(ids) & set(range(len(SPECIAL_TOKENS)))


@given(st.text("0123456789+-*/()., ", max_size=40))
@settings(max_examples=100, deadline=None)
def test_every_digit_is_one_token(tokenizer, string):
    for piece in pieces(tokenizer, string):
        assert len(piece) == 1 or not any(c.isdigit() for c in piece)


@given(st.from_regex(r"[a-z]{1,20}", fullmatch=True), st.sampled_from("\"'"))
@settings(max_examples=100, deadline=None)
def test_every_letter_of_a_quoted_word_is_one_token(tokenizer, word, quote):
    shown = pieces(tokenizer, f"Count l in {quote}{word}{quote}.")
    begin = shown.index(f" {quote}") + 1
    assert "".join(shown[begin : begin + len(word)]) == word


@pytest.mark.parametrize(("quoted", "letters"), [('"Mississippi"', 11), ("What's up", 0)])
def test_capitals_and_apostrophes(tokenizer, quoted, letters):
    shown = pieces(tokenizer, quoted)
    assert sum(len(piece) == 1 and piece.isalpha() and piece != "s" for piece in shown) == (
        letters - quoted.count("s") if letters else 0
    )


def test_encoding_with_special_tokens_begins_with_bos(tokenizer):
    tokenizer.encode_special_tokens = False
    assert tokenizer.encode("Once upon a time").ids[0] == 0
    assert tokenizer.encode("<|user_start|>hi", add_special_tokens=False).ids[0] == 1


def test_targets_are_the_learned_tokens_one_place_later(tokenizer):
    for document, _ in zip(documents(3), range(200), strict=False):
        ids, targets = encode_document(tokenizer, document)
        assert len(ids) == len(targets)
        learned = [target for target in targets if target != IGNORED]
        wanted = "".join(piece.text for piece in document.pieces if piece.learned)
        assert tokenizer.decode(learned, skip_special_tokens=False) == wanted
        following = zip(ids[1:], targets, strict=False)
        assert all(target in (token, IGNORED) for token, target in following)
