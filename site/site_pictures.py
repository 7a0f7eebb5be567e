"""Draw pictures of logs for the site: previews of links, and the gallery's thumbnails."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from site_assets import run_node


@dataclass(frozen=True)
class Job:
    """The pictures to draw of a log. Each path is the file to write, or None to draw no picture.

    step     the step to show, or None for the step at which a board opens
    card     a PNG of 1200 x 630 pixels that link previews show
    light    a thumbnail, as SVG; `dark` is the same on a dark background
    moments  a folder for the cards of a few other moments, named by their steps
    """

    log: Path
    title: str
    step: int | None = None
    selected: int | None = None
    card: Path | None = None
    light: Path | None = None
    dark: Path | None = None
    moments: Path | None = None


@dataclass(frozen=True)
class Moment:
    """A moment with a card of its own, and what the card says."""

    step: int
    selected: int | None
    words: str


@dataclass(frozen=True)
class Drawn:
    """What a job's card says, and the moments that have cards."""

    words: str
    moments: tuple[Moment, ...]


def draw(jobs: Sequence[Job]) -> list[Drawn]:
    """Draw all pictures."""
    asked = json.dumps([{name: _plain(value) for name, value in vars(job).items()} for job in jobs])
    return [
        Drawn(one["words"] or "", tuple(Moment(**moment) for moment in one["moments"]))
        for one in json.loads(run_node("site_pictures.mjs", given=asked))
    ]


def _plain(value: Any) -> Any:
    return str(value.resolve()) if isinstance(value, Path) else value
