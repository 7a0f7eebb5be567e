"""Asynchronous scheduling: step k+1 is scheduled while step k is computed.

    schedule k+1  |  wait for k  |  commit k  |  start k+1      one call of `step`
    ...pass k.....................|            |...pass k+1...

A GPU that waits for the scheduler does nothing, so the scheduler works one step ahead. At that time it
only knows that step k will give a request a token, but not which one, so a placeholder stands for this
token. Three things follow:

1. A stop token or a stop string is noticed one step late. The request's row in step k+1 is computed
   in vain, and its token is dropped. `max_tokens` is known in advance, so no row exceeds it.
2. A seat or a block that becomes free is used one step later.
3. A victim of preemption may still be in the step that is being computed. Its token counts, but its KV
   is lost. Its blocks may be reused at once, because passes run one after the other.

The tokens of step k are appended before pass k+1 starts, so the sampler knows all earlier tokens. If a
tool has forced tokens after the token that a row computes, the row samples no token.

A prompt that is about to fork into samples is not scheduled again until it has forked (`awaits_token`).

Source: vLLM's `AsyncScheduler` (`vllm/v1/core/sched/async_scheduler.py`) and `step_with_batch_queue`
(`vllm/v1/engine/core.py`) with two batches.

Differs from vLLM, where a pass takes the tokens of the previous pass from the GPU, so it starts before
these tokens are appended. vLLM can also combine drafts with asynchronous scheduling.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from engine.core.log.recorder import Clock, VirtualTime
from engine.core.loop import Loop, StepOutput
from engine.core.request import Request
from engine.core.runner import Row, Runner, Sampled
from engine.core.scheduling.scheduler import Plan

_Copy = tuple[Request, int, int]


class ForwardPass:
    """A forward pass that runs while the calling thread continues. Times are from the engine's clock.

    launched   when the pass started
    ready      when the pass ended
    interrupt  the Ctrl-C that interrupted the pass, if any; the pass was then repeated
    """

    def __init__(self, work: Callable[[], list[list[Sampled]]], clock: Clock) -> None:
        self.launched = clock.now()
        self.ready = 0
        self.interrupt: KeyboardInterrupt | None = None
        self._work = work
        self._clock = clock
        self._sampled: list[list[Sampled]] = []
        self._error: BaseException | None = None
        self._done = threading.Event()

    def run(self) -> None:
        """Run the pass to its end. If it fails, `wait` raises the exception."""
        try:
            try:
                self._sampled = self._work()
            except KeyboardInterrupt as pressed:
                self.interrupt = pressed
                self._sampled = self._work()  # the second run overwrites half-written data
        except BaseException as error:
            self._error = error
        self.ready = self._clock.now()
        self._done.set()

    def wait_for_end(self) -> bool:
        """Wait until the pass has ended, and return whether it succeeded."""
        self._done.wait()
        return self._error is None

    def wait(self) -> list[list[Sampled]]:
        """Wait until the pass has ended, and return the samples of each row or raise its exception."""
        self._done.wait()
        if isinstance(self._clock, VirtualTime):
            self._clock.advance(max(0, self.ready - self._clock.now()))
        if self._error is not None:
            raise self._error
        return self._sampled


class Worker:
    """A thread that runs forward passes in order. It ends when the worker is garbage-collected."""

    def __init__(self) -> None:
        self._passes: queue.SimpleQueue[ForwardPass | None] = queue.SimpleQueue()
        # The thread is a daemon, because a pass that never returns must not keep the process alive.
        threading.Thread(
            target=_work, args=(self._passes,), name="forward pass", daemon=True
        ).start()
        weakref.finalize(self, self._passes.put, None)

    def start(self, forward: ForwardPass) -> None:
        """Queue a pass; it runs when the earlier ones have ended."""
        self._passes.put(forward)


def _work(passes: "queue.SimpleQueue[ForwardPass | None]") -> None:
    while (forward := passes.get()) is not None:
        forward.run()
        del forward  # so that the requests in it can be freed


@dataclass(slots=True)
class Flight:
    """A step that is being computed.

    rows    the rows of the step, including those of requests that were preempted in the meantime
    frozen  the same rows with copies of their requests, which do not change during the pass
    copied  the requests for which the pass copies a block
    """

    plan: Plan
    rows: list[Row]
    frozen: list[Row]
    copied: list[Request]
    forward: ForwardPass


@dataclass(slots=True, kw_only=True)
class AsyncLoop(Loop):
    """The step loop of an engine with asynchronous scheduling."""

    flight: Flight | None = None
    _pending_copies: list[_Copy] = field(default_factory=list)  # block copies for the next pass
    _worker: Worker | None = None

    def _step(self, drain: bool) -> StepOutput:
        """Schedule a step, finish the previous one and start the new one.

        The output is that of the step that finished, and it is empty if none did. With `drain`, or if
        there are no requests, no step is scheduled. If scheduling fails, the step in flight stays in
        flight.
        """
        ahead = None
        if self.requests and not drain:
            ahead = self.schedule()
            if ahead.error is not None:
                self._pending_copies += ahead.copies
                self.recorder.step_finished(ahead.step, [])
                raise ahead.error
            # Committing the previous step may release blocks that the new step still writes to.
            tables = [list(row.request.block_table) for row in ahead.rows]
        output = StepOutput(self.step_count)
        if self.flight is not None:
            flight, self.flight = self.flight, None
            try:
                sampled = self._wait(flight)
            except Exception as error:
                return self._fail(flight, ahead, error)
            if flight.rows:  # without rows, no pass was run
                flight.plan.expert_loads = self.runner.expert_loads
            output = self.commit(flight.plan, flight.rows, sampled)
        if ahead is not None:
            self._launch(ahead, tables)
        return output

    def settle(self) -> bool:
        """Wait until no forward pass runs. Return whether the KV memory matches the log.

        It does not match if the pass failed, which the next step reports, or if a block copy is
        pending.
        """
        if self.flight is not None and not self.flight.forward.wait_for_end():
            return False
        return not self._pending_copies

    def _wait(self, flight: Flight) -> list[list[Sampled]]:
        try:
            sampled = flight.forward.wait()
        except KeyboardInterrupt as pressed:  # this thread was interrupted, not the pass
            self.interrupt = pressed
            sampled = flight.forward.wait()
        self.interrupt = self.interrupt or flight.forward.interrupt
        for row, frozen in zip(flight.rows, flight.frozen, strict=True):
            row.scores = frozen.scores
        forward = flight.forward
        self.recorder.pass_ended(flight.plan.step, forward.launched, forward.ready)
        return sampled

    def _launch(self, plan: Plan, tables: list[list[int]]) -> None:
        """Start a step's forward pass. All of its input tokens are known now."""
        self._pending_copies += plan.copies
        if not plan.rows:
            self.scheduler.plans.remove(plan)
            self.recorder.step_finished(plan.step, [])
            return
        frozen = []
        for row, table in zip(plan.rows, tables, strict=True):
            request = row.request
            if row.samples and row.start + row.count < len(request.tokens):
                row.samples = []  # a tool forced tokens after the one that the row computes
                request.num_output_placeholders -= 1
            copy = replace(request, tokens=list(request.tokens), block_table=table)
            frozen.append(Row(copy, row.start, row.count, samples=row.samples))
        copied = [request for request, _, _ in self._pending_copies]
        copies, self._pending_copies = [(source, to) for _, source, to in self._pending_copies], []
        runner, pages = self.runner, self.cache.pages
        mapped = [] if pages is None else pages.take_unsent()
        forward = ForwardPass(lambda: run_pass(runner, frozen, copies, mapped), self.clock)
        self.flight = Flight(plan, list(plan.rows), frozen, copied, forward)
        if isinstance(self.clock, VirtualTime):
            self.clock.overlapped(forward.run)
        else:
            self._worker = self._worker or Worker()
            self._worker.start(forward)

    def _fail(self, flight: Flight, ahead: Plan | None, error: Exception) -> StepOutput:
        """End the requests of a failed pass, and drop the step that was scheduled after it.

        No request may find blocks in the prefix cache that the failed pass should have written. The
        requests of the dropped step keep their computed tokens and are scheduled again.
        """
        rows, dropped = flight.plan.rows, [] if ahead is None else ahead.rows
        computed = dict.fromkeys([*(row.request for row in rows), *flight.copied])
        failed = [request for request in computed if request.finish_reason is None]
        requests = list(dict.fromkeys([*failed, *(row.request for row in dropped)]))
        for request in requests:
            request.forget_in_flight()
        size = self.config.block_size
        written = [
            {*row.request.block_table[row.start // size : -(-(row.start + row.count) // size)]}
            for row in flight.frozen
        ]
        lost = set[int]().union(*written)
        if self.holds is not None:
            self.holds.release_blocks(lost)
        self.cache.withdraw(requests, lost)
        for row in dropped:
            self.cache.trim(row.request)
        if ahead is not None:
            self._pending_copies += ahead.copies
        self.recorder.pass_ended(flight.plan.step, flight.forward.launched, flight.forward.ready)
        output = self.end_requests(flight.plan, failed, error)
        # If a request of the pass was preempted or has finished, it has released blocks that the pass
        # did not write.
        if len(rows) < len(flight.rows) or any(row.request not in failed for row in rows):
            self.cache.clear()
        if ahead is not None:
            self.scheduler.plans.remove(ahead)
            wasted = [row.request.id for row in dropped]
            self.recorder.step_finished(ahead.step, [], wasted)
        return output


def run_pass(
    runner: Runner,
    rows: Sequence[Row],
    copies: Sequence[tuple[int, int]],
    mapped: Sequence[tuple[int, int]] = (),
) -> list[list[Sampled]]:
    """Map window pages, copy blocks one at a time, and compute the rows."""
    if mapped:
        runner.map_window_pages(mapped)
    for copy in copies:
        runner.run([], [copy])
    return runner.run(rows, [])
