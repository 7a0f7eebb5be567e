"""Which rows of a step share an attention call.

Everything but attention treats the tokens of a batch independently. Attention reads each row's own
context, and a call takes rows that compute equally many tokens: all decodes, as long as their contexts
are similar. A call pads contexts to its longest, and where that costs more than another call, there is
another group.

Apart from the computing (`compute/batch.py`), because a simulation wants to know what is padded, too.
"""

from collections.abc import Sequence

from engine.events.vocabulary import ScheduledRow
from engine.runner import Row

# Keys that a group may read and hide. Another call takes as long as some hundred more of them; between
# 128 and 2048 the differences are small (32 contexts of 64 to 448: 1.15 times as fast as in one call).
MOST_PADDING = 1024


def attention_groups(rows: Sequence[Row] | Sequence[ScheduledRow]) -> list[list[int]]:
    """Indexes of the rows in each call: rows with equally many tokens, shortest contexts first."""
    groups: list[list[int]] = []
    padding = 0
    for i in sorted(range(len(rows)), key=lambda i: (rows[i].count, rows[i].start)):
        if groups:
            group, row, last = groups[-1], rows[i], rows[groups[-1][-1]]
            padding += len(group) * (row.start - last.start)
            if row.count == last.count and padding <= MOST_PADDING:
                group.append(i)
                continue
        groups.append([i])
        padding = 0
    return groups
