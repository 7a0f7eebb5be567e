"""Columns of a frame: names, and pandas types that are the same for every log, an empty one too."""

from typing import Any

import pandas as pd

COUNT = "int64"
MAYBE_COUNT = "Int64"  # with missing values
MS = "float64"
FLAG = "bool"
ANY = "object"

US_PER_MS = 1000


def in_ms(measured: dict[str, Any], name: str) -> float | None:
    """A measured time in milliseconds; None in a log that was saved without times."""
    time = measured.get(name)
    return None if time is None else time / US_PER_MS


def build(
    columns: dict[str, list[Any]], types: dict[str, str], index: pd.Index | None = None
) -> pd.DataFrame:
    """A frame of these columns, each of its type and in the order of `types`."""
    series = {
        name: pd.Series(columns[name], index=index, dtype=kind) for name, kind in types.items()
    }
    return pd.DataFrame(series, index=index)
