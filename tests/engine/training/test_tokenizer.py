"""The tokenizer, batches and the exported directory: an ordinary Hugging Face model."""

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tokenizers import Tokenizer

from engine.training.corpus import CHAT, conversation, documents
from engine.training.documents import ASSISTANT_END, IDS, SPECIAL_TOKENS
from engine.training.export import export
from engine.training.model import Model, ModelConfig
from engine.training.run import make_batch
from engine.training.tokenizer import IGNORED, encode_document, encode_text
from tests.lazy import transformers

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


@given(st.from_regex(r"[A-Z]?[a-z]{1,12}", fullmatch=True))
@settings(max_examples=200, deadline=None)
def test_a_word_has_the_same_tokens_in_a_sentence_and_in_json(tokenizer, word):
    """Or the model could not copy a word that it does not know."""
    said, written = pieces(tokenizer, f"in {word}"), pieces(tokenizer, f'{{"a": "{word}"}}')
    at, end = written.index(' "') + 1, len(written) - 1
    assert written[end] == '"}'
    assert [said[1], "".join(said[1:])] in ([" ", f" {word}"], [f" {written[at]}", f" {word}"])
    assert said[1 + (said[1] == " ") + (said[1] != " ") :] == written[at + (said[1] != " ") : end]


def test_encoding_with_special_tokens_begins_with_bos(tokenizer):
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
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


def test_a_batch_depends_on_seed_and_number_alone(tokenizer):
    one, again = (make_batch(tokenizer, 5, 3, 4, 256) for _ in range(2))
    other = make_batch(tokenizer, 5, 4, 4, 256)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one.tokens, other.tokens)


def test_rows_are_nearly_full_and_documents_do_not_see_each_other(tokenizer):
    batch = make_batch(tokenizer, 0, 0, 8, 256)
    padding = (batch.targets == IGNORED) & (batch.tokens == 0)
    assert padding.float().mean() < 0.2
    for tokens, mask in zip(batch.tokens, batch.mask[:, 0], strict=True):
        starts = [place for place in range(255) if tokens[place] == 0 and tokens[place + 1] != 0]
        for place in range(256):
            seen = mask[place].nonzero().flatten().tolist()
            assert seen == list(range(seen[0], place + 1))
            if tokens[place] != 0:
                assert seen[0] == max(start for start in starts if start <= place)


@pytest.fixture(scope="module")
def directory(tmp_path_factory, tokenizer):
    torch.manual_seed(0)
    model = Model(ModelConfig())
    for parameter in model.parameters():  # far from uniform logits, norms far from one
        parameter.data *= 1 + 2 * torch.rand_like(parameter)
    path = tmp_path_factory.mktemp("exported")
    export(model, tokenizer, path)
    return path


def test_transformers_computes_the_same_logits(directory):
    ours = Model(ModelConfig())
    ours.load_state_dict(load_file(directory / "model.safetensors"))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokens = torch.randint(0, 2048, (2, 200), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, actual = theirs(tokens).logits, ours(tokens)
    assert expected.abs().max() > 1
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-4)


def test_the_chat_template_writes_what_the_corpus_trains(directory):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    for seed in range(60):
        document = conversation(Random(seed), tuple(CHAT)[seed % len(CHAT)])
        messages = []
        for turn in document.text.split("<|user_start|>")[1:]:
            user, _, rest = turn.partition("<|user_end|><|assistant_start|>")
            messages.append({"role": "user", "content": user})
            messages.append(
                {"role": "assistant", "content": rest.removesuffix("<|assistant_end|>")}
            )
        assert tokenizer.apply_chat_template(messages, tokenize=False) == document.text


def test_a_system_message_goes_in_front_of_the_first_user_message(directory):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    shown = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert shown == "<|bos|><|user_start|>Be kind.\n\nHi<|user_end|><|assistant_start|>"


def test_special_tokens_and_the_end_of_generation(directory):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(9))
    assert tokenizer.eos_token == "<|assistant_end|>"
    assert transformers.GenerationConfig.from_pretrained(directory).eos_token_id == [
        IDS[ASSISTANT_END],
        0,
    ]
    assert tokenizer("Once upon a time").input_ids[0] == tokenizer.bos_token_id == 0
