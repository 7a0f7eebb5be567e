"""A simulated machine: a runner without a model that knows what a step costs.

The step loop runs on it unchanged, with the same scheduler, cache and log. Only the forward pass is
replaced: a virtual clock advances by a sum,

    step = base + batched (for more than one token) + wake (after a pause)
         + per_token * tokens + per_first_token * (the first 16 of them)
         + per_row * rows + per_call * attention calls + per_context_token * context + per_pair * pairs

"A machine where a step costs 10 ms + 0.25 ms per token" is
`CostRunner(10, 0.25)`; `engine.simulation.fit` finds the prices of a real machine in the log of a real
run.

Why these nine prices? Everything except attention processes tokens independently: a price per token.
A single token is cheap, because a matrix-vector product needs no preparation; the first of several
tokens are expensive, because such small matrix products do not keep a processor busy. A row adds the
cost of its block table, its sampling and its part of the log. Rows with unequal token counts need
attention calls of their own, which makes a ragged batch expensive. Attention first gathers the keys
and values of a context, once for all tokens of a row: a price per context token. Then each token
attends to its context: a price per pair, which makes long prompts expensive. After a pause, caches
are cold and the processor has to wake up, which slows a single short request noticeably.

Source: Vidur (arXiv:2405.05438) simulates serving the same way, with a more detailed model of a step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from msgspec import to_builtins

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log.vocabulary import ScheduledRow
from engine.core.request import TokenScore
from engine.core.runner import KVFormat, Row, Sampled, TokenMask, attention_groups
from engine.extensions.kv_groups import KVGroups
from engine.simulation.simulated_adapters import SimulatedAdapters

US_PER_MS = 1000
FIRST_TOKENS = 16

# The KV of a token of Llama 3.1 8B in bfloat16: 32 layers, keys and values of 8 heads of 128 values.
# Host memory is behind PCIe 4.0 x16 (A100): 16 GT/s on 16 lanes, coded in 128 of 130 bits, are 31.5
# GB/s in one direction; PCIe 5.0 (H100) has twice that. The disk is a Samsung PM9A3 (NVMe, PCIe 4.0
# x4), which reads 6.5 GB/s in sequence according to its data sheet. Real transfers are slower.
_TOKEN_KV_BYTES = 2 * 32 * 8 * 128 * 2
HOST_TOKEN_MS = round(_TOKEN_KV_BYTES / 31.5e6, 4)  # 1 GB/s is 1e6 bytes per ms
DISK_TOKEN_MS = round(_TOKEN_KV_BYTES / 6.5e6, 4)


class VirtualClock:
    """Simulated time; see `engine.core.log.recorder.Clock`.

    It passes only when a runner advances it, and by `cpu_us` for the scheduling of each step.
    """

    name = "virtual"

    def __init__(self, cpu_us: int = 0) -> None:
        self._now = 0
        self.cpu_us = cpu_us

    def now(self) -> int:
        """Return the number of microseconds."""
        return self._now

    def advance(self, microseconds: int) -> None:
        """Move the time forward by `microseconds`."""
        self._now += microseconds

    def skip_to(self, at: int) -> None:
        """Move the time forward to `at`, unless it is already later."""
        self._now = max(self._now, at)

    def overlapped(self, work: Callable[[], object]) -> None:
        """Do work on a machine of its own, which takes no time on this clock."""
        started = self._now
        work()
        self._now = started


class Work(NamedTuple):
    """The quantities that the cost of a forward pass depends on.

    tokens    computed in the step, drafts included
    rows      scheduled requests
    context   positions whose keys and values attention gathers
    pairs     (token, position) pairs of attention
    first     the number of tokens, at most 16
    batched   1 if there is more than one token, else 0
    calls     attention calls in each layer
    woken     1 after a pause longer than the previous step, else 0

    Rows that share an attention call are padded to the longest context among them (see
    `engine/core/runner.py`). Padding is computed, so it counts.
    """

    tokens: int
    rows: int
    context: int
    pairs: int
    first: int
    batched: int
    calls: int
    woken: int = 0

    @classmethod
    def of(cls, rows: Sequence[Row] | Sequence[ScheduledRow], *, woken: bool = False) -> "Work":
        """Return the work of a step's rows, live or from a log."""
        tokens = context = pairs = 0
        groups = attention_groups(rows)
        for group in groups:
            last = rows[group[-1]]  # has the longest context
            gathered = len(group) * (last.start + last.count)
            tokens += len(group) * last.count
            context += gathered
            pairs += last.count * gathered
        return cls(
            tokens=tokens,
            rows=len(rows),
            context=context,
            pairs=pairs,
            first=min(tokens, FIRST_TOKENS),
            batched=int(tokens > 1),
            calls=len(groups),
            woken=int(woken),
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """The prices of a step in milliseconds. Raises ValueError for a negative price.

    cpu_ms  the time to schedule a step and process its output. It comes before the forward pass or,
            with asynchronous scheduling, overlaps with the one before. `fit` counts it as `base_ms`
    per_host_token_ms, per_disk_token_ms  to copy the KV of a token between the GPU and host memory, and
            from disk to host memory; see `engine/extensions/tiers.py`. They are not part of a step, and
            their defaults are those of an 8B model behind PCIe 4.0 and NVMe
    per_adapter_ms, adapter_load_ms  see `simulated_adapters.py`; `fit` does not find them
    """

    base_ms: float
    per_token_ms: float
    per_row_ms: float = 0.0
    per_context_token_ms: float = 0.0
    per_pair_ms: float = 0.0
    per_first_token_ms: float = 0.0
    batched_ms: float = 0.0
    per_call_ms: float = 0.0
    wake_ms: float = 0.0
    cpu_ms: float = 0.0
    per_host_token_ms: float = HOST_TOKEN_MS
    per_disk_token_ms: float = DISK_TOKEN_MS
    per_adapter_ms: float = 0.0
    adapter_load_ms: float = 0.0

    def __post_init__(self) -> None:
        for field, value in asdict(self).items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{field} must be 0 or more milliseconds, got {value!r}")

    def of(self, work: Work) -> float:
        """Return the milliseconds of one forward pass."""
        return (
            self.base_ms
            + self.per_token_ms * work.tokens
            + self.per_row_ms * work.rows
            + self.per_context_token_ms * work.context
            + self.per_pair_ms * work.pairs
            + self.per_first_token_ms * work.first
            + self.batched_ms * work.batched
            + self.per_call_ms * work.calls
            + self.wake_ms * work.woken
        )

    def __str__(self) -> str:
        return (
            f"{self.base_ms:.3g} ms ({self.batched_ms:.3g} ms more for several tokens, "
            f"{self.wake_ms:.3g} ms more after a pause) "
            f"+ {self.per_token_ms:.3g} ms per token "
            f"(the first {FIRST_TOKENS}: {self.per_first_token_ms:.3g} ms more) "
            f"+ {self.per_row_ms:.3g} ms per row + {self.per_call_ms:.3g} ms per attention call "
            f"+ {self.per_context_token_ms:.3g} ms per context token "
            f"+ {self.per_pair_ms:.3g} ms per (token, position) pair"
        )


class CostRunner:
    """A runner without a model. Give the engine its clock: `Engine(runner, clock=runner.clock)`.

    prices     the other fields of `Cost`
    outputs    by request id (sample s of request r is r + s): a number k, to stop after k tokens
               even if max_tokens is larger, or the token ids. A request without an entry, or past the
               end of its ids, continues with letters until max_tokens. Entries may be added later.
    end_token  ends an output after k tokens; it is the last of the k
    window     as if the model had layers with a sliding window of so many tokens. Pages are freed as
               with a real one; a step costs the same
    kv_groups  as if its layers were in several KV cache groups; None: one
    """

    max_context: int | None = None
    kv_groups: KVGroups | None = None
    expert_loads: Sequence[Sequence[int]] = ()
    batches_in_flight = 1  # see `pipelined_loop.py`

    def __init__(
        self,
        base_ms: float,
        per_token_ms: float,
        *,
        outputs: Mapping[int, int | Sequence[int]] | None = None,
        end_token: int = min(ByteTokenizer().eos_ids),
        window: int | None = None,
        **prices: float,
    ) -> None:
        self.cost = Cost(base_ms, per_token_ms, **prices)
        self._lasted_us = self._ended_at = 0  # of the latest step
        self.clock = VirtualClock(round(self.cost.cpu_ms * US_PER_MS))
        self.outputs = dict(outputs or {})
        self.end_token = end_token
        self.window = window
        self.kv_dtype = "auto"
        self.adapters = SimulatedAdapters()

    def describe(self) -> dict[str, Any]:
        """Describe the runner: no parameters, and the prices that are not the default."""
        default = asdict(Cost(0, 0))
        prices = {
            name: price for name, price in asdict(self.cost).items() if price != default[name]
        }
        groups = {} if self.kv_groups is None else {"kv_groups": to_builtins(self.kv_groups)}
        return {"name": "cost runner", "parameters": 0} | prices | groups

    def reserve(
        self, num_blocks: int, block_size: int, num_window_pages: int | None = None
    ) -> None:
        """Do nothing: no KV is stored."""

    def map_window_pages(self, pages: Sequence[tuple[int, int]]) -> None:
        """Do nothing."""

    def kv_format(self) -> KVFormat:
        """Return the format of empty pages."""
        return KVFormat("cost runner", "none", (0,), 0)

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """Return nothing: no KV is stored."""
        return b""

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        """Do nothing."""

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        """Advance the clock by the step's cost and return the next tokens. Copies cost nothing."""
        if not rows:
            return []
        woken = self.clock.now() - self._ended_at > self._lasted_us
        lasts_ms = self.step_ms(rows, woken=woken)
        if self.adapters.slots:
            lasts_ms += self.cost.per_adapter_ms * self.adapters.used_by(rows)
            lasts_ms += self.cost.adapter_load_ms * self.adapters.loaded
            self.adapters.loaded = 0
        self._lasted_us = round(lasts_ms * US_PER_MS)
        self.clock.advance(self._lasted_us)
        self._ended_at = self.clock.now()
        for row in rows:
            row.scores = [TokenScore(0.0, [])] * row.scored
        return [[self._sample(row, sample) for sample in row.samples] for row in rows]

    def rows_ms(self, rows: Sequence[ScheduledRow]) -> float:
        """Return the milliseconds of a step with these rows, for a comparison of prices."""
        return self.cost.of(Work.of(rows))

    def step_ms(self, rows: Sequence[Row], *, woken: bool) -> float:
        """Return the milliseconds of a step. Override it for another cost model."""
        return self.cost.of(Work.of(rows, woken=woken))

    def _sample(self, row: Row, sample: int) -> Sampled:
        request = row.request
        at = len(request.tokens) - request.prompt_length
        id_ = request.root + sample if len(row.samples) > 1 else request.id
        return accept_drafts(row, lambda ids: self._token(id_, at + len(ids)))

    def _token(self, request: int, index: int) -> int:
        output = self.outputs.get(request)
        if isinstance(output, int):
            if index == output - 1:
                return self.end_token
        elif output is not None and index < len(output):
            return output[index]
        # The letters differ between requests, because equal answers to a prompt would share blocks.
        return ord("a") + (request * 2654435761 + index * 40503 >> 5) % 26


def accept_drafts(row: Row, next_token: Callable[[list[int]], int]) -> Sampled:
    """Return the accepted drafts, which equal the output, and the token after them.

    next_token  (tokens sampled in this step so far) -> next token

    A machine without a model honours a grammar, too: where it forbids the next token, the next higher
    allowed id takes its place.
    """
    constraint = row.request.constraint
    if constraint is None and not row.drafts:
        return Sampled([next_token([])], [0.0])
    ids, masks = list[int](), list[TokenMask]()
    for draft in [*row.drafts, None]:
        wanted = token = next_token(ids)
        if constraint is not None:
            mask = constraint.mask([*row.request.output_ids, *ids])
            token = _nearest(mask, wanted)
            kept = token == wanted
            masks.append(TokenMask(mask.bit_count(), None if kept else wanted, float(kept)))
        ids.append(token)
        if token != draft:
            break
    return Sampled(ids, [0.0] * len(ids), masks=masks)


def _nearest(mask: int, token: int) -> int:
    """Return `token` if the mask allows it, else the next allowed id, after the last the first."""
    above = mask >> token
    shift, bits = (token, above) if above else (0, mask)
    return shift + (bits & -bits).bit_length() - 1
