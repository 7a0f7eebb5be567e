"""The tokenizer of a Hugging Face directory.

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
from typing import TYPE_CHECKING, Any

from engine.core.extras import needs_extra
from engine.core.output.detokenizer import (
    ByteDetokenizer,
    IncrementalDetokenizer,
    WindowDetokenizer,
)
from engine.core.tokenizer import TokenizerError, checked
from engine.models.text.chat_template import ChatTemplate

if TYPE_CHECKING:
    import tokenizers

# SentencePiece uses tokens of this form for the bytes of a character that has no token.
_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")


class HFTokenizer:
    """The tokenizer of a Hugging Face model directory, through the `tokenizers` library.

    Reads tokenizer.json, or tokenizer.model (SentencePiece) if there is none, and, if they exist,
    tokenizer_config.json, generation_config.json, config.json and chat_template.jinja. `name` appears
    in `describe()`; the default is the directory's name. `path` is the directory. Raises
    TokenizerError if both files are missing or the one to read is damaged.
    """

    def __init__(self, directory: str | Path, name: str = "") -> None:
        directory = self.path = Path(directory)
        settings = read_json(directory / "tokenizer_config.json")
        tokenizer, settings = _read_directory(directory, settings)
        template = ChatTemplate.from_directory(directory, settings, special_tokens(settings))
        name = name or directory.resolve().name
        self._build(tokenizer, settings, end_ids(directory), template, name)

    def _build(
        self,
        tokenizer: "tokenizers.Tokenizer",
        settings: dict[str, Any],
        ends: set[int],
        chat_template: ChatTemplate,
        name: str,
    ) -> None:
        """Build from a tokenizer and the contents of tokenizer_config.json; `ends` are more end ids."""
        import tokenizers

        self._tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        added = sorted(tokenizer.get_added_tokens_decoder().items())
        # A second one, because recognising special tokens is a setting of the tokenizer, not an
        # argument of `encode`, and several threads encode requests. They share the vocabulary.
        self._ordinary = tokenizers.Tokenizer(tokenizer.model)
        self._ordinary.normalizer = tokenizer.normalizer
        self._ordinary.pre_tokenizer = tokenizer.pre_tokenizer
        self._ordinary.add_tokens([token for _, token in added])
        self._ordinary.encode_special_tokens = True

        if settings.get("add_bos_token") is None:  # the tokenizer itself shows whether it adds BOS
            bos = tokenizer.token_to_id(special_tokens(settings).get("bos_token", ""))
            settings = settings | {"add_bos_token": bos in tokenizer.encode("").ids}
        self._set_vocabulary(
            tokenizer.get_vocab(with_added_tokens=True),
            {token.content: id_ for id_, token in added},
            frozenset(id_ for id_, token in added if token.special),
            settings,
            byte_level=isinstance(tokenizer.decoder, tokenizers.decoders.ByteLevel),
        )
        self.eos_ids |= ends
        self.chat_template = chat_template
        self.name = name

    def _set_vocabulary(
        self,
        vocabulary: dict[str, int],
        added: dict[str, int],
        special_ids: frozenset[int],
        settings: dict[str, Any],
        *,
        byte_level: bool,
    ) -> None:
        """Set everything that follows from the tokens and from tokenizer_config.json.

        vocabulary   the id of each token
        added        the tokens among them that are recognised before the text is split
        special_ids  those of the special tokens
        byte_level   each token is a fixed run of bytes, whatever its neighbours
        """
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        special = special_tokens(settings)
        self.bos_id = vocabulary.get(special.get("bos_token", ""))
        self.eos_ids = frozenset(_ids(vocabulary.get(special.get("eos_token", ""))))
        self._adds_bos = self.bos_id is not None and bool(settings.get("add_bos_token"))
        self._special = added
        self.special_ids = special_ids
        self._byte_level = byte_level
        spell = byte_level_bytes if byte_level else _sentencepiece_bytes
        self._table = [b""] * self.vocab_size
        for token, token_id in vocabulary.items():
            self._table[token_id] = spell(token)

    def describe(self) -> dict[str, Any]:
        """See `Tokenizer`."""
        return {
            "name": self.name,
            "vocab_size": self.vocab_size,
            "bos_id": self.bos_id,
            "eos_ids": sorted(self.eos_ids),
        }

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer`. Other threads run meanwhile."""
        ids = self._encode(text, special=True)
        if self._adds_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def encode_ordinary(self, text: str) -> list[int]:
        """See `Tokenizer`. Other threads run meanwhile."""
        return self._encode(text, special=False)

    def decode(self, ids: Sequence[int]) -> str:
        """See `Tokenizer`."""
        if not self._byte_level:
            return self._decode(list(ids))
        spelled = b"".join(self._table[i] for i in ids if i < len(self._table))
        return spelled.decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer`."""
        detokenizer: IncrementalDetokenizer = (
            ByteDetokenizer(self._table) if self._byte_level else WindowDetokenizer(self._decode)
        )
        return list(map(detokenizer.push, ids))

    def token_bytes(self, token_id: int) -> bytes:
        """See `Tokenizer`."""
        return self._table[token_id] if token_id < self.vocab_size else b""

    def token_id(self, text: str) -> int | None:
        """See `Tokenizer`."""
        return self._special.get(text)

    def detokenizer(self, prompt_ids: Sequence[int]) -> IncrementalDetokenizer:
        """See `Tokenizer`."""
        if not self._byte_level:
            return WindowDetokenizer(self._decode, self.eos_ids, prompt_ids)
        return ByteDetokenizer(self._table, self.eos_ids, prompt_ids)

    def _encode(self, text: str, *, special: bool) -> list[int]:
        """Return a text's ids; `special` tells whether special tokens are recognised in it."""
        tokenizer = self._tokenizer if special else self._ordinary
        try:  # the library releases the GIL for a batch only, so this is a batch of one
            [encoding] = tokenizer.encode_batch_fast([text], add_special_tokens=False)
        except TypeError:
            checked(text)  # the text is half a surrogate pair, or the error is another one
            raise
        ids: list[int] = encoding.ids
        return ids

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text


def _read_directory(
    directory: Path, settings: dict[str, Any]
) -> "tuple[tokenizers.Tokenizer, dict[str, Any]]":
    """Return the tokenizer of a directory, and its settings completed. Raises TokenizerError."""
    file = directory / "tokenizer.json"
    if not file.is_file():
        file = directory / "tokenizer.model"
    if not file.is_file():
        raise TokenizerError(
            f"{directory} has neither tokenizer.json nor tokenizer.model: save the tokenizer with "
            "transformers' `AutoTokenizer.from_pretrained(...).save_pretrained(...)`"
        )
    with needs_extra("a model's tokenizer"):
        import tokenizers

        from engine.models.text.sentencepiece_tokenizer import read_sentencepiece_directory
    try:
        if file.suffix == ".json":
            return tokenizers.Tokenizer.from_file(str(file)), settings
        return read_sentencepiece_directory(file, settings)
    except Exception as error:  # the library raises plain Exception
        raise TokenizerError(f"{file} is damaged, download it again: {error}") from error


def read_json(file: Path) -> dict[str, Any]:
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


def end_ids(directory: Path) -> set[int]:
    """Return the end tokens that a model's generation_config.json and config.json name."""
    files = ("generation_config.json", "config.json")
    return {id_ for file in files for id_ in _ids(read_json(directory / file).get("eos_token_id"))}


def special_tokens(settings: dict[str, Any]) -> dict[str, str]:
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


class _ByteAlphabet(dict[int, int]):
    """GPT-2's printable character for each byte (`bytes_to_unicode` in its `encoder.py`) -> the byte.

    Printable Latin-1 characters stand for themselves; the others are mapped to U+0100 and up. A
    character that stands for no byte gives one that Latin-1 cannot encode.
    """

    def __init__(self) -> None:
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        super().__init__({byte: byte for byte in printable})
        self.update({256 + i: byte for i, byte in enumerate(others)})

    def __missing__(self, character: int) -> int:
        return 0x100


_BYTE_ALPHABET = _ByteAlphabet()


def byte_level_bytes(token: str) -> bytes:
    """Return the bytes of a token of a byte-level vocabulary."""
    try:
        return token.translate(_BYTE_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:  # an added token, for instance with a space, stands for itself
        return token.encode("utf-8")


def _sentencepiece_bytes(token: str) -> bytes:
    """Return the bytes of a token of another vocabulary, as SentencePiece writes them."""
    if _BYTE_TOKEN.fullmatch(token):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode("utf-8")
