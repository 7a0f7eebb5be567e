"""Least squares with solutions of 0 or more, for a few columns and thousands of rows, without numpy.

Source: the active set method of Lawson and Hanson, "Solving Least Squares Problems" (1974), chapter 23,
as in SciPy's `nnls`.
"""

from math import hypot
from operator import mul

_Column = list[float]


def non_negative_least_squares(columns: list[_Column], target: _Column) -> _Column:
    """Return the x >= 0 for which the columns times x come closest to the target.

    Of columns that depend on each other, only some are used; the others get 0.
    """
    # Thousands of equations become a handful with the same solutions.
    *columns, target = _triangle([*columns, target])
    sizes = [_norm(column) for column in columns]
    scale = _norm(target) or 1.0
    x = [0.0] * len(columns)
    used: list[int] = []
    for _ in range(3 * len(columns)):  # SciPy's limit, in case that rounding errors make it cycle
        left = [value - sum(map(mul, row, x)) for value, *row in zip(target, *columns, strict=True)]
        # Rounded, or columns that depend on each other would be chosen by their rounding errors.
        gains = {
            j: round(_dot(columns[j], left) / (size * scale), 9)
            for j, size in enumerate(sizes)
            if size and j not in used
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] <= 0:
            break
        used.append(best)
        goals = _solve([columns[j] for j in used], target)
        while min(goals, default=0.0) < 0:
            # Go towards the solution until a value reaches 0, and stop using its column.
            ways = list(zip(used, goals, strict=True))
            share, zero = min((x[j] / (x[j] - goal), j) for j, goal in ways if goal < 0)
            for j, goal in ways:
                x[j] += share * (goal - x[j])
            x[zero] = 0.0
            used.remove(zero)
            goals = _solve([columns[j] for j in used], target)
        for j, goal in zip(used, goals, strict=True):
            x[j] = goal
    return x


def _solve(columns: list[_Column], target: _Column) -> _Column:
    """Return the x for which independent columns times x come closest to the target."""
    *triangle, right = _triangle([*columns, target])
    x = [0.0] * len(triangle)
    for i in reversed(range(len(x))):
        known = sum(triangle[j][i] * x[j] for j in range(i + 1, len(x)))
        x[i] = (right[i] - known) / triangle[i][i]
    return x


def _triangle(columns: list[_Column]) -> list[_Column]:
    """Return the triangle of the QR decomposition, column by column (modified Gram-Schmidt)."""
    triangle = [[0.0] * len(columns) for _ in columns]
    left = list(columns)
    for i, column in enumerate(left):
        triangle[i][i] = size = _norm(column)
        if size == 0:
            continue
        unit = [value / size for value in column]
        for j in range(i + 1, len(left)):
            triangle[j][i] = share = _dot(unit, left[j])
            left[j] = [value - share * one for value, one in zip(left[j], unit, strict=True)]
    return triangle


def _dot(a: _Column, b: _Column) -> float:
    product: float = sum(map(mul, a, b))
    return product


def _norm(column: _Column) -> float:
    return hypot(*column)
