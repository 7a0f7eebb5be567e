"""A scheduler of vLLM that is recorded from the moment its prefix cache is reset, after a warm-up."""

from typing import Any

from underglass_vllm import Recorder, RecordingScheduler
from vllm.v1.core.sched.scheduler import Scheduler


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
