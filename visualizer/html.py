"""Export a log as one HTML file that opens from disk, without a kernel, a server or a network.

The page contains the JavaScript module and the log. Browsers do not load modules from `file://`, so
the page puts the module's text into a Blob and loads that.
"""

import base64
import gzip
import html
import json
from pathlib import Path
from string import Template
from typing import Any

from visualizer.logs import LogLike, Select, read_log
from visualizer.named_logs import find_scenario

MODULE = Path(__file__).parent / "static" / "board.js"
if not MODULE.exists():
    raise FileNotFoundError(f"{MODULE} is missing: build it with `make bundle`")

# Compressing 40 MB of events takes 0.7 s, against 2.3 s at level 9, and the file is only 6% larger.
GZIP_LEVEL = 6
PAGE = Template((Path(__file__).parent / "page.html").read_text("utf-8"))


def to_html(
    log: LogLike,
    path: str | Path | None = None,
    *,
    step: int | None = None,
    select: Select = "auto",
    theme: str | None = None,
    title: str = "Underglass",
) -> str:
    """Return the board as a self-contained page, and write it to `path` if one is given.

    `step` and `select` work as in `show`. `theme` is "light", "dark", or None to follow the
    reader's system. If `log` is the name of a scenario, the page also shows its caption.
    """
    packed = gzip.compress(read_log(log).to_bytes(), GZIP_LEVEL, mtime=0)
    options: dict[str, Any] = {}
    if (scenario := find_scenario(log)) is not None:
        options = {"step": scenario.step, "selected": scenario.select, "about": scenario.about}
    if step is not None:
        options["step"] = step
    if select != "auto":
        options["selected"] = select
    return write_page(packed, options, path, theme=theme, title=title)


def write_page(
    packed: bytes,
    options: dict[str, Any],
    path: str | Path | None,
    *,
    theme: str | None,
    title: str,
) -> str:
    """Return a page that passes a packed log and `options` to the JavaScript module's `mount`.

    The page is also written to `path` if one is given.
    """
    if theme not in (None, "light", "dark"):
        raise ValueError(f'theme must be "light", "dark" or None, got {theme!r}')
    page = PAGE.substitute(
        theme=f' data-theme="{theme}"' if theme else "",
        title=html.escape(title),
        log=base64.b64encode(packed).decode(),
        # An HTML parser ends a script at the first "</script", even inside a JavaScript string.
        module=MODULE.read_text("utf-8").replace("</script", "<\\/script"),
        # Without "<", the options can neither end the script nor start an HTML comment.
        options="".join(
            f", {name}: {json.dumps(value)}".replace("<", "\\u003c")
            for name, value in options.items()
        ),
    )
    if path is not None:
        Path(path).write_text(page, "utf-8")
    return page
