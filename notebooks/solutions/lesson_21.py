"""Lesson 21: which rows and columns of a weight each device keeps."""


def cut(  # noqa: PLR0917
    name: str, rows: int, columns: int, unit: int, part: int, parts: int
) -> tuple[range, range]:
    """Cut the second weight of each pair by columns, all others by rows, in whole units."""
    by_columns = name in ("o", "down")
    units = (columns if by_columns else rows) // unit
    own = range(units * part // parts * unit, units * (part + 1) // parts * unit)
    return (range(rows), own) if by_columns else (own, range(columns))
