"""The number of threads that torch uses: one by default.

A decode step of a small model is about a hundred operations of a few microseconds each. With several
threads, all of them spin at the end of each operation until the slowest is done. As soon as another
process needs a core (the server, a notebook, a browser), a step can take 2 to 60 times as long; with
one thread its time hardly varies. Large models on idle machines gain from more threads: pass
`threads`, or set the environment variable UNDERGLASS_THREADS.
"""

import os

import torch

ENVIRONMENT_VARIABLE = "UNDERGLASS_THREADS"


def set_threads(threads: int | None = None) -> int:
    """Set torch's number of threads for the whole process and return it.

    `threads` overrides the environment variable, which overrides the default of 1. Raises ValueError
    unless the value is a whole number of at least 1.
    """
    value: int | str = os.environ.get(ENVIRONMENT_VARIABLE) or "1" if threads is None else threads
    name = ENVIRONMENT_VARIABLE if threads is None else "threads"
    try:
        count = int(value)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    torch.set_num_threads(count)
    return count
