"""The gallery: small logs, each with a name, a caption and a step worth looking at.

    show("preemption")      # the board at that step, with the caption as its heading
    gallery()               # their pictures, names and captions

The logs are files in this package, so you can show one without an engine. To regenerate them, run
`python -m engine.simulation.scenarios visualizer/scenarios`; a test checks that they are up to date.
The logs in `recorded.json` are translated recordings of vLLM; `python -m tests.recorders.scenarios`
regenerates them.
Every function that takes a log also accepts a scenario's name. A file with the same name takes
precedence.
"""

import base64
import gzip
import html
import json
import textwrap
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path

from engine.core.log import EventLog

FOLDER = Path(__file__).parent / "scenarios"
RECORDED = FOLDER / "recorded.json"
PICTURES = Path(__file__).parent / "static" / "gallery"
PICTURE_WIDTH = 260  # px, as in frontend/src/drawing/thumbnail.ts
_STYLE = """
.ug-gallery {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 230px), 1fr));
  gap: 32px 28px;
  max-width: 1280px; color-scheme: light dark; color: light-dark(#16181d, #eceef2);
  background: light-dark(#ffffff, #14161a);
  font: 13px/19px -apple-system, "Segoe UI", Inter, Arial, "Liberation Sans", sans-serif;
}
body[data-jp-theme-light="true"] .ug-gallery { color-scheme: light; }
body[data-jp-theme-light="false"] .ug-gallery { color-scheme: dark; }
.ug-gallery figure { margin: 0; }
.ug-gallery img { display: block; width: 100%; height: auto; }
.ug-gallery figcaption {
  margin-top: 10px; padding-top: 8px; border-top: 1px solid light-dark(#d9dce2, #33373f);
}
.ug-gallery b { font-size: 15px; font-weight: 600; }
.ug-gallery code {
  display: block; padding: 0; background: none; color: light-dark(#5a606b, #a5abb6);
  font: 12px ui-monospace, Menlo, Consolas, "Liberation Mono", monospace;
}
"""


class UnknownScenarioError(LookupError):
    """No scenario has this name. The message lists the existing names."""


@dataclass(frozen=True)
class Scenario:
    """A log in the gallery. `caption` describes what happens in `step` to the request `select`."""

    name: str
    caption: str
    step: int
    select: int

    @property
    def title(self) -> str:
        """The name as words."""
        words = self.name.replace("_", " ")
        return words.replace("vllm", "vLLM,", 1) if "vllm" in words else words.capitalize()

    @property
    def about(self) -> dict[str, str]:
        """The board's heading: title and caption."""
        return {"title": self.title, "caption": self.caption}

    @property
    def picture_html(self) -> str:
        """A small picture of the log: memory, seats and queue over all steps, and `step`'s blocks.

        It is built with the front end (`frontend/gallery.mjs`). A log that is not bundled has none.
        """
        path = PICTURES / f"{self.name}.svg"
        if not path.is_file():
            return ""
        encoded = base64.b64encode(path.read_bytes()).decode()
        return (
            f'<img src="data:image/svg+xml;base64,{encoded}" width="{PICTURE_WIDTH}" '
            f'alt="Memory, seats and queue of '
            f'{html.escape(self.name)}, and its blocks in step {self.step}">'
        )

    @cached_property
    def log(self) -> EventLog:
        """The log. It is the same object each time, so all of its panels share one step."""
        packed = (FOLDER / f"{self.name}.jsonl.gz").read_bytes()
        return EventLog.from_bytes(gzip.decompress(packed))


class Gallery(dict[str, Scenario]):
    """All scenarios by name, in teaching order."""

    def __missing__(self, name: str) -> Scenario:
        near = get_close_matches(name, self, 1, 0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnknownScenarioError(
            f"no file or scenario is named {name!r}.{hint} The scenarios are {', '.join(self)}"
        )

    def __repr__(self) -> str:
        return "\n\n".join(
            f'show("{one.name}")\n' + textwrap.indent(textwrap.fill(one.caption, 88), "    ")
            for one in self.values()
        )

    def _repr_html_(self) -> str:
        figures = "".join(
            f"<figure>{one.picture_html}<figcaption><b>{html.escape(one.title)}</b>"
            f'<code>show("{html.escape(one.name)}")</code>{html.escape(one.caption)}'
            "</figcaption></figure>"
            for one in self.values()
        )
        return f'<style>{_STYLE}</style><div class="ug-gallery">{figures}</div>'


@cache
def gallery() -> Gallery:
    """Return all scenarios. A notebook displays each with its picture."""
    moments = json.loads((FOLDER / "gallery.json").read_text("utf-8"))
    moments |= json.loads(RECORDED.read_text("utf-8"))
    return Gallery({name: Scenario(name, **moment) for name, moment in moments.items()})


def find_scenario(name: object) -> Scenario | None:
    """Return the scenario with this name, or None if `name` is a file or cannot be a scenario's name.

    A directory does not hide a scenario of the same name. Raises UnknownScenarioError for an identifier
    that names no file, scenario or directory.
    """
    if not isinstance(name, str) or Path(name).is_file():
        return None
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    if plain not in gallery() and (not plain.isidentifier() or Path(name).is_dir()):
        return None
    return gallery()[plain]
