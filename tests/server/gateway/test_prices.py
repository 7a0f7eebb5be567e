"""The prices of moving KV follow real moves, and moving that failed or was too dear is tried again."""

import random
from itertools import pairwise

import pytest

from server.gateway.prices import Line, Prices

SIZE, LONG, SHORT = 16, 16 * 20 + 1, 16 * 4 + 1


def test_a_line_goes_through_its_samples_and_follows_them():
    chance, line = random.Random(1), Line()
    for fixed, slope in ((5.0, 0.5), (40.0, 2.0), (1.0, 0.1), (2.0, 0.0)):
        for _ in range(120):
            x = chance.randint(1, 40)
            line.add(x, (fixed + slope * x) * chance.uniform(0.95, 1.05))
        assert (line.fixed, line.slope) == pytest.approx((fixed, slope), rel=0.25, abs=0.02)
    line.add(20, 1e6)
    assert line.fixed + 20 * line.slope < 2 * fixed, "one outlier is cut"
    same_size = Line()
    for _ in range(3):
        same_size.add(20, 10.0)
    assert (same_size.fixed, same_size.slope) == pytest.approx((0.0, 0.5), abs=0.5)


def learned(move_ms: float) -> Prices:
    """Prices after the first moves and steps: a token takes 0.2 ms."""
    prices, now = Prices(), 0.0
    assert not prices.is_moved(SHORT, 0, SIZE, now), "only long prompts are tried"
    while prices.costs is None:
        if prices.is_moved(LONG, 0, SIZE, now):
            assert not prices.is_moved(LONG, 0, SIZE, now), "one after the other"
            prices.moved(20, move_ms)
        else:
            prices.computed(64, 12.8)
        now += 0.1
    return prices


def test_dear_moves_are_tried_again_now_and_then():
    prices, tries = learned(1000.0), []
    assert prices.least_blocks(SIZE) is None
    for second in range(1, 400):
        if prices.is_moved(LONG, 0, SIZE, float(second)):
            tries.append(second)
            prices.moved(20, 1000.0)
    assert [second - first for first, second in pairwise(tries)] == [30, 60, 120]
    for second in range(1000, 100_000, 600):
        if prices.is_moved(LONG, 0, SIZE, float(second)):
            prices.moved(20, 10.0)
    assert prices.least_blocks(SIZE) is not None, "the link has become fast"


def test_moving_that_fails_pauses_and_is_tried_again():
    prices, tries = learned(10.0), []
    assert prices.is_moved(SHORT, 0, SIZE, 9.0) and not prices.is_moved(SHORT, 4, SIZE, 9.0)
    for why in ("export at replica 0", "the same failure, of another request"):
        prices.failed(why, 10.0)
    assert prices.off == "export at replica 0"
    for tenth in range(100, 300):
        if prices.is_moved(LONG, 0, SIZE, tenth / 10):
            tries.append(tenth / 10)
            assert not prices.is_moved(LONG, 0, SIZE, tenth / 10), "one at a time"
            prices.failed("again", tenth / 10)
    assert tries == [11.0, 13.0, 17.0, 25.0]
    assert prices.is_moved(LONG, 0, SIZE, 100.0)
    prices.moved(20, 10.0)
    assert not prices.off and prices.is_moved(LONG, 0, SIZE, 100.0)
