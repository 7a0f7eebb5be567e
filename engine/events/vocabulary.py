"""The vocabulary of the event log: one struct per kind of event.

Notes before reading:

- An event says what changed, completely enough that folding events `0..k` (see `fold.py`) gives the
  state the engine had after event `k`. A decision also carries its reason, in `step_scheduled`.
- On disk an event is one JSON object a line: `{"type": "admitted", "request": 3, ...}`. Rows inside
  events are arrays, because an object with keys would cost some 45 bytes a token more.
- What is measured (times, log-probabilities) sits under one last key `t`. Everything else is
  deterministic: two runs of one workload give equal logs once `t` is dropped.
- Times are integer microseconds since the run started. Steps count from 1. A request is an int;
  sample s of request r is request r + s. A tree node is a counter, the root is 0. A block is
  0..N-1. A hold has a number of its own, from 1.
- Between steps somebody may hold a prefix that is in the tree: `prefix_held` until `prefix_released`.
  A hold counts as a reader like any request: it has a block table, which is the path it has locked. It
  is in no queue and in no batch, so no other event speaks of it.

No production engine records this much. vLLM's and SGLang's KV events (`BlockStored`,
`BlockRemoved`, `AllBlocksCleared`) cover the blocks alone, and neither says why.
"""

from typing import Any, Literal

import msgspec

SCHEMA_VERSION = 1

# The keys of `RunStarted.classes` that name parts which make decisions. A replay repeats or replaces
# these parts; the other classes belong to the machine that ran the model.
DECIDING_PARTS = ("policy", "pool", "tree", "eviction", "drafter")

WaitingReason = Literal[
    "token_budget",  # the step has no tokens left to hand out
    "batch_full",  # no free place in the batch
    "no_free_blocks",  # the first chunk needs more KV blocks than can be freed
    "reserved_blocks",  # preemption is off, and the worst case does not fit beside the others'
    "after_preemption",  # a step that preempts admits nobody
    "static_batch",  # batching is static, and the current batch has not finished
    "policy",  # the policy examined the request and put it off
]
FinishReason = Literal["stop", "length", "abort", "error"]
EvictionReason = Literal["room", "cleared"]
HoldEnd = Literal["released", "room"]


class ScheduledRow(msgspec.Struct, array_like=True, gc=False):
    """One request's share of a step: tokens `start .. start + count` are computed.

    The last `len(drafts)` of them are proposals of a drafter, not yet tokens of the request.
    """

    request: int
    start: int
    count: int
    drafts: list[int] = []


class Blocked(msgspec.Struct, array_like=True, gc=False):
    """The first in the queue who was not put off, and why it was not admitted; `behind` more wait.

    `need` and `have` are in the reason's own unit: tokens, batch places or KV blocks.
    """

    request: int
    reason: WaitingReason
    behind: int
    need: int
    have: int


class TokenRow(msgspec.Struct, array_like=True, gc=False):
    """Tokens one request gained in a step; `texts` has one piece per id.

    The first `accepted` ids are drafts that were verified, so their KV is computed already. The
    last `forced` ids come from a tool, not from the model. Joined pieces are the output text: a
    token that ends inside a character has an empty piece and the next one carries the character.
    """

    request: int
    ids: list[int]
    texts: list[str]
    accepted: int = 0
    forced: int = 0


def _snake_case(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).removeprefix("_")


class Event(msgspec.Struct, tag_field="type", tag=_snake_case, omit_defaults=True, gc=False):
    """Base of all events. `type` is the class name in snake_case."""


class RunStarted(Event):
    """Always first. `classes` names what is replaceable: policy, pool, tree, eviction, runner.

    And, where they are not the engine's own, drafter, tool, attention, verifier and weigh. `settings`
    are the EngineConfig's fields plus `num_blocks`. `fitted` says of the log that was replayed when it
    began (`unix_us`), whether its arrivals were pinned to "step" or "time" (`pinned`), and what the
    fitted cost gives for each of its `step_finished` (`step_us`).
    """

    schema: int
    settings: dict[str, Any]
    classes: dict[str, str]
    model: dict[str, Any]
    tokenizer: dict[str, Any]
    clock: str
    t: dict[str, Any] = {}  # unix_us; fitted, where `what_if` fitted the cost of a step to a log


class RequestArrived(Event):
    """A request was submitted. `texts` has one piece per prompt token; joined, the prompt.

    `n` samples are made (`best_of`, where it is given). `sampling` has those fields of SamplingParams
    that differ from their defaults, and the seed.
    """

    request: int
    prompt: list[int]
    texts: list[str]
    label: str
    max_tokens: int
    n: int
    priority: int
    sampling: dict[str, Any]
    t: dict[str, Any] = {}  # at: when it was submitted, which may lie inside the previous step


class StepStarted(Event):
    """Scheduling of a step begins.

    Where a policy, a drafter or an eviction order makes a mistake in it, no `step_scheduled` follows:
    what it had changed stays, blocks given for nothing are trimmed, `step_finished` has no tokens.
    """

    step: int


class Admitted(Event):
    """A request left the queue. `blocks` of its tokens were found in the tree, ending at `node`."""

    request: int
    node: int
    blocks: list[int]
    resumed: bool
    key: list[int | float]


class BlocksAllocated(Event):
    """Blocks were taken off the free stack, from its end unless a pool of one's own chose otherwise,
    and appended to the request's block table.
    """

    request: int
    blocks: list[int]


class BlockCopied(Event):
    """Copy on write: at `index` the table names `block` instead of the shared `source`."""

    request: int
    index: int
    source: int
    block: int


class Preempted(Event):
    """A running request gave everything back and went to the front of the queue.

    `needed_by` is the request that lacked blocks; `refunded` are tokens of the budget that the
    victim had been given in this step already.
    """

    request: int
    needed_by: int
    refunded: int


class RadixEvicted(Event):
    """A leaf nobody has locked left the tree; its blocks are free. `needed_by` -1: nobody."""

    node: int
    needed_by: int
    reason: EvictionReason


class StepScheduled(Event):
    """Scheduling is done: who computes what, who was skipped and why, who is blocked.

    Skipped are running requests that got nothing, and waiting ones that the policy put off. Nobody is
    blocked where nobody waits, or all who wait were put off.
    """

    rows: list[ScheduledRow]
    skipped: list[tuple[int, str]]
    blocked: Blocked | None = None


class Forked(Event):
    """A prompt is complete: `request` is sample `sample` of `parent` and shares all its blocks."""

    request: int
    parent: int
    sample: int


class StepFinished(Event):
    """The forward pass is over. No tokens at all for a request whose row did not catch up."""

    tokens: list[TokenRow]
    t: dict[
        str, Any
    ] = {}  # start, scheduled, end; logprobs (top_logprobs if asked): per row, per id


class BlocksTrimmed(Event):
    """Rejected drafts leave blocks unused: only the first `keep` stay in the table."""

    request: int
    keep: int


class RadixSplit(Event):
    """An edge was cut after `at` blocks; `upper` is the new node above, `node` keeps the rest."""

    node: int
    at: int
    upper: int


class RadixJoined(Event):
    """Blocks the request computed were in the tree already; its table now names those."""

    request: int
    node: int
    blocks: list[int]


class RadixInserted(Event):
    """Newly full blocks became a new node under `parent`."""

    request: int
    node: int
    parent: int
    blocks: list[int]


class RadixExtended(Event):
    """Newly full blocks were appended to the edge of the node the request alone has locked."""

    request: int
    node: int
    blocks: list[int]


class RequestFinished(Event):
    """A request ended and gave back everything.

    `message` says what went wrong, for `error`. `matched` is the stop string that ended it: the text
    handed out ends before it, while the pieces of its tokens are in the log whole.
    """

    request: int
    reason: FinishReason
    message: str = ""
    matched: str = ""


class PrefixHeld(Event):
    """A prefix in the tree was locked for somebody who will come back; the path ends at `node`."""

    hold: int
    node: int
    blocks: list[int]
    label: str


class PrefixReleased(Event):
    """A hold ended and gave its blocks and lock back.

    "released": its owner let it go, or left. "room": a request was submitted that may need the memory.
    """

    hold: int
    reason: HoldEnd


class Keyframe(Event):
    """The whole folded state as of event `seq`: the start of a window, or of a live join."""

    seq: int
    state: dict[str, Any]


AnyEvent = (
    RunStarted
    | RequestArrived
    | StepStarted
    | Admitted
    | BlocksAllocated
    | BlockCopied
    | Preempted
    | RadixEvicted
    | StepScheduled
    | Forked
    | StepFinished
    | BlocksTrimmed
    | RadixSplit
    | RadixJoined
    | RadixInserted
    | RadixExtended
    | RequestFinished
    | PrefixHeld
    | PrefixReleased
    | Keyframe
)
