"""The engine: submit requests, step, and read what happened.

    engine.submit(prompt, params)     check a request and add it to the queue
    engine.step()                     one scheduling decision, one forward pass, one commit
    engine.log                        everything that happened, with reasons

This is the facade. `loop.py` has the steps, `build.py` wires the parts, and `offline.py` runs prompts
to their end. `snapshot()` reads the live objects, so tests can compare them with the log.
"""

import importlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar, Unpack

import msgspec

from engine.core import offline
from engine.core.build import Parts, build
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.config import ConfigError, EngineConfig, checked
from engine.core.extras import extension, needs_extra
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.core.log.recorder import Clock, WallClock
from engine.core.loop import StepOutput
from engine.core.request import Constraint, Request
from engine.core.runner import Runner
from engine.core.sampling_params import SamplingParams, split_samples
from engine.core.scheduling.admission import (
    RequestError,
    RequestValidator,
    bad_word_ids,
    required_blocks,
    token_ids,
)
from engine.core.scheduling.scheduler import Plan
from engine.core.tokenizer import Tokenizer

__all__ = ["Engine", "StepOutput"]

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Engine:
    """A teaching engine that works like vLLM and SGLang. One thread owns it.

    You can write your own `policy`, `pool`, `tree`, `eviction`, `drafter` and `tool` (a class); see
    `docs/extending.md`. `attention`, `verifier` and `logits_to_probs` are passed on to the model's
    runner. `clock` tells the time; a simulation passes a virtual clock. The log's first event names the
    class of each part. Raises ConfigError for an object that does not fit its role, and if there is not
    enough memory.
    """

    # A module like engine/models/loader.py, which None means; the lessons' pages in the browser, which
    # run without torch, have another one.
    loader: ClassVar[Any] = None

    def __init__(
        self,
        runner: Runner,
        config: EngineConfig | None = None,
        *,
        tokenizer: Tokenizer | None = None,
        clock: Clock | None = None,
        log: EventLog | None = None,
        **parts: Unpack[Parts],
    ) -> None:
        if unknown := parts.keys() - Parts.__annotations__.keys():
            raise TypeError(
                f"Engine has no part {min(unknown)!r}; parts: {', '.join(Parts.__annotations__)}"
            )
        self.config = checked(config)
        self.tokenizer: Tokenizer = tokenizer or ByteTokenizer()
        self.clock = clock or WallClock()
        self.log = log if log is not None else EventLog()
        self.loop = build(
            runner, self.config, self.tokenizer, clock=self.clock, emit=self._emit, parts=parts
        )
        self.runner = runner
        self.drafter = parts.get("drafter")
        self.cache, self.scheduler = self.loop.cache, self.loop.scheduler
        self.pool = parts.get("pool") or self.cache.pool
        self.policy = parts.get("policy") or self.scheduler.policy
        self.requests = self.loop.requests  # live requests by id
        self.recorder = self.loop.recorder
        self.validator = RequestValidator(self.config, self.tokenizer)
        self.paused = False
        self._next_id = 1
        if self.config.host_kv_tokens or self.config.disk_kv_tokens:
            self.cache.tiers = extension("tiers").attached(self)

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
        parallel: Any = None,
        **parts: Any,
    ) -> "Engine":
        """Return an engine for a model: a Hugging Face directory, a GGUF file or a hub name.

        "bundled" is the project's own model. `dtype` is "auto", "float32", "bfloat16" or "float16",
        and `device` is "cpu", "cuda" or "mps"; see `engine/models/loader.py`. `draft_model`, a smaller
        model with the same vocabulary, becomes the drafter: it proposes up to `draft_length` tokens in
        each step. `parallel` divides the model among processes; see `engine/parallel`. `parts` are
        passed on to `Engine`. Raises CheckpointError for a model that cannot be loaded, and ConfigError
        for the same reasons as `Engine`.
        """
        loader = cls.loader if parallel is None else parallel
        if loader is None:
            # Imported by name, because this module must not depend on torch.
            with needs_extra("Engine.load"):
                loader = importlib.import_module("engine.models.loader")
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
            parts["drafter"] = extension("draft_model").DraftModel(draft, draft_length)
        return cls(runner, config, tokenizer=tokenizer, **parts)

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
        return self.loop.step()

    def drain(self) -> StepOutput:
        """Finish the step in flight without scheduling another, and return its output.

        The output is empty if no step is in flight. Raises the same errors as `step`.
        """
        return self.loop.step(drain=True) if self.is_in_flight else StepOutput(self.step_count)

    @property
    def is_in_flight(self) -> bool:
        """Whether a forward pass is running between two calls of `step`."""
        return self.loop.flight is not None

    @property
    def step_count(self) -> int:
        """The number of the latest step."""
        return self.loop.step_count

    def has_work(self) -> bool:
        """Return whether any request is waiting or running, or a forward pass is in flight."""
        return bool(self.requests) or self.loop.flight is not None

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
        adapter: str = "",
        cache_salt: str = "",
        begun: Any = None,
    ) -> Request:
        """Add a request to the queue. `prompt` is text or token ids.

        `label` names the client, and `priority` is the urgency (the smallest number is the most
        urgent). `submitted_at` is the clock time at which the client sent the request; None means now.
        `adapter` names one of `adapters`, and requests with different `cache_salt` share no KV.
        `constraint` is what `validate` returned; without it, `params.structured` is compiled now. If
        there are more samples than the batch has seats, they become several requests with consecutive
        ids (`split_samples`), and the first one is returned. `begun` is another engine's output, which
        the request continues (`engine/extensions/resumption.py`); a request whose output has ended is
        returned, but not added. Raises RequestError, which names the field, for a request that can
        never be served, and PolicyError if the policy fails. In both cases the engine is unchanged.
        """
        params = SamplingParams() if params is None else params
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt)
        self.validator.validate(tokens, params, priority, max_context=self.runner.max_context)
        if params.structured is not None and constraint is None:
            constraint = self.constraint(params)
        if not isinstance(label, str):
            raise RequestError("label", f"must be a string, got {label!r}")
        if not isinstance(submitted_at, int | None):
            bounds = "a whole number of microseconds or None"
            raise RequestError("submitted_at", f"must be {bounds}, got {submitted_at!r}")
        extra_key: tuple[str, ...] = getattr(prompt, "extra_key", ())  # in a replay
        if adapter or cache_salt:
            extra_key = self.adapters.extra_key(adapter, cache_salt)
        if extra_key:
            tokens = extension("prefix_keys").keyed(tokens, extra_key)
        end_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            end_ids |= self.tokenizer.eos_ids
        bad_words = bad_word_ids(params, self.tokenizer) if params.bad_words else ()
        texts = self.tokenizer.pieces(tokens)
        first, seats = self._next_id, self.config.max_batch_size
        for part in [params] if params.samples <= seats else split_samples(params, seats):
            request = Request(
                id=self._next_id,
                tokens=tokens[:],
                texts=list(texts),
                params=part,
                label=label,
                priority=priority,
                extra_key=extra_key,
                root=self._next_id,
                seed=self._next_id if part.seed is None else part.seed,
                prompt_length=len(tokens),
                num_seqs=part.samples,
                end_ids=end_ids,
                bad_word_ids=bad_words,
                constraint=constraint and constraint.fork(),
            )
            if begun is not None and begun.resume(request, self.loop):
                return request
            try:
                self.scheduler.waiting.add(request, front=len(request.tokens) > len(tokens))
            except Exception:  # the policy failed
                for queued in range(first, request.id):
                    self.abort(queued)
                raise
            self._next_id += part.samples
            self.requests[request.id] = request
            self.recorder.request_arrived(request, submitted_at)
            if self.loop.holds is not None and self.loop.holds.live:
                self.loop.holds.make_room(required_blocks(len(tokens), part, self.config))
            if self.cache.tiers is not None:
                self.cache.tiers.arrived(request)
        return self.requests[first]

    def validate(
        self, tokens: Sequence[int], params: SamplingParams, priority: int = 0
    ) -> Constraint | None:
        """Raise RequestError unless an otherwise empty engine can serve this request.

        Any thread may call this, because it reads only values that never change. Returns the compiled
        constraint that `structured` asks for, or None; `submit` takes it, so that it is compiled once.
        """
        self.validator.validate(tokens, params, priority, max_context=self.runner.max_context)
        return None if params.structured is None else self.constraint(params)

    def constraint(self, params: SamplingParams) -> Constraint | None:
        """Compile what an output must match. Raises RequestError."""
        return self.validator.constraint(params)

    def prepare(self) -> None:
        """Prepare for structured output now, so that the first such request delays no other."""
        self.validator.prepare()

    def abort(self, request: Request | int) -> bool:
        """End a request, given as an object or by id, in any state. Call this only between steps.

        Returns False and does nothing if the request has already ended.
        """
        live = self.requests.get(request if isinstance(request, int) else request.id)
        if live is None:
            return False
        self.loop.finish(live, "abort")
        return True

    # Complete runs without a server

    complete = offline.complete
    score = offline.score
    generate = offline.generate
    generate_batch = offline.generate_batch

    @property
    def tree(self) -> Any:
        """The part of the prefix cache that finds prefixes."""
        return self.cache.tree

    @property
    def tiers(self) -> Any:
        """Memory below the GPU, None if there is none; see `engine/extensions/tiers.py`."""
        return self.cache.tiers

    # Extensions, loaded when they are first used

    @cached_property
    def holds(self) -> Any:
        """Prefixes that stay cached although no request uses them; see `engine/extensions/holds.py`."""
        reserved = self.scheduler.reserved_blocks
        holds = extension("holds").Holds(
            self.cache, self.config, self.requests, reserved, self._emit
        )
        self.loop.holds = holds
        return holds

    @cached_property
    def adapters(self) -> Any:
        """LoRA adapters, and the keys of their prefixes; see `engine/extensions/adapters.py`."""
        store, scheduler = getattr(self.runner, "adapters", None), self.scheduler
        scheduler.adapters = extension("adapters").Adapters(
            store=store,
            max_loras=self.config.max_loras,
            requests=self.requests,
            running=scheduler.running,
            plans=scheduler.plans,
            emit=self._emit,
        )
        return scheduler.adapters

    @cached_property
    def kv_transfer(self) -> Any:
        """Moves of KV from and to other engines; see `engine/extensions/kv_transfer.py`."""
        draft = self.loop.draft
        pages = self.runner if draft is None else draft.paired(self.runner)
        return extension("kv_transfer").KVTransfer(
            self.cache, self.holds, pages, self.tokenizer, self.recorder, self.loop.settle
        )

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
        self.cache.clear()
        if self.cache.tiers is not None:
            self.cache.tiers.clear()

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the live objects as plain values: `StateCore`.

        It shares no code with the fold of the log, and tests compare the two after every event.
        """
        cache, scheduler = self.cache, self.scheduler
        holds = {} if self.loop.holds is None else self.loop.holds.live
        state = v.StateCore(
            seq=self.log.next_seq - 1,
            step=self.step_count,
            tick=cache.tick,
            paused=self.paused,
            waiting=[request.id for request in scheduler.waiting],
            running=[request.id for request in scheduler.running],
            plan=_rows(scheduler.plan),
            in_flight=[
                (plan.step, _rows(plan))
                for plan in scheduler.plans
                if plan.rows and plan.step != self.step_count
            ],
            free=list(self.pool.free),
            queue=cache.eviction_queue,
            refs=self.pool.refs,
            requests=[_fields(v.RequestCore, one) for _, one in sorted(self.requests.items())],
            nodes=[_node(node) for _, node in sorted(cache.nodes.items())],
            holds=[_fields(v.HoldCore, one) for _, one in sorted(holds.items())],
            window_pages=None if cache.pages is None else cache.pages.blocks,
            tiers=None if cache.tiers is None else cache.tiers.slots,
            adapters=[] if scheduler.adapters is None else scheduler.adapters.in_slots,
        )
        # The copy shares no list with the live objects.
        plain: dict[str, Any] = msgspec.to_builtins(state)
        return plain

    def unload(self) -> None:
        """Free the models and their KV memory; the engine cannot be used afterwards."""
        self.scheduler.speculation = None
        del self.loop, self.runner, self.drafter
        self.__dict__.pop("kv_transfer", None)
        self.cache.tiers = None

    def _emit(self, event: v.Event) -> None:
        self.log.append(event)  # `self.log` is not bound early, because a server replaces it


def _fields(kind: type[_Struct], live: object) -> _Struct:
    return kind(*(getattr(live, field) for field in kind.__struct_fields__))


def _node(node: Any) -> v.NodeCore:
    return v.NodeCore(
        id=node.id,
        parent=-1 if node.parent is None else node.parent.id,
        tokens=list(node.tokens),
        blocks=node.blocks,
        copies=list(node.copies),
        last=node.last,
        lock_ref=node.lock_ref,
        extra_key=list(node.extra_key),
    )


def _rows(plan: Plan) -> list[v.ScheduledRow]:
    return [v.ScheduledRow(row.request.id, row.start, row.count, row.drafts) for row in plan.rows]
