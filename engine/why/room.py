"""What a waiting request lacks: the room it finds, and how much more would have let it start.

Everything is recounted from the folded state, with the checks that the scheduler makes
(`scheduling/scheduler.py`). Where they are not all recounted here, nothing is claimed.
"""

from typing import Literal, NamedTuple

from engine.config import EngineConfig
from engine.events import vocabulary as v
from engine.events.fold import State
from engine.events.state import ROOT, RequestState


class Match:
    """The cached prefix of a waiting request, found by comparing texts.

    blocks    whole blocks found, of which
    unlocked  nobody has locked: evicting them would destroy what is about to be reused
    """

    def __init__(self, state: State, request: RequestState, *, unscored: bool) -> None:
        size = state.block_size
        reads = state.settings["prefix_cache"] and not unscored
        limit = (len(request.tokens) - 1) // size if reads else 0
        self.blocks = self.unlocked = 0
        node = state.nodes[ROOT]
        while self.blocks < limit:
            rest = request.tokens[self.blocks * size : limit * size]
            below = [state.nodes[child] for child in node.children]
            shared = {child.id: common(child.tokens, rest) // size for child in below}
            node = max(below, key=lambda child: shared[child.id], default=node)
            depth = shared.get(node.id, 0)
            self.blocks += depth
            self.unlocked += 0 if node.lock else depth
            if depth == 0 or depth < len(node.blocks):
                break


def evictable(state: State) -> int:
    """Blocks in the tree that nobody has locked."""
    return sum(len(node.blocks) for node in state.nodes.values() if not node.lock)


def free_blocks(state: State, event: v.StepScheduled, config: EngineConfig) -> int:
    """Free blocks when the head of the queue was asked: drafts took theirs after that."""
    free = len(state.free)
    for row in event.rows:
        end = row.start + row.count - len(row.drafts)
        free += len(state.requests[row.request].table) - config.blocks_for(end)
    return free


def common(one: list[int], other: list[int]) -> int:
    """Length of the longest common beginning."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


class Remedy(NamedTuple):
    """So much more of `unit`, and the head of the queue would have started.

    place       in the batch (max_batch_size)
    free block  at the moment when it was asked
    token       in the step's budget (token_budget): running requests take what they still want first
    """

    more: int
    unit: Literal["place", "free block", "token"]


NEVER_PUT_OFF = ("Fcfs", "Priority", "ShortestJobFirst", "Fair")  # policies, by class


def remedy(
    state: State,
    event: v.StepScheduled,
    config: EngineConfig,
    match: Match,
    classes: dict[str, str] | None,
) -> Remedy | None:
    """What would have let the blocked head of the queue in, if that alone is enough.

    match    the head's
    classes  what ran, as in run_started; None where that is not known

    With preemption off or prompts that must not be cut, other checks decide, and nothing is claimed.
    Nor where the policy might then put the head off. Drafts do not count: they got what was left.
    """
    blocked = event.blocked
    if blocked is None or not (config.preemption and config.chunked_prefill):
        return None
    length = len(state.requests[blocked.request].tokens)
    lack = blocked.need - blocked.have
    asked = classes is not None and classes["policy"] in NEVER_PUT_OFF
    left = config.token_budget - sum(row.count - len(row.drafts) for row in event.rows)
    room = free_blocks(state, event, config) + evictable(state) - match.unlocked

    def fits(left: int, room: int) -> bool:
        end = min(length, match.blocks * state.block_size + left)
        return left > 0 and config.blocks_for(end) - match.blocks <= room

    match blocked.reason:
        case "batch_full" if asked and fits(left, room):
            return Remedy(lack, "place")
        case "no_free_blocks" if fits(left, room + lack):
            return Remedy(lack, "free block")
        case "token_budget" if asked:
            tokens, blocks = _still_wanted(state, event, config)
            if fits(lack, room - blocks):
                return Remedy(tokens + lack, "token")
    return None


def _still_wanted(state: State, event: v.StepScheduled, config: EngineConfig) -> tuple[int, int]:
    """Tokens that a larger budget would first have given to running requests, and their blocks."""
    planned = {row.request: row.start + row.count for row in event.rows}
    tokens = blocks = 0
    for id_ in state.running:
        request = state.requests[id_]
        done = planned.get(id_, request.computed)
        tokens += len(request.tokens) - done
        blocks += config.blocks_for(len(request.tokens)) - len(request.table)
        writes_shared = request.computed % config.block_size and state.refs[request.table[-1]] > 1
        if id_ not in planned and writes_shared:
            blocks += 1  # its copy
    return tokens, blocks
