"""Random numbers without a generator: each is a hash of its purpose.

A generator has state, but the requests of a batch come and go, and may be preempted and
recomputed. Here the number that decides a token depends only on the request's seed, the sample's
index and the token's position. So a request draws the same numbers alone or in a batch, with or
without a preemption, and the samples of one prompt can differ from their first token on.

Equal numbers give equal tokens up to rounding only. The logits change in their last bits with the
shape of the batch, because a matrix product then adds its terms in another order. So a token can differ
where its number lies on the border between two tokens or, if decoding is greedy, where two tokens are
almost equally likely.

The idea comes from counter-based generators (Salmon et al., "Parallel random numbers: as easy as 1,
2, 3", SC 2011; JAX works this way). The mixing function is SplitMix64's (Steele et al., OOPSLA 2014).
"""

_INCREMENT = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def uniform(seed: int, sample: int, position: int) -> float:
    """Return the number in [0, 1) for a position of a sample."""
    state = 0
    for value in (seed, sample, position):
        # Seeds may be negative or longer than 64 bits; only their low 64 bits count.
        state = (state + _INCREMENT + value) & _MASK
        # SplitMix64's mix spreads every bit over all 64.
        state = ((state ^ (state >> 30)) * _FACTORS[0]) & _MASK
        state = ((state ^ (state >> 27)) * _FACTORS[1]) & _MASK
        state ^= state >> 31
    return (state >> 11) * 2.0**-53
