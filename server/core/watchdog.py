"""Detect a hanging forward pass and fail the requests that wait for it.

Python cannot interrupt a thread, so the step itself keeps running. The server fails the requests and
commands that wait for it and accepts no new ones until the step returns. It then drops the late
results, frees their memory and resumes service.

Differs from vLLM, which leaves this to whatever monitors `/health`, and from SGLang, whose
`watchdog_thread` (`sglang/srt/managers/scheduler.py`) kills the process and relies on an orchestrator
to restart it. A classroom has no orchestrator.
"""

import asyncio
from collections.abc import Callable


class Watchdog:
    """Watches one engine thread. Lives on the event loop.

    busy_seconds  how long the thread's current round has taken
    limit         seconds after which the engine is considered stuck
    has_waiters   whether any request or command waits for the engine
    on_stuck      called with a message when the engine is stuck
    """

    def __init__(
        self,
        busy_seconds: Callable[[], float],
        limit: float,
        has_waiters: Callable[[], bool],
        on_stuck: Callable[[str], None],
    ) -> None:
        self._busy_seconds = busy_seconds
        self._limit = limit
        self._has_waiters = has_waiters
        self._on_stuck = on_stuck
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stuck(self) -> str:
        """A message if the engine is stuck; empty if it is not."""
        seconds = self._busy_seconds()
        return (
            f"the engine has been in one step for {seconds:.0f} s" if seconds > self._limit else ""
        )

    def watch(self) -> None:
        """Schedule a check for when the current step would exceed the limit."""
        if self._timer is None:
            left = max(self._limit - self._busy_seconds(), 0.01)
            self._timer = asyncio.get_running_loop().call_later(left, self._check)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        if stuck := self.stuck:
            self._on_stuck(stuck)
        elif self._has_waiters():
            self.watch()
