"""The memory of several KV cache groups at the beginning of a part of a log, for its replay."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.extensions.kv_groups import KVGroups
from engine.extensions.prefix_keys import keyed
from engine.simulation.cached_groups import CachedBlock, CachedGroups
from engine.simulation.log_part import LogPart, Origin, keyframe_before

# So many events before a part are read, so that most blocks are allocated in them. Measured: 22 per
# block of a memory that is rarely full.
EVENTS_PER_BLOCK = 30
FEWEST_BEFORE, MOST_BEFORE = 60_000, 600_000
_AT_ONCE = 20_000


class GroupMemory(NamedTuple):
    """All blocks at a moment.

    nodes   the prefix tree of full attention, parents first
    queue   the blocks in no table, in the order of their allocation
    found   those of the other groups that can be found, the oldest copy of a prefix first
    tables  by running request, that of full attention first
    ends    by running request, the node with which what others find of its full attention ends
    junctions  by running request, see `GroupMatch.junction`
    gone    the prefixes of nodes that are not in the tree at the moment, but come back later
    """

    nodes: list[v.NodeRecord]
    queue: list[int]
    found: dict[int, CachedBlock]
    tables: dict[int, list[list[int]]]
    ends: dict[int, int]
    junctions: dict[int, int]
    gone: dict[int, list[int]]

    @property
    def held(self) -> list[int]:
        """The blocks in tables, in the order in which their requests would release them."""
        tables = [table[::-1] for some in self.tables.values() for table in some]
        return list(dict.fromkeys(block for table in tables for block in table if block >= 0))


class _Said(Protocol):
    ids: list[int]


def memory_of(part: LogPart, answers: Mapping[int, _Said]) -> GroupMemory | None:
    """Return what several KV cache groups had at the beginning of a part; None if there are none.

    answers  the output of its requests
    """
    if "kv_groups" not in part.started.model or part.origin is None:
        return None
    groups = part.origin.groups = part.origin.groups or _groups_at(part.origin, part.started)
    first, (queue, found, junctions) = part[0], groups.cached()
    assert isinstance(first, v.Keyframe)
    state = first.state
    running = [one for one in state.requests if one.id in state.running]
    tables = {one.id: [one.block_table, *one.group_tables] for one in running}
    for table in tables.values():
        table += [[] for _ in range(groups.count - len(table))]
    missing = {one.node for one in found.values()}.difference(one.id for one in state.nodes)
    return GroupMemory(
        *(state.nodes, queue, found, tables),
        *({one.id: one.last_node for one in running}, junctions),
        _prefixes(part, state, missing, answers),
    )


def _groups_at(origin: Origin, started: v.RunStarted) -> CachedGroups:
    """Return what the groups had where a part begins."""
    blocks, begin, log = started.settings["num_blocks"], origin.begin, origin.log
    folded = CachedGroups(msgspec.convert(started.model["kv_groups"], KVGroups), blocks)
    first = max(0, begin - min(max(FEWEST_BEFORE, EVENTS_PER_BLOCK * blocks), MOST_BEFORE))
    if first:
        folded.apply(keyframe_before(log, first))
    for at in range(first, begin, _AT_ONCE):
        for event in log[at : min(at + _AT_ONCE, begin)]:
            folded.apply(event)
    return folded


def _prefixes(
    log: EventLog, state: v.KeyframeState, wanted: set[int], answers: Mapping[int, _Said]
) -> dict[int, list[int]]:
    """Return the prefixes that end with the `wanted` nodes, of those that are cached later."""
    begun = {
        one.id: keyed(one.tokens[: one.prompt_length], tuple(one.extra_key))
        for one in state.requests
    }
    depths, prefixes = {0: 0}, dict[int, list[int]]()
    for node in state.nodes:  # parents come first
        depths[node.id] = depths.get(node.parent, -1) + 1
    size = state.settings["block_size"]
    for event in log:
        if isinstance(event, v.RequestArrived):
            begun[event.request] = keyed(event.prompt, tuple(event.extra_key))
        elif isinstance(event, v.BlocksStored):
            for depth, stored in enumerate(event.nodes, depths.get(event.parent, 0) + 1):
                depths[stored] = depth
                if stored in wanted and event.request in begun:
                    prompt = begun[event.request]
                    said = answers[event.request].ids if event.request in answers else []
                    prefixes[stored] = keyed([*prompt, *said][: depth * size], prompt.extra_key)
                    wanted.remove(stored)
    return prefixes
