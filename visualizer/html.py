"""A log as one HTML file that works from disk: no kernel, no server, no network.

The module that draws and the log are inlined. A module script cannot be loaded from `file://`, but one
made of a Blob can, so the page builds it from its own text.
"""

import base64
import gzip
import html
import json
from pathlib import Path
from typing import Any

from visualizer.logs import LogLike, read_log
from visualizer.named_logs import find

MODULE = Path(__file__).parent / "static" / "board.js"
if not MODULE.exists():
    raise FileNotFoundError(f"{MODULE} is missing: build it with `make bundle`")

# A third of level 9's time for a file that is 6% larger: 40 MB of events take 0.7 s, not 2.3.
GZIP_LEVEL = 6

_PAGE = """\
<!doctype html>
<html lang="en"{theme}>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  html {{ color-scheme: light dark; }}
  html[data-theme="light"] {{ color-scheme: light; }}
  html[data-theme="dark"] {{ color-scheme: dark; }}
  body {{ margin: 0; background: light-dark(#ffffff, #14161a); }}
  h1 {{ position: absolute; width: 1px; height: 1px; margin: -1px; clip-path: inset(50%); }}
</style>
<main>
<h1>{title}</h1>
<div id="board"></div>
</main>
<script type="application/octet-stream" id="log">{log}</script>
<script type="text/plain" id="module">{module}</script>
<script type="module">
  const text = (id) => document.getElementById(id).textContent;
  const url = URL.createObjectURL(new Blob([text("module")], {{ type: "text/javascript" }}));
  const {{ mount }} = await import(url);
  const letters = atob(text("log"));
  const log = new Uint8Array(letters.length);
  for (let at = 0; at < log.length; at++) log[at] = letters.charCodeAt(at);
  await mount(document.getElementById("board"), {{ log{options} }});
</script>
</html>
"""


def to_html(
    log: LogLike,
    path: str | Path | None = None,
    *,
    step: int | None = None,
    select: int | None = None,
    theme: str | None = None,
    title: str = "Underglass",
) -> str:
    """The whole board as one self-contained page; written to `path`, too, if one is given.

    `step` and `select` (a request's id) say where it opens; left out, where something happens. A
    scenario, given by its name, brings its caption.
    `theme` is "light" or "dark"; left out, the reader's system decides.
    """
    packed = gzip.compress(read_log(log).to_bytes(), GZIP_LEVEL, mtime=0)
    settings: dict[str, Any] = {"step": step, "selected": select}
    if (scenario := find(log)) is not None:
        settings = {
            "step": scenario.step if step is None else step,
            "selected": scenario.select if select is None else select,
            "about": scenario.about,
        }
    page = page_of(packed, settings, theme=theme, title=title)
    if path is not None:
        Path(path).write_text(page, "utf-8")
    return page


def page_of(packed: bytes, options: dict[str, Any], *, theme: str | None, title: str) -> str:
    """A page that mounts a packed log with `options` of the module's `mount`; None is left out."""
    if theme not in (None, "light", "dark"):
        raise ValueError(f'theme must be "light", "dark" or None, got {theme!r}')
    return _PAGE.format(
        theme=f' data-theme="{theme}"' if theme else "",
        title=html.escape(title),
        log=base64.b64encode(packed).decode(),
        # An HTML parser ends a script at the first "</script", in a string of the module as well.
        module=MODULE.read_text("utf-8").replace("</script", "<\\/script"),
        # No "<" at all: neither the end of a script nor the beginning of a comment.
        options="".join(
            f", {name}: {json.dumps(value)}".replace("<", "\\u003c")
            for name, value in options.items()
            if value is not None
        ),
    )
