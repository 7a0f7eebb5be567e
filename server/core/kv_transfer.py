"""The body that carries pages of KV from one server to another.

A replica's gateway asks one server for the pages of a prefix and hands the body, as it is, to another:

    4 bytes  "UGKV"
    4 bytes  length of the header, big-endian
    header   JSON: `PagesHeader`
    pages    `blocks` pages, one after the other; see `KVFormat`

The receiver checks everything before the engine thread sees the pages: another model's KV, or half a
body, would not fail there. It would give wrong text.

Source: vLLM's NIXL connector compares a hash of model, dtype and layout first
(`compute_nixl_compatibility_hash`, `vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py`).
"""

import struct
import zlib

import msgspec

from server.core.commands import ExportedPages, KVLayout
from server.http.errors import ApiError, bad_request

MAGIC = b"UGKV"
MEDIA_TYPE = "application/x-underglass-kv"
_PREFIX = struct.Struct(">4sI")
MAX_HEADER_BYTES = 16 << 20  # a million tokens
VERSION = 1


class PagesHeader(msgspec.Struct, forbid_unknown_fields=True):
    """What the pages of a body are.

    version              of the body's format
    model, dtype, shape  see `KVFormat`; the sender's and the receiver's must be equal
    block_size           token slots per block
    first                number of blocks before the first page
    blocks               number of pages
    tokens               of the prefix: those of all `first + blocks` blocks
    crc32                of all pages together
    """

    version: int
    model: str
    dtype: str
    shape: tuple[int, ...]
    block_size: int
    first: int
    blocks: int
    tokens: list[int]
    crc32: int


def encode_pages(exported: ExportedPages, tokens: list[int]) -> bytes:
    """Return the body for the exported pages of `tokens`."""
    layout, format_ = exported.layout, exported.layout.format
    header = PagesHeader(
        version=VERSION,
        model=format_.model,
        dtype=format_.dtype,
        shape=format_.shape,
        block_size=layout.block_size,
        first=exported.first,
        blocks=exported.blocks,
        tokens=tokens[: (exported.first + exported.blocks) * layout.block_size],
        crc32=zlib.crc32(exported.data),
    )
    encoded = msgspec.json.encode(header)
    return b"".join([_PREFIX.pack(MAGIC, len(encoded)), encoded, exported.data])


def max_body_bytes(layout: KVLayout) -> int:
    """Return the size of the largest body that this engine can adopt."""
    header = min(MAX_HEADER_BYTES, 1024 + 12 * layout.num_blocks * layout.block_size)
    return _PREFIX.size + header + layout.num_blocks * layout.format.page_bytes


def decode_pages(body: bytes, layout: KVLayout, vocab_size: int) -> tuple[PagesHeader, bytes]:
    """Return the header and the pages of a body, after all checks. Raises ApiError (400)."""
    if len(body) < _PREFIX.size:
        raise _truncated(_PREFIX.size, len(body))
    magic, length = _PREFIX.unpack_from(body)
    if magic != MAGIC:
        raise bad_request(
            None, "the body must begin with UGKV: send what /kv/export returned", "kv_format"
        )
    if len(body) < _PREFIX.size + length:
        raise _truncated(_PREFIX.size + length, len(body))
    try:
        header = msgspec.json.decode(body[_PREFIX.size :][:length], type=PagesHeader)
    except msgspec.DecodeError as error:
        raise bad_request(None, f"the header cannot be read: {error}", "kv_format") from error
    _check_header(header, layout, vocab_size)
    begin = _PREFIX.size + length
    end = begin + header.blocks * layout.format.page_bytes
    if len(body) < end:
        raise _truncated(end, len(body))
    if len(body) > end:
        raise bad_request(
            "blocks", f"blocks is {header.blocks}, but {len(body) - end} bytes follow", "kv_format"
        )
    pages = body[begin:]
    if zlib.crc32(pages) != header.crc32:
        raise bad_request(
            "crc32",
            "the checksum of the KV pages (crc32) is wrong: they were damaged on the way, so send them "
            "again",
            "kv_damaged",
        )
    return header, pages


def _check_header(header: PagesHeader, layout: KVLayout, vocab_size: int) -> None:
    own = layout.format
    expected = {
        "version": VERSION,
        "model": own.model,
        "dtype": own.dtype,
        "shape": tuple(own.shape),
        "block_size": layout.block_size,
    }
    for name, value in expected.items():
        if (got := getattr(header, name)) != value:
            raise bad_request(
                name,
                f"{name} must be {value!r}, as in this engine, got {got!r}: KV can only be moved "
                "between engines with the same model, precision and block size",
                "kv_mismatch",
            )
    if header.first < 0 or header.blocks < 0:
        raise bad_request("first", "first and blocks must be at least 0", "kv_format")
    tokens = (header.first + header.blocks) * layout.block_size
    if len(header.tokens) != tokens:
        raise bad_request(
            "tokens",
            f"tokens must be those of the {header.first + header.blocks} blocks, {tokens} of them, got "
            f"{len(header.tokens)}",
            "kv_format",
        )
    if header.first + header.blocks > layout.num_blocks:
        raise bad_request(
            "blocks",
            f"first + blocks must be at most {layout.num_blocks}, the blocks of this engine, got "
            f"{header.first + header.blocks}",
            "kv_too_large",
        )
    if any(not 0 <= token < vocab_size for token in header.tokens):
        raise bad_request("tokens", f"tokens must be ids from 0 to {vocab_size - 1}", "kv_format")


def _truncated(expected: int, got: int) -> ApiError:
    return bad_request(
        None, f"the body must have {expected} bytes, got {got}: it is truncated", "kv_truncated"
    )
