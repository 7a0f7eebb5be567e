"""Export a log as one HTML file that opens from disk, without a kernel, a server or a network.

The page contains the JavaScript module and the log. Browsers do not load modules from `file://`, so
the page puts the module's text into a Blob and loads that.
"""

import base64
import html
import json
from pathlib import Path
from string import Template
from typing import Any

from engine.core.extras import MissingExtraError
from visualizer.logs import ClusterLogLike, LogLike, Select
from visualizer.packed import packed_log

MODULE = Path(__file__).parent / "static" / "board.js"
CLUSTER_MODULE = MODULE.with_name("cluster.js")
for _built in (MODULE, CLUSTER_MODULE):
    if not _built.exists():
        raise MissingExtraError(
            f"the board needs {_built.relative_to(_built.parents[2])}, which a fresh clone does not "
            "contain: build it with `make setup`"
        )

PAGE = Template((Path(__file__).parent / "page.html").read_text("utf-8"))


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
) -> str:
    """Return the board as a self-contained page, and write it to `path` if one is given.

    `step` and `select` work as in `show`. `theme` is "light", "dark", or None to follow the
    reader's system. If `log` is the name of a scenario, the page also shows its caption. The page of a
    cluster log opens at the time `at_ms` instead of a step. Without `text`, the page has no names,
    prompts, outputs or token ids.
    """
    packed, options, module = page_of(log, step=step, at_ms=at_ms, select=select, text=text)
    return write_page(packed, options, path, theme=theme, title=title, module=module)


def page_of(
    log: LogLike | ClusterLogLike,
    *,
    step: int | None = None,
    at_ms: float | None = None,
    select: Select = "auto",
    text: bool = True,
) -> tuple[bytes, dict[str, Any], Path]:
    """Return the arguments of `write_page` for a log: the packed log, the options, and the module."""
    packed = packed_log(log, step=step, at_ms=at_ms, select=select, text=text)
    return packed.log, packed.options, CLUSTER_MODULE if packed.is_cluster else MODULE


def write_page(
    packed: bytes,
    options: dict[str, Any],
    path: str | Path | None,
    *,
    theme: str | None,
    title: str,
    module: Path = MODULE,
) -> str:
    """Return a page that passes a packed log and `options` to a JavaScript module's `mount`.

    The page is also written to `path` if one is given.
    """
    if theme not in (None, "light", "dark"):
        raise ValueError(f'theme must be "light", "dark" or None, got {theme!r}')
    page = PAGE.substitute(
        theme=f' data-theme="{theme}"' if theme else "",
        title=html.escape(title),
        log=base64.b64encode(packed).decode(),
        # An HTML parser ends a script at the first "</script", even inside a JavaScript string.
        module=module.read_text("utf-8").replace("</script", "<\\/script"),
        # Without "<", the options can neither end the script nor start an HTML comment.
        options="".join(
            f", {name}: {json.dumps(value)}".replace("<", "\\u003c")
            for name, value in options.items()
        ),
    )
    if path is not None:
        Path(path).write_text(page, "utf-8")
    return page
