"""Random numbers without a generator: a hash of what the number is for.

A generator has a state, and a batch has many requests that come, go, are preempted and computed
again. Here the number that decides a token depends on nothing but the request's seed, the sample's
index and the token's position. So a request gets the same tokens alone and in a batch, before and
after a preemption, and samples of one prompt differ from their first token on.

The idea is that of counter-based generators (Salmon et al., "Parallel random numbers: as easy as 1,
2, 3", SC 2011; JAX works this way); the mixing function is SplitMix64's (Steele et al., OOPSLA 2014).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_MASK = (1 << 64) - 1


def uniforms(
    seeds: Sequence[int], samples: Sequence[int], positions: Sequence[int]
) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), one per entry, each a function of its own entry alone."""
    state = np.zeros(len(seeds), dtype=np.uint64)
    for values in (seeds, samples, positions):
        # Seeds may be negative or longer than 64 bits; what counts is that they differ.
        state = _mix(state + _STEP + np.array([v & _MASK for v in values], dtype=np.uint64))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all 64; products wrap around."""
    state = (state ^ (state >> np.uint64(30))) * _FACTORS[0]
    state = (state ^ (state >> np.uint64(27))) * _FACTORS[1]
    return state ^ (state >> np.uint64(31))
