"""A machine that does not compute, but knows what computing would cost.

The step loop runs on it unchanged: same scheduler, same cache, same log. Only the forward pass is
replaced by a sum,

    step = base + per_token * tokens + per_row * rows + per_context_token * context

and a virtual clock moves by it. "On a pretend machine where a step costs 10 ms + 0.25 ms per token"
is `CostRunner(10, 0.25)`; `fit` finds the four numbers of a real machine in the log of a real run.

Vidur (arXiv:2405.05438) simulates serving the same way, with a richer model of one step.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.clock import VirtualClock
from engine.events.log import EventLog
from engine.events.vocabulary import ScheduledRow, StepFinished, StepScheduled
from engine.runner import Row, Sampled
from engine.scheduling.request import TokenScore
from engine.text.byte_tokenizer import ByteTokenizer

US_PER_MS = 1000


class Work(NamedTuple):
    """What one forward pass has to do: the quantities that its cost depends on.

    tokens    computed in the step, drafts included
    rows      requests that take part
    context   positions whose KV the rows' attention reads, the row's own tokens included
    """

    tokens: int
    rows: int
    context: int

    @classmethod
    def of(cls, rows: Iterable[Row | ScheduledRow]) -> "Work":
        """The work of a step's rows, whether live or from a log."""
        counts = [(row.count, row.start + row.count) for row in rows]
        return cls(sum(n for n, _ in counts), len(counts), sum(end for _, end in counts))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step costs, in milliseconds. Raises ValueError for a negative price."""

    base_ms: float
    per_token_ms: float
    per_row_ms: float = 0.0
    per_context_token_ms: float = 0.0

    def __post_init__(self) -> None:
        for field in ("base_ms", "per_token_ms", "per_row_ms", "per_context_token_ms"):
            value = getattr(self, field)
            if not 0 <= value < float("inf"):
                raise ValueError(f"{field} must be 0 or more milliseconds, got {value!r}")

    def of(self, work: Work) -> float:
        """Milliseconds for one step."""
        return (
            self.base_ms
            + self.per_token_ms * work.tokens
            + self.per_row_ms * work.rows
            + self.per_context_token_ms * work.context
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
        *,
        outputs: Mapping[int, int | Sequence[int]] | None = None,
        end_token: int = min(ByteTokenizer().eos_ids),
    ) -> None:
        self.cost = Cost(base_ms, per_token_ms, per_row_ms, per_context_token_ms)
        self.clock = VirtualClock()
        self.outputs = dict(outputs or {})
        self.end_token = end_token

    def describe(self) -> dict[str, Any]:
        """Says that there is no model, and what a step costs."""
        prices = {name: getattr(self.cost, name) for name in Cost.__dataclass_fields__}
        return {"name": "cost runner", "parameters": 0} | prices

    def reserve(self, num_blocks: int, block_size: int) -> None:
        """Nothing is stored."""

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:  # noqa: ARG002
        """Let the step's cost pass, and say the next tokens."""
        self.clock.advance(round(self.cost.of(Work.of(rows)) * US_PER_MS))
        for row in rows:
            row.scores = [TokenScore(0.0, [])] * row.scored
        return [[self._sample(row, sample) for sample in row.samples] for row in rows]

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


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost, and how well it tells what was measured.

    residuals_ms  measured minus predicted, one per step of the log
    mean_ms       the mean measured step, to hold the residuals against
    """

    cost: Cost
    residuals_ms: list[float]
    mean_ms: float

    @property
    def rms_ms(self) -> float:
        """Root mean square of the residuals, in milliseconds."""
        return float(np.sqrt(np.mean(np.square(self.residuals_ms))))

    def __str__(self) -> str:
        return (
            f"{self.cost.base_ms:.3g} ms + {self.cost.per_token_ms:.3g} ms per token "
            f"+ {self.cost.per_row_ms:.3g} ms per row "
            f"+ {self.cost.per_context_token_ms:.3g} ms per context token; over "
            f"{len(self.residuals_ms)} steps of {self.mean_ms:.3g} ms the residual is "
            f"{self.rms_ms:.3g} ms (root mean square)"
        )


def fit(log: EventLog) -> Fit:
    """The cost that explains a log's steps best: least squares, no price below zero.

    A step's time is that from the start of scheduling to the end of the forward pass. Where two
    quantities always move together (in a run of decodes alone, tokens and rows), the log cannot
    tell their prices apart; the sum of both is what counts then. Raises ValueError for a log
    without a finished step.
    """
    work, times = list[Work](), list[float]()
    plan: StepScheduled | None = None
    for event in log:
        if isinstance(event, StepScheduled):
            plan = event
        elif isinstance(event, StepFinished) and plan is not None:
            work.append(Work.of(plan.rows))
            times.append((event.t["end"] - event.t["start"]) / US_PER_MS)
            plan = None
    if not work:
        raise ValueError("the log has no finished step: there is nothing to fit a cost to")
    quantities = np.array([(1, *one) for one in work], dtype=np.float64)
    measured = np.array(times)
    prices = _least_squares(quantities, measured)
    residuals = measured - quantities @ prices
    return Fit(Cost(*map(float, prices)), residuals.tolist(), float(measured.mean()))


def _least_squares(
    quantities: npt.NDArray[np.float64], measured: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Non-negative least squares by trying every subset of the columns; there are sixteen.

    The best non-negative solution is an ordinary least squares solution over the columns it uses.
    """
    columns = quantities.shape[1]
    best, least = np.zeros(columns), float(np.square(measured).sum())
    for size in range(1, columns + 1):
        for chosen in combinations(range(columns), size):
            part = quantities[:, chosen]
            prices = np.linalg.lstsq(part, measured, rcond=None)[0]
            error = float(np.square(measured - part @ prices).sum())
            if (prices >= 0).all() and error < least:
                best, least = np.zeros(columns), error
                best[list(chosen)] = prices
    return best
