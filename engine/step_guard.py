"""What becomes of an engine when a step fails.

A part that somebody wrote may make a mistake: the next step may be made all the same. Whoever presses
Ctrl-C during the forward pass gets it when the step has ended. After anything else the step is half
done, and nobody knows how far: the engine is stopped for good, and says why.
"""

from types import TracebackType

from engine.part_errors import RECOVERABLE


class StepGuard:
    """Goes around each step: `with guard.step(7): ...`.

    interrupt  the Ctrl-C that waits for the end of the step
    """

    def __init__(self) -> None:
        self.interrupt: KeyboardInterrupt | None = None
        self._step = 0
        self._stopped = ""

    def step(self, number: int) -> "StepGuard":
        """The guard of this step."""
        self._step = number
        return self

    def check(self) -> None:
        """Raise RuntimeError, which says why, if no step can be made any more."""
        if self._stopped:
            raise RuntimeError(f"{self._stopped}; this engine cannot go on, make a new one")

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        interrupt, self.interrupt = self.interrupt, None
        if error is not None and not isinstance(error, RECOVERABLE):
            self._stopped = f"step {self._step} failed: {type(error).__name__}: {error}"
        elif error is None and interrupt is not None:
            raise interrupt
