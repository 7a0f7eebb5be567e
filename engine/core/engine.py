"""The engine: schedule, run, commit, repeat.

    plan    = scheduler.schedule()       how many tokens each request computes, and why
    sampled = runner.run(plan)           one forward pass over all of them
    output  = commit(plan, sampled)      append tokens, feed the prefix cache, finish requests

That is continuous batching. Every change is written to the event log as it happens. `snapshot()`
reads the live objects, so tests can compare them with the log.

Source: modelled on vLLM's `EngineCore.step` (`vllm/v1/engine/core.py`) and nano-vllm's
`LLMEngine.step` (`nanovllm/engine/llm_engine.py`).

With `async_scheduling`, a step is scheduled while the previous one runs; see `async_loop.py`. Otherwise
one thread does everything in order.

Differs from vLLM, which tokenizes in another process.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, cast

from engine.core import offline
from engine.core.async_loop import AsyncLoop
from engine.core.cache.block_pool import BlockPool
from engine.core.cache.eviction import EvictionOrder, eviction_named
from engine.core.cache.hash_cache import HashCache
from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.cache.prefix_cache import PrefixCache
from engine.core.cache.radix_cache import RadixCache
from engine.core.cache.radix_tree import RadixTree
from engine.core.config import ConfigError, EngineConfig, checked
from engine.core.extras import needs_extra
from engine.core.log.log import EventLog
from engine.core.log.recorder import Clock, Recorder, WallClock
from engine.core.log.vocabulary import Event, FinishReason, Forked, RequestFinished
from engine.core.output.calculator import evaluate
from engine.core.output.processor import OutputProcessor, TokenOutput
from engine.core.output.special_tokens import SpecialTokens
from engine.core.output.tool_use import Tool, ToolTokens, ToolUse
from engine.core.output.validation import RequestValidator
from engine.core.part_errors import RECOVERABLE
from engine.core.parts import (
    check_parts,
    checked_eviction,
    checked_policy,
    checked_pool,
    checked_tool,
    class_names,
    set_model_parts,
)
from engine.core.request import Request
from engine.core.runner import PageStore, Row, Runner, Sampled
from engine.core.sampling_params import SamplingParams, split_samples
from engine.core.scheduling.admission import RequestError, required_blocks, token_ids
from engine.core.scheduling.policies import policy_named
from engine.core.scheduling.policy import Policy
from engine.core.scheduling.scheduler import Plan, Scheduler
from engine.core.snapshot import snapshot
from engine.core.speculation.drafter import Drafter, Speculation
from engine.extensions.draft_model import DraftModel, PairedPages
from engine.extensions.grammars.constraint import Constraint
from engine.extensions.holds import Holds
from engine.extensions.kv_transfer import KVTransfer
from engine.extensions.window_pages import reserve
from engine.models.text.bad_words import bad_word_ids
from engine.models.text.byte_tokenizer import ByteTokenizer
from engine.models.text.tokenizer import Tokenizer
from visualizer.reading.why import why

_Result = TypeVar("_Result")


@dataclass(slots=True)
class StepOutput:
    """The result of one step: the new tokens and the requests that finished."""

    step: int
    tokens: list[TokenOutput] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)


class ModelLoader(Protocol):
    """Loads models for `Engine.load`, whose docstring explains the arguments.

    `engine/models/loader.py` is one such loader. The lessons' pages in the browser have a loader of
    their own, because they run without torch.
    """

    def load(
        self,
        model: str | Path,
        *,
        engine: EngineConfig,
        dtype: str,
        device: str,
        draft_model: str | Path | None,
        draft_length: int,
    ) -> tuple[Any, Any]:
        """Return a model's runner and its tokenizer."""
        ...

    def load_draft_model(
        self, model: str | Path, target: Any, tokenizer: Any, *, dtype: str, device: str
    ) -> Runner:
        """Return the runner of a draft model for a target and its tokenizer."""
        ...


class Engine:
    """A teaching engine that works like vLLM and SGLang. One thread owns it.

    You can write your own `policy`, `pool`, `tree`, `eviction`, `drafter` and `tool` (a class); see
    `docs/extending.md`. `attention`, `verifier` and `logits_to_probs` are passed on to the model's
    runner. Where a part is None, the engine uses its default. `clock` tells the time; a simulation
    passes a virtual clock. The log's first event names the class of each part. Raises ConfigError
    for an object that does not fit its role, and if there is not enough memory.
    """

    loader: ClassVar[ModelLoader | None] = None  # None means engine/models/loader.py

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
        self.config = config = checked(config)
        parts: dict[str, Any] = dict(
            runner=runner, policy=policy, pool=pool, tree=tree, eviction=eviction, drafter=drafter,
            tool=tool, attention=attention, verifier=verifier, logits_to_probs=logits_to_probs,
        )  # fmt: skip
        check_parts(parts, config)
        self.pool = pool or BlockPool(config.num_blocks)
        used_pool = checked_pool(self.pool)
        # The KV memory is allocated early, because there may not be enough of it.
        window_pages = reserve(runner, config, used_pool, self._emit)
        set_model_parts(runner, parts)
        self.runner = runner
        self.tokenizer: Tokenizer = tokenizer or ByteTokenizer()
        self.policy = policy or policy_named(config.policy)
        eviction = eviction or eviction_named(config.eviction)
        self.clock = clock or WallClock()
        self.log = log if log is not None else EventLog()
        cache: PrefixCache
        if config.prefix_cache == "hash":
            cache = HashCache(used_pool, config.block_size, self._emit, window_pages)
        else:
            tree = tree or RadixTree(config.block_size)
            tree.eviction = checked_eviction(eviction)
            tree.enabled = config.prefix_cache != "off"
            cache = RadixCache(used_pool, tree, self._emit, window_pages)
            parts |= dict(tree=tree, eviction=eviction)
        self.tree: Any = cache.lookup
        self.cache = KVCacheManager(used_pool, cache, self._emit, window_pages)
        self.drafter = drafter
        speculation = self._speculation(drafter)
        policy = checked_policy(self.policy)
        self.scheduler = Scheduler(config, policy, self.cache, self._emit, speculation)
        self.requests: dict[int, Request] = {}  # live requests by id
        self.holds = Holds(
            self.cache, config, self.requests, self.scheduler.reserved_blocks, self._emit
        )
        self.output_processors: dict[int, OutputProcessor] = {}  # from a request's first token on
        self._tool = checked_tool(tool or ToolUse)
        self._tool_tokens = ToolTokens.of(self.tokenizer)
        self.validator = RequestValidator(config, self.tokenizer)
        self.step_count = 0
        self.paused = False
        self._next_id = 1
        self.interrupt: KeyboardInterrupt | None = None  # raised at the end of the step
        self._stopped = ""  # why no more steps are possible
        self.recorder = Recorder(self.clock, self._emit)
        self._async = AsyncLoop(self) if config.async_scheduling else None
        draft = self._draft_model
        pages: PageStore = runner if draft is None else PairedPages(runner, draft.runner)
        self.kv_transfer = KVTransfer(
            self.cache, self.holds, pages, self.tokenizer, self.recorder, self._settle
        )
        parts |= dict(policy=self.policy, pool=self.pool)
        model = runner.describe() | ({"draft_model": draft.describe()} if draft else {})
        self.recorder.run_started(config, model, self.tokenizer, class_names(parts), window_pages)

    @classmethod
    def load(
        cls,
        model: str | Path = "bundled",
        config: EngineConfig | None = None,
        *,
        dtype: str = "auto",
        device: str = "cpu",
        draft_model: str | Path | None = None,
        draft_length: int = 4,
        **parts: Any,
    ) -> "Engine":
        """Return an engine for a model: a Hugging Face directory, a GGUF file or a hub name.

        "bundled" is the project's own model. `dtype` is "auto", "float32", "bfloat16" or "float16",
        and `device` is "cpu", "cuda" or "mps"; see `engine/models/loader.py`. `draft_model`, a smaller model
        with the same vocabulary, becomes the drafter: it proposes up to `draft_length` tokens in each
        step. `parts` are passed on to `Engine`. Raises CheckpointError for a model that cannot be
        loaded, and ConfigError for the same reasons as `Engine`.
        """
        loader = cls.loader
        if loader is None:
            # Imported by name, because this module must not depend on torch.
            with needs_extra("Engine.load"):
                loader = cast(ModelLoader, importlib.import_module("engine.models.loader"))
        config = checked(config)  # this comes first because loading the model takes long
        if draft_model is not None and parts.get("drafter") is not None:
            raise ConfigError("draft_model and drafter cannot be combined: give only one of them")
        runner, tokenizer = loader.load(
            model,
            engine=config,
            dtype=dtype,
            device=device,
            draft_model=draft_model,
            draft_length=draft_length,
        )
        if draft_model is not None:
            draft = loader.load_draft_model(
                draft_model, runner, tokenizer, dtype=dtype, device=device
            )
            parts["drafter"] = DraftModel(draft, draft_length)
        return cls(runner, config, tokenizer=tokenizer, **parts)

    def _speculation(self, drafter: Drafter | None) -> Speculation | None:
        """Prepare a drafter for this engine. A draft model gets its KV memory."""
        self._draft_model = drafter if isinstance(drafter, DraftModel) else None
        if drafter is None:
            return None
        if self._draft_model is not None:
            self._draft_model.reserve(self.config, self.tokenizer.vocab_size)
        return Speculation(drafter, self.cache, self.tokenizer.vocab_size)

    # The step loop

    def step(self) -> StepOutput:
        """Schedule once, run one forward pass and commit. Does nothing if there is no work.

        With asynchronous scheduling, the output is that of the previous step, and the step that was
        just scheduled is still running when this method returns. The first output is therefore empty.

        Raises one of `part_errors.RECOVERABLE` when a part that you passed in makes a mistake; you
        can then call `step` again. If the mistake was in scheduling, the step computes nothing. A
        KeyboardInterrupt during the forward pass is raised at the end of the step. Any other
        exception stops the engine, and further steps raise RuntimeError with the reason.
        """
        if self._stopped:
            raise RuntimeError(f"{self._stopped}; the engine has stopped: create a new one")
        if not self.has_work():
            return self.empty_output()
        return self._guarded(self._step if self._async is None else self._async.step)

    def drain(self) -> StepOutput:
        """Finish the step in flight without scheduling another, and return its output.

        The output is empty if no step is in flight. Raises the same errors as `step`.
        """
        if not self.is_in_flight:
            return self.empty_output()
        assert self._async is not None
        return self._guarded(partial(self._async.step, drain=True))

    @property
    def is_in_flight(self) -> bool:
        """Whether a forward pass is running between two calls of `step`."""
        return self._async is not None and self._async.flight is not None

    def _settle(self) -> bool:
        """Wait until no forward pass runs; see `AsyncLoop.settle`."""
        return self._async is None or self._async.settle()

    def _guarded(self, step: Callable[[], StepOutput]) -> StepOutput:
        """Run a step. Stop the engine if it fails in an unforeseen way."""
        try:
            output = step()
        except BaseException as error:
            self.interrupt = None
            if not isinstance(error, RECOVERABLE):
                self._stopped = f"step {self.step_count} failed: {type(error).__name__}: {error}"
            raise
        if self.interrupt is not None:
            pressed, self.interrupt = self.interrupt, None
            raise pressed
        return output

    def _step(self) -> StepOutput:
        plan = self.schedule()
        try:
            sampled = self._run(plan)
        except Exception as error:  # the forward pass failed
            if plan.error is not None:  # a copy failed, so its request would use a wrong block
                raise
            requests = [row.request for row in plan.rows]
            for request in requests:
                request.forget_in_flight()
            self.cache.prefix_cache.withdraw(requests)
            return self.end_requests(plan, requests, error)
        if plan.error is not None:
            self.recorder.step_finished(plan.step, [])
            raise plan.error
        return self.commit(plan, plan.rows, sampled)

    def schedule(self) -> Plan:
        """Plan the next step."""
        self.step_count += 1
        self.scheduler.step = self.step_count
        self.recorder.step_started(self.step_count)
        plan = self.scheduler.schedule()
        self.recorder.step_scheduled(self.step_count)
        return plan

    def empty_output(self) -> StepOutput:
        """Return the output of a call in which no step finished."""
        return StepOutput(self.step_count)

    def _run(self, plan: Plan) -> list[list[Sampled]]:
        """Copy blocks one at a time, then run the forward pass and, if there is one, the draft model.

        A call that Ctrl-C interrupts is repeated. If all copies were in one call, a repeated copy
        could read a block that a later copy has already overwritten.
        """
        draft = self._draft_model
        if self.cache.pages is not None:
            self.cache.pages.send()
        for _, *copy in plan.copies:
            self._despite_interrupt(self.runner.run, [], [tuple(copy)])
            if draft is not None:
                self._despite_interrupt(draft.copy, *copy)
        if not plan.rows:
            return []
        sampled = self._despite_interrupt(self.runner.run, plan.rows, [])
        plan.expert_loads = self.runner.expert_loads
        if draft is not None and not draft.is_off:
            began = self.recorder.now()
            plan.draft_error = self._despite_interrupt(draft.follow, plan.rows, sampled)
            self.recorder.drafted(plan.step, began)
        return sampled

    def _despite_interrupt(self, work: Callable[..., _Result], *args: Any) -> _Result:
        try:
            return work(*args)
        except KeyboardInterrupt as pressed:  # a learner stopped the cell
            self.interrupt = pressed
            return work(*args)  # the second call overwrites half-written data

    def commit(self, plan: Plan, rows: list[Row], sampled: list[list[Sampled]]) -> StepOutput:
        """Fork samples, append tokens, cache full blocks and finish requests.

        `rows` are the rows that were computed. The plan no longer has the rows of requests that were
        preempted in the meantime.
        """
        output, wasted = StepOutput(plan.step), list[int]()
        new: list[tuple[Request, Sampled]] = []
        for row, samples in zip(tuple(rows), sampled, strict=True):
            request = row.request
            was_preempted = not request.num_in_flight_tokens  # then its samples cannot fork
            if request.finish_reason is not None or (was_preempted and len(row.samples) > 1):
                wasted.append(request.id)
                continue
            if row.scores:
                request.prompt_scores[row.start :] = row.scores
            requests = [request]
            for sample in row.samples[1:]:
                requests.append(self._fork(plan, row, sample))
            new += zip(
                requests, samples, strict=False
            )  # a row that has not caught up has no samples
        committed = [row for row in plan.rows if row.request.finish_reason is None]
        for row in committed:
            row.request.num_computed_tokens = row.start + row.count - len(row.drafts)
            row.request.num_in_flight_tokens -= row.count
            row.request.num_output_placeholders -= bool(row.samples)
        for request, result in new:
            if request.id not in self.output_processors:
                self.output_processors[request.id] = self._new_output_processor(request)
            tokens = self.output_processors[request.id].append(result)
            request.num_computed_tokens += tokens.accepted
            output.tokens.append(tokens)
        self.scheduler.plans.remove(plan)  # so that finished requests can be freed
        drafts = {row.request.id: row.drafts for row in committed if row.drafts}
        self.recorder.step_finished(
            plan.step,
            output.tokens,
            wasted,
            plan.expert_loads,
            drafts,
            draft_error=plan.draft_error,
        )
        for row in committed:
            if row.drafts:
                self.cache.trim(row.request)
            self.cache.prefix_cache.cache_computed(row.request)
        for tokens in output.tokens:
            if tokens.finish_reason is not None:
                self._finish(tokens.request, tokens.finish_reason, tokens.matched)
                output.finished.append(tokens.request)
        for tokens in output.tokens:
            self.scheduler.policy.on_served(tokens.request, 0, len(tokens.ids))
        return output

    def _new_output_processor(self, request: Request) -> OutputProcessor:
        """Return an output processor, with a tool if the tokenizer has the tokens for one."""
        tool = None
        if self._tool_tokens is not None:
            tool = self._tool(self._tool_tokens, self.tokenizer, evaluate)
        detokenizer = self.tokenizer.detokenizer(request.tokens[: request.prompt_length])
        special = None
        if request.params.skip_special_tokens:
            special = SpecialTokens(self.tokenizer.special_ids, self._tool_tokens)
        # A forced token has no log-probability, so a request that needs log-probabilities gets no
        # tokens that its grammar forces.
        params = request.params
        jump = request.constraint is not None and self.config.jump_forward
        jump = jump and params.logprobs is None and params.best_of is None
        return OutputProcessor(request, detokenizer, tool, special, jump_forward=jump)

    def _fork(self, plan: Plan, row: Row, sample: int) -> Request:
        """Fork another sample off a complete prompt. The sample shares all blocks computed so far."""
        parent = row.request
        parent.num_seqs = 1
        request = parent.fork(sample)
        self.cache.share_with(parent, request)
        self.requests[request.id] = request
        self.scheduler.running.append(request)
        plan.rows.append(Row(request, row.start, row.count, row.drafts))
        request.num_in_flight_tokens = row.count
        self._emit(Forked(request.id, parent.id, sample))
        return request

    def end_requests(self, plan: Plan, requests: list[Request], error: Exception) -> StepOutput:
        """End the requests of a failed forward pass. Other requests continue."""
        output = StepOutput(plan.step)
        for request in requests:
            request.error = f"{type(error).__name__}: {error}"
            self._finish(request, "error")
            output.finished.append(request)
        self.scheduler.plans.remove(plan)
        self.recorder.step_finished(plan.step, [])
        return output

    def _finish(self, request: Request, reason: FinishReason, matched: str = "") -> None:
        """Release everything that a request holds."""
        request.finish_reason = reason
        del self.requests[request.id]
        if request in self.scheduler.running:
            self.scheduler.running.remove(request)
        else:
            self.scheduler.waiting.remove(request)
        if (processor := self.output_processors.pop(request.id, None)) is not None:
            processor.close()
        self.cache.free(request)
        self._emit(RequestFinished(request.id, reason, request.error, matched))

    # Requests

    def submit(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        label: str = "",
        priority: int = 0,
        submitted_at: int | None = None,
        constraint: Constraint | None = None,
    ) -> Request:
        """Add a request to the queue. `prompt` is text or token ids.

        `label` names the client, and `priority` is the urgency (the smallest number is the most
        urgent). `submitted_at` is the clock time at which the client sent the request; None means now.
        `constraint` is what `validate` returned; without it, `params.structured` is compiled now. If
        there are more samples than the batch has seats, they become several requests with consecutive
        ids (`split_samples`), and the first one is returned. Raises RequestError, which names the
        field, for a request that can never be served, and PolicyError if the policy fails. In both
        cases the engine is unchanged.
        """
        params = SamplingParams() if params is None else params
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt)
        self._check(tokens, params, priority)
        constraint = constraint or self._constraint(params)
        if not isinstance(label, str):
            raise RequestError("label", f"must be a string, got {label!r}")
        if not isinstance(submitted_at, int | None):
            bounds = "a whole number of microseconds or None"
            raise RequestError("submitted_at", f"must be {bounds}, got {submitted_at!r}")
        end_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            end_ids |= self.tokenizer.eos_ids
        bad_words = bad_word_ids(params.bad_words, self.tokenizer)
        texts = self.tokenizer.pieces(tokens)
        first = self._next_id
        for part in split_samples(params, self.config.max_batch_size):
            request = Request(
                id=self._next_id,
                tokens=list(tokens),
                texts=list(texts),
                params=part,
                label=label,
                priority=priority,
                root=self._next_id,
                prompt_length=len(tokens),
                num_seqs=part.samples,
                end_ids=end_ids,
                bad_word_ids=bad_words,
                constraint=constraint and constraint.fork(),
            )
            self._queue(request, first)
            self._next_id += part.samples
            self.requests[request.id] = request
            self.recorder.request_arrived(request, submitted_at)
            if self.holds.live:
                self.holds.make_room(required_blocks(len(tokens), part, self.config))
        return self.requests[first]

    def _queue(self, request: Request, first: int) -> None:
        """Add a request to the queue. If the policy fails, abort the parts of it from id `first` on."""
        try:
            self.scheduler.waiting.add(request)
        except Exception:
            for part in range(first, request.id):
                self.abort(part)
            raise

    def validate(
        self, tokens: Sequence[int], params: SamplingParams, priority: int = 0
    ) -> Constraint | None:
        """Raise RequestError unless an otherwise empty engine can serve this request.

        Any thread may call this, because it reads only values that never change. Returns the compiled
        constraint that `structured` asks for, or None; `submit` takes it, so that it is compiled once.
        """
        self._check(tokens, params, priority)
        return self._constraint(params)

    def _check(self, tokens: Sequence[int], params: SamplingParams, priority: int) -> None:
        self.validator.validate(tokens, params, priority, max_context=self.runner.max_context)

    def prepare(self) -> None:
        """Prepare for structured output now, so that the first such request delays no other."""
        self.validator.prepare()

    def _constraint(self, params: SamplingParams) -> Constraint | None:
        """Return a new constraint if the output must match a format. Raises RequestError."""
        return self.validator.constraint(params)

    def abort(self, request: Request | int) -> bool:
        """End a request, given as an object or by id, in any state. Call this only between steps.

        Returns False and does nothing if the request has already ended.
        """
        live = self.requests.get(request if isinstance(request, int) else request.id)
        if live is None:
            return False
        self._finish(live, "abort")
        return True

    def has_work(self) -> bool:
        """Return whether any request is waiting or running, or a forward pass is in flight."""
        return bool(self.requests) or self.is_in_flight

    # Complete runs without a server

    complete = offline.complete
    score = offline.score
    generate = offline.generate
    generate_batch = offline.generate_batch

    # Control and inspection

    def pause(self) -> None:
        """Pause the engine under a server: requests queue up, and steps run only on demand.

        The pause is logged, so that a paused engine does not look like a slow one. Does nothing if the
        engine is already paused.
        """
        if not self.paused:
            self.paused = True
            self.recorder.engine_paused()

    def resume(self) -> None:
        """Resume a paused engine. Does nothing if the engine is not paused."""
        if self.paused:
            self.paused = False
            self.recorder.engine_resumed()

    def clear_prefix_cache(self) -> None:
        """Evict every prefix that no live request uses."""
        self.cache.prefix_cache.clear()

    def why(self, request: Request | int, step: int | None = None) -> str:
        """Explain in words what happened to a request in a step; see `visualizer.reading.why.why`."""
        return why(self.log, request.id if isinstance(request, Request) else request, step)

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the live objects. It equals `State.core()` folded from the log."""
        return snapshot(self)

    def unload(self) -> None:
        """Free the models and their KV memory; the engine cannot be used afterwards."""
        del self.runner, self.kv_transfer, self.drafter, self._draft_model
        self.scheduler.speculation = None

    def _emit(self, event: Event) -> None:
        self.log.append(event)  # `self.log` is not bound early, because a server replaces it
