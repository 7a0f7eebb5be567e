"""The figure of a shape: what it draws, and what it says."""

import pytest

from visualizer import figures
from visualizer.figures.shape import Edge, edges_of

# a, then x or y twice, then z: (state, character) -> state
MOVES = {(0, "a"): 1, (1, "b"): 2, (2, "x"): 3, (2, "y"): 3, (3, "x"): 4, (3, "z"): 4, (4, " "): 5}


def test_choices_meeting_points_and_the_current_state_are_drawn():
    moves = {(0, "c"): 1, (0, "d"): 2, (1, "a"): 3, (2, "o"): 3, (3, "."): 4}
    assert edges_of(moves, {4}, 0) == [Edge(0, 3, ("ca", "do")), Edge(3, 4, (".",))]
    inside = edges_of(moves, {4}, 1)
    assert inside == [
        Edge(0, 1, ("c",)),
        Edge(0, 3, ("do",)),
        Edge(1, 3, ("a",)),
        Edge(3, 4, (".",)),
    ]


@pytest.mark.parametrize("theme", ["light", "dark", None])
def test_the_vocabulary_has_a_cell_for_each_token_and_the_title_counts_the_allowed(theme):
    vocabulary = [f"t{number}" for number in range(100)]
    allowed = [number in (3, 99) for number in range(100)]
    drawn = figures.shape(MOVES, {5}, 2, vocabulary, allowed, theme=theme)
    [cells] = [trace for trace in drawn.data if trace.name == "vocabulary"]
    assert cells.z.shape == (2, 64)
    assert (cells.z == 1).sum() == 2 and cells.z[0, 3] == cells.z[1, 35] == 1
    assert (cells.z == 0).sum() == 98
    assert "2 of 100 tokens" in drawn.layout.title.text
    assert "t99" in drawn.layout.title.text


def test_a_shape_with_a_circle_is_an_error_that_names_the_fix():
    with pytest.raises(ValueError, match="any length"):
        figures.shape({(0, "a"): 0}, {0}, 0, ["a"], [True])
