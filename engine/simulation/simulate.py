"""Play a workload on a simulated machine: the same step loop, a virtual clock, an ordinary log."""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events.log import EventLog
from engine.output.processor import OutputProcessor, OutputProcessors
from engine.output.tool_use import ToolUse
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
from engine.text.tokenizer import Tokenizer

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
    engine = Engine(runner, config, tokenizer=tokenizer, clock=runner.clock, **parts)
    engine.output_processors = processors = _ReplayOutputProcessors(engine.tokenizer)
    held: dict[int, int] = {}  # a hold's number in the workload -> in this engine
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
            _apply(pending.popleft(), engine, runner, processors.answers, held)
        engine.step()
    return engine.log


def _at_us(one: Input) -> int:
    return round(one.at_ms * US_PER_MS)


def _is_due(one: Input, next_step: int, engine: Engine) -> bool:
    return _at_us(one) <= engine.clock.now() if one.step is None else one.step <= next_step


def _apply(
    one: Input,
    engine: Engine,
    runner: CostRunner,
    answers: dict[int, Answer],
    held: dict[int, int],
) -> None:
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
                answers[request.id + sample] = answer
                if answer.ids or answer.length < one.params.max_tokens:
                    runner.outputs[request.id + sample] = answer.ids or answer.length
        case Abort():
            engine.abort(one.request)
        case Clear():
            engine.clear_prefix_cache()
        case Hold():
            held[one.hold] = engine.holds.hold(one.tokens, label=one.label).id
        case Release():
            engine.holds.release(held[one.hold])


class _ReplayOutputProcessors(OutputProcessors):
    """The output processors, one for each sample, which repeat a log's answers."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, ToolUse)
        self.answers: dict[int, Answer] = {}  # by request

    def new(self, request: Request) -> OutputProcessor:
        """Return an output processor that repeats the request's answer."""
        answer = self.answers.get(request.id, Answer(0))
        known = isinstance(self._tokenizer, _LogTokenizer)
        return _ReplayOutputProcessor(
            request, self._tokenizer, answer.texts if known else None, answer
        )


class _ReplayOutputProcessor(OutputProcessor):
    """An output processor with the texts and the tools' tokens of a log.

    It needs neither the logged run's tokenizer nor its tools.
    """

    def __init__(
        self, request: Request, tokenizer: Tokenizer, texts: list[str] | None, answer: Answer
    ) -> None:
        super().__init__(request, tokenizer, tool=None)
        self._texts = texts
        self._answer = answer
        if texts is not None:
            # The log's texts are complete: bytes of the prompt must not be flushed into them.
            self._detokenizer = tokenizer.detokenizer([])

    def _piece(self, token: int, position: int) -> str:
        if self._texts is None:
            return super()._piece(token, position)
        return self._texts[position] if position < len(self._texts) else UNKNOWN_TEXT

    def _tool_answer(self, token: int) -> list[int]:  # noqa: ARG002
        end = len(self.request.tokens) - self.request.prompt_length
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
