"""The rows of a log as pandas frames. pandas is imported on first use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pandas as pd

# A column has the same type in every log, even an empty one. Annotations not listed here: "object".
_DTYPES = {
    int: "int64",
    int | None: "Int64",  # with missing values
    float: "float64",
    float | None: "float64",
    bool: "bool",
}


def frame(
    kind: type[msgspec.Struct], rows: Sequence[msgspec.Struct], index: str | None = None
) -> "pd.DataFrame":
    """Return a frame with one column per field of `kind`, except the one that becomes the index."""
    import pandas as pd

    names = kind.__struct_fields__
    columns = zip(*map(msgspec.structs.astuple, rows), strict=True) if rows else [()] * len(names)
    types = {one.name: _DTYPES.get(one.type, "object") for one in msgspec.structs.fields(kind)}
    data = {
        name: pd.Series(list(column), dtype=types[name])
        for name, column in zip(names, columns, strict=True)
    }
    made = pd.DataFrame(data)
    return made if index is None else made.set_index(index)
