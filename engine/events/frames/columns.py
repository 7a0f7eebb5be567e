"""Column types of the frames. They are the same for every log, even an empty one."""

from typing import Any

import pandas as pd

COUNT = "int64"
MAYBE_COUNT = "Int64"  # with missing values
MS = "float64"
FLAG = "bool"
ANY = "object"

US_PER_MS = 1000


def in_ms(measured: dict[str, Any], name: str) -> float | None:
    """Return a measured time in milliseconds; None in a log that was saved without times."""
    time = measured.get(name)
    return None if time is None else time / US_PER_MS


def build(
    columns: dict[str, list[Any]], types: dict[str, str], index: pd.Index | None = None
) -> pd.DataFrame:
    """Return a frame of these columns, typed and ordered as in `types`."""
    series = {
        name: pd.Series(columns[name], index=index, dtype=kind) for name, kind in types.items()
    }
    return pd.DataFrame(series, index=index)
