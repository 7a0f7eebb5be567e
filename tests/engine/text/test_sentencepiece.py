"""SentencePiece vocabularies in tokenizer.model and in GGUF files, judged by `sentencepiece`."""

import io
import json
from dataclasses import replace

import gguf
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.core.tokenizer import TokenizerError
from engine.models.text.gguf_tokenizer import GGUFTokenizer
from engine.models.text.hf_tokenizer import HFTokenizer
from engine.models.text.sentencepiece_model import read_sentencepiece
from engine.models.text.sentencepiece_tokenizer import build_sentencepiece, merges_of
from tests.engine.compute.gguf_files import finish
from tests.engine.text.conftest import TEXT
from tests.facts import raises_naming

# As the models have them: Llama 2 and Mistral 7B; Gemma; a model without bytes.
KINDS = {
    "llama": {},
    "gemma": {
        "add_dummy_prefix": False,
        "bos_id": 2,
        "eos_id": 1,
        "unk_id": 3,
        "pad_id": 0,
        "user_defined_symbols": ["<start_of_turn>", "<end_of_turn>", "\n\n", "▁▁", "▁▁▁▁"],
    },
    "no bytes": {"byte_fallback": False},
}
PARTS = st.sampled_from(
    [*"the quick brown\n\té😀한日e\u0301▁1/<", " ", "  ", "<s>", "<0x41>", "\n\n"]
)
ANY = st.lists(
    PARTS | st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=24
).map("".join)


def train(**options):
    """Return a tiny SentencePiece model, as bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=600,
        hard_vocab_limit=False,
        minloglevel=2,
        **{
            "model_type": "bpe",
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "character_coverage": 0.98,
        }
        | options,
    )
    return model.getvalue()


def write_gguf(file, judge, architecture="llama", extra=(), **options):
    """Write the vocabulary as llama.cpp's converter does; `extra` are special tokens after it."""
    ids = range(judge.vocab_size())
    types = [
        2 if judge.is_unknown(i) else 3 if judge.is_control(i) else 6 if judge.is_byte(i) else 1
        for i in ids
    ]
    for i in ids:
        if judge.id_to_piece(i) in options.get("user_defined", ()):
            types[i] = 4
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*map(judge.id_to_piece, ids), *extra])
    writer.add_token_scores([*map(judge.get_score, ids), *[-1000.0] * len(extra)])
    writer.add_token_types([*types, *[3] * len(extra)])
    writer.add_bos_token_id(judge.bos_id())
    writer.add_eos_token_id(judge.eos_id())
    writer.add_unk_token_id(judge.unk_id())
    writer.add_add_space_prefix(options.get("prefix", True))
    finish(writer)
    return GGUFTokenizer(file)


@pytest.fixture(scope="module", params=KINDS)
def both(request, tmp_path_factory):
    """The judge, and our tokenizers from a directory and from a GGUF file."""
    directory = tmp_path_factory.mktemp("sentencepiece")
    (directory / "tokenizer.model").write_bytes(train(**KINDS[request.param]))
    judge = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
    gguf_file = write_gguf(
        directory / "m.gguf",
        judge,
        prefix=KINDS[request.param].get("add_dummy_prefix", True),
        user_defined=KINDS[request.param].get("user_defined_symbols", ()),
    )
    return judge, [HFTokenizer(directory), gguf_file]


@settings(deadline=None, max_examples=200)
@given(text=ANY)
@example("   a")
@example("x   y  ")
@example("\n\n\n")
@example("naïve déjà vu")
def test_ids_and_text_are_those_of_sentencepiece(both, text):
    judge, ours = both
    expected = judge.encode(text)
    for tokenizer in ours:
        assert tokenizer.encode_ordinary(text) == expected
        assert tokenizer.decode(expected) == judge.decode(expected).replace(" ⁇ ", "<unk>")
        assert "".join(tokenizer.pieces(expected)) == tokenizer.decode(expected)
        spelled = b"".join(map(tokenizer.token_bytes, expected)).decode()
        assert spelled in (tokenizer.decode(expected), " " + tokenizer.decode(expected))


def test_a_prompt_has_bos_and_special_tokens(both):
    judge, ours = both
    for tokenizer in ours:
        ids = tokenizer.encode("the quick</s>")
        assert ids == [judge.bos_id(), *judge.encode("the quick"), judge.eos_id()]
        assert tokenizer.encode("<s>the quick</s>")[:2] == ids[:2], "BOS is not doubled"
        assert tokenizer.bos_id == judge.bos_id()
        assert tokenizer.eos_ids >= {judge.eos_id()}
        assert tokenizer.special_ids >= {judge.bos_id(), judge.eos_id(), judge.unk_id()}
        assert tokenizer.vocab_size == judge.vocab_size()
        assert judge.eos_id() not in tokenizer.encode_ordinary("the quick</s>")


def test_normalized_text(tmp_path):
    """NFKC and single spaces, as T5-like models have them."""
    (tmp_path / "tokenizer.model").write_bytes(
        train(normalization_rule_name="nmt_nfkc", remove_extra_whitespaces=True)
    )
    judge = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    tokenizer = HFTokenizer(tmp_path)
    for text in [*TEXT, "  the ﬁrst   quick\n brown  ", "ＡＢＣ e\u0301 ½", " ", "a \n b"]:
        assert tokenizer.encode_ordinary(text) == judge.encode(text)


def test_settings_beside_a_tokenizer_model(tmp_path):
    """Phi-3: more tokens than tokenizer.model has, which swallow the spaces after them."""
    (tmp_path / "tokenizer.model").write_bytes(train())
    judge = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    end = judge.vocab_size()
    entries = {"content": "<|end|>", "rstrip": True, "normalized": False, "special": True}
    config = {"added_tokens_decoder": {str(end): entries}, "eos_token": "<|end|>"}

    def load(**more):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | more))
        return HFTokenizer(tmp_path)

    tokenizer = load()
    quick, bos = judge.encode("quick"), judge.bos_id()
    assert tokenizer.encode("quick<|end|>\n quick") == [bos, *quick, end, *quick]
    assert tokenizer.eos_ids == {end}
    assert tokenizer.vocab_size == end + 1
    assert load(add_bos_token=False).encode("quick") == quick
    without = load(add_prefix_space=False).encode_ordinary("quick")
    assert b"".join(map(tokenizer.token_bytes, without)) == b"quick"
    after = load(legacy=False).encode("quick<|end|>quick")
    assert after == [bos, *quick, end, *without], "no space after a special token"
    with raises_naming(TokenizerError, end + 7, "<|end|>"):
        load(added_tokens_decoder={str(end + 7): entries})


def test_gguf_of_phi3_and_the_ends_of_turns(tmp_path):
    judge = sentencepiece.SentencePieceProcessor(model_proto=train())
    extra = ["<|end|>", "<|assistant|>", "<|endoftext|>"]
    tokenizer = write_gguf(tmp_path / "m.gguf", judge, architecture="phi3", extra=extra)
    end, assistant, end_of_text = range(judge.vocab_size(), judge.vocab_size() + 3)
    assert tokenizer.eos_ids == {judge.eos_id(), end, end_of_text}
    ids = tokenizer.encode("quick<|end|>\n<|assistant|>\n")
    assert ids == [judge.bos_id(), *judge.encode("quick"), end, assistant]
    other = write_gguf(tmp_path / "n.gguf", judge, extra=extra)
    assert len(other.encode("quick<|end|>\n<|assistant|>\n")) > len(ids)


def test_a_large_vocabulary_has_merges_in_the_order_of_its_scores(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(train())
    model = read_sentencepiece(tmp_path / "tokenizer.model")
    scores = dict(zip(model.pieces, model.scores, strict=True))
    ranked = [scores[left + right] for left, right in merges_of(model)]
    assert ranked == sorted(ranked, reverse=True)
    reversed_ = replace(model, scores=[-score for score in model.scores])
    words = build_sentencepiece(reversed_).encode("the quick").ids
    assert words != build_sentencepiece(model).encode("the quick").ids


@pytest.mark.parametrize("damage", ["cut", "unigram", "text", "empty"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, damage):
    data = {"cut": train()[:-3], "text": b"IQ== 0\nIg== 1\n", "empty": b""}.get(damage)
    if data is None:
        data = train(model_type="unigram")
    (tmp_path / "tokenizer.model").write_bytes(data)
    with raises_naming(TokenizerError, tmp_path / "tokenizer.model"):
        HFTokenizer(tmp_path)
