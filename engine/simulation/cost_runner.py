"""A machine that does not compute, but knows what computing would cost.

The step loop runs on it unchanged: same scheduler, same cache, same log. Only the forward pass is
replaced by a sum,

    step = base + batched (for more than one token) + wake (after a pause)
         + per_token * tokens + per_first_token * (the first 16 of them)
         + per_row * rows + per_call * attention calls + per_context_token * context + per_pair * pairs

and a virtual clock moves by it. "On a pretend machine where a step costs 10 ms + 0.25 ms per token"
is `CostRunner(10, 0.25)`; `engine.simulation.fit` finds the prices of a real machine in the log of a
real run.

Why these nine. Everything but attention treats tokens alone: a price per token. A single token is
cheap, because a matrix times a vector needs no preparation; the first of several are dear, because
matrix products this small do not keep a processor busy. A row costs its table, its
sampling and its place in the log. Rows that compute unequally many tokens need attention calls of
their own, which is what makes a ragged batch dear. Attention first gathers the keys and values of a
context, once for all of a row's tokens: a price per context token. Then each token looks at its
context: a price per pair, which is what makes long prompts dear. And after a pause caches are cold
and the processor has to wake up, which a lone short request feels.

Vidur (arXiv:2405.05438) simulates serving the same way, with a richer model of one step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from engine.clock import VirtualClock
from engine.events.vocabulary import ScheduledRow
from engine.runner import Row, Sampled, attention_groups
from engine.scheduling.request import TokenScore
from engine.text.byte_tokenizer import ByteTokenizer

US_PER_MS = 1000
FIRST_TOKENS = 16


class Work(NamedTuple):
    """What one forward pass has to do: the quantities that its cost depends on.

    tokens    computed in the step, drafts included
    rows      requests that take part
    context   positions whose keys and values attention gathers
    pairs     (token, position) pairs that attention looks at
    first     how many of the tokens are among the first 16
    batched   1 if there is more than one token, else 0
    calls     of attention, in each layer
    woken     1 if nothing ran before it for longer than the step before took, else 0

    Rows that share an attention call are filled up to the longest context among them (see
    `engine/runner.py`). What is filled up is computed and counts.
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
        """The work of a step's rows, whether live or from a log."""
        tokens = context = pairs = 0
        groups = attention_groups(rows)
        for group in groups:
            last = rows[group[-1]]  # the one with the longest context
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
    """What a step costs, in milliseconds. Raises ValueError for a negative price."""

    base_ms: float
    per_token_ms: float
    per_row_ms: float = 0.0
    per_context_token_ms: float = 0.0
    per_pair_ms: float = 0.0
    per_first_token_ms: float = 0.0
    batched_ms: float = 0.0
    per_call_ms: float = 0.0
    wake_ms: float = 0.0

    def __post_init__(self) -> None:
        for field, value in asdict(self).items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{field} must be 0 or more milliseconds, got {value!r}")

    def of(self, work: Work) -> float:
        """Milliseconds for one step."""
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

    outputs    what a request says, by its id (sample s of request r is r + s): a number k, and it
               stops after k tokens though max_tokens is larger; or the very ids. Who is not in it,
               or has said all that is, goes on with letters until max_tokens. May grow later.
    end_token  the token that ends an output after k tokens; it is the last of the k
    """

    max_context: int | None = None

    def __init__(
        self,
        base_ms: float,
        per_token_ms: float,
        per_row_ms: float = 0.0,
        per_context_token_ms: float = 0.0,
        per_pair_ms: float = 0.0,
        *,
        per_first_token_ms: float = 0.0,
        batched_ms: float = 0.0,
        per_call_ms: float = 0.0,
        wake_ms: float = 0.0,
        outputs: Mapping[int, int | Sequence[int]] | None = None,
        end_token: int = min(ByteTokenizer().eos_ids),
    ) -> None:
        self.cost = Cost(
            base_ms,
            per_token_ms,
            per_row_ms,
            per_context_token_ms,
            per_pair_ms,
            per_first_token_ms,
            batched_ms,
            per_call_ms,
            wake_ms,
        )
        self._lasted_us = self._ended_at = 0  # the latest step
        self.clock = VirtualClock()
        self.outputs = dict(outputs or {})
        self.end_token = end_token

    def describe(self) -> dict[str, Any]:
        """Says that there is no model, and what a step costs: the prices that are not 0."""
        prices = {name: price for name, price in asdict(self.cost).items() if price}
        return {"name": "cost runner", "parameters": 0} | prices

    def reserve(self, num_blocks: int, block_size: int) -> None:
        """Nothing is stored."""

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:  # noqa: ARG002
        """Let the step's cost pass, and say the next tokens. Copies cost nothing."""
        if not rows:
            return []
        woken = self.clock.now() - self._ended_at > self._lasted_us
        self._lasted_us = round(self.step_ms(rows, woken=woken) * US_PER_MS)
        self.clock.advance(self._lasted_us)
        self._ended_at = self.clock.now()
        for row in rows:
            row.scores = [TokenScore(0.0, [])] * row.scored
        return [[self._sample(row, sample) for sample in row.samples] for row in rows]

    def step_ms(self, rows: Sequence[Row], *, woken: bool) -> float:
        """Milliseconds for these rows. A machine that is another sum overrides it."""
        return self.cost.of(Work.of(rows, woken=woken))

    def _sample(self, row: Row, sample: int) -> Sampled:
        """Drafts that happen to be what is said next, and the first token after them."""
        request, ids = row.request, list[int]()
        at = len(request.tokens) - request.prompt_length
        for draft in [*row.drafts, None]:
            ids.append(self._token(request.root + sample, at + len(ids)))
            if ids[-1] != draft:
                break
        return Sampled(ids, [0.0] * len(ids))

    def _token(self, request: int, index: int) -> int:
        output = self.outputs.get(request)
        if isinstance(output, int):
            if index == output - 1:
                return self.end_token
        elif output is not None and index < len(output):
            return output[index]
        # Letters that differ between requests, or two answers to one prompt would share blocks.
        return ord("a") + (request * 2654435761 + index * 40503 >> 5) % 26
