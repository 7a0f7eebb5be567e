"""The playground: a workload with controls, drawn from a stored run until a control moves."""

import gzip
from dataclasses import dataclass
from typing import Any

from site_pages import Site
from visualizer.packed import GZIP_LEVEL
from visualizer.playing.numbers import numbers, table
from visualizer.playing.rerun import Setup
from visualizer.playing.settings import CHOICES, ENGINE, RANGES, TRAFFIC

_LOG = "logs/playground.jsonl.gz"


@dataclass(frozen=True)
class Control:
    """A setting's control. `choices` are (label, value); `limits` are minimum, maximum and step."""

    name: str
    label: str
    explanation: str
    value: Any
    choices: list[tuple[str, Any]] | None = None
    limits: tuple[int, int, int] | None = None


def build(site: Site) -> None:
    """Write play/index.html and the log of its first run."""
    setup = Setup()
    run = setup.run()
    site.write_bytes(_LOG, gzip.compress(run.log.to_bytes(), GZIP_LEVEL, mtime=0))
    groups = {"Engine": ENGINE, "Traffic": TRAFFIC}
    site.write(
        "play/index.html",
        "play.html",
        page="play",
        log=_LOG,
        numbers=table(numbers(run.log), None),
        groups={
            title: [_control(name, *words, setup.settings[name]) for name, words in names.items()]
            for title, names in groups.items()
        },
    )


def _control(name: str, label: str, explanation: str, value: Any) -> Control:
    return Control(name, label, explanation, value, CHOICES.get(name), RANGES.get(name))
