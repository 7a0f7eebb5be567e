"""The prices of moving KV follow real moves, and moving that failed or was too dear is tried again."""

import random
from itertools import pairwise

import pytest

from server.gateway.prices import Line, Prices

SIZE, LONG, SHORT = 16, 16 * 20 + 1, 16 * 4 + 1


def test_a_line_goes_through_its_samples_and_follows_them():
    chance, line = random.Random(1), Line()
    for fixed, slope in ((5.0, 0.5), (40.0, 2.0), (1.0, 0.1)):
        for _ in range(120):
            x = chance.randint(1, 40)
            line.add(x, (fixed + slope * x) * chance.uniform(0.95, 1.05))
        assert (line.fixed, line.slope) == pytest.approx((fixed, slope), rel=0.25)
    before = line.fixed + 20 * line.slope
    line.add(20, 1e6)
    assert line.fixed + 20 * line.slope < 2 * before, "one outlier is cut"


def test_samples_of_one_size_give_a_line_and_no_price_is_negative():
    line = Line()
    for y in (10.0, 10.0, 10.0):
        line.add(20, y)
    assert line.fixed + 20 * line.slope == pytest.approx(10, rel=0.05)
    assert line.slope > 0
    for x, y in ((1, 9.0), (40, 1.0), (1, 9.0)) * 20:
        line.add(x, y)
    assert line.slope == 0 < line.fixed


def learned(move_ms: float) -> Prices:
    """Prices after the first moves and steps: a token takes 0.2 ms."""
    prices, now = Prices(), 0.0
    while prices.costs is None:
        if prices.is_moved(LONG, 0, SIZE, now):
            prices.moved(20, move_ms)
        else:
            prices.computed(64, 12.8)
        now += 0.1
    return prices


def test_the_first_moves_are_long_prompts_one_after_the_other():
    prices = Prices()
    assert not prices.is_moved(SHORT, 0, SIZE, 0.0)
    assert [prices.is_moved(LONG, 0, SIZE, now) for now in (0.0, 0.01, 0.11)] == [True, False, True]
    assert prices.costs is None
    prices = learned(10.0)
    assert prices.moves == prices.steps == 3
    assert prices.least_blocks(SIZE) == 1
    assert prices.is_moved(SHORT, 0, SIZE, 1.0)
    assert not prices.is_moved(LONG, 20, SIZE, 1.0), "all of it is there"


def test_dear_moves_are_tried_again_now_and_then():
    prices, tries = learned(1000.0), []
    assert prices.least_blocks(SIZE) is None
    for second in range(1, 400):
        if prices.is_moved(LONG, 0, SIZE, float(second)):
            tries.append(second)
            prices.moved(20, 1000.0)
    gaps = [second - first for first, second in pairwise(tries)]
    assert gaps == [30, 60, 120]
    for second in range(1000, 100_000, 600):
        if prices.is_moved(LONG, 0, SIZE, float(second)):
            prices.moved(20, 10.0)
    assert prices.least_blocks(SIZE) is not None, "the link has become fast"


def test_moving_that_fails_pauses_and_is_tried_again():
    prices = learned(10.0)
    prices.failed("export at replica 0", 10.0)
    prices.failed("the same failure, of another request", 10.1)
    assert prices.off == "export at replica 0"
    tries = []
    for tenth in range(100, 300):
        if prices.is_moved(LONG, 0, SIZE, tenth / 10):
            tries.append(tenth / 10)
            assert not prices.is_moved(LONG, 0, SIZE, tenth / 10), "one at a time"
            prices.failed("again", tenth / 10)
    assert tries == [11.0, 13.0, 17.0, 25.0]
    assert prices.is_moved(LONG, 0, SIZE, 100.0)
    prices.moved(20, 10.0)
    assert not prices.off
    assert prices.is_moved(LONG, 0, SIZE, 100.0)
