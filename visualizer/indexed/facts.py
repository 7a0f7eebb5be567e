"""What is known of each step and each request once a log is folded: an index has it as columns.

A page that opens an index draws from these facts and folds only around the step that it shows. The
TypeScript names are those of `measures.ts`, `request_spans.ts` and `time_records.ts`, which collect the
same from a log that has no index and explain each field; a test compares the two.
"""

from typing import TYPE_CHECKING, Any, Union

import msgspec

from engine.core.log import vocabulary as v

Time = float  # an integer in most logs


class Segment(msgspec.Struct, array_like=True, gc=False):
    """A part of a request's life; what does not apply to its kind is 0, "", False or None."""

    kind: str
    begin: int
    end: int | None
    drafts: int = 0
    accepted: int = 0
    recomputed: int = 0
    start: int = 0
    count: int = 0
    found: int = 0
    reaches_output: bool = False
    by: int | None = None
    resume: int | None = None
    reason: str = ""
    wasted: str = ""


class Fact(msgspec.Struct, tag_field="type", tag=v.snake_case, gc=False):
    """Base of all facts."""


class Steps(Fact):
    """Some successive steps: a list for each field, with an entry per step.

    first, last, scheduled   numbers of events; see `StepInfo` in `model.ts`
    missing                  the gaps of a foreign log, as events
    deferred                 waiting requests that the policy deferred, with the policy's reason
    counts, times            a list per measure, in the order of `measures.ts`
    """

    step: list[int]
    first: list[int]
    last: list[int]
    status: list[str]
    scheduled: list[int | None]
    counts: list[list[int]]
    times: list[list[Time | None]]
    chunks: list[list[tuple[int, int]]]
    computed: list[list[int]]
    blocked: list[v.Blocked | None]
    deferred: list[list[tuple[int, str]]]
    missing: list[list[dict[str, Any]]]


class Finished(Fact):
    """Some steps in the order in which they finished, as lists; see `Step` in `time_records.ts`."""

    number: list[int]
    begin: list[Time | None]
    launched: list[Time | None]
    ready: list[Time | None]
    end: list[Time | None]
    decodes: list[int]
    prefills: list[int]
    blocked: list[v.Blocked | None]
    skipped: list[list[tuple[int, str]]]
    failed: list[bool]
    is_after_gap: list[bool]


class Request(Fact):
    """A request, as `RequestSpan` in `request_spans.ts`.

    logprobs     1 for a token without one
    token_steps  the differences between successive ones
    ttft         from its arrival to its first token without pauses; None: it is not known
    slowest      the 99th percentile of its times between tokens without pauses; 0 without any
    """

    id: int
    index: int
    label: str
    root: int
    sample: int
    n: int
    prompt_length: int
    max_tokens: int
    priority: int
    sampling: dict[str, Any]
    extra_key: list[str]
    tokens: list[int]
    texts: list[str]
    hashes: list[str]
    lane: int | None
    laned_at: int | None
    arrived: int | None
    arrived_at: Time | None
    examined: int
    begins_at: int
    ends_at: int | None
    first_token: int | None
    admitted: tuple[int, int, int, str] | None
    shortfall: tuple[int, int] | None
    computed: int
    admissions: list[tuple[int, int, bool, int]]
    preemptions: list[tuple[int, int, int | None]]
    forked: tuple[int, int] | None
    finished: tuple[int, str, str, int] | None
    token_steps: list[int]
    logprobs: list[float]
    drafted: list[int]
    forced: list[int]
    masks: list[tuple[int, str | None, Time | None] | None]
    segments: list[Segment]
    before: list[Segment]
    ttft: Time | None
    slowest: Time

    @property
    def samples(self) -> int:
        """How many of the ids from its own on have its label."""
        return self.n if self.forked is None else 1


class Name(Fact):
    """What a request is called: `samples` of its ids, from `id` on, have the label."""

    id: int
    index: int
    label: str
    samples: int


class Content(Fact):
    """What takes most of the room of a `Request`, whose fields these are in memory."""

    tokens: list[int]
    texts: list[str]
    hashes: list[str]
    token_steps: list[int]
    logprobs: list[float]
    drafted: list[int]
    forced: list[int]
    masks: list[tuple[int, str | None, Time | None] | None]
    sampling: dict[str, Any]


class Run(Fact):
    """The whole log: what the fold has at its end, and what belongs to no step.

    itl  percentiles of the times between tokens without pauses, and the maximum
    """

    first_seq: int
    steps_before: int
    settings: dict[str, Any]
    classes: dict[str, str]
    source: dict[str, Any]
    model: dict[str, Any] | None
    tokenizer: dict[str, Any] | None
    expert_loads: list[list[int]]
    causes: list[str]
    pauses: list[tuple[Time, Time]]
    has_times: bool
    itl: list[tuple[str, Time]]


class Plans(Fact):
    """What the scheduler decided in the steps of `Finished`, and what it had then: lists alike.

    rows, tokens, prompt   requests that compute, the tokens they compute, and those of prompts
    again     (request, tokens, step of its preemption) of each row that computes tokens again
    victims   requests that were preempted
    seats     taken
    used      blocks held by requests
    waiting   requests in the queue; `away` of them were preempted, the policy deferred `deferred`, and
              the adapters of `slotless` were in no slot
    stalled   running requests that get no tokens because the budget is spent
    arrived   requests since the step before began
    is_after_idle   whether the engine had no request before one of them arrived
    """

    rows: list[int]
    tokens: list[int]
    prompt: list[int]
    again: list[list[tuple[int, int, int]]]
    victims: list[list[int]]
    seats: list[int]
    used: list[int]
    waiting: list[int]
    away: list[int]
    deferred: list[int]
    slotless: list[int]
    stalled: list[int]
    arrived: list[int]
    is_after_idle: list[bool]


class LiveRequest(msgspec.Struct, array_like=True, gc=False):
    """What changes of a request: of its tokens, it has the first `length`."""

    id: int
    length: int
    num_computed_tokens: int
    block_table: list[int]
    last_node: int
    num_seqs: int
    preemptions: int
    extra_key: list[str]
    group_tables: list[list[int]]


class LiveNode(msgspec.Struct, array_like=True, gc=False):
    """A node of the prefix tree.

    origin, begin  the request that has its tokens, and from where on; -1: see `Slice.contents`
    used           the step of its latest use; None: before the log begins
    """

    id: int
    parent: int
    last: int
    lock_ref: int
    origin: int
    begin: int
    used: int | None
    blocks: list[int]
    copies: list[int]
    source: str
    hash: str | None
    media: list[str] | None
    extra_key: list[str]


class Slice(Fact):
    """The state before an event without its tokens, which are those of requests.

    state     a keyframe's state without requests, nodes and reference counts
    contents  the tokens and texts of nodes that another replica or engine computed, in order
    reach     one more than the highest number of a block that was ever allocated
    """

    state: Any
    requests: list[LiveRequest]
    nodes: list[LiveNode]
    contents: list[tuple[list[int], list[str]]]
    reach: int


class Life(Fact):
    """The life of a `Request`, whose fields these are in memory, too."""

    segments: list[Segment]
    before: list[Segment]


# The kinds in the order of their numbers in an index.
if TYPE_CHECKING:
    AnyFact = Fact
else:
    AnyFact = Union[tuple(Fact.__subclasses__())]  # noqa: UP007
