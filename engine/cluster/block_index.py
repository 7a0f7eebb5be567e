"""Which replicas have a block: one walk along a prompt finds its cached prefix on every replica.

A block's key is the hash of its tokens and of the key before it, so equal keys mean equal prefixes. The
index maps a key to a set of replicas, kept as the bits of an integer. A lookup walks along the prompt
and stops at the first block that no replica has, so its cost does not depend on the number of cached
blocks, and hardly on the number of replicas.

Source: Dynamo's `RadixTree` keeps a set of workers per node (`lib/llm/src/kv_router/indexer.rs`), and
llm-d's index maps the hash of a block to its pods (`llm-d-kv-cache-manager/pkg/kvcache/kvblock`).

Differs from both: a key is Python's 64-bit hash of token ids. A collision would only cause a wrong
prediction, because the engine compares the tokens themselves.

Window pages are not in the index. If a replica has evicted window pages of a prefix, it finds less of
the prefix than predicted and computes the rest.
"""

from collections.abc import Iterable, Iterator, Sequence

from engine.extensions.prefix_keys import name_of

Keys = dict[int, list[int]]  # block size -> the keys of a prompt's full blocks

START = 0x5EED  # the key before the first block


def first_key(extra_key: Sequence[str] = ()) -> int:
    """Return the key before the first block of a prefix with an adapter or a salt, or with none.

    Replicas count the weights of an adapter each for itself, so only its name counts here.
    """
    return hash((START, name_of(extra_key[0]), *extra_key[1:])) if any(extra_key) else START


def block_keys(tokens: Sequence[int], block_size: int, before: int = START) -> list[int]:
    """Return the keys of the full blocks of `tokens`, which follow the block with key `before`."""
    keys, key = list[int](), before
    for end in range(block_size, len(tokens) + 1, block_size):
        key = hash((key, *tokens[end - block_size : end]))
        keys.append(key)
    return keys


class BlockIndex:
    """Sets of replicas by block key. Replicas may have blocks of different sizes."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}  # token slots in a replica's block
        self._bits: dict[str, int] = {}
        self._names: dict[int, str] = {}  # by bit
        self._holders: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def join(self, replica: str, block_size: int) -> None:
        """Add a replica that has no blocks."""
        bits = (1 << index for index in range(len(self._names) + 1))
        bit = next(bit for bit in bits if bit not in self._names)
        self._bits[replica], self._names[bit] = bit, replica
        self._sizes[replica] = block_size

    def leave(self, replica: str) -> None:
        """Remove a replica. Its blocks must have been discarded before."""
        del self._names[self._bits.pop(replica)], self._sizes[replica]

    def add(self, replica: str, keys: Iterable[int]) -> None:
        """Note that a replica has these blocks."""
        bit, holders = self._bits[replica], self._holders
        for key in keys:
            holders[key] = holders.get(key, 0) | bit

    def discard(self, replica: str, keys: Iterable[int]) -> None:
        """Note that a replica no longer has these blocks."""
        bit, holders = self._bits[replica], self._holders
        for key in keys:
            others = holders.get(key, 0) & ~bit
            if others:
                holders[key] = others
            else:
                holders.pop(key, None)

    def has(self, replica: str, key: int) -> bool:
        """Return whether a replica has a block."""
        return bool(self._holders.get(key, 0) & self._bits[replica])

    def keys(self, tokens: Sequence[int]) -> Keys:
        """Return the keys of a prompt's full blocks, for each block size of the replicas."""
        before = first_key(getattr(tokens, "extra_key", ()))
        return {size: block_keys(tokens, size, before) for size in set(self._sizes.values())}

    def keys_on(self, replica: str, keys: Keys) -> list[int]:
        """Return the keys for a replica's block size, or none for an unknown replica."""
        return keys.get(self._sizes.get(replica, 0), [])

    def last_key(self, replica: str, keys: Keys, hit: int) -> int:
        """Return the key of the last block of a replica's hit."""
        size = self._sizes[replica]
        return keys[size][hit // size - 1]

    def hits(self, keys: Keys, prompt: int) -> dict[str, int]:
        """Return how many leading tokens of a prompt each replica has; replicas with none are left out.

        keys    the keys of the prompt's blocks
        prompt  the prompt's length. Its last token is always computed, so a block that ends with this
                token does not count
        """
        hits = dict[str, int]()
        for size, chain in keys.items():
            for replica, depth in self._match(chain[: (prompt - 1) // size]):
                if depth and self._sizes[replica] == size:
                    hits[replica] = depth * size
        return hits

    def _match(self, chain: Sequence[int]) -> Iterator[tuple[str, int]]:
        """Yield each replica that has leading blocks of the chain, and their number."""
        matching = ~0  # all replicas
        for depth, key in enumerate(chain):
            have = matching & self._holders.get(key, 0)
            if have != matching and depth:
                yield from ((replica, depth) for replica in self._named(matching & ~have))
            matching = have
            if not have:
                return
        if chain:
            yield from ((replica, len(chain)) for replica in self._named(matching))

    def _named(self, bits: int) -> Iterator[str]:
        while bits:
            lowest = bits & -bits
            yield self._names[lowest]
            bits ^= lowest
