"""Read a GGUF file: llama.cpp's single file with configuration, tokenizer and weights.

    header     magic, version, number of tensors, number of metadata fields
    metadata   key, type, value: "llama.block_count", uint32, 16
    tensors    name, dimensions, type, offset
    data       the tensors, each at a multiple of `general.alignment`

Files come from strangers, so every length is checked against the size of the file before it is used. A
damaged or malicious file leads to a GGUFError at once, and never to a long loop or a large allocation.
Tensors are views of the memory-mapped file: reading the header reads none of them.

A large model may be split into files: `name-00001-of-00003.gguf` has the metadata, and each file has
some of the tensors.

Source: the description of the format, gguf.md, in the repository of ggml.

Differs from `gguf.GGUFReader`, which makes numpy arrays of every string. For a vocabulary of 150,000
tokens it takes seconds, and it trusts the counts in the file.
"""

import mmap
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

_VERSIONS = (2, 3)
_MAX_ITEMS = 2**24  # of a metadata array; the largest vocabularies have 2**18
_MAX_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
# The numbers of GGUF's types of numbers -> their codes in `struct`.
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_SPLIT_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class GGUFError(ValueError):
    """A file is not a complete GGUF file. The message names what is wrong and the fix."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor in the file.

    shape  outermost dimension first, as in torch; [out, in] for a matrix
    data   the memory-mapped bytes, row after row
    """

    type: GGMLQuantizationType
    shape: tuple[int, ...]
    data: memoryview

    def numel(self) -> int:
        """Return the number of values."""
        block, size = GGML_QUANT_SIZES[self.type]
        return len(self.data) // size * block

    def __getitem__(self, index: int) -> "TensorInfo":
        """Return one matrix of a stack of matrices, such as the one of an expert."""
        size = len(self.data) // self.shape[0]
        data = self.data[index * size : (index + 1) * size]
        return TensorInfo(self.type, self.shape[1:], data)


class GGUFFile:
    """The metadata of a GGUF file and its tensors, those of all parts if the file is split.

    fields   metadata by key
    tensors  TensorInfo by name

    Raises GGUFError if the file or a part of it is missing, damaged or of another kind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._maps: list[mmap.mmap] = []
        self.fields: dict[str, Any]
        self.tensors: dict[str, TensorInfo]
        self.fields, self.tensors = self._read(path)
        for part in self._other_parts():
            for name, tensor in self._read(part)[1].items():
                if name in self.tensors:
                    raise GGUFError(f"{part}: tensor {name} is also in another part")
                self.tensors[name] = tensor

    def release(self) -> None:
        """Give back the memory that holds pages of the file. They are read again if needed."""
        for mapped in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
                mapped.madvise(mmap.MADV_DONTNEED)

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
        try:
            with path.open("rb") as file:
                # A private mapping is writable, as torch expects, without changing the file.
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            self._maps.append(mapped)
            return _Reader(memoryview(mapped)).read()
        except (ValueError, struct.error, OSError) as error:
            reason = "it ends too early" if isinstance(error, struct.error) else error
            raise GGUFError(
                f"{path} is damaged or not a GGUF file ({reason}): download it again"
            ) from error

    def _other_parts(self) -> list[Path]:
        count = self.fields.get("split.count", 0)
        if not isinstance(count, int) or count <= 1:
            return []
        found = _SPLIT_NAME.fullmatch(self.path.name)
        if found is None or int(found[3]) != count:
            raise GGUFError(
                f"{self.path} is one of {count} parts: name them as they were published, "
                f"NAME-00001-of-{count:05}.gguf and so on"
            )
        parts = [
            self.path.with_name(f"{found[1]}-{i + 1:05}-of-{found[3]}.gguf") for i in range(count)
        ]
        if self.path != parts[0]:
            raise GGUFError(
                f"{self.path} is not the first part of this model: give {parts[0].name}"
            )
        for part in parts:
            if not part.is_file():
                raise GGUFError(f"{part} is missing: download all {count} parts of this model")
        return parts[1:]


class _Reader:
    """Reads the fields of a file in order. Raises ValueError or struct.error beyond its end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._offset = 0

    def read(self) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
        if bytes(self._data[:4]) != b"GGUF":
            raise ValueError("it does not start with 'GGUF'")
        self._offset = 4
        version = self._number("I")
        if version not in _VERSIONS:
            raise ValueError(f"its version is {version}, supported are 2 and 3 (little-endian)")
        num_tensors, num_fields = self._number("Q"), self._number("Q")
        fields = self._named("metadata field", num_fields, self._value)
        entries = self._named("tensor", num_tensors, self._tensor)
        alignment = fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
            raise ValueError(f"general.alignment must be a power of two from 8, got {alignment!r}")
        start = -(-self._offset // alignment) * alignment
        return fields, {name: self._placed(name, start, *entry) for name, entry in entries.items()}

    def _named(self, kind: str, count: int, read: Callable[[], Any]) -> dict[str, Any]:
        """Read `count` entries, each with a name before it."""
        entries: dict[str, Any] = {}
        for _ in range(count):
            name = self._string()
            if name in entries:
                raise ValueError(f"{kind} {name} is there twice")
            entries[name] = read()
        return entries

    def _number(self, code: str) -> Any:
        [value] = struct.unpack_from(f"<{code}", self._data, self._offset)
        self._offset += struct.calcsize(f"<{code}")
        return value

    def _string(self) -> str:
        return str(self._take(self._number("Q")), "utf-8")

    def _take(self, size: int) -> memoryview:
        end = self._offset + size
        if end > len(self._data):
            raise ValueError(f"it ends at byte {len(self._data)}, before its header does")
        taken = self._data[self._offset : end]
        self._offset = end
        return taken

    def _value(self) -> Any:
        kind = self._number("I")
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(_code(kind))
        kind, count = self._number("I"), self._number("Q")
        if count > _MAX_ITEMS:
            raise ValueError(f"an array in its metadata has {count} items")
        if kind == _STRING:
            return self._strings(count)
        code = _code(kind)
        data = self._take(count * struct.calcsize(f"<{code}"))
        return list(struct.unpack(f"<{count}{code}", data))

    def _strings(self, count: int) -> list[str]:
        """Read a vocabulary: as `_string` for each, in a third of the time."""
        data, first, length_at = self._data, self._offset, struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(count):
            [length] = length_at(data, first)
            first += 8 + length
            strings.append(str(data[first - length : first], "utf-8"))
        self._offset = first
        self._take(0)  # the last string must not end beyond the end of the file
        return strings

    def _tensor(self) -> tuple[tuple[int, ...], int, int]:
        """Return the shape, the number of the type, and the offset."""
        num_dimensions = self._number("I")
        if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
            raise ValueError(f"a tensor in it has {num_dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(num_dimensions))
        return shape[::-1], self._number("I"), self._number("Q")

    def _placed(
        self, name: str, start: int, shape: tuple[int, ...], type_: int, offset: int
    ) -> TensorInfo:
        try:
            kind = GGMLQuantizationType(type_)
            block, size = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise ValueError(f"tensor {name} has the unknown type {type_}") from None
        numel = 1
        for dimension in shape:
            numel *= dimension
        if numel == 0 or shape[-1] % block:
            raise ValueError(f"tensor {name} has shape {list(shape)}, impossible in {kind.name}")
        first = start + offset
        end = first + numel // block * size
        if end > len(self._data):
            raise ValueError(f"tensor {name} ends at byte {end} of {len(self._data)}")
        return TensorInfo(kind, shape, self._data[first:end])


def _code(kind: int) -> str:
    """Return the struct code of a type of number."""
    if kind not in _NUMBERS:
        raise ValueError(f"its metadata has a value of the unknown type {kind}")
    return _NUMBERS[kind]
