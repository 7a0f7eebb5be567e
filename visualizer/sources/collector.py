"""Keep the garbage collector from scanning all events, nodes and requests over and over.

It would find nothing to free, because they have no reference cycles. With a million events, its scans
take three times as long as reading the events.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """Stop the garbage collector while many events are read or folded."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect_rarely() -> None:
    """Let the garbage collector look at new objects only, for the rest of the process.

    Only a command that keeps a log for hours should call this: a notebook's process is not ours to
    change.
    """
    gc.set_threshold(100_000, 20, 1_000)
