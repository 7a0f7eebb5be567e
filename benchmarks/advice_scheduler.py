"""Schedulers of vLLM that are recorded from the moment their prefix cache is reset, after a warm-up."""

import os
import time
from pathlib import Path
from typing import Any
from zlib import crc32

from underglass_vllm import Recorder, RecordingScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from benchmarks.steady_machine import SteadyMachine


class LateRecordingScheduler(RecordingScheduler):
    """See above. Everything before the first reset is not in the recording."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        Scheduler.__init__(self, *args, **kwargs)

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        """Empty the cache, and begin to record."""
        done = Scheduler.reset_prefix_cache(self, *args, **kwargs)
        if self._recorder is None:
            self._recorder = Recorder(self)
            self._recorder.watch()
        return done


class SteadyRecordingScheduler(LateRecordingScheduler):
    """A scheduler whose steps last as long as they would on a GPU of constant speed.

    From the end of `schedule` to the begin of `update_from_output`, vLLM runs the model. What the CPU
    needs for that is hidden: the step goes on when the time of `SteadyMachine` has passed. A file
    beside the recording (`.held`) has a line for each step, in us: its time, how long it took, and
    how long the CPU computed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = Path(os.environ["UNDERGLASS_RECORD"] + ".held")
        self._machine = SteadyMachine(os.environ["STEADY_GPU"], crc32(path.name.encode()))
        self._held = path.open("w", buffering=1)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedule a step, and look up how long it lasts."""
        output = super().schedule(*args, **kwargs)
        rows = [
            (count, self.requests[one].num_computed_tokens)
            for one, count in output.num_scheduled_tokens.items()
        ]
        self._began = time.monotonic_ns()
        self._lasts = round(self._machine.step_ms(rows) * 1e6) if rows else 0
        return output

    def update_from_output(self, output: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait until the step has lasted as long as it should, and process its output."""
        computed = time.monotonic_ns() - self._began
        if (left := self._lasts - computed) > 0:
            time.sleep(left / 1e9)
        took = time.monotonic_ns() - self._began
        if self._lasts and self._recorder is not None:
            self._held.write(f"{self._lasts // 1000} {took // 1000} {computed // 1000}\n")
        return super().update_from_output(output, *args, **kwargs)
