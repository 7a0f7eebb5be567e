"""The tokenizer and the chat template inside a GGUF file.

The file has a vocabulary, and merges (byte-level BPE, "gpt2", or BPE of characters, "gemma4") or scores
(SentencePiece, "llama").
Its entries and their defaults are llama.cpp's (`llama-vocab.cpp`).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from gguf import TokenType
from tokenizers import decoders, models

from engine.core.tokenizer import TokenizerError
from engine.models.text.chat_template import ChatTemplate
from engine.models.text.hf_tokenizer import HFTokenizer
from engine.models.text.pre_tokenizers import SPLITS
from engine.models.text.sentencepiece_model import SentencePieceModel
from engine.models.text.sentencepiece_tokenizer import SPACE, SPECIAL, build_sentencepiece
from engine.models.weights.gguf_file import GGUFFile

# These tokens end a turn of a chat, even if the file does not say so.
_END_NAMES = frozenset(
    "<|eot_id|> <|eom_id|> <|im_end|> <|end|> <end_of_turn> <|endoftext|> <|end_of_text|> "
    "<end_of_utterance> <turn|> <EOT> [EOS] <｜end▁of▁sentence｜>".split()
)


class GGUFTokenizer(HFTokenizer):
    """The tokenizer of a GGUF file. Raises TokenizerError if its kind is not supported.

    metadata  the file's, if it has been read already
    """

    def __init__(self, file: Path, metadata: Mapping[str, Any] | None = None) -> None:
        self.path = file
        metadata = GGUFFile(file).fields if metadata is None else metadata
        fields = {
            name.removeprefix("tokenizer."): value
            for name, value in metadata.items()
            if name.startswith("tokenizer.") or name == "general.architecture"
        }
        kind, split = fields.get("ggml.model"), fields.get("ggml.pre", "default")
        if kind == "gpt2" and split in SPLITS:
            tokenizer = _byte_level_bpe(fields, split)
            adds_bos = SPLITS[split].adds_bos
        elif kind == "gemma4":
            tokenizer, adds_bos = _gemma4(fields), True
        elif kind == "llama":
            tokenizer = build_sentencepiece(_sentencepiece(fields))
            adds_bos = True
        else:
            raise TokenizerError(
                f"{file}: tokenizer {kind!r} with pre-tokenizer {split!r} is not supported; supported "
                "are SentencePiece BPE ('llama'), Gemma 4's ('gemma4'), and byte-level BPE ('gpt2') "
                "with one of " + ", ".join(sorted(SPLITS))
            )
        tokens = fields.get("ggml.tokens", [])
        defaults = {"bos": 1, "eos": 2} if kind == "llama" else {}
        ids = {
            name: fields.get(f"ggml.{name}_token_id", defaults.get(name))
            for name in ("bos", "eos", "eot", "eom")
        }
        special = {
            f"{name}_token": tokens[id_]
            for name, id_ in ids.items()
            if name in ("bos", "eos") and id_ is not None
        }
        settings = special | {"add_bos_token": fields.get("ggml.add_bos_token", adds_bos)}
        ends = {id_ for name, id_ in ids.items() if name != "bos" and id_ is not None}
        ends |= {id_ for id_, token in enumerate(tokens) if token in _END_NAMES}
        template = ChatTemplate(fields.get("chat_template"), special)
        self._build(tokenizer, settings, ends, template, file.stem)


def _types(fields: dict[str, Any]) -> list[int]:
    """Return the type of each token. A token that ends a turn is special in any case."""
    tokens = fields.get("ggml.tokens", [])
    types = fields.get("ggml.token_type", [TokenType.NORMAL] * len(tokens))
    return [
        TokenType.CONTROL if token in _END_NAMES else type_
        for token, type_ in zip(tokens, types, strict=True)
    ]


def _byte_level_bpe(fields: dict[str, Any], split: str) -> tokenizers.Tokenizer:
    splits = SPLITS[split]
    tokenizer = _bpe(fields, ignore_merges=splits.whole_words)
    tokenizer.pre_tokenizer = splits.pre_tokenizer()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _gemma4(fields: dict[str, Any]) -> tokenizers.Tokenizer:
    """Return a BPE of characters: texts are not split, and unknown characters become bytes."""
    tokenizer = _bpe(fields, byte_fallback=True, fuse_unk=True)
    tokenizer.normalizer = tokenizers.normalizers.Replace(" ", SPACE)
    steps = decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()
    tokenizer.decoder = decoders.Sequence(list(steps))
    return tokenizer


def _bpe(fields: dict[str, Any], **settings: bool) -> tokenizers.Tokenizer:
    """Return the vocabulary, the merges and the added tokens."""
    vocabulary = {token: id_ for id_, token in enumerate(fields.get("ggml.tokens", []))}
    merges = [merge.partition(" ") for merge in fields.get("ggml.merges", [])]
    pairs = [(left, right) for left, _, right in merges]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, pairs, **settings))
    tokenizer.add_tokens(
        [
            tokenizers.AddedToken(token, normalized=False, special=type_ == TokenType.CONTROL)
            for token, type_ in zip(vocabulary, _types(fields), strict=True)
            if type_ in (TokenType.CONTROL, TokenType.USER_DEFINED)
        ]
    )
    return tokenizer


def _sentencepiece(fields: dict[str, Any]) -> SentencePieceModel:
    pieces, types = fields.get("ggml.tokens", []), _types(fields)
    model = SentencePieceModel(
        pieces,
        fields.get("ggml.scores", [0.0] * len(pieces)),
        types,
        unk_id=fields.get("ggml.unknown_token_id", 0),
        bos_id=None,
        eos_id=None,
        byte_fallback=TokenType.BYTE in types,
        prefix_space=fields.get("ggml.add_space_prefix", True),
        collapse_spaces=fields.get("ggml.remove_extra_whitespaces", False),
        charsmap=bytes(fields.get("ggml.precompiled_charsmap", [])),
    )
    if fields.get("general.architecture") == "phi3":
        # Phi-3's template has a newline after each special token, and its tokenizer drops them.
        special = {piece for piece, type_ in zip(pieces, types, strict=True) if type_ in SPECIAL}
        model = replace(model, strips_after=special - {"<unk>", "<s>", "<|endoftext|>"})
    return model
