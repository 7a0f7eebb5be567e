"""The gallery: small logs with a name, a caption and a telling moment, ready to be looked at.

    show("preemption")      # the board, opened at the telling step, with its caption as heading
    gallery()               # the names, and what there is to see

Their logs are files beside this module, so that a picture needs no engine. They are made by
`python -m engine.simulation.scenarios visualizer/scenarios`, and a test holds that they are fresh.
A name stands wherever a log is asked for, and a file of that name always wins.
"""

import gzip
import html
import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from engine.events import EventLog

FOLDER = Path(__file__).parent / "scenarios"


class UnknownScenarioError(LookupError):
    """There is no scenario by that name. The message lists those that there are."""


@dataclass(frozen=True)
class Scenario:
    """What there is to see: `caption`, at `step`, of the request with the id `select`."""

    name: str
    caption: str
    step: int
    select: int

    @property
    def about(self) -> dict[str, str]:
        """A heading: title and caption."""
        return {"title": self.name.replace("_", " ").capitalize(), "caption": self.caption}

    @property
    def log(self) -> EventLog:
        """The log, the same object each time, so that panels of one scenario share a cursor."""
        return _load(self.name)


class Gallery(Mapping[str, Scenario]):
    """All scenarios by name, in the order in which to look at them."""

    def __init__(self, scenarios: dict[str, Scenario]) -> None:
        self._scenarios = scenarios

    def __getitem__(self, name: str) -> Scenario:
        if name not in self._scenarios:
            raise UnknownScenarioError(_unknown(name, self._scenarios))
        return self._scenarios[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scenarios)

    def __len__(self) -> int:
        return len(self._scenarios)

    def __contains__(self, name: object) -> bool:
        return name in self._scenarios

    def __repr__(self) -> str:
        return "\n\n".join(
            f'show("{one.name}")\n' + textwrap.indent(textwrap.fill(one.caption, 88), "    ")
            for one in self.values()
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            '<tr><th scope="row" style="text-align: left; vertical-align: top; '
            f'white-space: nowrap"><code>show("{html.escape(one.name)}")</code></th>'
            f'<td style="text-align: left; white-space: normal; max-width: 46em">'
            f"{html.escape(one.caption)}</td></tr>"
            for one in self.values()
        )
        return f"<table><tbody>{rows}</tbody></table>"


@cache
def gallery() -> Gallery:
    """Names and captions; in a notebook a table."""
    moments = json.loads((FOLDER / "gallery.json").read_text("utf-8"))
    return Gallery({name: Scenario(name, **moment) for name, moment in moments.items()})


def find(name: object) -> Scenario | None:
    """The scenario that a name means; None where it is no name, or a file is called so.

    Raises UnknownScenarioError for what can only be a name, and is none of ours.
    """
    if not isinstance(name, str) or Path(name).is_file():
        return None
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    return gallery()[plain] if plain.isidentifier() else None


@cache
def _load(name: str) -> EventLog:
    return EventLog.from_bytes(gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()))


def _unknown(name: str, known: Mapping[str, Scenario]) -> str:
    near = get_close_matches(name, known, 1, 0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no file and no scenario {name!r}.{hint} There are {', '.join(known)}"
