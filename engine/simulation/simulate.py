"""Play a workload on a simulated machine: the same step loop, a virtual clock, an ordinary log."""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events.log import EventLog
from engine.output.detokenizer import IncrementalDetokenizer
from engine.output.processor import OutputProcessor
from engine.scheduling.request import Request
from engine.simulation.cost_runner import US_PER_MS, Cost, CostRunner
from engine.simulation.workload import (
    Abort,
    Answer,
    Arrival,
    Clear,
    Hold,
    Input,
    Release,
    Workload,
)
from engine.text.byte_tokenizer import ByteTokenizer

UNKNOWN_TEXT = "\u00b7"  # shown for a token that is not in the log


def simulate(
    workload: Workload,
    config: EngineConfig | None = None,
    *,
    cost: Cost | CostRunner,
    **parts: Any,
) -> EventLog:
    """Serve a whole workload and return the log.

    cost   the prices of a step, or a CostRunner of your own
    parts  passed on to `Engine`: policy, pool, tree, eviction, drafter, and `log`, for example with a
           window for a long run

    Idle time is skipped. Raises RequestError for a request that these settings could never serve.
    """
    runner = cost if isinstance(cost, CostRunner) else CostRunner(**asdict(cost))
    described = workload.tokenizer
    tokenizer = ByteTokenizer() if described is None else _LogTokenizer(described, workload)
    engine = _ReplayEngine(runner, config, tokenizer=tokenizer, clock=runner.clock, **parts)
    pending, skipped_steps = deque(workload.inputs), 0
    while pending or engine.has_work():
        if pending and not engine.has_work():
            # Skip the idle time until the next input: the clock moves, but no step runs.
            first = pending[0]
            if first.step is None:
                runner.clock.advance(max(0, _at_us(first) - runner.clock.now()))
            else:
                skipped_steps = max(skipped_steps, first.step - engine.step_count - 1)
        while pending and _is_due(pending[0], engine.step_count + 1 + skipped_steps, engine):
            _apply(pending.popleft(), engine, runner)
        engine.step()
    return engine.log


def _at_us(one: Input) -> int:
    return round(one.at_ms * US_PER_MS)


def _is_due(one: Input, next_step: int, engine: Engine) -> bool:
    return _at_us(one) <= engine.clock.now() if one.step is None else one.step <= next_step


def _apply(one: Input, engine: "_ReplayEngine", runner: CostRunner) -> None:
    match one:
        case Arrival():
            request = engine.submit(
                one.prompt,
                one.params,
                label=one.label,
                priority=one.priority,
                submitted_at=_at_us(one) if one.step is None else None,
            )
            for sample, answer in one.answers.items():
                engine.answers[request.id + sample] = answer
                if answer.ids or answer.length < one.params.max_tokens:
                    runner.outputs[request.id + sample] = answer.ids or answer.length
        case Abort():
            engine.abort(one.request)
        case Clear():
            engine.clear_prefix_cache()
        case Hold():
            engine.held[one.hold] = engine.holds.hold(one.tokens, label=one.label).id
        case Release():
            engine.holds.release(engine.held[one.hold])


class _ReplayEngine(Engine):
    """An engine that repeats the answers of a log."""

    def __init__(self, *args: Any, **parts: Any) -> None:
        super().__init__(*args, **parts)
        self.answers: dict[int, Answer] = {}
        self.held: dict[int, int] = {}  # a hold's number in the log -> in this engine

    def _new_output_processor(self, request: Request) -> OutputProcessor:
        """Return an output processor that needs neither the logged run's tokenizer nor its tools."""
        answer = self.answers.get(request.id, Answer(0))
        detokenizer: IncrementalDetokenizer = _LogDetokenizer(answer.texts)
        if not isinstance(self.tokenizer, _LogTokenizer):
            detokenizer = self.tokenizer.detokenizer(request.tokens[: request.prompt_length])
        return OutputProcessor(request, detokenizer, _LogTool(request, answer))


class _LogDetokenizer:
    """Repeats the texts of a log, which are complete."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = iter(texts)

    def push(self, token_id: int) -> str:  # noqa: ARG002
        """Return the next token's text."""
        return next(self._texts, UNKNOWN_TEXT)

    def flush(self) -> str:
        """Return "": no text is held back."""
        return ""


class _LogTool:
    """Forces the tokens that a tool forced in a log."""

    def __init__(self, request: Request, answer: Answer) -> None:
        self._request = request
        self._answer = answer

    def feed(self, token: int) -> list[int]:  # noqa: ARG002
        """Return the tokens that were forced after the request's last token."""
        end = len(self._request.tokens) - self._request.prompt_length
        return self._answer.ids[end : end + self._answer.forced.get(end - 1, 0)]


class _LogTokenizer(ByteTokenizer):
    """The tokenizer of a log: its EOS ids, its size, and the texts of the log's prompts."""

    def __init__(self, described: dict[str, Any], workload: Workload) -> None:
        super().__init__()
        self._described = described
        self.vocab_size = described["vocab_size"]
        self.eos_ids = frozenset(described["eos_ids"])
        self._pieces = {
            tuple(one.prompt): one.texts for one in workload.inputs if isinstance(one, Arrival)
        }

    def describe(self) -> dict[str, Any]:
        """Return the description in the log."""
        return self._described

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces in the log."""
        return list(self._pieces[tuple(ids)])
