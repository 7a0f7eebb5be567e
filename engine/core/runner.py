"""The step loop's interface to a model: one forward pass over a flat batch of tokens.

The loop does not import torch. A runner may compute (`engine/core/compute/torch_runner.py`), advance a
virtual clock (`engine/simulation/cost_runner.py`) or check each read against what was written
(`engine/simulation/checking_runner.py`). vLLM has the same boundary at its model runner
(`vllm/v1/worker/gpu_model_runner.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from engine.core.log.vocabulary import ScheduledRow
from engine.core.request import Request, TokenScore
from engine.core.sampling_params import SamplingParams

# The most padding that one attention call may read. An extra call takes as long as reading a few
# hundred more keys. All limits from 128 to 2048 are about equally fast: with 32 contexts of 64 to
# 448 tokens, they reach 1.15 times the speed of a single call.
MAX_PADDING = 1024


@dataclass(slots=True)
class Row:
    """One request's part of the batch: compute KV for positions `start .. start + count`.

    The tokens at those positions are `request.tokens[start:]`, followed by `drafts`. The KV of
    position p goes into slot `p % block_size` of block `request.block_table[p // block_size]`.
    `samples` lists the indexes of the samples that get a next token. It is empty until the row has
    caught up, then usually `[request.sample]`, or `[0 .. n-1]` when a prompt with n samples is
    complete.

    A runner that has a model fills in `scores` if `scored` is not 0.
    """

    request: Request
    start: int
    count: int
    drafts: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    scores: list[TokenScore] = field(default_factory=list)

    @property
    def scored(self) -> int:
        """The number of prompt tokens, from `start + 1` on, that this row has to score.

        The logits at a position give the probability of the token after it. So the prompt's last
        position scores no token, and its first token gets no score.
        """
        request = self.request
        if not request.unscored:
            return 0
        return max(0, min(self.start + self.count, request.prompt_length - 1) - self.start)


class TokenMask(NamedTuple):
    """The tokens that a mask allowed at a token's position; see `engine/extensions/grammars`.

    allowed  number of allowed tokens; 0 without a mask; 1 for a token that the grammar forced
    wanted   the token that the model found most likely, if the mask forbids it
    mass     probability of all allowed tokens together, before penalties and temperature; None for a
             token that the grammar forced: the model was not asked
    """

    allowed: int
    wanted: int | None = None
    mass: float | None = None


NO_MASK = TokenMask(0)


@dataclass(slots=True)
class Sampled:
    """The new tokens of one sample: the accepted drafts, then one sampled token.

    `logprobs` has each token's log-probability. `top` has the most likely tokens at its position,
    if the request asks for them; see `SamplingParams.logprobs` and `TokenScore`. `masks` has one
    entry per token if the request has a constraint.
    """

    ids: list[int]
    logprobs: list[float]
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    masks: list[TokenMask] = field(default_factory=list)


@dataclass(slots=True)
class LogitPosition:
    """A position whose token is sampled from the logits of the token before it.

    sample    the sample's index; samples of one prompt share a request until it forks
    drafts    drafted tokens before this position; they are not part of `request.tokens` yet
    position  the number of tokens before this one
    """

    request: Request
    params: SamplingParams
    sample: int
    drafts: Sequence[int]
    position: int

    @property
    def output_length(self) -> int:
        """The number of output tokens before this one."""
        return self.position - self.request.prompt_length

    def text(self) -> list[int]:
        """The tokens before this one, prompt and output."""
        return [*self.request.tokens, *self.drafts]

    def output(self) -> list[int]:
        """The output tokens before this one."""
        return [*self.request.output_ids, *self.drafts]


def logit_positions(row: Row) -> list[LogitPosition]:
    """Return where a row's tokens are sampled, ordered by sample, then by draft.

    A sample has a position after its last known token and one after each of its drafts.
    """
    request, drafts, positions = row.request, row.drafts, list[LogitPosition]()
    params, known = request.params, len(request.tokens)
    for sample in row.samples:
        for count in range(len(drafts) + 1):
            at = LogitPosition(request, params, sample, drafts[:count], known + count)
            positions.append(at)
    return positions


_INCREMENT = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def uniform(seed: int, sample: int, position: int) -> float:
    """Return the number in [0, 1) that decides the token at a position of a sample.

    Each number is a hash of its purpose. A generator has state, but the requests of a batch come and
    go, and may be preempted and recomputed. Here a request draws the same numbers alone or in a batch,
    on any runner, with or without a preemption, and the samples of one prompt can differ from their
    first token on.

    Equal numbers give equal tokens up to rounding only. The logits change in their last bits with the
    shape of the batch, because a matrix product then adds its terms in another order. So a token can
    differ where its number lies on the border between two tokens or, if decoding is greedy, where two
    tokens are almost equally likely.

    The idea comes from counter-based generators (Salmon et al., "Parallel random numbers: as easy as 1,
    2, 3", SC 2011; JAX works this way). The mixing function is SplitMix64's (Steele et al., OOPSLA
    2014).
    """
    state = 0
    for value in (seed, sample, position):
        # Seeds may be negative or longer than 64 bits; only their low 64 bits count.
        state = (state + _INCREMENT + value) & _MASK
        # SplitMix64's mix spreads every bit over all 64.
        state = ((state ^ (state >> 30)) * _FACTORS[0]) & _MASK
        state = ((state ^ (state >> 27)) * _FACTORS[1]) & _MASK
        state ^= state >> 31
    return (state >> 11) * 2.0**-53


@dataclass(slots=True)
class SamplerOutput:
    """Sampled tokens: entry i of `token_ids` and `logprobs` is for position i.

    `top_logprobs` has the most likely tokens of the positions whose requests ask for them, and
    `masks` what the masks allowed.
    """

    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    masks: dict[int, TokenMask] = field(default_factory=dict)

    def sampled(self, first: int, end: int) -> Sampled:
        """Return the tokens of one sample, which are those of positions `first .. end`."""
        sampled = Sampled(self.token_ids[first:end], self.logprobs[first:end])
        for i in range(first, end):
            if i in self.top_logprobs:
                sampled.top.append(self.top_logprobs[i])
            if i in self.masks:
                sampled.masks.append(self.masks[i])
        return sampled


class KVFormat(NamedTuple):
    """What a page holds, which is the KV of one block. Equal formats mean interchangeable pages.

    model       names the weights and, if pages lack the KV of sliding layers outside of it, the window
    dtype       precision of a value
    shape       sizes of a page's dimensions
    page_bytes  size of a page; 0 for a runner without KV memory
    """

    model: str
    dtype: str
    shape: tuple[int, ...]
    page_bytes: int


class PageStore(Protocol):
    """KV memory whose pages can be read and written; see `engine.extensions.kv_transfer`."""

    def kv_format(self) -> KVFormat:
        """Return what a page holds. Called after memory has been reserved."""

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """Return the pages of blocks, one after the other."""

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        """Write one page to each of `blocks`. `pages` has as many pages as there are blocks."""


class Runner(PageStore, Protocol):
    """A model, as the step loop sees it.

    max_context   longest sequence that the model can read; None means no limit
    window        widest sliding window of its layers, in tokens; None if no layer slides
    kv_dtype      the engine's setting, set before `reserve`; a runner without KV memory ignores it
    expert_loads  of a mixture of experts: for each layer, how many tokens each expert computed in the
                  latest `run` with rows. [] for a layer without experts; empty for a dense model
    """

    max_context: int | None
    window: int | None
    kv_dtype: str

    @property
    def expert_loads(self) -> Sequence[Sequence[int]]:
        """See above."""

    def describe(self) -> dict[str, Any]:
        """Return a summary of the model for the log's first event, as JSON values."""

    def reserve(
        self, num_blocks: int, block_size: int, num_window_pages: int | None = None
    ) -> None:
        """Allocate memory for the KV cache. Called once, before the first `run`.

        With `num_window_pages`, sliding layers have only so many pages, each for one block, and
        `map_window_pages` says which block has which. Otherwise every block has room for all layers.
        """

    def map_window_pages(self, pages: Sequence[tuple[int, int]]) -> None:
        """Note changes of which block has which window page: (block, page), page -1 for none.

        They are applied in order and hold for the calls after this one. A block that is not mentioned
        keeps its page. Never called if `reserve` got no `num_window_pages`.
        """

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        """Copy blocks (source, destination), then compute all rows in one forward pass.

        Returns, for each row, one `Sampled` per entry of `row.samples`. Without rows there is no
        forward pass: the engine makes a separate call for each copy. An exception ends the requests
        in the step but does not stop the engine.
        """


_SIZE = attrgetter("count", "start")


def attention_groups(rows: Sequence[Row] | Sequence[ScheduledRow]) -> list[list[int]]:
    """Return the indexes of the rows in each attention call, shortest contexts first.

    Everything except attention treats the tokens of a batch independently. Attention reads each
    row's own context, and one call takes rows with the same number of tokens, such as all
    decodes. A call pads contexts to the longest one; if that costs more than an extra call, a new
    group begins.
    """
    groups: list[list[int]] = []
    padding = 0
    sizes = list(map(_SIZE, rows))
    for i in sorted(range(len(rows)), key=sizes.__getitem__):
        if groups:
            group, row, last = groups[-1], rows[i], rows[groups[-1][-1]]
            padding += len(group) * (row.start - last.start)
            if row.count == last.count and padding <= MAX_PADDING:
                group.append(i)
                continue
        groups.append([i])
        padding = 0
    return groups
