"""The engine: schedule, run, commit, again and again.

    plan    = scheduler.schedule()       who computes how many tokens, and why
    sampled = runner.run(plan)           one forward pass over all of them
    output  = commit(sampled)            append tokens, feed the prefix cache, finish requests

That is the whole of continuous batching. Every change is written to the event log at the moment it
is made; `snapshot()` reads the live objects, so that a test can hold the log against them.

Source: the shape is that of vLLM's `EngineCore.step` (`vllm/v1/engine/core.py`) and of nano-vllm's
`LLMEngine.step` (`nanovllm/engine/llm_engine.py`).
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.cache.block_pool import BlockPool
from engine.cache.eviction import EvictionOrder, eviction_named
from engine.cache.holds import Holds
from engine.cache.kv_cache_manager import KVCacheManager
from engine.cache.radix_tree import RadixTree
from engine.clock import Clock, WallClock
from engine.config import EngineConfig, checked
from engine.events.log import EventLog
from engine.events.vocabulary import Event, FinishReason, Forked, RequestFinished
from engine.offline import Offline
from engine.output.processor import OutputProcessors, TokenOutput
from engine.output.tool_use import Tool, ToolUse
from engine.part_errors import RECOVERABLE, PolicyError, ask
from engine.parts import check_parts, give_to_model, names_of
from engine.recorder import Recorder
from engine.runner import Row, Runner, Sampled
from engine.scheduling.admission import RequestError, check_request, ids_of, most_blocks
from engine.scheduling.policies import Policy, policy_named
from engine.scheduling.request import Request
from engine.scheduling.sampling_params import SamplingParams
from engine.scheduling.scheduler import Plan, Scheduler
from engine.snapshot import snapshot
from engine.speculation.drafter import Drafter
from engine.step_guard import StepGuard
from engine.text.byte_tokenizer import ByteTokenizer
from engine.text.tokenizer import Tokenizer
from engine.why import why


@dataclass(slots=True)
class StepOutput:
    """What one step brought: new tokens, and the requests that ended."""

    step: int
    tokens: list[TokenOutput] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)


class Engine(Offline):
    """A teaching engine that does what vLLM and SGLang do. One thread owns it.

    `policy`, `pool`, `tree`, `eviction`, `drafter` and `tool`, a class, are what a learner may write
    (`docs/extending.md` shows how); what is not given is the engine's own. So are `attention`,
    `verifier` and `logits_to_probs`, which are handed on to a model's runner. `clock` tells time; a
    simulation brings a virtual one. The log's first event names the classes that run. Raises
    ConfigError for a part that cannot be one, and where memory does not suffice.
    """

    def __init__(
        self,
        runner: Runner,
        config: EngineConfig | None = None,
        *,
        tokenizer: Tokenizer | None = None,
        policy: Policy | None = None,
        pool: BlockPool | None = None,
        tree: RadixTree | None = None,
        eviction: EvictionOrder | None = None,
        drafter: Drafter | None = None,
        tool: type[Tool] | None = None,
        attention: Callable[..., Any] | None = None,
        verifier: object | None = None,
        logits_to_probs: Callable[..., Any] | None = None,
        clock: Clock | None = None,
        log: EventLog | None = None,
    ) -> None:
        config = checked(config)
        parts: dict[str, Any] = dict(
            runner=runner, policy=policy, pool=pool, tree=tree, eviction=eviction, drafter=drafter,
            tool=tool, attention=attention, verifier=verifier, logits_to_probs=logits_to_probs,
        )  # fmt: skip
        check_parts(parts, config)
        runner.reserve(config.num_blocks, config.block_size)  # first: it knows if memory suffices
        give_to_model(runner, parts)
        self.config = config
        self.runner = runner
        self.tokenizer: Tokenizer = tokenizer or ByteTokenizer()
        self.policy = policy or policy_named(config.policy)
        self.pool = pool or BlockPool(config.num_blocks)
        self.tree = tree or RadixTree(config.block_size)
        self.tree.eviction = eviction or eviction_named(config.eviction)
        self.clock = clock or WallClock()
        self.log = log if log is not None else EventLog()
        self.cache = KVCacheManager(
            self.pool, self.tree, prefix_cache=config.prefix_cache, emit=self._emit
        )
        vocab_size = self.tokenizer.vocab_size
        self.scheduler = Scheduler(
            config, self.policy, self.cache, self._emit, drafter=drafter, vocab_size=vocab_size
        )
        self.requests: dict[int, Request] = {}  # live ones, by id
        self.holds = Holds(
            self.cache, config, self.requests, self.scheduler.reserved_blocks, self._emit
        )
        self.writers = OutputProcessors(self.tokenizer, tool or ToolUse)
        self.step_count = 0
        self.paused = False
        self._guard = StepGuard()
        self._next_id = 1
        self._recorder = Recorder(self.clock, self._emit)
        own = dict(policy=self.policy, pool=self.pool, tree=self.tree, eviction=self.tree.eviction)
        self._recorder.run_started(config, runner, self.tokenizer, names_of(parts | own))

    @classmethod
    def load(
        cls,
        model: str | Path = "bundled",
        config: EngineConfig | None = None,
        **parts: Any,
    ) -> "Engine":
        """An engine with a model: a Hugging Face directory, a GGUF file or a hub name.

        "bundled" is the project's own. `parts` are passed on to `Engine`. Raises CheckpointError,
        which says what is wrong, for a model that cannot be loaded, and ConfigError as `Engine` does.
        """
        # By name, because this module must import without torch.
        loader = importlib.import_module("engine.compute.loader")
        config = checked(config)  # before the model, which takes longer
        runner, tokenizer = loader.load(model)
        return cls(runner, config, tokenizer=tokenizer, **parts)

    # Requests

    def submit(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        label: str = "",
        priority: int = 0,
        submitted_at: int | None = None,
    ) -> Request:
        """Put a request into the queue. `prompt` is text or token ids.

        `label` says who asks, `priority` how urgent it is (0 first). `submitted_at` is the clock's
        time when the client asked, where that was earlier than now. Raises RequestError, which
        names the field, for a request that could never be served, and PolicyError where a policy
        fails over it; nothing has changed then.
        """
        params = SamplingParams() if params is None else params
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else ids_of(prompt)
        self.validate(tokens, params, priority)
        if not isinstance(label, str):
            raise RequestError("label", f"must be text, got {label!r}")
        if not isinstance(submitted_at, int | None):
            raise RequestError("submitted_at", f"must be whole microseconds, got {submitted_at!r}")
        request = Request(
            id=self._next_id,
            tokens=tokens,
            texts=self.tokenizer.pieces(tokens),
            params=params,
            label=label,
            priority=priority,
            root=self._next_id,
            prompt_length=len(tokens),
            num_seqs=params.samples,
            end_ids=params.end_ids(self.tokenizer.eos_ids),
        )
        self.scheduler.waiting.add(request)
        self._next_id += params.samples
        self.requests[request.id] = request
        self._recorder.request_arrived(request, submitted_at)
        self.holds.make_way(most_blocks(len(tokens), params, self.config))
        return request

    def validate(self, tokens: Sequence[int], params: SamplingParams, priority: int = 0) -> None:
        """Raise RequestError unless this request can be served by an otherwise empty engine.

        Reads only what never changes, so that any thread may call it.
        """
        check_request(
            tokens,
            params,
            priority,
            config=self.config,
            vocab_size=self.tokenizer.vocab_size,
            max_context=self.runner.max_context,
        )

    def abort(self, request: Request | int) -> bool:
        """End a request, or the one with this id, now, in whatever state it is; between steps only.

        Harmless for one that has ended. Returns whether there was something to end.
        """
        live = self.requests.get(request if isinstance(request, int) else request.id)
        if live is None:
            return False
        self._finish(live, "abort")
        return True

    def has_work(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self.requests)

    # The step loop

    def step(self) -> StepOutput:
        """One scheduling decision, one forward pass, one commit. Nothing happens without work.

        Raises one of `part_errors.RECOVERABLE` when a part that was passed in makes a mistake. In the
        middle of a decision, nobody has computed in this step; either way the next one may be made.
        KeyboardInterrupt during the forward pass lets the step end first. After anything else that is
        raised here the engine is stopped, and each further step says why.
        """
        self._guard.check()
        if not self.has_work():
            return StepOutput(self.step_count)
        self.step_count += 1
        with self._guard.step(self.step_count):
            self._recorder.step_started(self.step_count)
            plan = self._schedule()
            try:
                sampled = self._run(plan)
            except Exception as error:  # whatever a model raises ends its requests, not the engine
                output = self._fail(error)
            else:
                output = self._commit(sampled)
        return output

    def _schedule(self) -> Plan:
        try:
            plan = self.scheduler.schedule()
        except RECOVERABLE:  # nobody computes, and the log says as much
            self._copy_blocks(self.scheduler.abandon())
            self._recorder.step_scheduled()
            self._recorder.step_finished([])
            raise
        self._recorder.step_scheduled()
        return plan

    def _run(self, plan: Plan) -> list[list[Sampled]]:
        self._copy_blocks(plan)
        return self._run_despite_interrupt(plan.rows, [])

    def _copy_blocks(self, plan: Plan) -> None:
        # One at a time, because Ctrl-C repeats what it interrupts: a later copy, or the forward pass,
        # may overwrite the source of an earlier one.
        for copy in plan.block_copies:
            self._run_despite_interrupt([], [copy])

    def _run_despite_interrupt(
        self, rows: list[Row], copies: list[tuple[int, int]]
    ) -> list[list[Sampled]]:
        """Run the rows, or a copy, again if Ctrl-C interrupts: that overwrites what is half written."""
        try:
            return self.runner.run(rows, copies)
        except KeyboardInterrupt as pressed:  # a learner stopped the cell
            self._guard.interrupt = pressed
            return self.runner.run(rows, copies)

    def pause(self) -> None:
        """Hold a served engine: requests queue up, no step runs but those asked for."""
        self.paused = True

    def resume(self) -> None:
        """Let a held engine go on."""
        self.paused = False

    def clear_prefix_cache(self) -> None:
        """Forget every prefix that no live request uses."""
        self.cache.clear()

    # Commit

    def _commit(self, sampled: list[list[Sampled]]) -> StepOutput:
        """Forks first, then tokens, then the cache row by row, then whoever has finished."""
        plan = self.scheduler.plan
        gains: list[tuple[Request, Sampled]] = []
        for row, samples in zip(tuple(plan.rows), sampled, strict=True):
            if row.scores:
                row.request.prompt_scores[row.start :] = row.scores
            requests = [row.request]
            requests += [self._fork(row, sample) for sample in row.samples[1:]]
            # A row that has not caught up has no samples, and nobody gains anything.
            gains += zip(requests, samples, strict=False)
        for row in plan.rows:
            row.request.num_computed_tokens = row.start + row.count - len(row.drafts)
        tokens = [self.writers.of(request).append(one) for request, one in gains]
        self.scheduler.close_plan()
        self._recorder.step_finished(tokens)
        for row in plan.rows:
            if row.drafts:
                self.cache.trim(row.request)
            self.cache.cache_full_blocks(row.request)
        output = StepOutput(self.step_count, tokens)
        for gained in tokens:
            if gained.finish_reason is not None:
                self._finish(gained.request, gained.finish_reason, gained.matched)
                output.finished.append(gained.request)
        for gained in tokens:
            ask(PolicyError, self.policy.served, gained.request, 0, len(gained.ids))
        return output

    def _fork(self, row: Row, sample: int) -> Request:
        """Another sample of a prompt that is complete: it shares everything computed so far."""
        parent = row.request
        parent.num_seqs = 1
        request = parent.fork(sample)
        self.cache.share_with(parent, request)
        self.requests[request.id] = request
        self.scheduler.running.append(request)
        self.scheduler.plan.rows.append(Row(request, row.start, row.count, row.drafts))
        self._emit(Forked(request.id, parent.id, sample))
        return request

    def _fail(self, error: Exception) -> StepOutput:
        """The forward pass raised: what its rows were to compute is lost, and they end."""
        output = StepOutput(self.step_count)
        for row in self.scheduler.plan.rows:
            row.request.error = f"{type(error).__name__}: {error}"
            self._finish(row.request, "error")
            output.finished.append(row.request)
        self.scheduler.close_plan()
        self._recorder.step_finished([])
        return output

    def _finish(self, request: Request, reason: FinishReason, matched: str = "") -> None:
        """A request ends and gives everything back, exactly once."""
        request.finish_reason = reason
        del self.requests[request.id]
        if request in self.scheduler.waiting:
            self.scheduler.waiting.remove(request)
        else:
            self.scheduler.running.remove(request)
        self.writers.close(request)
        self.cache.free(request)
        self._emit(RequestFinished(request.id, reason, request.error, matched))

    # The log and the live objects

    def _emit(self, event: Event) -> None:
        self.log.append(event)

    def why(self, request: Request | int, step: int | None = None) -> str:
        """Why a request was treated as it was in a step, in words; see `engine.why.why`."""
        return why(self.log, request.id if isinstance(request, Request) else request, step)

    def snapshot(self) -> dict[str, Any]:
        """The state, read off the live objects; equal to `State.core()` folded from the log."""
        return snapshot(self)
