"""The figure of moving against computing: where the lines cross, and what it says."""

from visualizer import figures


def line(fixed: float, each: float):
    return lambda blocks: fixed + each * blocks


def curves(drawn) -> dict[str, tuple[list[float], list[float]]]:
    return {one.name: (list(one.x), list(one.y)) for one in drawn.data}


def test_each_line_has_the_cost_of_every_number_of_blocks():
    drawn = figures.break_even(line(0, 4), {"fast": line(9, 1)}, most=5)
    assert curves(drawn)["computing"] == ([1, 2, 3, 4, 5], [4, 8, 12, 16, 20])
    assert curves(drawn)["fast"] == ([1, 2, 3, 4, 5], [10, 11, 12, 13, 14])


def test_a_ring_marks_the_first_number_from_which_moving_is_cheaper():
    drawn = figures.break_even(line(0, 4), {"fast": line(9, 1)}, most=5)
    assert curves(drawn)["fast breaks even"] == ([4], [13])  # 12 ms each at 3 blocks
    assert "cheaper from 4 blocks on" in drawn.layout.title.text


def test_a_link_that_is_slower_at_the_end_has_no_ring():
    def window(blocks: int) -> float:  # cheaper for a few blocks only
        return 1 if blocks < 3 else 100

    drawn = figures.break_even(line(0, 4), {"slow": line(1, 5), "window": window}, most=5)
    assert not any("breaks even" in name for name in curves(drawn))
    assert drawn.layout.title.text.count("never cheaper") == 2


def test_without_blocks_it_says_so():
    drawn = figures.break_even(line(0, 4), {}, most=0)
    assert "No blocks" in drawn.layout.title.text
