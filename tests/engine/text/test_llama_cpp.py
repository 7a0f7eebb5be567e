"""GGUF tokenizers, with llama.cpp as the judge where it is installed (`bench` extra).

Differs on purpose: a prompt that begins with BOS gets no second one. And llama.cpp approximates the
patterns of GPT-4o and Tekken, which know combining marks, so the texts here have none.
"""

import ctypes
import json
import random

import gguf
import pytest
import sentencepiece

from engine.models.text.gguf_tokenizer import GGUFTokenizer
from engine.models.text.pre_tokenizers import SPLITS
from tests.engine.compute.gguf_files import finish
from tests.engine.text.conftest import SPECIAL, byte_level_bpe
from tests.engine.text.test_sentencepiece import KINDS, train, write_gguf

PARTS = [*"the quick BrownFox  \n\té😀ö한日▁12345<>'sLL/._", "  ", "the", "I'm", "\n\n"]


class Judge:
    """llama.cpp with the vocabulary of a file."""

    def __init__(self, file):
        self._api = pytest.importorskip("llama_cpp")
        settings = self._api.llama_model_default_params()
        settings.vocab_only = True
        self._log = self._api.llama_log_callback(lambda *_: None)
        self._api.llama_log_set(self._log, ctypes.c_void_p(0))
        model = self._api.llama_model_load_from_file(str(file).encode(), settings)
        self._vocabulary = self._api.llama_model_get_vocab(model)

    def encode(self, text):
        data = text.encode()
        room = (self._api.llama_token * (len(data) + 16))()
        found = self._api.llama_tokenize(
            self._vocabulary, data, len(data), room, len(room), True, True
        )
        return list(room[:found])

    def ends(self, size):
        return {i for i in range(size) if self._api.llama_vocab_is_eog(self._vocabulary, i)}


def agree(file, special, count=100):
    judge, tokenizer, rng = Judge(file), GGUFTokenizer(file), random.Random(0)
    for _ in range(count):
        drawn = rng.choices([*PARTS, *special], k=rng.randrange(30))
        text = "".join(["the", *drawn])
        assert tokenizer.encode(text) == judge.encode(text), text
    assert tokenizer.eos_ids == judge.ends(tokenizer.vocab_size)


@pytest.mark.parametrize("pre", SPLITS)
def test_byte_level_vocabularies(tmp_path, pre):
    made = byte_level_bpe()
    vocabulary = made.get_vocab()
    tokens = [*sorted(vocabulary, key=vocabulary.get)[:-1], "<think>", "<|im_end|>"]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if t in SPECIAL else 4 if t == "<think>" else 1 for t in tokens])
    merges = json.loads(made.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(4)
    finish(writer)
    agree(tmp_path / "m.gguf", ["<|user_start|>", "<think>", "<|im_end|>"])


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_sentencepiece_vocabularies(tmp_path, kind):
    options = KINDS[kind]
    made = sentencepiece.SentencePieceProcessor(model_proto=train(**options))
    write_gguf(
        tmp_path / "m.gguf",
        made,
        prefix=options.get("add_dummy_prefix", True),
        user_defined=options.get("user_defined_symbols", ()),
        extra=["<|end|>", "<|eot_id|>"],
    )
    agree(tmp_path / "m.gguf", ["<s>", "</s>", "<|end|>", "<start_of_turn>", "<end_of_turn>"])
