"""The cost of recording: the engine with its log over the engine without one.

"Without" means that no events are made: in the four files that make them a function that returns
nothing replaces their classes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import engine.core.cache.kv_cache_manager
import engine.core.log.recorder
import engine.core.loop
import engine.core.scheduling.scheduler
from benchmarks.pairs import compare
from benchmarks.report import save
from benchmarks.workload import Bench
from engine.core.log import vocabulary
from engine.core.log.log import EventLog

MAKERS = (
    engine.core.loop,
    engine.core.log.recorder,
    engine.core.cache.kv_cache_manager,
    engine.core.scheduling.scheduler,
)


class NoLog(EventLog):
    """A log that keeps nothing."""

    def append(self, event: object) -> None:
        """Do nothing."""


def _nothing(*_args: object, **_fields: object) -> None:
    """Stands in for the class of an event."""


@contextmanager
def unrecorded() -> Iterator[None]:
    """Make no events within this block."""
    kinds = [*vocabulary.Event.__subclasses__(), vocabulary.ScheduledRow, vocabulary.TokenRow]
    saved = [
        (maker, kind.__name__, getattr(maker, kind.__name__))
        for maker in MAKERS
        for kind in kinds
        if hasattr(maker, kind.__name__)
    ]
    for maker, name, _ in saved:
        setattr(maker, name, _nothing)
    try:
        yield
    finally:
        for maker, name, kind in saved:
            setattr(maker, name, kind)


def main() -> None:
    """Print the ratio at batch sizes 4 and 32."""
    figures: dict[str, object] = {}
    for batch in (4, 32):
        bench = Bench(max_batch_size=batch)

        def off(bench: Bench = bench) -> None:
            with unrecorded():
                bench.run(bench.engine(NoLog()))

        ratio = compare(f"recording, batch {batch}", bench.run, off, pairs=60)
        print(f"recording on over off, batch {batch}: {ratio}")
        figures[f"batch {batch}"] = ratio.figures()
    save("recording", figures)
