"""The rows of a log as pandas frames, or as CSV files, which need no pandas."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from engine.core.extras import needs_extra

if TYPE_CHECKING:
    import pandas as pd

# A column has the same type in every log, even an empty one, unless it is unknown in a foreign log:
# then a count is "Int64" with missing values. Annotations not listed here: "object".
_DTYPES = {
    int: "int64",
    int | None: "Int64",  # with missing values
    float: "float64",
    float | None: "float64",
    bool: "bool",
}


def import_pandas(what: str) -> Any:
    """Return pandas. Raises MissingExtraError about `what` if it is not installed."""
    with needs_extra(what):
        import pandas as pd
    return pd


def frame(
    kind: type[msgspec.Struct], rows: Sequence[msgspec.Struct], index: str | None = None
) -> "pd.DataFrame":
    """Return a frame with one column per field of `kind`, except the one that becomes the index."""
    pd = import_pandas("a table of a log's rows")
    names = kind.__struct_fields__
    columns = zip(*map(msgspec.structs.astuple, rows), strict=True) if rows else [()] * len(names)
    fields = {one.name: one for one in msgspec.structs.fields(kind)}
    data = {
        name: pd.Series(list(column), dtype=_dtype(fields[name], column))
        for name, column in zip(names, columns, strict=True)
    }
    made = pd.DataFrame(data)
    return made if index is None else made.set_index(index)


def write_csv(path: Path, kind: type[msgspec.Struct], rows: Iterable[msgspec.Struct]) -> Path:
    """Write one column per field of `kind`, with nothing for None, and return the path."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(kind.__struct_fields__)
        writer.writerows(map(msgspec.structs.astuple, rows))
    return path


def _dtype(field: Any, column: Sequence[Any]) -> str:
    """Return the type of a column. Without the default None, only an unknown value is None."""
    if field.type == (int | None) and field.default is not None and None not in column:
        return _DTYPES[int]
    return _DTYPES.get(field.type, "object")
