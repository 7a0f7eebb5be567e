"""The step loop: schedule, run, commit, repeat.

    plan    = scheduler.schedule()       how many tokens each request computes, and why
    sampled = runner.run(plan)           one forward pass over all of them
    output  = commit(plan, sampled)      append tokens, feed the prefix cache, finish requests

That is continuous batching. Every change is written to the event log as it happens.

Source: modelled on vLLM's `EngineCore.step` (`vllm/v1/engine/core.py`) and nano-vllm's
`LLMEngine.step` (`nanovllm/engine/llm_engine.py`).

One thread does everything in order. With `async_scheduling`, a step is scheduled while the previous one
runs; see `async_loop.py`.

Differs from vLLM, which tokenizes in another process.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.config import EngineConfig
from engine.core.log.recorder import Clock, Recorder
from engine.core.log.vocabulary import Event, FinishReason, Forked, RequestFinished
from engine.core.output.processor import OutputProcessor, TokenOutput
from engine.core.part_errors import RECOVERABLE
from engine.core.request import Request
from engine.core.runner import Row, Runner, Sampled
from engine.core.scheduling.scheduler import Plan, Scheduler
from engine.core.speculation.drafter import FollowingDrafter

_Result = TypeVar("_Result")


@dataclass(slots=True)
class StepOutput:
    """The result of one step: the new tokens and the requests that finished."""

    step: int
    tokens: list[TokenOutput] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)


class LostBlocks(Protocol):
    """Holds on cached prefixes, as a loop sees them; see `engine/extensions/holds.py`."""

    live: dict[int, Any]

    def make_room(self, blocks: int) -> None:
        """Release the oldest holds until at least `blocks` blocks are not held."""

    def release_blocks(self, lost: set[int]) -> None:
        """Release the holds of blocks that a failed forward pass has not written."""


@dataclass(slots=True, kw_only=True)
class Loop:
    """The steps of one engine.

    new_output  creates the output processor of a request; called at its first token
    draft       the drafter that follows every pass with a model of its own, if there is one
    requests    live requests by id
    outputs     their output processors
    holds       holds on cached prefixes, once there has been one
    flight      the step that is being computed between two calls; only with asynchronous scheduling
    interrupt   a Ctrl-C during the forward pass; it is raised at the end of the step
    stopped     why no more steps are possible
    """

    config: EngineConfig
    runner: Runner
    cache: KVCacheManager
    scheduler: Scheduler
    recorder: Recorder
    clock: Clock
    emit: Callable[[Event], None]
    new_output: Callable[[Request], OutputProcessor]
    draft: FollowingDrafter | None = None
    requests: dict[int, Request] = field(default_factory=dict)
    outputs: dict[int, OutputProcessor] = field(default_factory=dict)
    holds: LostBlocks | None = None
    flight: Any = None
    step_count: int = 0
    interrupt: KeyboardInterrupt | None = None
    stopped: str = ""

    def step(self, *, drain: bool = False) -> StepOutput:
        """Schedule once, run one forward pass and commit; see `Engine.step` and `Engine.drain`."""
        if self.stopped:
            raise RuntimeError(f"{self.stopped}; the engine has stopped: create a new one")
        if not self.requests and self.flight is None:
            return StepOutput(self.step_count)
        try:
            output = self._step(drain)
        except BaseException as error:
            self.interrupt = None
            if not isinstance(error, RECOVERABLE):
                self.stopped = f"step {self.step_count} failed: {type(error).__name__}: {error}"
            raise
        if self.interrupt is not None:
            pressed, self.interrupt = self.interrupt, None
            raise pressed
        return output

    def settle(self) -> bool:
        """Wait until no forward pass runs. Return whether the KV memory matches the log."""
        return True

    def _step(self, drain: bool) -> StepOutput:
        plan = self.schedule()
        try:
            sampled = self._run(plan)
        except Exception as error:  # the forward pass failed
            if plan.error is not None:  # a copy failed, so its request would use a wrong block
                raise
            requests = [row.request for row in plan.rows]
            for request in requests:
                request.forget_in_flight()
            self.cache.withdraw(requests)
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

    def _run(self, plan: Plan) -> list[list[Sampled]]:
        """Copy blocks one at a time, then run the forward pass and, if there is one, the draft model.

        A call that Ctrl-C interrupts is repeated. If all copies were in one call, a repeated copy
        could read a block that a later copy has already overwritten.
        """
        if self.cache.pages is not None:
            self.cache.pages.send()
        for _, *copy in plan.copies:
            self._despite_interrupt(self.runner.run, [], [tuple(copy)])
            if self.draft is not None:
                self._despite_interrupt(self.draft.copy, *copy)
        if not plan.rows:
            return []
        sampled = self._despite_interrupt(self.runner.run, plan.rows, [])
        plan.expert_loads = self.runner.expert_loads
        if self.draft is not None and not self.draft.is_off:
            began = self.clock.now()
            plan.draft_error = self._despite_interrupt(self.draft.follow, plan.rows, sampled)
            self.recorder.drafted(plan.step, began)
        return sampled

    def _despite_interrupt(self, work: Callable[..., _Result], *args: Any) -> _Result:
        try:
            return work(*args)
        except KeyboardInterrupt as pressed:  # a learner stopped the cell
            self.interrupt = pressed
            return work(*args)  # the second call overwrites half-written data

    def commit(  # noqa: PLR0912 (one more function on the path would cost more)
        self, plan: Plan, rows: list[Row], sampled: list[list[Sampled]]
    ) -> StepOutput:
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
            new += zip(requests, samples, strict=False)  # no samples before it has caught up
        committed, drafts = list[Row](), dict[int, list[int]]()
        for row in plan.rows:
            if row.request.finish_reason is not None:
                continue
            committed.append(row)
            if row.drafts:
                drafts[row.request.id] = row.drafts
            row.request.num_computed_tokens = row.start + row.count - len(row.drafts)
            row.request.num_in_flight_tokens -= row.count
            row.request.num_output_placeholders -= bool(row.samples)
        for request, result in new:
            if request.id not in self.outputs:
                self.outputs[request.id] = self.new_output(request)
            tokens = self.outputs[request.id].append(result)
            request.num_computed_tokens += tokens.accepted
            output.tokens.append(tokens)
        self.scheduler.plans.remove(plan)  # so that finished requests can be freed
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
            self.cache.cache_computed(row.request)
            if self.cache.tiers is not None:
                self.cache.tiers.computed(row.request)
        for tokens in output.tokens:
            if tokens.finish_reason is not None:
                self.finish(tokens.request, tokens.finish_reason, tokens.matched)
                output.finished.append(tokens.request)
        if (on_served := self.scheduler.on_served) is not None:
            for tokens in output.tokens:
                on_served(tokens.request, 0, len(tokens.ids))
        return output

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
        self.emit(Forked(request.id, parent.id, sample))
        return request

    def end_requests(self, plan: Plan, requests: list[Request], error: Exception) -> StepOutput:
        """End the requests of a failed forward pass. Other requests continue."""
        output = StepOutput(plan.step)
        for request in requests:
            request.error = f"{type(error).__name__}: {error}"
            self.finish(request, "error")
            output.finished.append(request)
        self.scheduler.plans.remove(plan)
        self.recorder.step_finished(plan.step, [])
        return output

    def finish(self, request: Request, reason: FinishReason, matched: str = "") -> None:
        """Release everything that a request holds."""
        request.finish_reason = reason
        del self.requests[request.id]
        if request in self.scheduler.running:
            self.scheduler.running.remove(request)
        else:
            self.scheduler.waiting.remove(request)
        processor = self.outputs.pop(request.id, None)
        if processor is not None and request.params.stop:
            processor.deliver_held_text()
        self.cache.free(request)
        self.emit(RequestFinished(request.id, reason, request.error, matched))
        if self.cache.tiers is not None:
            self.cache.tiers.finished(request)
