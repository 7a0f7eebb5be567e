"""The contents of a SentencePiece model, and how a tokenizer.model file holds them.

The file is a protocol buffer (`sentencepiece_model.proto` in SentencePiece). Ten of its fields matter
here, so a dozen lines read them, instead of a dependency on `sentencepiece` or `protobuf`.
"""

import struct
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from gguf import TokenType

_UNIGRAM, _BPE = 1, 2  # TrainerSpec.model_type; unigram is the default


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """A BPE vocabulary with scores, and how text is prepared for it.

    pieces                the tokens; a space is written ▁
    scores                the token with the highest score is joined first
    types                 `gguf.TokenType`: SentencePiece and GGUF number them alike
    unk_id                the token of unknown characters
    bos_id, eos_id        None if the model has none
    byte_fallback         unknown characters become the tokens <0x00> to <0xFF> of their bytes
    prefix_space          prepend a space to each text
    prefix_after_special  prepend one to the text after each special token, too
    collapse_spaces       remove spaces at both ends, and repeated ones in between
    charsmap              SentencePiece's compiled table of character replacements; b"" for none
    strips_after          special tokens that swallow the spaces and newlines after them
    """

    pieces: Sequence[str]
    scores: Sequence[float]
    types: Sequence[int]
    unk_id: int
    bos_id: int | None
    eos_id: int | None
    byte_fallback: bool
    prefix_space: bool = True
    prefix_after_special: bool = True
    collapse_spaces: bool = False
    charsmap: bytes = b""
    strips_after: Set[str] = frozenset()


def read_sentencepiece(file: Path, *, prefix_after_special: bool = True) -> SentencePieceModel:
    """Read a tokenizer.model. Raises ValueError if it is damaged or of another kind."""
    pieces, scores, types = list[str](), list[float](), list[int]()
    trainer, normalizer = dict[int, int | bytes](), dict[int, int | bytes]()
    for number, value in _fields(file.read_bytes()):
        if not isinstance(value, bytes):
            raise ValueError("it is not a SentencePiece model")
        if number == 1:
            piece = dict(_fields(value))
            pieces.append(_bytes(piece, 1).decode("utf-8"))
            scores.append(struct.unpack("<f", _bytes(piece, 2, b"\0\0\0\0"))[0])
            types.append(_int(piece, 3, TokenType.NORMAL))
        elif number == 2:
            trainer = dict(_fields(value))
        elif number == 3:
            normalizer = dict(_fields(value))
    if not pieces or not trainer:
        raise ValueError("it is not a SentencePiece model")
    if _int(trainer, 3, _UNIGRAM) != _BPE:
        raise ValueError("only SentencePiece's BPE is supported, not unigram: use tokenizer.json")
    bos, eos = (_int(trainer, field, default) for field, default in ((41, 1), (42, 2)))
    return SentencePieceModel(
        pieces,
        scores,
        types,
        unk_id=_int(trainer, 40, 0),
        bos_id=bos if bos < len(pieces) else None,  # -1, as an unsigned number
        eos_id=eos if eos < len(pieces) else None,
        byte_fallback=bool(_int(trainer, 35, 0)),
        prefix_space=bool(_int(normalizer, 3, 1)),
        prefix_after_special=prefix_after_special,
        collapse_spaces=bool(_int(normalizer, 4, 1)),
        charsmap=_bytes(normalizer, 2, b""),
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Return the numbers and values of a protocol buffer's fields. Raises ValueError."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value: int | bytes
        match key & 7:
            case 0:
                value, at = _varint(message, at)
            case 1 | 2 | 5 as wire_type:
                length = {1: 8, 5: 4}.get(wire_type, 0)
                if wire_type == 2:
                    length, at = _varint(message, at)
                value, at = message[at : at + length], at + length
            case _:
                raise ValueError("it is not a SentencePiece model")
        if at > len(message):
            raise ValueError("the file is incomplete")
        yield key >> 3, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at`, 7 bits per byte from the lowest, and where it ends."""
    number = shift = 0
    while at < len(message):
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
    raise ValueError("the file is incomplete")


def _int(message: dict[int, int | bytes], field: int, default: int) -> int:
    value = message.get(field, default)
    if not isinstance(value, int):
        raise ValueError("it is not a SentencePiece model")
    return value


def _bytes(message: dict[int, int | bytes], field: int, default: bytes | None = None) -> bytes:
    value = message.get(field, default)
    if not isinstance(value, bytes):
        raise ValueError("it is not a SentencePiece model")
    return value
