"""Play a workload on a simulated machine: the same step loop, a virtual clock, an ordinary log."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.log.log import EventLog
from engine.core.loop import StepOutput
from engine.core.output.detokenizer import IncrementalDetokenizer
from engine.core.output.processor import OutputProcessor
from engine.core.request import Request
from engine.core.sampling_params import SamplingParams
from engine.extensions.grouped_cache import GroupedCache
from engine.simulation.cost_runner import US_PER_MS, Cost, CostRunner
from engine.simulation.pipelined_loop import PipelinedLoop
from engine.simulation.recorded_drafts import RecordedDrafts
from engine.simulation.restoring import restore
from engine.simulation.vllm_drafts import follow_vllm
from engine.simulation.workload import (
    Abort,
    Adopt,
    Answer,
    Arrival,
    Clear,
    End,
    Hold,
    Input,
    Release,
    Restore,
    Workload,
)

_Input = TypeVar("_Input", bound=Input)
_TAIL = 8  # the last tokens of a prompt, in which a character may have begun
UNKNOWN_TEXT = "\u00b7"  # shown for a token that is not in the log


def simulate(
    workload: Workload,
    config: EngineConfig | None = None,
    *,
    cost: Cost | CostRunner,
    fetch_or_compute: Callable[[Sequence[float], Sequence[float]], int] | None = None,
    **parts: Any,
) -> EventLog:
    """Serve a whole workload and return the log.

    cost   the prices of a step, or a CostRunner of your own
    parts  passed on to `Engine`: policy, pool, tree, eviction, drafter, and `log`, for example with a
           window for a long run
    fetch_or_compute  the rule of the memory below the GPU, if there is any; see `tier_prices.py`

    Idle time is skipped. Raises RequestError for a request that these settings could never serve.
    """
    runner = cost if isinstance(cost, CostRunner) else CostRunner(**asdict(cost))
    engine = ReplayEngine(runner, config, workload, **parts)
    if engine.tiers is not None and fetch_or_compute is not None:
        engine.tiers.choose = fetch_or_compute
    play(workload.inputs, engine, engine.apply, runner.clock.skip_to)
    return engine.log


def play(
    inputs: Iterable[_Input],
    engine: Engine,
    apply: Callable[[_Input], object],
    skip_to: Callable[[int], None],
) -> None:
    """Apply each input when it is due, and step until all work is done, or until the workload's `End`.

    skip_to  moves the engine's clock forward to a time: idle time is skipped, and no step runs in it
    """
    pending, skipped_steps = deque(inputs), 0
    while pending or engine.has_work():
        if pending and not engine.has_work():
            first = pending[0]
            if first.step is None:
                skip_to(_due_us(first))
            else:
                skipped_steps = max(skipped_steps, first.step - engine.step_count - 1)
        while pending and _is_due(pending[0], engine.step_count + 1 + skipped_steps, engine):
            if isinstance(pending[0], End):
                return
            done = engine.step_count
            apply(pending.popleft())
            skipped_steps -= engine.step_count - done  # one that restored requests does not count
        engine.step()


def at_us(one: Input) -> int:
    """Return the time of an input that is not pinned to a step."""
    return round(one.at_ms * US_PER_MS)


def _due_us(one: Input) -> int:
    return at_us(one) + round(one.way_ms * US_PER_MS if isinstance(one, Arrival) else 0)


def _is_due(one: Input, next_step: int, engine: Engine) -> bool:
    return _due_us(one) <= engine.clock.now() if one.step is None else one.step <= next_step


class ReplayEngine(Engine):
    """An engine that repeats the answers of a log.

    It compiles no grammars: an answer of the log has its shape, and ends where it ended. The drafts of
    the log are proposed again, unless a drafter is given.
    """

    def __init__(
        self, runner: CostRunner, config: EngineConfig | None, workload: Workload, **parts: Any
    ) -> None:
        described = workload.tokenizer
        tokenizer = _Letters() if described is None else _LogTokenizer(described, workload)
        runner.kv_groups = workload.kv_groups or runner.kv_groups
        self.answers: dict[int, Answer] = {}
        drafting = None if "drafter" in parts else workload.drafting
        if drafting is not None:
            parts["drafter"] = RecordedDrafts(self.answers, drafting)
        super().__init__(runner, config, tokenizer=tokenizer, clock=runner.clock, **parts)
        if drafting is not None and drafting.is_vllm:
            follow_vllm(self, parts["drafter"], drafting)
        if runner.batches_in_flight > 1:
            self.loop = PipelinedLoop(self.loop, runner.batches_in_flight)
        self.loop.new_output = self._new_output
        self._runner, self._outputs = runner, runner.outputs
        self.held: dict[int, int] = {}  # a hold's number in the log -> in this engine

    def apply(self, one: Input) -> None:
        """Apply an input between two steps. Raises RequestError for a request it can never serve."""
        match one:
            case Arrival():
                self.apply_arrival(one, at_us(one) if one.step is None else None)
            case Abort():
                self.abort(one.request)
            case Clear():
                self.clear_prefix_cache()
            case Hold():
                self.held[one.hold] = self.holds.hold(one.tokens, label=one.label).id
            case Release():
                self.holds.release(self.held[one.hold])
            case Adopt():
                self.kv_transfer.adopt(one.tokens, b"", source=one.source)
            case Restore():
                restore(self, self._runner, one)

    def apply_arrival(self, one: Arrival, submitted_at: int | None) -> Request:
        """Submit a request with its answers. Raises RequestError if it can never be served."""
        if isinstance(self.cache, GroupedCache):
            self.cache.check_request(len(one.prompt), one.params)
        following = self._next_id
        self._next_id = one.request or following
        if one.extra_key and (key := one.extra_key[0]):
            self.adapters.add_as_logged(key)
        for sample, answer in one.answers.items():
            self.answers[self._next_id + sample] = answer
            if answer.ids or answer.length < one.params.max_tokens:
                self._outputs[self._next_id + sample] = answer.ids or answer.length
        request = self.submit(
            one.keyed_prompt,
            one.params,
            label=one.label,
            priority=one.priority,
            submitted_at=submitted_at,
            begun=one.begun,
        )
        self._next_id = max(self._next_id, following)
        return request

    def step(self) -> StepOutput:
        """See `Engine.step`."""
        output = super().step()
        for request in output.finished:
            self._forget(request.id)
        return output

    def abort(self, request: Request | int) -> bool:
        """See `Engine.abort`."""
        self._forget(request if isinstance(request, int) else request.id)
        return super().abort(request)

    def _forget(self, request: int) -> None:
        """Drop the answers of a request that has ended, because a long run has many."""
        self.answers.pop(request, None)
        self._outputs.pop(request, None)

    def constraint(self, params: SamplingParams) -> None:
        """Return None."""

    def _new_output(self, request: Request) -> OutputProcessor:
        """Return an output processor that needs neither the logged run's tokenizer nor its tools."""
        answer = self.answers.get(request.id, Answer(0))
        if request.params.structured is not None and answer.stopped:
            request.constraint = _LogShape(len(answer.ids), self.tokenizer.vocab_size)
        detokenizer: IncrementalDetokenizer = _LogDetokenizer(answer.texts)
        if not isinstance(self.tokenizer, _LogTokenizer):
            end = request.prompt_length
            detokenizer = self.tokenizer.detokenizer(request.tokens[max(end - _TAIL, 0) : end])
        tool = partial(_LogTool, request, answer) if answer.forced else None
        return OutputProcessor(request, detokenizer, tool)


class _Letters(ByteTokenizer):
    """A byte tokenizer that is quick where all bytes are ASCII, as in generated prompts."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer`."""
        try:
            return list(bytes(ids).decode("ascii"))
        except ValueError:
            return super().pieces(ids)


class _LogDetokenizer:
    """Repeats the texts of a log, which are complete."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = iter(texts)

    def push(self, token_id: int) -> str:
        """Return the next token's text."""
        return next(self._texts, UNKNOWN_TEXT)

    def flush(self) -> str:
        """Return "": no text is held back."""
        return ""


@dataclass
class _LogShape:
    """A `Constraint` that allows every token until the answer of the log ends by itself."""

    _length: int
    _vocab_size: int
    error: str = ""
    misread: bool = False
    end_ids: frozenset[int] = frozenset()

    def fork(self) -> "_LogShape":
        return _LogShape(self._length, self._vocab_size)

    def mask(self, output: list[int]) -> int:
        return (1 << self._vocab_size) - 1

    def draft_mask(self, output: list[int]) -> int:
        return self.mask(output)

    def forced(self, output: list[int]) -> list[int]:
        return []

    def is_complete(self, output: list[int]) -> bool:
        return len(output) == self._length

    def count_allowed(self, output: list[int], drafts: Sequence[int]) -> int:
        return len(drafts)


@dataclass
class _LogTool:
    """Forces the tokens that a tool forced in a log."""

    _request: Request
    _answer: Answer

    def feed(self, token: int) -> list[int]:
        """Return the tokens that were forced after the request's last token."""
        end = len(self._request.tokens) - self._request.prompt_length
        return self._answer.ids[end : end + self._answer.forced.get(end - 1, 0)]


class _LogTokenizer(ByteTokenizer):
    """The tokenizer of a log: its EOS ids, its size, and the texts of its tokens."""

    def __init__(self, described: dict[str, Any], workload: Workload) -> None:
        super().__init__()
        self._described = described
        self.vocab_size = described["vocab_size"]
        self.eos_ids = frozenset(described["eos_ids"])
        self._pieces = {
            tuple(one.prompt): one.texts for one in workload.inputs if isinstance(one, Arrival)
        }
        self._pieces |= {
            tuple(one.tokens): one.texts for one in workload.inputs if isinstance(one, Adopt)
        }
        self._texts: dict[int, str] = {}
        for ids, texts in self._pieces.items():
            self._texts.update(zip(ids, texts, strict=False))

    def describe(self) -> dict[str, Any]:
        """Return the description in the log."""
        return self._described

    def decode(self, ids: Sequence[int]) -> str:
        """Return the texts that these tokens have in the log's prompts; "?" for the others."""
        return "".join(self._texts.get(one, "?") for one in ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces in the log, of a prompt or a prefix, or of the beginning of one."""
        wanted = tuple(ids)
        if wanted not in self._pieces:
            found = (one for one in self._pieces if one[: len(wanted)] == wanted)
            begun = next(found, None)
            if begun is None:
                return [self.decode([one]) for one in ids]
            return list(self._pieces[begun][: len(wanted)])
        return list(self._pieces[wanted])
