"""Three kinds of tokenizers, trained on the fly, as Hugging Face directories."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from engine.core.byte_tokenizer import ByteTokenizer
from engine.models.text.hf_tokenizer import HFTokenizer

TEXT = [
    "The quick brown fox jumps over the lazy dog. Größe, café, naïve, déjà vu.",
    "Emoji: 😀 👍🏽 👩‍👩‍👧 🇩🇪 and combining marks: e\u0301 a\u0308 कि 한국어 日本語 العربية",
    "if x == 17 + 25:\n    print('hello', \"world\")\n\t# done  ...   !!!",
] * 3
SPECIAL = ["<|bos|>", "<|user_start|>", "<|user_end|>", "<|assistant_start|>", "<|assistant_end|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}\n"
    "  {%- if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}\n"
    "    {{- '<|' + m.role + '_start|>' + m.content + '<|' + m.role + '_end|>' }}\n"
    "{%- endfor %}{% if add_generation_prompt %}<|assistant_start|>{% endif %}"
)


def write(directory, tokenizer, **settings):
    directory.mkdir(exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | settings)
    )
    return directory


def byte_level_bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens(["Ġnot bytes é"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", 0)]
    )
    return tokenizer


def sentencepiece_bpe():
    """Llama 2's kind: ▁ for spaces, unknown characters as bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))],
        show_progress=False,
    )
    tokenizer.train_from_iterator([line for line in TEXT if line.isascii()], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return tokenizer


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory):
    directory = write(
        tmp_path_factory.mktemp("text") / "byte-level",
        byte_level_bpe(),
        bos_token="<|bos|>",
        eos_token={"__type": "AddedToken", "content": "<|assistant_end|>", "special": True},
        chat_template=TEMPLATE,
    )
    (directory / "generation_config.json").write_text('{"eos_token_id": [4, 0]}')
    (directory / "config.json").write_text('{"eos_token_id": 2}')
    return directory


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory):
    return write(
        tmp_path_factory.mktemp("text") / "sentencepiece",
        sentencepiece_bpe(),
        bos_token="<s>",
        eos_token="</s>",
    )


@pytest.fixture(scope="session", params=["byte_level", "sentencepiece", "bytes"])
def tokenizer(request):
    if request.param == "bytes":
        return ByteTokenizer()
    return HFTokenizer(request.getfixturevalue(request.param))
