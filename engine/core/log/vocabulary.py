"""The vocabulary of the event log: one struct per kind of event.

Notes before reading:

- An event says what changed, in enough detail that folding events `0..k` (see `fold.py`) gives the
  engine's state after event `k`. A decision also carries its reason, in `step_scheduled`.
- On disk an event is one JSON object per line: `{"type": "admitted", "request": 3, ...}`. Rows inside
  events are arrays, because objects with keys would cost about 45 bytes more per token.
- Measured values (times, log-probabilities) are under one last key `t`. Everything else is
  deterministic: two runs of one workload give the same log apart from `t`.
- Times are integer microseconds since the run started. Steps count from 1. A request id is an int;
  sample s of request r has id r + s. Tree nodes are numbered from the root, 0. Blocks are 0..N-1. Holds
  have their own numbers, from 1.
- Between steps a client may hold a prefix that is in the tree, from `prefix_held` to `prefix_released`.
  A hold counts as a reader, as a request does: its block table is the path that it has locked. It is in
  neither the queue nor the batch, so no other event mentions it.

Differs from vLLM and SGLang: their KV events (`BlockStored`, `BlockRemoved`, `AllBlocksCleared`) cover
only the blocks and give no reasons.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Union

import msgspec

SCHEMA_VERSION = 2
KEYFRAME_SCHEMA_VERSION = 3  # in the keyframes of version 2 the state's fields had other names

# The keys of `RunStarted.classes` that name parts which make decisions. A replay repeats or replaces
# these parts; the other classes belong to the machine that ran the model.
DECIDING_PARTS = ("policy", "pool", "tree", "eviction", "drafter")

WaitingReason = Literal[
    "token_budget",  # the step's budget has too few tokens left
    "batch_full",  # the batch has too few free seats: a request takes one per sample
    "no_free_blocks",  # its first chunk needs more KV blocks than are free or can be evicted
    "whole_sequence",  # all its tokens together need more (admission="whole")
    "reserved_blocks",  # preemption is off, and its worst case does not fit beside the others'
    "after_preemption",  # a step that preempts admits no request
    "static_batch",  # batching is static, and the current batch has not finished
    "policy",  # the policy deferred the request
    "adapter_slot",  # its adapter is in no slot, and each slot's is in use; others may overtake it
    "expected_tokens",  # the tokens that it and the running requests are expected to need do not fit
]
FinishReason = Literal["stop", "length", "abort", "error"]
EvictionReason = Literal["room", "cleared", "adopted"]
HoldEnd = Literal["released", "room"]
Tier = Literal["", "gpu", "host", "disk"]
MoveReason = Literal[
    "evicted",  # from the GPU, because it was evicted there (write-back)
    "computed",  # from the GPU, because a request has computed it (write-through)
    "room",  # its tier was full: to the tier below, or dropped
    "prefetched",  # from disk to host memory, while its request waited
    "fetched",  # from disk to host memory, on its way to the GPU
    "cheaper",  # to the GPU: fetching costs less than computing
    "dearer",  # it stays where it is: computing costs less than fetching
    "late",  # it stays where it is: the disk has not answered in time
    "used",  # it stays where it is, as the most recently used: its request ended
    "damaged",  # dropped: the disk cannot read it, or its file was cut off or altered
    "failed",  # dropped: the disk could not write it
    "cleared",  # dropped: a client cleared the prefix cache
]


class ScheduledRow(msgspec.Struct, array_like=True, gc=False):
    """One request's share of a step: the tokens from `start` up to, not including, `start + count`.

    The last `len(drafts)` of them are a drafter's proposals, not yet tokens of the request.
    """

    request: int
    start: int
    count: int
    drafts: list[int] = []


class Blocked(msgspec.Struct, array_like=True, gc=False):
    """Why the head of the queue was not admitted; `behind` more requests wait behind it.

    The head is the first waiting request that the policy did not defer. `need` and `have` are in the
    reason's unit: tokens, seats or KV blocks.
    """

    request: int
    reason: WaitingReason
    behind: int
    need: int
    have: int


class TokenRow(msgspec.Struct, array_like=True, gc=False):
    """The output tokens of one request in a step; `texts` has one piece per id.

    The first `accepted` ids are accepted drafts, so their KV is already computed. The last `forced`
    ids come from a tool or, if they are `allowed`, from the grammar that left no choice. The joined
    pieces are the output text: a token that ends inside a character has an empty piece, and the next
    piece has the character.

    `allowed` says for each id how many tokens the request's grammar allowed there, 0 for a token that a
    tool forced. It is empty without a grammar.
    """

    request: int
    ids: list[int]
    texts: list[str]
    accepted: int = 0
    forced: int = 0
    allowed: list[int] = []


def snake_case(name: str) -> str:
    """Return the name of a kind of event: that of its class in snake_case."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name).removeprefix("_")


class Event(msgspec.Struct, tag_field="type", tag=snake_case, omit_defaults=True, gc=False):
    """Base of all events. `type` is the class name in snake_case."""


class RunStarted(Event):
    """The first event of a run.

    settings  the EngineConfig's fields plus `num_blocks`; for a model with sliding layers that free
              KV also `window`, in tokens, and `num_window_pages`
    classes   the class of each replaceable part: policy, pool, tree, eviction, runner; and, where they
              are not the engine's own, drafter, tool, attention, verifier and weigh
    model     the runner's description; `draft_model` in it describes the draft model
    source    where a foreign log comes from: `engine` ("vLLM 0.32.0"), `recorder`, and `facts`, which
              says of each fact of `facts.py` how the log knows it; `others`, if there are any, are
              settings that may change decisions and that this engine does not have, and `groups` names
              the KV cache groups if there are several, that of the log's block tables first. Empty if
              an engine of this project wrote the log; then every fact is recorded
    t.fitted  only in a log of `what_if`; describes the replayed log: when it began (`unix_us`), what
              its arrivals were pinned to (`pinned`: "step" or "time"), the fitted cost of each of its
              `step_finished` (`step_us`), and the error of that cost on held-back steps (`held_back`)
    """

    schema: int
    settings: dict[str, Any]
    classes: dict[str, str]
    model: dict[str, Any]
    tokenizer: dict[str, Any]
    clock: str
    source: dict[str, Any] = {}
    t: dict[str, Any] = {}  # unix_us; fitted


class RequestArrived(Event):
    """A request was submitted. `texts` has one piece per prompt token; joined, they are the prompt.

    `output` is what another replica generated before: this engine computes it again, after the prompt,
    and goes on. The request is then queued at the front, as after a preemption; `texts` has the pieces
    of its output, too, and `sample` says which sample of the prompt it is.

    `n` is the number of samples (`best_of`, if given). `sampling` has the fields of SamplingParams that
    differ from their defaults, and the seed. `extra_key` is (adapter, digest of the cache salt), ""
    for none, if it has one of them: only requests with equal keys share blocks.

    `hashes` is only in a foreign log without token ids: one for each full block of the prompt, over all
    tokens up to the block's end, so that equal hashes mean equal prefixes.
    """

    request: int
    prompt: list[int]
    texts: list[str]
    label: str
    max_tokens: int
    n: int
    priority: int
    sampling: dict[str, Any]
    hashes: list[str] = []
    extra_key: list[str] = []
    output: list[int] = []
    sample: int = 0
    t: dict[str, Any] = {}  # at: the time of submission, possibly inside the previous step

    @property
    def tokens(self) -> list[int]:
        """The tokens that are to be computed."""
        return self.prompt + self.output


class StepStarted(Event):
    """The scheduling of a step begins.

    If a policy, a drafter or an eviction order fails in this phase, no `step_scheduled` follows:
    earlier changes stay, unneeded blocks are trimmed, and `step_finished` has no tokens.
    """

    step: int


class Admitted(Event):
    """A request left the queue for the batch.

    `blocks` hold its cached prefix; the path of that prefix ends at `node`. `resumed`: it was preempted
    before. `key`: the policy's sort key. `hits`, only with several KV cache groups: the tokens that
    each group (`source.groups` of the run) had of its prompt by itself.
    """

    request: int
    node: int
    blocks: list[int]
    resumed: bool
    key: list[int | float]
    hits: list[int] = []


class BlocksAllocated(Event):
    """Blocks were taken off the free stack and appended to the request's block table.

    The engine's own pool takes them from the end of the stack; a custom pool may choose others. With
    the radix tree, released blocks return so that the first of a block table is allocated first;
    otherwise, so that the last is.
    """

    request: int
    blocks: list[int]


class GroupTableChanged(Event):
    """With several KV cache groups (`engine/extensions/kv_groups.py`): a request's table of another.

    `group` counts in `source.groups` of the run, where 0 is the group of `block_table`. `changes` are
    (index, block), and block -1 for none: behind a sliding window, a table has no block. A block that
    no table named was free.
    """

    request: int
    group: int
    changes: list[tuple[int, int]]


class BlockCopied(Event):
    """Copy on write: at `index` the block table now has `block` instead of the shared `source`."""

    request: int
    index: int
    source: int
    block: int


class Preempted(Event):
    """A running request lost all its blocks and went to the front of the queue.

    Its row in a step that is still being computed leaves that step's plan: the KV is lost, and only the
    token counts; with SGLang's scheduler it is dropped, too. `needed_by` is the request that lacked
    blocks, possibly the victim itself; -1 if a more urgent request took its seat or its memory.
    `refunded` tokens, which the victim had already been given in this step, went back to the budget.
    """

    request: int
    needed_by: int
    refunded: int


class RadixEvicted(Event):
    """An unlocked leaf was removed from the tree, and its blocks became free.

    `needed_by` is the request that lacked blocks ("room"); -1 if the cache was cleared, the blocks were
    needed for an adopted prefix, or a foreign log does not say for whom they were evicted.
    """

    node: int
    needed_by: int
    reason: EvictionReason


class StepScheduled(Event):
    """Scheduling is done.

    rows     what each scheduled request computes, in order of scheduling
    skipped  (request, reason) of running requests that got no tokens ("token_budget";
             "after_preemption" if one before it preempted itself; "awaits_token" if the token that the
             step before is computing is its last, or forks its samples; "prefill_batch" if SGLang's
             scheduler computes prompts) and of waiting ones that the policy deferred
    blocked  the head of the queue; None if no request waits or all of them were deferred
    """

    rows: list[ScheduledRow]
    skipped: list[tuple[int, str]]
    blocked: Blocked | None = None


class Forked(Event):
    """A prompt is complete: sample `sample` of `parent` became `request` and shares all its blocks."""

    request: int
    parent: int
    sample: int


class StepFinished(Event):
    """The forward pass is over. A request gains tokens if its row reached its last token.

    With asynchronous scheduling the next step may have started and may be scheduled already.

    step    the step that finished
    wasted  requests whose row was in vain: they had ended when it was computed, or the pass before
            failed, so that it was not. A request that was preempted in the meantime still gains its
            token, unless the row would have forked it
    expert_loads  for each layer, how many tokens each expert computed in the forward pass, packed as
            `expert_loads.py` explains; [] for a layer without experts, and no layers for a dense model.
            Each token that was computed counts, once per expert: those of prompts, recomputed ones,
            those of wasted rows, and drafts, even rejected ones
    draft_error  why the draft model failed after the forward pass: its requests have no drafts in the
            next step. The third failure in a row switches drafting off, which the text says
    t       `start`, `scheduled` and `end`, and for each row and id `logprobs` (and `top_logprobs`, if
            requested). `end` is when the tokens were appended. With asynchronous scheduling,
            `launched` and `ready` are when the forward pass began and ended. If a row has a grammar,
            for each row and id `wanted`, the (id, text) that the model found most likely if that is
            forbidden, else None, and `mass`, the probability of all allowed tokens, None if forced.
            If the pass verified drafts, `rejected` has for each row the texts of those that were not
            accepted. `draft_us` is how long a draft model ran after the forward pass
    """

    tokens: list[TokenRow]
    step: int
    wasted: list[int] = []
    expert_loads: list[list[int]] = []
    draft_error: str = ""
    t: dict[str, Any] = {}


class BlocksTrimmed(Event):
    """The first `keep` blocks stay in the block table, and the others were released.

    Either rejected drafts had used them, or scheduling failed: then a request may also lose blocks that
    it found in the hash table and that an earlier request will not compute.
    """

    request: int
    keep: int


class RadixSplit(Event):
    """A node was split after `at` blocks: they moved to the new node `upper` above it.

    The access that follows counts for `node`, too.
    """

    node: int
    at: int
    upper: int


class RadixJoined(Event):
    """The tree already had the tokens of some computed blocks: the block table now has its `blocks`."""

    request: int
    node: int
    blocks: list[int]


class RadixInserted(Event):
    """The request's newly full blocks became a new node under `parent`."""

    request: int
    node: int
    parent: int
    blocks: list[int]


class RadixExtended(Event):
    """Newly full blocks were appended to `node`, a leaf that only this request has locked."""

    request: int
    node: int
    blocks: list[int]


class BlocksStored(Event):
    """The request's next full blocks are in the hash table and can be found from now on.

    Each of `blocks` gets a node: the first below `parent`, the node of the block before (the root, 0,
    for the first block), each other one below the one before it. A node that exists already gets a
    further copy of its block; the oldest copy is found.
    """

    request: int
    parent: int
    nodes: list[int]
    blocks: list[int]


class BlockEvicted(Event):
    """A block that no request used left the hash table and became free; see `RadixEvicted`.

    Its `node` leaves with the last copy, or with the last node below it: until then it stays as a node
    without a block. The block is allocated after all blocks that are free already.
    """

    node: int
    block: int
    needed_by: int
    reason: EvictionReason


class BlockWithdrawn(Event):
    """A block left the hash table because the step that scheduled it will not compute it.

    `request` was to compute it and still has it in its block table: it is about to be preempted, the
    forward pass failed, or scheduling did.
    """

    request: int
    node: int
    block: int


class WindowPagesEvicted(Event):
    """Blocks lost their window pages: sliding layers no longer have their KV, the others do.

    Only in a run whose model has sliding layers, and whose settings have `window` and
    `num_window_pages`. No running request's window contained the blocks. `needed_by` is the request
    whose new blocks got the pages; -1 if an adopted prefix did.

    No other event says which blocks have a page, because three rules determine it: an allocated block
    gets one, a block that becomes free loses it, and a cached block without one takes that of an equal
    block that it replaces in a block table (`radix_joined`).
    """

    blocks: list[int]
    needed_by: int


class RequestFinished(Event):
    """A request ended, and its blocks were released.

    `message` describes an `error`. `matched` is the stop string that ended the request: the returned
    text ends before it, while the log has the complete pieces of its tokens.
    """

    request: int
    reason: FinishReason
    message: str = ""
    matched: str = ""


class PrefixHeld(Event):
    """A client locked a prefix in the tree for its next request; the path ends at `node`."""

    hold: int
    node: int
    blocks: list[int]
    label: str


class PrefixReleased(Event):
    """A hold ended, and its blocks and lock were released.

    "released": its owner released it or disconnected. "room": a submitted request may need the memory.
    """

    hold: int
    reason: HoldEnd


class PrefixAdopted(Event):
    """KV that another replica computed was written to `blocks`, which are now in the prefix cache.

    This happens between two steps. The blocks continue the cached prefix that ends at `parent`. In the
    radix tree they are one new node; in the hash table each has a node of its own, or is a copy of its
    block. The whole prefix counts as accessed.

    tokens, texts  those of the blocks
    source         the replica that computed them
    window_pages   with sliding layers: how many of the blocks, from the last on, have a window page
    t              `at`: when they were in the cache; `us`: how long that took
    """

    parent: int
    nodes: list[int]
    blocks: list[int]
    tokens: list[int]
    texts: list[str]
    source: str
    window_pages: int = 0
    t: dict[str, Any] = {}


class BlocksMoved(Event):
    """KV blocks were copied between the GPU and the tiers below it, were dropped, or stay for a reason.

    source, target  "gpu", "host" memory or "disk"; "" for nowhere. If they are equal, nothing moves
    blocks   where they were: numbers of GPU blocks, or places in the tier `source`
    slots    where they are now; the last becomes the most recently used, but of blocks that were
             `used`, the first does. A fetched block stays in its tier; a block leaves a tier for
             "room" or if it is dropped
    request  the one for which they move; -1 for none. If it fetches them, it has computed them now
    texts    what comes into a tier from the GPU: a text for each block
    detail   what went wrong
    t        `at`; for a fetch or its rejection, `fetch_us` and `compute_us`: the prices of its blocks
             from all tiers (None if not measured yet); once for each fetch, `us`: its duration
    """

    source: Tier
    target: Tier
    reason: MoveReason
    blocks: list[int]
    slots: list[int]
    request: int = -1
    texts: list[str] = []
    detail: str = ""
    t: dict[str, Any] = {}


class AdapterChanged(Event):
    """A slot for LoRA adapters has `adapter` instead of `evicted`, "" for none.

    `request` is being admitted and uses it. Without an adapter, a removed one left the slot.

    path, rank, nbytes  of the adapter: where it was read, its largest rank, its matrices' size
    """

    slot: int
    adapter: str
    evicted: str
    request: int = -1
    path: str = ""
    rank: int = 0
    nbytes: int = 0


class EnginePaused(Event):
    """From now on steps run only on demand. Requests still arrive, and their clocks do not stop."""

    t: dict[str, Any] = {}  # at


class EngineResumed(Event):
    """Steps run again whenever there is work."""

    t: dict[str, Any] = {}  # at


class EventsMissing(Event):
    """The source of a foreign log lost some of its messages here; what they said is unknown.

    The state is folded as if nothing had happened in between.

    count    number of lost messages; 0 if unknown
    message  what is known about the gap
    """

    count: int
    message: str
    t: dict[str, Any] = {}  # at: when the next message was written


class BlocksReported(Event):
    """Another engine's KV event: these blocks can be found in its prefix cache from now on.

    Which request computed them and how many blocks the engine has is unknown. `blocks` are numbers that
    the reader gives and uses again after an eviction; their names are the hashes. The first of `nodes`
    is below `parent` (0 at the start of a prefix), each other one below the one before it. A node that
    exists already gets a further copy of its block.

    A node without a block stands for a block that is not in the cache, as far as the log knows, while
    others continue it. Such a node is reported with its hash alone if its block was stored before the
    log begins: what comes before it is then unknown.

    tokens  those of all blocks; none if they are unknown
    hashes  one per node, at most 16 hex digits
    medium  where the blocks are: "GPU", "CPU", ...
    """

    parent: int
    nodes: list[int]
    blocks: list[int]
    tokens: list[int]
    hashes: list[str]
    medium: str


class StepReported(Event):
    """The counts that another engine reports for a step; which requests it computed is unknown.

    prefills        requests that compute a part of their prompt
    prefill_tokens  how many tokens of it
    decodes         requests that compute one token
    waiting         requests in the queue afterwards
    waiting_tokens  the tokens that these have to compute
    """

    prefills: int
    prefill_tokens: int
    decodes: int
    waiting: int
    waiting_tokens: int


# The state. `Engine.snapshot()` reads the fields of `StateCore` from the live objects, the fold derives
# them from events, and a keyframe has them together with what viewers show.


class RequestCore(msgspec.Struct):
    """A live request; the fields are those of `Request`."""

    id: int
    root: int
    sample: int
    prompt_length: int
    tokens: list[int]
    num_computed_tokens: int
    block_table: list[int]
    last_node: int
    num_seqs: int
    preemptions: int


class RequestState(RequestCore):
    """A live request with what viewers show. `texts` has one piece per token.

    group_tables  see `GroupTableChanged`: those of groups 1, 2 and so on, and -1 for no block
    """

    texts: list[str]
    label: str
    priority: int
    max_tokens: int
    sampling: dict[str, Any]
    extra_key: list[str] = []
    group_tables: list[list[int]] = []

    @property
    def held_blocks(self) -> list[int]:
        """The blocks of all of its tables."""
        others = [block for table in self.group_tables for block in table if block >= 0]
        return self.block_table + others


class NodeCore(msgspec.Struct):
    """A node of the prefix tree with the edge above it; the parent of the root is -1.

    With the hash cache a node has one block, and `copies` has the block's duplicates, oldest first.
    Then `last` and `lock_ref` are 0: the eviction queue and the reference counts take their place. A
    node below the root has the `extra_key` of its requests.
    """

    id: int
    parent: int
    tokens: list[int] = []
    blocks: list[int] = []
    copies: list[int] = []
    last: int = 0
    lock_ref: int = 0
    extra_key: list[str] = []


class NodeRecord(NodeCore):
    """A node with what viewers show. `source` names the replica that computed an adopted node.

    Only a reported node (see `BlocksReported`) has the `hash` of its block and `media`, which says
    where the block and each copy is; without a block the node only connects those below it.
    """

    texts: list[str] = []
    source: str = ""
    hash: str | None = None
    media: list[str] | None = None


class HoldCore(msgspec.Struct):
    """A held prefix."""

    id: int
    block_table: list[int]
    last_node: int


class HoldState(HoldCore):
    """A held prefix with what viewers show."""

    label: str = ""


class StateCore(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The state of an engine after event `seq`.

    tick       logical time: the number of lock moves so far
    paused     whether steps run only on demand
    waiting    request ids in queue order
    running    request ids in order of admission
    plan       the rows of the current step; empty before it is scheduled and after it finished
    in_flight  the other steps whose forward pass has not ended, with their rows
    free       free blocks; the last is allocated first
    queue      with the hash cache: cached blocks that nothing uses; the first is evicted first
    refs       by block: the number of block tables that name it, plus 1 while it is cached
    window_pages  with sliding layers: the blocks that have a window page
    tiers      with memory below the GPU, for each tier its used places; the first is dropped first
    adapters   the LoRA adapter in each slot, "" for none; empty if there is no adapter
    """

    window_pages: list[int] | None = None
    tiers: dict[str, list[int]] | None = None
    adapters: list[str] = []
    seq: int
    step: int
    tick: int
    paused: bool
    waiting: list[int]
    running: list[int]
    plan: list[ScheduledRow]
    in_flight: list[tuple[int, list[ScheduledRow]]]
    free: list[int]
    queue: list[int]
    refs: list[int]
    requests: Sequence[RequestCore]
    nodes: Sequence[NodeCore]
    holds: Sequence[HoldCore]


class KeyframeState(StateCore, kw_only=True, omit_defaults=True):
    """The whole folded state, with what viewers show.

    settings, classes, source  as in `run_started`
    reported      the latest counts of a foreign log that has only counts
    expert_loads  as in `step_finished`, for the run so far
    lanes         the owner, the last step and the label of each row in which requests are drawn
    tier_texts    the texts of the blocks in `tiers`
    """

    requests: list[RequestState]
    nodes: list[NodeRecord]
    holds: list[HoldState]
    settings: dict[str, Any]
    classes: dict[str, str]
    source: dict[str, Any] = {}
    reported: StepReported | None = None
    expert_loads: list[list[int]] = []
    lanes: list[tuple[int | None, int, str]] = []
    tier_texts: dict[str, list[str]] = {}
    schema: int


class Keyframe(Event):
    """The whole folded state after event `seq`: the start of a window or of a live join."""

    seq: int
    state: KeyframeState


# What a decoder of lines needs: every kind of event.
if TYPE_CHECKING:
    AnyEvent = Event
else:
    AnyEvent = Union[tuple(Event.__subclasses__())]  # noqa: UP007
