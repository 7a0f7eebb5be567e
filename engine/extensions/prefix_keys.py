"""What the KV of a prefix depends on besides its tokens: an adapter, and the salt of a tenant.

The cache's key of a prefix begins with both, so requests that differ in one of them never share a
block. `KeyedTokens` carries that key. A plain list of tokens has none, so a request without adapter and
salt runs through no function of this file.

Sources: `generate_block_hash_extra_keys` in vLLM's `vllm/v1/core/kv_cache_utils.py`;
`RadixKey.extra_key` in SGLang's `python/sglang/srt/mem_cache/radix_cache.py`.

Differs from vLLM: there, the key of every block names the adapter, and that of the first one also the
salt. Since each key contains the one before it, here only the first one has both.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex, overload


class KeyedTokens(list[int]):
    """Tokens of a request that has an adapter or a salt.

    extra_key  (adapter, digest of the salt), each "" for none; a prefix has it, a later part does not

    Why is it no parameter of `match`? Policies, holds, transfers and routers pass tokens on to it, and
    readers write trees and policies of their own against `match(tokens, limit)`. If one of them left
    the parameter out, it would find the KV of another adapter. SGLang's `RadixKey` also has both.
    """

    extra_key: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | list[int]:
        """Return a token, or tokens; those from the beginning keep the key."""
        if isinstance(index, slice) and not index.start:
            return keyed(super().__getitem__(index), self.extra_key)
        return super().__getitem__(index)


def keyed(tokens: Sequence[int], extra_key: tuple[str, ...]) -> KeyedTokens:
    """Return tokens whose prefixes have a key of their own."""
    result = KeyedTokens(tokens)
    result.extra_key = extra_key
    return result


def salt_digest(salt: str) -> str:
    """Return what the log shows of a salt: equal for equal salts, and no way back to a secret."""
    return hashlib.sha256(salt.encode()).hexdigest()[:32] if salt else ""


def name_of(key: str) -> str:
    """Return the name of the adapter with a key."""
    return re.sub(r"@\d+$", "", key)


def extra_keys(blocks: int, name: str, path: str, salt: str) -> Iterator[tuple[Any, ...] | None]:
    """Yield what vLLM adds to the hash of each of the first blocks of a request.

    Source: `generate_block_hash_extra_keys`, for text.
    """
    for block in range(blocks):
        keys: list[tuple[str, ...]] = [("lora", name, path)] if name else []
        if salt and block == 0:
            keys.append(("cache_salt", salt))
        yield tuple(keys) or None
