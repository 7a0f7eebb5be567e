"""The lines that `recorders/vllm/underglass_vllm.py` writes; its README describes them.

A line with a block, a request or a length outside the limits is invalid, so that a damaged line cannot
use up the memory.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from visualizer.sources.limits import MAX_BLOCKS, MAX_PROMPT, MAX_REQUESTS

VERSIONS = (1, 2)

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Block = Annotated[int, Meta(ge=0, lt=MAX_BLOCKS)]
Number = Annotated[int, Meta(ge=1, le=MAX_REQUESTS)]
Length = Annotated[int, Meta(ge=0, le=MAX_PROMPT)]
TokenId = Annotated[int, Meta(ge=-1, lt=1 << 31)]
Byte = Annotated[int, Meta(ge=0, le=255)]
Tokens = list[TokenId] | Length  # token ids or, if the ids are not recorded, their number


class Settings(msgspec.Struct):
    """vLLM's limits, under the names of `EngineConfig` except for `OTHERS`."""

    token_budget: Count
    max_batch_size: Annotated[int, Meta(ge=1, le=MAX_REQUESTS)]
    num_blocks: Annotated[int, Meta(ge=1, le=MAX_BLOCKS)]
    block_size: Annotated[int, Meta(ge=1, le=MAX_PROMPT)]
    policy: str
    chunked_prefill: bool
    whole_sequence: bool
    prefix_cache: bool
    async_scheduling: bool
    watermark: float = 0.0
    long_prefill_token_threshold: Count = 0
    long_prefill_token_threshold_adaptive: bool = False
    max_loras: Count = 4  # the default here; without adapters, nothing depends on it


OTHERS = ("num_blocks", "whole_sequence", "prefix_cache")


class Row(msgspec.Struct, array_like=True):
    """The tokens of a request that a step computes."""

    request: Number
    start: Length
    count: Length
    drafts: Tokens = 0


class Gain(msgspec.Struct, array_like=True):
    """The output tokens of a request in a step."""

    request: Number
    tokens: Tokens


class Batch(msgspec.Struct):
    """The rows of a step as columns, since version 2.

    offsets  where each row starts, less the number of the step
    counts   the tokens of each row; None: one each
    drafts   [request, drafts] of the rows that have some
    """

    requests: list[Number] = []
    offsets: list[int] = []
    counts: list[Length] | None = None
    drafts: list[tuple[Number, Tokens]] = []

    def rows(self, step: int) -> list[Row]:
        """Return the rows of step number `step`. Raises ValueError if the columns do not fit."""
        drafts = dict(self.drafts)
        counts = self.counts or [1] * len(self.requests)
        starts = [step + offset for offset in self.offsets]
        if starts and not 0 <= min(starts) <= max(starts) <= MAX_PROMPT:
            raise ValueError(f"a row of step {step} starts at {min(starts)} or {max(starts)}")
        return [
            Row(request, start, count, drafts.get(request, 0))
            for request, start, count in zip(self.requests, starts, counts, strict=True)
        ]


class Gained(msgspec.Struct):
    """The output tokens of a step as columns, since version 2: `ids`, or `counts`, or one each."""

    requests: list[Number] = []
    ids: list[list[TokenId]] | None = None
    counts: list[Length] | None = None

    def gains(self) -> list[Gain]:
        """Return them by request. Raises ValueError if the columns differ in length."""
        tokens: list[Any] = self.ids or self.counts or [1] * len(self.requests)
        return [Gain(*one) for one in zip(self.requests, tokens, strict=True)]


class Head(msgspec.Struct, array_like=True):
    """The request at the head of the queue; `reason` is "" if vLLM had a reason not listed here."""

    request: Number
    reason: Literal[
        "", "token_budget", "batch_full", "no_free_blocks", "whole_sequence", "after_preemption"
    ]
    need: int
    have: int


class Group(msgspec.Struct):
    """A group of layers with block tables of its own, over the memory of all groups.

    window      tokens of a window or a chunk
    mode        of linear layers: which states can be found, see vLLM's `mamba_cache_mode`
    checkpoint  in the mode "align": see `Group` in `engine/extensions/kv_groups.py`
    drafts      in the mode "align": states of drafts
    """

    kind: str
    window: Length | None
    block_size: Length
    layers: Count
    mode: str = ""
    checkpoint: Length | msgspec.UnsetType = msgspec.UNSET
    drafts: Count = 0


class Admit(msgspec.Struct, array_like=True, tag="admit"):
    """A request left the queue and got cached and new blocks.

    `hits`, if there are several groups, are the tokens that each of them had by itself.
    """

    request: Number
    cached: list[Block]
    new: list[Block]
    hits: list[Length] = []


class Grow(msgspec.Struct, array_like=True, tag="grow"):
    """A running request got blocks."""

    request: Number
    new: list[Block]


class Store(msgspec.Struct, array_like=True, tag="store"):
    """Blocks of a request were cached; `hashes` are those that no earlier line has."""

    request: Number
    first: Block
    count: Block
    hashes: list[str]


class GroupTable(msgspec.Struct, array_like=True, tag="group"):
    """A request's table of another group changed: [index, block], and -1 for no block."""

    request: Number
    group: Annotated[int, Meta(ge=0, lt=100)]
    changes: list[tuple[Length, Annotated[int, Meta(ge=-1, lt=MAX_BLOCKS)]]]


class Keep(msgspec.Struct, array_like=True, tag="keep"):
    """Blocks of another group can be found from now on."""

    request: Number
    group: int
    blocks: list[Block]


class Preempt(msgspec.Struct, array_like=True, tag="preempt"):
    """A request lost its blocks to request `needed_by`, or, if it is -1, to a reset of the cache."""

    request: Number
    needed_by: int


class Finish(msgspec.Struct, array_like=True, tag="finish"):
    """A request ended."""

    request: Number
    reason: str


class Clear(msgspec.Struct, array_like=True, tag="clear"):
    """The prefix cache was emptied."""


RequestOp = Admit | Grow | Store | Preempt | Finish | GroupTable | Keep
Op = RequestOp | Clear


class SavedRequest(msgspec.Struct):
    """A request of a `Saved` state."""

    request: Number
    id: str
    prompt: Tokens
    output: Tokens
    max_tokens: Length
    priority: int
    computed: Length
    preemptions: Count
    table: list[Block]
    stored: Length
    hashes: list[str]
    groups: list[tuple[int, list[Annotated[int, Meta(ge=-1, lt=MAX_BLOCKS)]]]] = []


class Saved(msgspec.Struct):
    """The state when a file of a rotated recording begins."""

    t: Count
    step: Count
    requests: list[SavedRequest]
    running: list[Number]
    waiting: list[Number]
    in_flight: list[tuple[Count, list[Row] | Batch]]
    free: list[Block]  # in the order of allocation, including cached blocks
    cached: list[Block]
    hashes: list[str]
    parents: list[str]


class Header(msgspec.Struct, tag_field="type", tag="underglass_vllm"):
    """The first line of a file. `state` and `pieces` belong to a later file of a rotated recording.

    `others` are settings of vLLM that may change decisions and that `EngineConfig` does not have.
    `retention` is vLLM's `prefix_cache_retention_interval`, which matters if there are several groups.
    """

    version: int
    engine: str
    model: str
    settings: Settings
    tokens: bool
    unix_us: int
    part: int
    others: dict[str, bool | int | float | str | None] = {}
    groups: list[Group] = []
    main_group: Annotated[int, Meta(ge=0, lt=100)] = 0
    retention: Count | msgspec.UnsetType | None = msgspec.UNSET
    state: Saved | None = None
    pieces: dict[TokenId, str | list[Byte]] = {}


class Pieces(msgspec.Struct, tag_field="type", tag="pieces"):
    """The text of token ids, or bytes for a token that is only part of a character."""

    pieces: dict[TokenId, str | list[Byte]]


class Arrived(msgspec.Struct, tag_field="type", tag="arrived"):
    """A request joined the queue. `salt` is a salted hash of its cache salt, if it has one."""

    t: Count
    request: Number
    id: str
    prompt: Tokens
    max_tokens: Length
    priority: int
    hashes: list[str]
    adapter: str = ""
    salt: list[str] = []
    prompt_logprobs: int | None = None


class Step(msgspec.Struct, tag_field="type", tag="step"):
    """A step was scheduled."""

    step: Count
    t: Count
    took: Count
    ops: list[Op]
    waiting: Count
    head: Head | None
    free: Count
    rows: list[Row] = []  # in version 1
    batch: Batch = msgspec.field(default_factory=Batch)


class Done(msgspec.Struct, tag_field="type", tag="done"):
    """A step was computed."""

    step: Count
    t: Count
    ops: list[Op]
    free: Count
    gains: list[Gain] = []  # in version 1
    gained: Gained = msgspec.field(default_factory=Gained)


class Between(msgspec.Struct, tag_field="type", tag="between"):
    """Operations between steps: requests were aborted, or the cache was emptied."""

    t: Count
    ops: list[Op]
    free: Count


class Lost(msgspec.Struct, tag_field="type", tag="lost"):
    """The last line of a file, if the disk was too slow for more. Another file may go on."""

    lines: Count


def rows_of(rows: list[Row] | Batch, step: int) -> list[Row]:
    """Return the rows of a step in either version."""
    return rows.rows(step) if isinstance(rows, Batch) else rows


def known_ids(tokens: Tokens) -> list[int]:
    """Return token ids; -1 for each that was not recorded."""
    return [-1] * tokens if isinstance(tokens, int) else tokens


Line = Header | Pieces | Arrived | Step | Done | Between | Lost
decode = msgspec.json.Decoder(Line).decode
