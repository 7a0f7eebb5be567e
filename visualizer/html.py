"""Export a log as one HTML file that opens from disk, without a kernel, a server or a network.

The page contains the JavaScript module and the log. Browsers do not load modules from `file://`, so
the page puts the module's text into a Blob and loads that.
"""

import base64
import html
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from string import Template
from typing import Any

from visualizer.front_end import built, page_module, with_board
from visualizer.logs import ClusterLogLike, LogLike, Select
from visualizer.packed import PackedLog, packed_log

MODULE, CLUSTER_MODULE = built("board.js"), with_board("cluster.js")

_PAGE = (Path(__file__).parent / "page.html").read_text("utf-8")
BEFORE_LOG, AFTER_LOG = map(Template, _PAGE.split("$log"))
# Bytes of a log, a multiple of 3, so that the base64 of all pieces is that of the log.
_PIECE = 3 << 20


def to_html(
    log: LogLike | ClusterLogLike,
    path: str | Path | None = None,
    *,
    step: int | None = None,
    at_ms: float | None = None,
    select: Select = "auto",
    theme: str | None = None,
    title: str = "Underglass",
    text: bool = True,
    level: str = "all",
) -> str:
    """Return the board as a self-contained page, and write it to `path` if one is given.

    `step`, `select` and `level` work as in `show`. `theme` is "light", "dark", or None to follow the
    reader's system. If `log` is the name of a scenario, the page also shows its caption. The page of a
    cluster log opens at the time `at_ms` instead of a step. Without `text`, the page has no names,
    prompts, outputs or token ids.
    """
    packed = packed_log(
        log, step=step, at_ms=at_ms, select=select, text=text, asks=False, level=level
    )
    return write_page(packed, path, theme=theme, title=title)


def write_page(
    packed: PackedLog, path: str | Path | None, *, theme: str | None, title: str, **more: Any
) -> str:
    """Return a page that passes a packed log and its options to the JavaScript module's `mount`.

    `more` are further options. The page is also written to `path` if one is given.
    """
    page = "".join(_pieces(packed, theme, title, more))
    if path is not None:
        Path(path).write_text(page, "utf-8")
    return page


def save_page(packed: PackedLog, path: Path, *, theme: str | None, title: str, **more: Any) -> None:
    """Write the page that `write_page` returns, a piece at a time: the page of a long log is large."""
    pieces = _pieces(packed, theme, title, more)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(pieces)


def _pieces(
    packed: PackedLog, theme: str | None, title: str, more: dict[str, Any]
) -> Iterator[str]:
    if theme not in (None, "light", "dark"):
        raise ValueError(f'theme must be "light", "dark" or None, got {theme!r}')
    compared = with_board("compare.js") if "compare" in packed.options else page_module()
    module = CLUSTER_MODULE if packed.is_cluster else compared
    fields = {
        "theme": f' data-theme="{theme}"' if theme else "",
        "title": html.escape(title),
        # An HTML parser ends a script at the first "</script", even inside a JavaScript string.
        "module": module.replace("</script", "<\\/script"),
        # Without "<", the options can neither end the script nor start an HTML comment.
        "options": "".join(
            f", {name}: {json.dumps(value, default=_base64)}".replace("<", "\\u003c")
            for name, value in (packed.options | more).items()
        ),
    }
    log = (packed.log[at : at + _PIECE] for at in range(0, len(packed.log), _PIECE))
    return chain([BEFORE_LOG.substitute(fields)], map(_base64, log), [AFTER_LOG.substitute(fields)])


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
