"""Tokenizers: ids as transformers has them, text that never breaks inside a character."""

import shutil
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.byte_tokenizer import SPECIAL_TOKENS, ByteTokenizer
from engine.core.tokenizer import TokenizerError
from engine.models.text.hf_tokenizer import HFTokenizer
from tests.engine.text.conftest import TEXT, byte_level_bpe, write
from tests.facts import raises_naming
from tests.lazy import transformers

HARD = [
    "",
    "a",
    "é",
    "e\u0301",
    "😀",
    "👩‍👩‍👧",
    "🇩🇪",
    "한",
    "\ufffd",
    "x\ufffdy",
    " ",
    "\n\t",
    *TEXT,
]


@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece"])
@pytest.mark.parametrize("text", [*HARD, "<|bos|>hi<|user_end|>", "<s>hi</s>"])
def test_ids_are_those_of_transformers(request, kind, text):
    directory = request.getfixturevalue(kind)
    judge = transformers.AutoTokenizer.from_pretrained(directory)
    expected = judge.encode(text)
    # transformers repeats a BOS that the text already has; a prompt has one.
    if expected[:2] == [judge.bos_token_id] * 2:
        expected = expected[1:]
    assert HFTokenizer(directory).encode(text) == expected


def test_special_ids(byte_level, sentencepiece):
    tokenizer = HFTokenizer(byte_level)
    assert tokenizer.bos_id == 0
    assert tokenizer.eos_ids == {0, 2, 4}
    assert tokenizer.token_id("<|user_start|>") == 1
    assert tokenizer.token_id("the") is None
    assert tokenizer.token_id("<|python_start|>") is None
    assert HFTokenizer(sentencepiece).eos_ids == {2}


@pytest.mark.parametrize(
    ("settings_", "post_processor", "expected"),
    [
        ({"bos_token": "<|bos|>"}, True, True),
        ({"bos_token": "<|bos|>"}, False, False),
        ({"bos_token": "<|bos|>", "add_bos_token": True}, False, True),
        ({"bos_token": "<|bos|>", "add_bos_token": False}, True, False),
        ({"bos_token": None, "add_bos_token": True}, False, False),
        ({}, False, False),
    ],
)
def test_bos_where_the_model_s_own_files_say_so(tmp_path, settings_, post_processor, expected):
    tokenizer = byte_level_bpe()
    if not post_processor:
        tokenizer.post_processor = None
    loaded = HFTokenizer(write(tmp_path / "m", tokenizer, **settings_))
    assert (loaded.encode("hi")[0] == 0) == expected
    assert loaded.encode_ordinary("hi")[0] != 0


def test_text_that_is_only_text_makes_no_special_token(tokenizer):
    special = SPECIAL_TOKENS[0] if tokenizer.token_id("<|bos|>") is not None else "</s>"
    id_ = tokenizer.token_id(special)
    assert id_ in tokenizer.encode("a" + special)
    ordinary = tokenizer.encode_ordinary("a" + special)
    assert id_ not in ordinary
    assert tokenizer.bos_id not in ordinary
    assert tokenizer.decode(ordinary) == "a" + special


def test_half_a_surrogate_pair_is_refused(tokenizer):
    for encode in (tokenizer.encode, tokenizer.encode_ordinary):
        with raises_naming(TokenizerError, 2):
            encode("ab\ud83d")


@pytest.mark.parametrize("text", HARD)
def test_round_trip(tokenizer, text):
    ids = tokenizer.encode_ordinary(text)
    joined = b"".join(map(tokenizer.token_bytes, ids)).decode()
    # SentencePiece puts a space in front, or takes a space for the one it puts there.
    assert joined in (text, " " + text)
    text = tokenizer.decode(ids) if text.isspace() else text  # SentencePiece drops the first
    assert tokenizer.decode(ids) == text
    pieces = tokenizer.pieces(ids)
    assert len(pieces) == len(ids)
    if not text.endswith("\ufffd"):  # held back, as it may be half a character
        assert "".join(pieces) == text


def test_bytes_of_special_tokens_are_their_names_and_of_no_token_nothing(tokenizer):
    name = "<|bos|>" if tokenizer.token_id("<|bos|>") is not None else "</s>"
    assert tokenizer.token_bytes(tokenizer.token_id(name)) == name.encode()
    assert tokenizer.token_bytes(tokenizer.vocab_size + 5) == b""


def test_pieces_show_special_tokens(byte_level):
    tokenizer = HFTokenizer(byte_level)
    text = "<|bos|><|user_start|>hé<|user_end|>"
    ids = tokenizer.encode(text)
    assert "".join(tokenizer.pieces(ids)) == text == tokenizer.decode(ids)
    assert tokenizer.pieces(ids)[:2] == ["<|bos|>", "<|user_start|>"]


def test_other_threads_run_while_a_long_text_is_encoded(byte_level):
    tokenizer, text, ran = HFTokenizer(byte_level), "the dog " * 20_000, threading.Event()
    gate, usual = threading.Lock(), sys.getswitchinterval()
    gate.acquire()
    other = threading.Thread(target=lambda: (gate.acquire(), ran.set()))
    other.start()
    sys.setswitchinterval(1000)  # from here on, only a call that releases the GIL lets it run
    try:
        gate.release()
        for _ in range(20):
            if not ran.is_set():
                tokenizer.encode(text)
        assert ran.is_set()
    finally:
        sys.setswitchinterval(usual)
        other.join()


def stream(tokenizer, prompt, output):
    reader = tokenizer.detokenizer(prompt)
    pieces = [reader.push(token_id) for token_id in output]
    return pieces, reader.flush()


@pytest.mark.parametrize("tokenizer", ["byte_level", "bytes"], indirect=True)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_ids_at_any_cut_join_to_the_decoded_text(tokenizer, data):
    """Random ids are mostly broken UTF-8: a hard case."""
    allowed = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.eos_ids]
    ids = data.draw(st.lists(st.sampled_from(allowed), max_size=12))
    cut = data.draw(st.integers(0, len(ids)))
    pieces, rest = stream(tokenizer, ids[:cut], ids[cut:])
    assert "".join(tokenizer.pieces(ids[:cut]) + pieces) + rest == tokenizer.decode(ids)
    if isinstance(tokenizer, HFTokenizer):
        assert tokenizer.decode(ids) == tokenizer._decode(ids), "the library's own decoder"


def test_end_tokens_and_ids_beyond_the_vocabulary_give_no_text(byte_level):
    """Models pad their vocabulary to a round number."""
    tokenizer = HFTokenizer(byte_level)
    shown = ["<|user_start|>", "", "<|assistant_start|>", ""]
    assert stream(tokenizer, [0], [1, 4, 3, 0]) == (shown, "")
    beyond = tokenizer.vocab_size
    assert stream(tokenizer, [beyond], [beyond, beyond + 7]) == (["", ""], "")
    assert tokenizer.decode([beyond]) == ""
    assert tokenizer.pieces([beyond]) == [""]


def test_ids_and_chats_of_the_byte_tokenizer():
    tokenizer = ByteTokenizer()
    assert tokenizer.vocab_size == 265
    assert tokenizer.encode("Aé") == [256, 65, 0xC3, 0xA9]
    assert tokenizer.encode("<|bos|>A<|python_end|>") == [256, 65, 262]
    assert [tokenizer.token_id(name) for name in SPECIAL_TOKENS] == list(range(256, 265))
    assert tokenizer.eos_ids == {256, 260}
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    assert tokenizer.chat_template.render(chat) == (
        "<|bos|><|user_start|>hi<|user_end|><|assistant_start|>ho<|assistant_end|><|assistant_start|>"
    )


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"model": 3}'),
        ("tokenizer_config.json", "{"),
        ("generation_config.json", "[1]"),
    ],
)
def test_damaged_files_are_named(byte_level, tmp_path, file, content):
    directory = tmp_path / "m"
    shutil.copytree(byte_level, directory)
    if content is None:
        (directory / file).unlink()
    else:
        (directory / file).write_text(content)
    with raises_naming(TokenizerError, file):
        HFTokenizer(directory)
