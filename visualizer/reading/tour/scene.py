"""The scenes of a tour, as values that a page and a shell show."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from visualizer.reading.tour.claims import Claim, Sentence, plain

if TYPE_CHECKING:
    from engine.cluster.cluster_log import Part

# run     memory, seats and queue over the whole log
# lanes   requests over the steps around the scene's
# blocks  the KV blocks after the step
# queue   the requests that wait after it
# time    where the time of the first lit request went
# bars    one bar per row of the scene
# both    of a comparison: the lanes of both runs, one above the other
Panel = Literal["run", "lanes", "blocks", "queue", "time", "bars", "both"]
_WIDTH = 96


@dataclass(frozen=True)
class Bracket:
    """A price on a lane: words over the steps `first` to `last` of a request."""

    request: int
    first: int
    last: int
    words: Sentence


@dataclass(frozen=True)
class Bar:
    """A row of the panel "bars": a name, a value, and what it stands for."""

    name: str
    value: float
    words: Sentence
    is_lit: bool


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One idea: a picture in which little is lit, and the sentences that say what it shows.

    kind       what it is about, for example "preemption"
    title      the same in words
    step       the step that the pictures show; None: the scene is about no step
    panel      the large picture; `beside` are at most three small ones
    requests   the requests that are lit, the most important first
    twins      of a comparison, the same requests in the other run
    blocks     the blocks that are lit
    window     the first and the last step that are lit in the picture of the whole run
    question   what `why` answers; "{}" in it stands for the first lit request
    replica    of a cluster's log; "" of one engine's, or if the scene is about all of them
    its_run    which run of the replica, from 1
    run        0 or 1: of a comparison, the log that the pictures show
    """

    kind: str
    title: str
    sentences: list[Sentence]
    step: int | None = None
    panel: Panel = "lanes"
    beside: tuple[Panel, ...] = ()
    requests: tuple[int, ...] = ()
    twins: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    brackets: tuple[Bracket, ...] = ()
    window: tuple[int, int] | None = None
    bars: tuple[Bar, ...] = ()
    question: str = ""
    why: str = ""
    replica: str = ""
    its_run: int = 0
    run: int = 0

    @property
    def claims(self) -> list[Claim]:
        """Every number and every name that the scene states, on its picture too."""
        words = [*self.sentences, *(one.words for one in self.brackets)]
        words += [one.words for one in self.bars]
        return [part for one in words for part in one if isinstance(part, Claim)]

    @property
    def text(self) -> str:
        """The sentences as text."""
        return " ".join(map(plain, self.sentences))

    def of_replica(self, part: "Part") -> "Scene":
        """Return the scene for a run of a cluster's replica, which its title names."""
        title, run = f"replica {part.name}: {self.title}", part.run
        return replace(self, replica=run.replica, its_run=run.number, title=title)

    def of_run(self, run: int, name: str) -> "Scene":
        """Return the scene for one of two compared runs, which its title names."""
        return replace(self, run=run, title=f"{name}: {self.title}")

    def as_dict(self) -> dict[str, Any]:
        """Return what a page shows, as plain values. A request's name is a pair of text and id."""
        shown = (
            "kind",
            "title",
            "step",
            "panel",
            "window",
            "question",
            "why",
            "replica",
            "its_run",
            "run",
        )
        lists = ("beside", "requests", "twins", "blocks")
        return {
            **{name: getattr(self, name) for name in shown},
            **{name: list(getattr(self, name)) for name in lists},
            "sentences": [_parts(one) for one in self.sentences],
            "brackets": [
                [one.request, one.first, one.last, plain(one.words)] for one in self.brackets
            ],
            "bars": [[one.name, one.value, plain(one.words), one.is_lit] for one in self.bars],
        }


def _parts(words: Sentence) -> list[str | list[str | int]]:
    """Return a sentence as texts and, for requests, pairs of a name and an id."""
    parts: list[str | list[str | int]] = []
    for part in words:
        if isinstance(part, Claim) and part.request is not None:
            parts.append([part.text, part.request])
        elif parts and isinstance(parts[-1], str):
            parts[-1] += part if isinstance(part, str) else part.text
        else:
            parts.append(part if isinstance(part, str) else part.text)
    return parts


@dataclass(frozen=True)
class Tour:
    """The scenes of a log, in the order in which they are told."""

    scenes: list[Scene] = field(default_factory=list)

    def __getitem__(self, index: int) -> Scene:
        return self.scenes[index]

    def __len__(self) -> int:
        return len(self.scenes)

    def __iter__(self) -> Iterator[Scene]:
        return iter(self.scenes)

    def as_dict(self) -> dict[str, Any]:
        """Return what a page shows, as plain values."""
        return {"scenes": [scene.as_dict() for scene in self.scenes]}

    def to_json(self) -> bytes:
        """Return `as_dict` as JSON, for a page that asks for it."""
        return json.dumps(self.as_dict()).encode()

    def __str__(self) -> str:
        """Return the tour as text: each scene with its title, its sentences and its answer."""
        parts = []
        for number, one in enumerate(self.scenes, start=1):
            head = f"{number}. {one.title[0].upper()}{one.title[1:]}"
            lines = [head if one.step is None else f"{head} (step {one.step:,})"]
            lines.append(fill(one.text, _WIDTH, initial_indent="   ", subsequent_indent="   "))
            parts.append("\n".join(lines))
        return "\n\n".join(parts) or "The log has no step, so there is nothing to tell."
