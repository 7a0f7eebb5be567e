"""vLLM's schedulers, with a record of what they decide. Importable only where vLLM is installed.

`record_vllm.py` drives them without a model. A whole vLLM takes one by name,
`--scheduler-cls tests.parity.recording_scheduler.RecordingScheduler`, as `record_vllm_run.py` does.
Nothing is decided differently.
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from tests.parity.records import Row, Step


class Recording:
    """A scheduler that notes its decisions.

    recorded  one step per call of `schedule` while there are requests
    arrived   requests in their order of arrival, each with the number of the step that it arrived
              before. The first one is request 1 of the record.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recorded: list[Step] = []
        self.arrived: list[tuple[int, Request]] = []
        self._numbers: dict[str, int] = {}

    def add_request(self, request: Request) -> None:
        """Number a request and add it to the queue."""
        self.arrived.append((len(self.recorded) + 1, request))
        self._numbers[request.request_id] = len(self.arrived)
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedule a step and record it."""
        step = Step([], [], [], 0, {})
        if self.requests:  # without any, the call only reports that requests have finished
            self.recorded.append(step)
        output = super().schedule(*args, **kwargs)
        for key, count in output.num_scheduled_tokens.items():
            number = self._numbers[key]
            step.rows.append(Row(number, self.requests[key].num_computed_tokens - count, count))
            (blocks,) = self.kv_cache_manager.get_block_ids(key)
            step.tables[number] = [block - 1 for block in blocks]  # block 0 is vLLM's null block
        step.free = self.kv_cache_manager.block_pool.get_num_free_blocks()
        return output

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Record victims in their order; the scheduler's output has them in a set."""
        self.recorded[-1].preempted.append(self._numbers[request.request_id])
        super()._preempt_request(request, *args, **kwargs)

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """Process a step's tokens, and record the requests that finish."""
        clients = super().update_from_output(*args, **kwargs)
        self.recorded[-1].finished += [
            self._numbers[one.request_id]
            for client in clients.values()
            for one in client.outputs
            if one.finish_reason is not None
        ]
        return clients


class RecordingScheduler(Recording, Scheduler):
    """For synchronous scheduling."""


class RecordingAsyncScheduler(Recording, AsyncScheduler):
    """For asynchronous scheduling."""
