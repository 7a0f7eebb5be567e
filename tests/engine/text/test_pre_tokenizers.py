"""How families of models split text: the patterns that GGUF files name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers, pre_tokenizers

from engine.models.text.hf_tokenizer import HFTokenizer, byte_level_bytes
from engine.models.text.pre_tokenizers import SPLITS
from tests.engine.text.conftest import TEXT, byte_level_bpe, write
from tests.lazy import transformers

# Of Qwen 2.5 and 3, SmolLM 2, SmolLM 3, Phi-4, OLMo 2, Phi-4-mini, Mistral Nemo, Llama 3.
NAMES = ["qwen2", "smollm", "smaug-bpe", "dbrx", "gpt-4o", "tekken", "llama-bpe"]


def parts(name, text):
    found = SPLITS[name].pre_tokenizer().pre_tokenize_str(text)
    return "|".join(byte_level_bytes(part).decode() for part, _ in found)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("gpt-2 olmo phi-2", "I|'|LL| pay| 12345| camelCase| x|'s"),
        ("smollm command-r", "I|'|LL| pay| |1|2|3|4|5| camelCase| x|'s"),
        ("llama-bpe dbrx smaug-bpe glm4", "I|'LL| pay| |123|45| camelCase| x|'s"),
        ("qwen2 deepseek-r1-qwen", "I|'LL| pay| |1|2|3|4|5| camelCase| x|'s"),
        ("gpt-4o llama4", "I'LL| pay| |123|45| camel|Case| x's"),
        ("tekken", "I|'LL| pay| |1|2|3|4|5| camel|Case| x|'s"),
        ("deepseek-v3", "I|'LL| pay| |123|45| camelCase| x|'s"),
        ("default", "I|'|LL| pay| |123|45| camelCase| x|'|s"),
    ],
)
def test_contractions_digits_and_capitals(names, expected):
    for name in names.split():
        assert parts(name, "I'LL pay 12345 camelCase x's") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", "a|\n\n | b| | <|c|/>|\n|...//|\n"),
        ("qwen2", "a|\n\n| | b| | <|c|/>\n|...//\n"),
        ("gpt-4o", "a|\n\n| | b| | <|c|/>\n|...//\n"),
    ],
)
def test_lines_and_signs(name, expected):
    assert parts(name, "a\n\n  b  <c/>\n...//\n") == expected


def test_marks_belong_to_their_letters_where_the_model_says_so():
    assert parts("qwen2", "हिन्दी") == "ह|िन|्द|ी"
    assert {parts(name, "हिन्दी") for name in ("qwen35", "gpt-4o", "tekken")} == {"हिन्दी"}
    assert parts("deepseek-v3", "漢字kana") == "漢字|kana"


@settings(deadline=None)
@given(text=st.text(max_size=30))
def test_parts_join_to_the_text_and_gpt2_is_the_library_s_own(text):
    own = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    assert SPLITS["gpt-2"].pre_tokenizer().pre_tokenize_str(text) == own
    for name in NAMES:
        found = SPLITS[name].pre_tokenizer().pre_tokenize_str(text)
        assert b"".join(byte_level_bytes(part) for part, _ in found).decode() == text


@pytest.mark.parametrize("name", NAMES)
def test_directories_of_these_families_give_the_ids_of_transformers(tmp_path, name):
    """tokenizer.json in their shapes: Qwen normalizes, Phi-4's special tokens swallow spaces."""
    tokenizer = byte_level_bpe()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = SPLITS[name].pre_tokenizer()
    tokenizer.post_processor = None
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.enable_truncation(5)  # some repositories leave their training's settings in
    directory = write(tmp_path / name, tokenizer, eos_token="<|im_end|>")
    tokenizer.no_truncation()
    judge = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    ours = HFTokenizer(directory)
    for text in [*TEXT[:3], "a <|im_end|>\n b", "e\u0301<think>12 3", "  \n x", ""]:
        assert ours.encode(text) == judge.encode(text)
        without = ours.encode_ordinary(text)
        assert ours.token_id("<|im_end|>") not in without
        assert (ours.token_id("<think>") in without) == ("<think>" in text)
    assert ours.eos_ids == {ours.token_id("<|im_end|>")}
