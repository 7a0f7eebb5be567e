"""Byte-level BPE in Python, for a web page, where the `tokenizers` library cannot be installed.

    text -> special tokens and parts -> bytes of each part -> pairs merged, the earliest rule first

It reads the tokenizer.json of a byte-level BPE whose pattern Python's `re` understands. Its ids are
those of the library, which takes a hundredth of the time and reads all other kinds, too.

Source: Sennrich et al., Neural Machine Translation of Rare Words with Subword Units, arXiv:1508.07909;
on bytes, GPT-2's `encoder.py`.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.core.tokenizer import TokenizerError, checked
from engine.models.text.chat_template import ChatTemplate
from engine.models.text.hf_tokenizer import (
    HFTokenizer,
    byte_level_bytes,
    end_ids,
    read_json,
    special_tokens,
)


class BytePairTokenizer(HFTokenizer):
    """The tokenizer of a Hugging Face model directory, without the `tokenizers` library.

    Raises TokenizerError if its tokenizer.json is not a byte-level BPE of the kind above.
    """

    def __init__(self, directory: str | Path, name: str = "") -> None:
        directory = self.path = Path(directory)
        file = read_json(directory / "tokenizer.json")
        settings = read_json(directory / "tokenizer_config.json")
        special = special_tokens(settings)
        try:
            self._pattern = _pattern(file)
        except (_UnsupportedError, re.error) as error:
            raise TokenizerError(
                f"{directory / 'tokenizer.json'} is not a byte-level BPE that Python can split for "
                f"({error}): use HFTokenizer, which needs the tokenizers library"
            ) from error
        if settings.get("add_bos_token") is None:
            prepended = (file.get("post_processor") or {}).get("special_tokens", {})
            settings["add_bos_token"] = special.get("bos_token") in prepended
        own: dict[str, int] = file["model"]["vocab"]
        added = {token["content"]: token["id"] for token in file["added_tokens"]}
        recognised = {token["content"] for token in file["added_tokens"] if not token["special"]}
        self._set_vocabulary(
            own | added,
            added,
            frozenset(id_ for token, id_ in added.items() if token not in recognised),
            settings,
            byte_level=True,
        )
        self.eos_ids |= end_ids(directory)
        self.chat_template = ChatTemplate.from_directory(directory, settings, special)
        self.name = name or directory.resolve().name
        self._all_added, self._ordinary_added = _any_of(added), _any_of(recognised)
        self._id_of = {self._table[id_]: id_ for id_ in own.values()}
        merges = (
            merge.split(" ") if isinstance(merge, str) else merge
            for merge in file["model"]["merges"]
        )
        self._ranks = {tuple(map(byte_level_bytes, pair)): i for i, pair in enumerate(merges)}
        self._merged = lru_cache(maxsize=100_000)(self._merge)

    def _encode(self, text: str, *, special: bool) -> list[int]:
        ids: list[int] = []
        pieces = (self._all_added if special else self._ordinary_added).split(checked(text))
        for index, piece in enumerate(pieces):
            if index % 2:  # the expression has a group, so every second piece is an added token
                ids.append(self._special[piece])
                continue
            end = 0
            for part in self._pattern.finditer(piece):
                ids += self._merged(piece[end : part.start()])  # usually empty
                ids += self._merged(part[0])
                end = part.end()
            ids += self._merged(piece[end:])
        return ids

    def _merge(self, part: str) -> tuple[int, ...]:
        """Return the ids of a part: beginning with single bytes, merge the pair of lowest rank."""
        tokens = [bytes([byte]) for byte in part.encode()]
        never = len(self._ranks)
        while len(tokens) > 1:
            ranks = [self._ranks.get(pair, never) for pair in pairwise(tokens)]
            lowest = min(ranks)
            if lowest == never:
                break
            at = ranks.index(lowest)
            tokens[at : at + 2] = [tokens[at] + tokens[at + 1]]
        return tuple(self._id_of[token] for token in tokens)


class _UnsupportedError(Exception):
    """What the tokenizer.json has that `BytePairTokenizer` does not read."""


_OPTIONS = (
    "dropout unk_token continuing_subword_prefix end_of_word_suffix byte_fallback ignore_merges"
)


def _pattern(file: dict[str, Any]) -> re.Pattern[str]:
    """Return the expression for the parts of a text. Raises re.error, or _UnsupportedError."""
    model = file.get("model", {})
    if model.get("type") != "BPE":
        raise _UnsupportedError(f"model.type is {model.get('type')!r}")
    for option in _OPTIONS.split():
        if model.get(option):
            raise _UnsupportedError(f"model.{option} is {model[option]!r}")
    if file.get("normalizer"):
        raise _UnsupportedError("it has a normalizer")
    for token in file["added_tokens"]:
        for option in ("single_word", "lstrip", "rstrip"):
            if token[option]:
                raise _UnsupportedError(f"token {token['content']!r} has the option {option}")
    match file.get("pre_tokenizer"):
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return re.compile(pattern)
    raise _UnsupportedError("its pre_tokenizer is not one pattern and ByteLevel")


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return an expression for any of the tokens, longest first; without tokens it never matches."""
    longest = sorted(tokens, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest)) or '(?!)'})")
