"""What a KV block is called below the GPU: the hash of all tokens up to its end.

    key = hash(key of the block before it, its tokens)

A first block's key also depends on the request's adapter and salt. Because each key contains the one
before it, equal keys mean equal prefixes.

Each request's blocks are hashed once, when a step has computed them. From then on it is known which key
is in which GPU block, so an eviction hashes nothing.

Source: `hash_block_tokens` in vLLM's `vllm/v1/core/kv_cache_utils.py`.
"""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from engine.core.request import Request


class Keys:
    """The keys of an engine's blocks."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._chains: dict[int, list[bytes]] = {}  # by request: the keys of its first blocks
        self._of_block: dict[int, bytes] = {}  # of the computed GPU blocks
        self._noted: dict[int, int] = {}  # by request: how many of its blocks have their key there

    def of(self, request: Request, count: int | None = None) -> list[bytes]:
        """Return the keys of a request's blocks: the first `count`, or those that a hit can cover."""
        if count is None:
            count = (len(request.tokens) - 1) // self._size
        chain = self._chains.setdefault(request.id, [])
        self._extend(chain, request.tokens, count, request.extra_key)
        return chain[:count]

    def forget(self, request: Request) -> None:
        """Forget a request that has ended."""
        self._chains.pop(request.id, None)
        self._noted.pop(request.id, None)

    def admitted(self, request: Request) -> None:
        """Note that a request's block table begins anew, with blocks whose keys are known."""
        self._noted[request.id] = len(request.block_table)

    def computed(self, request: Request, count: int) -> None:
        """Note that the first `count` blocks of a request are computed."""
        first = self._noted.get(request.id, 0)
        if count > first:
            keys = self.of(request, count)[first:]
            self._of_block.update(zip(request.block_table[first:count], keys, strict=True))
            self._noted[request.id] = count

    def adopted(self, tokens: Sequence[int], blocks: list[int]) -> None:
        """Note that the last blocks of these tokens, which fill whole blocks, came from elsewhere."""
        chain: list[bytes] = []
        extra_key = getattr(tokens, "extra_key", ())
        self._extend(chain, tokens, len(tokens) // self._size, extra_key)
        self._of_block.update(zip(blocks, chain[len(chain) - len(blocks) :], strict=True))

    def of_blocks(self, blocks: Iterable[int]) -> list[bytes]:
        """Return the keys of computed GPU blocks."""
        return [self._of_block[block] for block in blocks]

    def _extend(
        self, chain: list[bytes], tokens: Sequence[int], count: int, extra_key: tuple[str, ...]
    ) -> None:
        """Make a list of the keys of a prefix longer, up to `count`."""
        size = self._size
        key = chain[-1] if chain else b""
        for start in range(len(chain) * size, count * size, size):
            extra = repr(extra_key).encode() if extra_key and not start else b""
            data = key + array("q", tokens[start : start + size]).tobytes() + extra
            key = blake2b(data, digest_size=16).digest()
            chain.append(key)
