"""The memory of several KV cache groups, and the scheduler that counts its blocks: `kv_groups.py`."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence, Set
from hashlib import blake2b
from typing import Any, NamedTuple

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.hash_cache import HashCache, HashMatch, HashNode
from engine.core.cache.prefix_cache import Adopted, BlockOwner, PrefixMatch
from engine.core.config import ConfigError, EngineConfig
from engine.core.log import vocabulary as v
from engine.core.request import Request
from engine.core.scheduling.admission import ContextLengthError, RequestError
from engine.core.scheduling.scheduler import Plan, Scheduler
from engine.extensions.aligned_chunks import aligned_chunk, leaves_checkpoint
from engine.extensions.kv_groups import Group, KVGroups, check_groups, keeps

NO_BLOCK = -1


class GroupPool(BlockPool):
    """The blocks of all groups.

    free   as the log has it: blocks that are in no table and not cached for full attention
    queue  the blocks that no table names, in the order in which they will be allocated
    """

    free: OrderedDict[int, None]  # type: ignore[assignment] # so that a block is found quickly

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.free = OrderedDict.fromkeys(self.free)
        self.queue = OrderedDict.fromkeys(range(num_blocks))

    def allocate(self, count: int) -> list[int]:
        """Allocate the first `count` free blocks of the queue, each with one reference."""
        blocks = [block for block in self.queue if block in self.free][:count]
        for block in blocks:
            self.take(block)
        return blocks

    def take(self, block: int) -> None:
        """Add a reference to a block, which may be free."""
        self.queue.pop(block, None)
        self.free.pop(block, None)
        self.refs[block] += 1

    def release(self, blocks: list[int]) -> None:
        """Drop one reference from each block, from the last to the first. The caller queues them."""
        for block in reversed(blocks):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free[block] = None

    def is_queued(self, block: int) -> bool:
        """Return whether no table names this block; NO_BLOCK is none."""
        return block in self.queue


class GroupMatch(NamedTuple):
    """The cached prefix that all groups have.

    node, blocks  of full attention, see `HashMatch`
    tables        of the other groups, with NO_BLOCK in front of what they need
    longest       the number of blocks that full attention has
    """

    node: HashNode
    blocks: list[int]
    tables: list[list[int]]
    longest: int

    @property
    def junction(self) -> int:
        """The number of blocks after which a request leaves what full attention has; 0: it does not."""
        return self.longest if self.longest > len(self.blocks) else 0


class GroupedCache(HashCache):
    """A prefix cache of several groups. What `HashCache` has is that of the first full attention.

    others     the other groups, by their place among all of them
    tables     by request: the tables of the others
    junctions  by request: see `GroupMatch.junction`
    aligned    the first group of aligned linear layers, or None
    lookahead  slots that each request gets behind its tokens, for a draft model
    """

    pool: GroupPool
    lookahead = 0

    def __init__(
        self, config: EngineConfig, groups: KVGroups, emit: Callable[[v.Event], None]
    ) -> None:
        check_groups(config, groups)
        super().__init__(GroupPool(config.num_blocks), config.block_size, emit)
        self.enabled = config.prefix_cache == "hash"
        self.groups, self._retention = groups.groups, groups.retention
        self._main = next(at for at, one in enumerate(self.groups) if one.kind == "full")
        self.others = [at for at in range(len(self.groups)) if at != self._main]
        self.aligned = next((one for one in self.groups if one.kind == "aligned"), None)
        self.in_flight = config.token_budget * (1 + config.async_scheduling)
        self.tables: dict[int, list[list[int]]] = {}
        self._behind: dict[int, list[int]] = {}  # request -> where the blocks behind a window end
        self.junctions: dict[int, int] = {}
        # Blocks of the other groups by group and hash of the prefix, the oldest copy first
        self._found: dict[tuple[int, bytes], dict[int, None]] = {}
        self._key_of: dict[int, tuple[int, bytes]] = {}
        self._prefixes: dict[int, bytes] = {}  # node -> the hash of its prefix
        # Groups with the same needs are looked up together: positions in `others`.
        alike: dict[Group, list[int]] = {}
        for at, group in enumerate(self.others):
            alike.setdefault(self.groups[group], []).append(at)
        self._alike = list(alike.items())
        self._computing: set[tuple[int, bytes]] = set()  # states of linear layers of this step
        self._goes_on = False  # whether a request that loses its blocks may still have some later

    # Lookup

    def match(self, tokens: Sequence[int], limit: int) -> GroupMatch:  # type: ignore[override]
        """Return the longest prefix that all groups have, at most `limit` blocks. Changes nothing."""
        found = super().match(tokens, limit)
        keys = self._keys(found.node, 0)
        before, end = -1, len(keys)
        while end != before:
            before = end
            for group, members in self._alike:
                end = self._longest(group, members, keys, end)
        tables = []
        for at, number in enumerate(self.others):
            first = min(self.groups[number].first_needed(end * self.block_size), end)
            kept = [next(iter(self._found[at, key])) for key in keys[first:end]]
            tables.append([NO_BLOCK] * first + kept)
        node = found.node
        while node.depth > end:
            assert node.parent is not None
            node = node.parent
        return GroupMatch(node, found.blocks[:end], tables, len(keys))

    def _longest(self, group: Group, members: list[int], keys: list[bytes], end: int) -> int:
        """Return how many of the first `end` blocks groups with equal needs can use."""
        if group.kind == "chunk":
            first = group.first_needed(end * self.block_size)
            lacks = (
                index
                for index in range(first, end)
                if any((at, keys[index]) not in self._found for at in members)
            )
            return next(lacks, end)
        needed = end if group.kind == "full" else group.blocks_of_hit
        in_a_row = 0
        for index in range(end - 1, -1, -1):
            has_all = all((at, keys[index]) in self._found for at in members)
            in_a_row = in_a_row + 1 if has_all else 0
            if in_a_row >= needed > 0:
                return index + in_a_row
        return in_a_row

    def _keys(self, node: HashNode, depth: int) -> list[bytes]:
        """Return the hashes of the prefixes on the path to a node, from `depth` blocks on."""
        path = list[HashNode]()
        while node.parent is not None and node.id not in self._prefixes:
            path.append(node)
            node = node.parent
        for one in reversed(path):
            assert one.parent is not None
            above = self._prefixes.get(one.parent.id, b"")
            self._prefixes[one.id] = prefix_hash(above, one.extra_key, one.tokens)
        node = path[0] if path else node
        keys = list[bytes]()
        while node.parent is not None and node.depth > depth:
            keys.append(self._prefixes[node.id])
            node = node.parent
        return keys[::-1]

    # Counting

    def num_available_blocks_beside(self, match: PrefixMatch) -> int:
        """Count the blocks that a request can allocate once it has attached `match`."""
        used = sum(map(self.pool.is_queued, match.blocks))
        for table in match.tables if isinstance(match, GroupMatch) else ():
            used += sum(map(self.pool.is_queued, table))
        return self.num_available_blocks - used

    def blocks_to_admit(self, request: Request, cached: int, tokens: int, in_flight: int) -> int:
        """Count the new blocks of all groups for a request of so many tokens.

        cached     the blocks of its cached prefix
        in_flight  see `Group.most_blocks`
        """
        count, start = 0, cached * self.block_size
        for one in self.groups:
            if one.kind == "aligned":
                leaves = leaves_checkpoint(one, self._retention, request, start, tokens)
                count += one.new_blocks(cached, tokens, leaves)
            else:
                count += max(one.most_blocks(tokens, in_flight) - cached, 0)
        return count

    def blocks_needed(self, request: Request, count: int) -> int:
        """Count the blocks of all groups so that the next `count` tokens can be written."""
        return sum(self._new_blocks(request, request.num_scheduled_tokens + count))

    def _new_blocks(self, request: Request, end: int) -> list[int]:
        """Count the blocks that each group lacks for the first `end` tokens."""
        tables, start = self._tables(request), request.num_scheduled_tokens
        return [
            group.new_blocks(
                len(table),
                end + self.lookahead * (group.kind != "aligned"),
                leaves_checkpoint(group, self._retention, request, start, end),
            )
            for group, table in zip(self.groups, tables, strict=True)
        ]

    def _tables(self, request: Request) -> list[list[int]]:
        """Return the tables of all groups."""
        tables = list(self.tables[request.id])
        tables.insert(self._main, request.block_table)
        return tables

    def awaits_state(self, match: PrefixMatch) -> bool:
        """Return whether the prefix ends with a state that linear layers compute in this step."""
        assert isinstance(match, GroupMatch)
        ends = [table[-1] for table in match.tables if table]
        return any(self._key_of.get(block) in self._computing for block in ends)

    def step_starts(self) -> None:
        """Note that what the last step computed can be used."""
        self._computing.clear()

    # Owners

    def attach(self, owner: BlockOwner, match: Any) -> None:
        """Give an owner the blocks of its match in all groups. The caller emits the event."""
        if isinstance(owner, Request):
            self.hits = self._hits(owner, match.longest)
            self.junctions[owner.id] = match.junction
            self.tables[owner.id] = [[] for _ in self.others]
            self._behind[owner.id] = [0] * len(self.others)
            for at, table in enumerate(match.tables):
                self.tables[owner.id][at] = list(table)
                changes = [(index, block) for index, block in enumerate(table) if block >= 0]
                for _, block in changes:
                    self.pool.take(block)
                self._changed(owner.id, at, changes)
        for block in match.blocks:
            self.pool.queue.pop(block, None)
        super().attach(owner, HashMatch(match.node, match.blocks))

    def _hits(self, request: Request, longest: int) -> list[int]:
        """Return how many tokens of a request each group has by itself, that of the log first."""
        if not self.enabled or request.params.prompt_logprobs is not None:
            return []
        size = self.block_size
        keys = prefix_hashes(request.tokens, size, (len(request.tokens) - 1) // size)
        hits = [longest] * (1 + len(self.others))
        for group, members in self._alike:
            alone = self._longest(group, members, keys, len(keys))
            for at in members:
                hits[1 + at] = alone
        return [one * size for one in hits]

    def _changed(self, request: int, at: int, changes: list[tuple[int, int]]) -> None:
        if changes:
            self._emit(v.GroupTableChanged(request, at + 1, changes))

    def allocate_slots(
        self, request: Request, count: int, drafts: int = 0
    ) -> list[tuple[int, int]] | None:
        """Return what is behind the windows, then make slots for `count` tokens writable.

        Returns None if too few blocks are available; what was behind the windows is free nevertheless.
        """
        self._return_behind(request)
        end = request.num_scheduled_tokens + count
        new = self._new_blocks(request, end)
        if sum(new) > self.num_available_blocks:
            return None
        blocks = [block for block, _ in zip(self.pool.queue, range(sum(new)), strict=False)]
        for block in blocks:
            self._forget(block)
        self._evict(sum(block in self._node_of for block in blocks), request.id, "room")
        for number, wanted in enumerate(new if blocks else ()):
            some, blocks = blocks[:wanted], blocks[wanted:]
            if not some:
                continue
            for block in some:
                self.pool.take(block)
            if number == self._main:
                request.block_table += some
                self._emit(v.BlocksAllocated(request.id, some))
            else:
                at = self.others.index(number)
                table = self.tables[request.id][at]
                if self.groups[number].kind == "aligned":
                    behind = self.groups[number].blocks_for(end) - wanted - len(table)
                    table += [NO_BLOCK] * behind
                changes = list(enumerate(some, len(table)))
                table += some
                self._changed(request.id, at, changes)
        self.cache_scheduled(request, min(end - drafts, len(request.tokens)))
        return []

    def _return_behind(self, request: Request) -> None:
        """Return the blocks that no later token of a request reads."""
        for at, table in enumerate(self.tables[request.id]):
            group = self.groups[self.others[at]]
            end = min(group.first_needed(request.num_computed_tokens), len(table))
            behind = [
                index
                for index in range(end - 1, self._behind[request.id][at] - 1, -1)
                if table[index] != NO_BLOCK
            ]
            self._behind[request.id][at] = end
            if not behind:
                continue
            blocks = [table[index] for index in behind]
            for index in behind:
                table[index] = NO_BLOCK
            self.pool.release(blocks[::-1])
            self._queue_up(blocks)
            self._changed(request.id, at, [(index, NO_BLOCK) for index in behind])

    def _queue_up(self, blocks: Iterable[int]) -> None:
        """Put released blocks into the queue: at its end those that can be found, else in front."""
        unowned = [one for one in blocks if self.pool.refs[one] == (one in self._node_of)]
        can_be_found = [one for one in unowned if one in self._node_of or one in self._key_of]
        self.pool.queue.update(dict.fromkeys(can_be_found))
        for block in reversed(unowned):
            if block not in self.pool.queue:
                self.pool.queue[block] = None
                self.pool.queue.move_to_end(block, last=False)

    def free(self, owner: BlockOwner, keep: int = 0) -> None:
        """Release the blocks after the first `keep`, group by group, each from its last block on."""
        if isinstance(owner, Request) and (keep or self._goes_on):
            self._trim(owner.id, keep)
        main, others = owner.block_table[keep:], list[list[int]]()
        if isinstance(owner, Request):
            others = [table[keep:] for table in self.tables.get(owner.id, [])]
            for table in self.tables.get(owner.id, []):
                del table[keep:]
            if not keep and not self._goes_on:
                self.tables.pop(owner.id, None)
                self._behind.pop(owner.id, None)
                self.junctions.pop(owner.id, None)
        super().free(owner, keep)
        others = [[block for block in table if block != NO_BLOCK] for table in others]
        for table in others:
            self.pool.release(table[::-1])
        others.insert(self._main, main)
        for table in others:
            self._queue_up(table[::-1])

    def _trim(self, request: int, keep: int) -> None:
        """Release the blocks of the other groups after the first `keep`; the request goes on."""
        for at, table in enumerate(self.tables[request]):
            dropped = list(enumerate(table))[keep:][::-1]
            dropped = [(index, block) for index, block in dropped if block != NO_BLOCK]
            blocks = [block for _, block in dropped]
            del table[keep:]
            self.pool.release(blocks[::-1])
            self._queue_up(blocks)
            self._changed(request, at, [(index, NO_BLOCK) for index, _ in dropped])

    # Evicting

    def _evict(self, count: int, needed_by: int, reason: v.EvictionReason) -> None:
        """Evict blocks of full attention from the front of their queue. They keep their places."""
        for _ in range(count):
            block, _ = self._queue.popitem(last=False)
            node = self._remove(block)
            self.pool.refs[block] = 0
            self.pool.free[block] = None
            self.pool.free.move_to_end(block, last=False)
            self._emit(v.BlockEvicted(node.id, block, needed_by, reason))

    def _remove(self, block: int) -> HashNode:
        node = super()._remove(block)
        if not node.blocks:
            self._prefixes.pop(node.id, None)
        return node

    def _forget(self, block: int) -> None:
        """Make a block of another group unfindable."""
        if (key := self._key_of.pop(block, None)) is not None:
            del self._found[key][block]
            if not self._found[key]:
                del self._found[key]

    def clear(self) -> None:
        """Evict every block that no request uses."""
        super().clear()
        for block in self.pool.queue:
            self._forget(block)

    # Caching

    def adopt(self, match: Any, tokens: list[int]) -> Adopted:
        """Cache blocks of full attention for tokens that continue a match."""
        adopted = super().adopt(HashMatch(match.node, match.blocks), tokens)
        node = self.nodes[adopted.nodes[-1]]
        while node.parent is not None:
            if (block := node.blocks[0]) in self._queue:
                self.pool.queue[block] = None
                self.pool.queue.move_to_end(block)
            node = node.parent
        return adopted

    def cache_scheduled(self, request: Request, end: int) -> None:
        """Make the full blocks before token `end` findable in all groups."""
        if not self.enabled:
            return
        first = self.nodes[request.last_node].depth
        super().cache_scheduled(request, end)
        self._note_last_state(request, end)
        if self.nodes[request.last_node].depth == first:
            return
        keys = self._keys(self.nodes[request.last_node], first)
        for at, number in enumerate(self.others):
            group = self.groups[number]
            for index, key in enumerate(keys, first):
                block = self.tables[request.id][at][index]
                if block != NO_BLOCK and self._keeps(group, request, index):
                    self._make_findable(block, (at, key))
                    if group.is_linear:
                        self._computing.add((at, key))

    def _note_last_state(self, request: Request, end: int) -> None:
        """Note a prompt's last state while its request computes the tokens behind it.

        vLLM makes it findable again in each of these steps, so no request can use it yet.
        """
        last = (request.prompt_length - 1) // self.block_size
        if self.aligned is None or not 0 < last == end // self.block_size:
            return
        for table, number in zip(self.tables[request.id], self.others, strict=True):
            key = self._key_of.get(table[last - 1])
            if key and self.groups[number].kind == "aligned":
                self._computing.add(key)

    def _make_findable(self, block: int, key: tuple[int, bytes]) -> None:
        self._found.setdefault(key, {})[block] = None
        self._key_of[block] = key

    def _keeps(self, group: Group, request: Request, index: int) -> bool:
        """Return whether a group's block at `index` of a table is made findable."""
        ends = [(request.prompt_length - 1) // self.block_size, self.junctions[request.id]]
        return keeps(group, self._retention, index, ends)

    def withdraw(self, requests: Sequence[Request], lost: Set[int] = frozenset()) -> None:
        """Remove the blocks that these requests will not compute, in all groups."""
        for request in requests:
            end = self.nodes[request.last_node].depth
            for table in self.tables.get(request.id, []):
                for block in table[request.num_scheduled_tokens // self.block_size : end]:
                    self._forget(block)
        self._goes_on = True
        super().withdraw(requests, lost)
        self._goes_on = False

    def trim(self, request: Request) -> None:
        """Release the blocks past the scheduled tokens, in all groups."""
        self._goes_on = True
        super().trim(request)
        self._goes_on = False

    def check_request(self, length: int, params: Any) -> None:
        """Raise RequestError for a request that this memory can never serve."""
        if params.samples > 1:
            raise RequestError("n", f"must be 1 with several KV cache groups, got {params.samples}")
        tokens, memory = length + params.max_tokens - 1, self.pool.num_blocks
        need = sum(one.most_blocks(tokens, self.in_flight) for one in self.groups)
        if need > memory:
            raise ContextLengthError(
                "max_tokens",
                f"{length} prompt tokens and up to {params.max_tokens} output tokens need {need} KV "
                f"blocks in {len(self.groups)} groups, but memory has {memory}: raise max_kv_tokens",
                memory * self.block_size // len(self.groups),
            )

    def check_integrity(self) -> None:
        """Raise AssertionError unless cache, queue and tables agree."""
        super().check_integrity()
        held = [block for tables in self.tables.values() for table in tables for block in table]
        for block, refs in enumerate(self.pool.refs):
            is_unowned = refs == (block in self._node_of)
            assert is_unowned == self.pool.is_queued(block), f"block {block} is lost"
            assert (block in self._queue) == (is_unowned and block in self._node_of)
        assert not any(block in self._node_of for block in held), "a block has two groups"
        for block, key in self._key_of.items():
            assert block in self._found[key]


def prefix_hashes(tokens: Sequence[int], size: int, count: int) -> list[bytes]:
    """Return the hashes of the prefixes of 1 to `count` blocks of `size` tokens."""
    hashes, above = list[bytes](), b""
    for start in range(0, count * size, size):
        extra_key = () if start else getattr(tokens, "extra_key", ())
        above = prefix_hash(above, extra_key, tuple(tokens[start : start + size]))
        hashes.append(above)
    return hashes


def prefix_hash(above: bytes, extra_key: tuple[str, ...], tokens: tuple[int, ...]) -> bytes:
    """Return the hash of a prefix, given that of the prefix without its last block."""
    return blake2b(repr((above, extra_key, tokens)).encode(), digest_size=16).digest()


class GroupedScheduler(Scheduler):
    """A scheduler that counts the blocks of all groups."""

    cache: GroupedCache

    def schedule(self) -> Plan:
        """See `Scheduler`. Raises ConfigError for drafts that are scheduled otherwise than vLLM's."""
        if self.speculation is not None:
            raise ConfigError("drafter must be that of the log with several KV cache groups")
        self.cache.step_starts()
        self.align = self._align if self.cache.aligned else None
        return super().schedule()

    def _align(self, request: Request, count: int) -> int:
        """Return how many of a running request's next `count` tokens are computed."""
        at = self.cache.junctions[request.id]
        return self._aligned(request, request.num_scheduled_tokens, count, at)

    def _aligned(self, request: Request, start: int, count: int, junction: int) -> int:
        """Return how many of `count` tokens from `start` on are computed, see `aligned_chunk`."""
        if (group := self.cache.aligned) is None:
            return count
        longest = self.config.long_prefill_token_threshold or self.config.token_budget
        longest = min(longest, self.config.token_budget)
        left_at = junction * group.block_size
        return aligned_chunk(group, request, start, count, junction=left_at, longest=longest)

    def _memory_obstacle(
        self, plan: Plan, request: Request, match: PrefixMatch
    ) -> tuple[v.WaitingReason, int, int] | None:
        """Return why a request with this match is not admitted, or None if it is."""
        assert isinstance(match, GroupMatch)
        size, length = self.config.block_size, len(request.tokens)
        cached = len(match.blocks)
        missing = length - cached * size
        tokens = 1 if self.config.chunked_prefill else min(missing, plan.longest)
        if tokens > plan.budget:
            return "token_budget", tokens, plan.budget
        chunk = min(missing, plan.budget, plan.longest)
        chunk = self._aligned(request, cached * size, chunk, match.junction)
        if not chunk:
            return "token_budget", size, plan.budget
        have = self.cache.num_available_blocks_beside(match)
        if self.running:
            have -= self._watermark_blocks
        need = self.cache.blocks_to_admit(request, cached, length, self.cache.in_flight)
        if self.config.admission == "whole" and need > have:
            return "whole_sequence", need, have
        end = cached * size + chunk
        need = self.cache.blocks_to_admit(request, cached, end, end)
        if self.cache.awaits_state(match):
            need = self.config.num_blocks + 1
        return ("no_free_blocks", need, have) if need > have else None


def grouped_cache(
    config: EngineConfig, groups: KVGroups, pool: BlockPool, emit: Callable[[v.Event], None]
) -> GroupedCache:
    """Return the cache of a model with these groups. Raises ConfigError for a `pool` of the user's."""
    if type(pool) is not BlockPool:
        raise ConfigError(
            f"pool must be BlockPool with several KV cache groups, got {type(pool).__name__}"
        )
    return GroupedCache(config, groups, emit)
