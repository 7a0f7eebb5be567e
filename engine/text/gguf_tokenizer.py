"""The tokenizer and the chat template inside a GGUF file.

The file has a vocabulary and merges, but only a name for the pattern that splits text before merging.
The patterns are llama.cpp's (`llama-vocab.cpp`).
"""

from pathlib import Path
from typing import Any

import gguf
import tokenizers
from tokenizers import models, pre_tokenizers

from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import HFTokenizer, TokenizerError

_CONTROL, _USER_DEFINED = 3, 4  # token types; all others are ordinary
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS: dict[str, str | None] = {
    "gpt-2": None,  # ByteLevel's own pattern
    "llama-bpe": _PATTERN.format(digits="{1,3}"),
    "qwen2": _PATTERN.format(digits=""),
}


class GGUFTokenizer(HFTokenizer):
    """The byte-level BPE of a GGUF file. Raises TokenizerError for other kinds."""

    def __init__(self, file: Path) -> None:
        fields = {
            name.removeprefix("tokenizer."): field
            for name, field in gguf.GGUFReader(file).fields.items()
            if name.startswith("tokenizer.")
        }

        def entry(name: str, default: Any = None) -> Any:
            return fields[name].contents() if name in fields else default

        kind, split = entry("ggml.model"), entry("ggml.pre", "gpt-2")
        if kind != "gpt2" or split not in SPLITS:
            raise TokenizerError(
                f"{file}: tokenizer {kind!r} with pre-tokenizer {split!r} is not supported, only "
                f"byte-level BPE ('gpt2') with one of {', '.join(SPLITS)}"
            )
        tokens: list[str] = entry("ggml.tokens", [])
        tokenizer = _byte_level_bpe(tokens, entry("ggml.merges", []), SPLITS[split])
        types = entry("ggml.token_type", [])
        for token, type_ in zip(tokens, types, strict=False):
            if type_ in (_CONTROL, _USER_DEFINED):
                added = tokenizers.AddedToken(token, normalized=False, special=type_ == _CONTROL)
                tokenizer.add_tokens([added])
        special = {
            f"{name}_token": tokens[entry(f"ggml.{name}_token_id")]
            for name in ("bos", "eos")
            if f"ggml.{name}_token_id" in fields
        }
        settings = special | {"add_bos_token": entry("ggml.add_bos_token", split == "llama-bpe")}
        ends = {entry(f"ggml.{name}_token_id") for name in ("eos", "eot", "eom")} - {None}
        template = ChatTemplate(entry("chat_template"), special)
        self._build(tokenizer.to_str(), settings, ends, template, file.stem)


def _byte_level_bpe(
    tokens: list[str], merges: list[str], split: str | None
) -> tokenizers.Tokenizer:
    vocabulary = {token: id_ for id_, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    # In Llama 3, a word that is a token stays whole, even if merging would not produce it.
    whole_words = split is not None and split == SPLITS["llama-bpe"]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=whole_words))
    if split is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(split), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer
