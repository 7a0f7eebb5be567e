"""A forward pass that hangs: noticed, and told to everybody who waits for it.

It cannot be interrupted, no thread can be. What can be done is to end what waits for it once it has
taken too long, and to take nobody else in until it returns. Then its late results find nobody, what it
held is given back, and the server goes on.

Source: vLLM leaves this to whoever asks its `/health`; SGLang's `watchdog_thread`
(`sglang/srt/managers/scheduler.py`) kills the process, which an orchestrator starts again. A class has
no orchestrator.
"""

import asyncio
from collections.abc import Callable


class Watchdog:
    """Looks at one engine thread. Lives on the event loop.

    busy_seconds  how long its round has taken so far
    limit         from how many seconds on it hangs
    awaited       whether anybody waits for it
    bark          called once it hangs, with that in words
    """

    def __init__(
        self,
        busy_seconds: Callable[[], float],
        limit: float,
        awaited: Callable[[], bool],
        bark: Callable[[str], None],
    ) -> None:
        self._busy_seconds = busy_seconds
        self._limit = limit
        self._awaited = awaited
        self._bark = bark
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stuck(self) -> str:
        """In words, that the engine hangs; empty if it does not."""
        seconds = self._busy_seconds()
        return (
            f"the engine has been in one step for {seconds:.0f} s" if seconds > self._limit else ""
        )

    def watch(self) -> None:
        """Somebody waits: look when the step that runs now has taken too long, no sooner."""
        if self._timer is None:
            left = max(self._limit - self._busy_seconds(), 0.01)
            self._timer = asyncio.get_running_loop().call_later(left, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if stuck := self.stuck:
            self._bark(stuck)
        elif self._awaited():
            self.watch()
