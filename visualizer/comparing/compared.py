"""What comparisons have in common: two logs with names, and a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog
from visualizer.packed import PackedLog, pack


class Compared:
    """Two logs of engines or of clusters. A subclass compares them.

    logs   the two logs
    names  what the reader calls them
    """

    logs: Sequence[EventLog | ClusterLog]
    names: Sequence[str]

    def page_options(self) -> dict[str, Any]:
        """Return what the page shows besides the two logs, as JSON values."""
        raise NotImplementedError

    def packed(self) -> PackedLog:
        """Return the first log, with the second one and `page_options` in the option `compare`."""
        a, b = map(pack, self.logs)
        options = {"compare": {"b": b, **self.page_options()}}
        return PackedLog(a, options, isinstance(self.logs[0], ClusterLog))

    def to_html(self, path: str | Path | None = None, *, theme: str | None = None) -> str:
        """Return the comparison as a self-contained page, and write it to `path` if one is given."""
        from visualizer.html import write_page  # imported late: needs the built front end

        title = f"Underglass: {self.names[0]} and {self.names[1]}"
        return write_page(self.packed(), path, theme=theme, title=title)
