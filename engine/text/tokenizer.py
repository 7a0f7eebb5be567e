"""The tokenizer interface, and the tokenizer of a Hugging Face directory.

- `encode` gives the same ids as transformers' tokenizer: special tokens written out in the text are
  recognised, and the BOS token is prepended only if the model's files say so.
- `encode_ordinary` is for text that must not contain special tokens, such as a tool's result.
- Decoding shows every token, special tokens by their names, so the pieces in the log join to exactly
  the text that the model read. Only an end token in the output produces no text.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import tokenizers

from engine.output.detokenizer import ByteDetokenizer, IncrementalDetokenizer, WindowDetokenizer
from engine.text.chat_template import ChatTemplate

# SentencePiece uses tokens of this form for the bytes of a character that has no token.
_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")


class TokenizerError(ValueError):
    """A tokenizer file or a text cannot be used. The message names the fix."""


class Tokenizer(Protocol):
    """Converts text to token ids and back.

    eos_ids        ids that end an output
    bos_id         the beginning-of-sequence id; None if the model has none
    vocab_size     ids are 0 .. vocab_size - 1
    chat_template  turns a conversation into a prompt
    """

    eos_ids: frozenset[int]
    bos_id: int | None
    vocab_size: int
    chat_template: ChatTemplate

    def describe(self) -> dict[str, Any]:
        """Return a summary for the log's first event: JSON values only."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return a prompt's ids: special tokens are recognised, and the model's BOS is prepended."""
        ...

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the ids of plain text: no special tokens, no BOS."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the whole text; bytes that are not UTF-8 become U+FFFD."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one piece of text per id; joined they are `decode(ids)`.

        A character that the last id leaves incomplete is in no piece: `detokenizer(ids)` adds it to
        the first piece of the output.
        """
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token, independent of its context; perhaps part of a character.

        Special tokens, including end tokens, give their names; ids without a token give b"".
        """
        ...

    def token_id(self, text: str) -> int | None:
        """Return the id of a special token; None if the model has no such token."""
        ...

    def detokenizer(self, prompt_ids: Sequence[int]) -> IncrementalDetokenizer:
        """Return a detokenizer for an output that follows `prompt_ids`. End tokens give ""."""
        ...


class HFTokenizer:
    """The tokenizer of a Hugging Face model directory, through the `tokenizers` library.

    Reads tokenizer.json and, if they exist, tokenizer_config.json, generation_config.json, config.json
    and chat_template.jinja. `name` appears in `describe()`; the default is the directory's name. Raises
    TokenizerError if tokenizer.json is missing or damaged.
    """

    def __init__(self, directory: str | Path, name: str = "") -> None:
        directory = Path(directory)
        file = directory / "tokenizer.json"
        if not file.is_file():
            raise TokenizerError(
                f"{directory} has no tokenizer.json: save the tokenizer with "
                "transformers' `AutoTokenizer.from_pretrained(...).save_pretrained(...)`"
            )
        settings = _read_json(directory / "tokenizer_config.json")
        ends = _ids(_read_json(directory / "generation_config.json").get("eos_token_id"))
        ends |= _ids(_read_json(directory / "config.json").get("eos_token_id"))
        template = ChatTemplate.from_directory(directory, settings, _special_tokens(settings))
        try:
            source = file.read_text(encoding="utf-8")
            self._build(source, settings, ends, template, name or directory.resolve().name)
        except ValueError as error:
            raise TokenizerError(f"{file} is damaged, download it again: {error}") from error

    def _build(
        self,
        source: str,
        settings: dict[str, Any],
        ends: set[int],
        chat_template: ChatTemplate,
        name: str,
    ) -> None:
        """Build from the contents of tokenizer.json (`source`) and tokenizer_config.json.

        `ends` are additional end ids. Raises ValueError if `source` is damaged.
        """
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(source)
        except Exception as error:  # the library raises plain Exception
            raise ValueError(str(error)) from error
        # A second copy, because recognising special tokens is a setting of the tokenizer, not an
        # argument of `encode`, and several threads encode requests.
        self._ordinary = tokenizers.Tokenizer.from_str(source)
        self._ordinary.encode_special_tokens = True

        self._name = name
        special = _special_tokens(settings)
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        self.bos_id = self._tokenizer.token_to_id(special.get("bos_token", ""))
        self.eos_ids = frozenset(
            ends | _ids(self._tokenizer.token_to_id(special.get("eos_token", "")))
        )
        self.chat_template = chat_template
        # Without a setting, the tokenizer itself shows whether it prepends BOS.
        setting = settings.get("add_bos_token")
        if setting is None:
            setting = self.bos_id in self._tokenizer.encode("").ids
        self._adds_bos = self.bos_id is not None and setting
        self._special = {
            token.content: id_ for id_, token in self._tokenizer.get_added_tokens_decoder().items()
        }
        self._table = _byte_table(source, vocabulary, self.vocab_size)

    def describe(self) -> dict[str, Any]:
        """See `Tokenizer`."""
        return {
            "name": self._name,
            "vocab_size": self.vocab_size,
            "bos_id": self.bos_id,
            "eos_ids": sorted(self.eos_ids),
        }

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer`."""
        ids: list[int] = self._tokenizer.encode(checked(text), add_special_tokens=False).ids
        if self._adds_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def encode_ordinary(self, text: str) -> list[int]:
        """See `Tokenizer`."""
        ids: list[int] = self._ordinary.encode(checked(text), add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See `Tokenizer`."""
        if self._table is None:
            return self._decode(list(ids))
        return self._bytes(ids).decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer`."""
        detokenizer: IncrementalDetokenizer = (
            WindowDetokenizer(self._decode) if self._table is None else ByteDetokenizer(self._table)
        )
        return list(map(detokenizer.push, ids))

    def token_bytes(self, token_id: int) -> bytes:
        """See `Tokenizer`."""
        if self._table is not None:
            return self._bytes([token_id])
        token: str = self._tokenizer.id_to_token(token_id) or ""
        if _BYTE_TOKEN.fullmatch(token):
            return bytes([int(token[3:5], 16)])
        return (token if token in self._special else token.replace("▁", " ")).encode("utf-8")

    def token_id(self, text: str) -> int | None:
        """See `Tokenizer`."""
        return self._special.get(text)

    def detokenizer(self, prompt_ids: Sequence[int]) -> IncrementalDetokenizer:
        """See `Tokenizer`."""
        if self._table is None:
            return WindowDetokenizer(self._decode, self.eos_ids, prompt_ids)
        return ByteDetokenizer(self._table, self.eos_ids, self._bytes(prompt_ids))

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def _bytes(self, ids: Sequence[int]) -> bytes:
        assert self._table is not None
        return b"".join(self._table[i] for i in ids if i < len(self._table))


def encode_continuation(text: str, tokenizer: Tokenizer) -> list[int]:
    """Encode text that follows other text.

    Removes the beginning-of-sequence token that some tokenizers add to every text. If the text itself
    begins with that token, it stays.
    """
    ids, bos = tokenizer.encode(text), tokenizer.bos_id
    if bos is not None and ids[:1] == [bos] and not text.startswith(tokenizer.decode([bos])):
        return ids[1:]
    return ids


def checked(text: str) -> str:
    """Return the text. Raises TokenizerError for half a surrogate pair, which JSON can express."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text is not valid Unicode: character {error.start} is a lone surrogate "
            f"({text[error.start]!r}); remove it"
        ) from error
    return text


def _read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object; {} if there is no file. Raises TokenizerError."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{file} is not valid JSON, download it again: {error}") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{file} must hold a JSON object, but holds {type(content).__name__}")
    return content


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """Return the `..._token` entries of tokenizer_config.json: strings, or objects with `content`."""
    tokens = {
        name: value.get("content") if isinstance(value, dict) else value
        for name, value in settings.items()
        if name.endswith("_token")
    }
    return {name: text for name, text in tokens.items() if isinstance(text, str) and text}


def _ids(value: int | list[int] | None) -> set[int]:
    """Return an `eos_token_id` entry, which may be a number, a list of numbers or None, as a set."""
    if value is None:
        return set()
    return {value} if isinstance(value, int) else set(value)


def _byte_table(source: str, vocabulary: dict[str, int], size: int) -> list[bytes] | None:
    """Return the bytes of every id of a byte-level vocabulary; None for other kinds."""
    if (json.loads(source).get("decoder") or {}).get("type") != "ByteLevel":
        return None
    to_byte = {character: byte for byte, character in _byte_alphabet().items()}
    table = [b""] * size
    for token, token_id in vocabulary.items():
        try:
            table[token_id] = bytes(to_byte[character] for character in token)
        except KeyError:  # an added token, for instance with a space, stands for itself
            table[token_id] = token.encode("utf-8")
    return table


def _byte_alphabet() -> dict[int, str]:
    """Return GPT-2's printable character for each byte (`bytes_to_unicode` in its `encoder.py`).

    Printable Latin-1 characters stand for themselves; the others are mapped to U+0100 and up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {byte: chr(byte) for byte in printable}
    return alphabet | {byte: chr(256 + i) for i, byte in enumerate(others)}
