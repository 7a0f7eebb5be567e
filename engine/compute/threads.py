"""How many threads torch uses. Decided here and nowhere else: one, unless told otherwise.

A decode step of a small model is some hundred operations of a few microseconds each. Shared between
threads, each operation ends with all of them waiting for the slowest, and the waiting spins. As soon
as anything else wants a core (the server, a notebook, a browser) a step can take 2 to 60 times as
long; with one thread its time hardly varies. Large models on idle machines gain from more: pass
`threads`, or set the environment variable UNDERGLASS_THREADS.
"""

import os

import torch

ENVIRONMENT_VARIABLE = "UNDERGLASS_THREADS"


def set_threads(threads: int | None = None) -> int:
    """Set torch's threads for the whole process and return how many.

    `threads` wins over the environment variable, which wins over 1. Raises ValueError for anything
    but a whole number of at least 1.
    """
    wanted: int | str = os.environ.get(ENVIRONMENT_VARIABLE) or "1" if threads is None else threads
    name = ENVIRONMENT_VARIABLE if threads is None else "threads"
    try:
        count = int(wanted)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {wanted!r}")
    torch.set_num_threads(count)
    return count
