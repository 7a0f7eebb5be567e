"""Keep a pipeline full: so many batches are in flight at once, as in vLLM with pipeline parallelism.

    schedule, start the pass  |  ...until the pipeline is full  |  wait for the oldest pass, commit it

A request whose next token a pass is still computing is in no other batch (`awaits_token`), but the
chunks of a long prompt follow each other through the pipeline. Nothing divides the requests evenly: a
batch has everything that is not in flight, as far as the token budget goes. Requests that arrive while
the loop waits for the oldest pass join the requests of that pass.

Source: `step_with_batch_queue` in `vllm/v1/engine/core.py` and `max_concurrent_batches` in
`vllm/config/vllm.py`, which is `pipeline_parallel_size` without asynchronous scheduling.

Differs from vLLM, which also queues empty batches and sleeps for a millisecond after each of them; here
the oldest pass is waited for if nothing can be scheduled. vLLM keeps a token that arrives after its
request was preempted; here it is dropped, and computed again with the rest.

A simulated pass cannot fail, so no failure is handled.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from engine.core.async_loop import ForwardPass
from engine.core.config import ConfigError
from engine.core.loop import Loop, StepOutput
from engine.core.runner import Row
from engine.core.scheduling.scheduler import Plan


class _Flight(NamedTuple):
    plan: Plan
    rows: Sequence[Row]
    forward: ForwardPass


class PipelinedLoop(Loop):
    """The loop of an engine on a virtual clock; `depth` is the most batches in flight.

    Raises ConfigError for asynchronous scheduling.
    """

    def __init__(self, loop: Loop, depth: int) -> None:
        if loop.config.async_scheduling:
            raise ConfigError("async_scheduling is not simulated in a pipeline: set it to False")
        super().__init__(**{one.name: getattr(loop, one.name) for one in fields(Loop)})
        self.depth = depth
        self._flights = deque[_Flight]()

    def _step(self, drain: bool) -> StepOutput:
        """Start a batch if there is room for one and something to do; otherwise finish the oldest."""
        if not drain and len(self._flights) < self.depth and self._has_tokens():
            plan = self.schedule()
            if plan.error is not None:
                self.recorder.step_finished(plan.step, [])
                raise plan.error
            if plan.rows:
                self._launch(plan)
                if len(self._flights) < self.depth:  # filling comes first, as in vLLM
                    return StepOutput(self.step_count)
            else:
                self._run(plan)  # its copies
                self.scheduler.plans.remove(plan)
                self.recorder.step_finished(plan.step, [])
        if not self._flights:
            return StepOutput(self.step_count)
        plan, rows, forward = self._flights.popleft()
        self.flight = self._flights or None
        sampled = forward.wait()
        self.recorder.pass_ended(plan.step, forward.launched, forward.ready)
        for row in plan.rows:
            if row.samples:
                row.request.num_output_placeholders = 1
        kept = [at for at, row in enumerate(rows) if any(row is one for one in plan.rows)]
        return self.commit(plan, [rows[at] for at in kept], [sampled[at] for at in kept])

    def _has_tokens(self) -> bool:
        running: Any = self.scheduler.running
        return bool(self.scheduler.waiting) or any(one.num_unscheduled_tokens for one in running)

    def _launch(self, plan: Plan) -> None:
        forward = ForwardPass(lambda: self._run(plan), self.clock)
        self.clock.overlapped(forward.run)  # type: ignore[attr-defined]
        for row in plan.rows:
            # Drafts count as in flight, so that no token is unscheduled until the pass has ended.
            row.request.num_output_placeholders = len(row.drafts)
        self._flights.append(_Flight(plan, list(plan.rows), forward))
        self.flight = self._flights
