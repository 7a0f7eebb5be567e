"""The ways through the course: which lessons a reader with two hours, a day or more time takes.

The contents, the README, the site's front page and the end of each lesson show them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from authoring.parts import lessons


@dataclass(frozen=True)
class Route:
    """A way through. `exercises` are the lessons whose exercise fits into the time."""

    name: str
    lessons: tuple[str, ...]
    exercises: tuple[str, ...]
    promise: str

    @property
    def is_all(self) -> bool:
        """Whether it leaves nothing out; its name does not say how long that takes."""
        return self.lessons == _numbers()


def _numbers() -> tuple[str, ...]:
    return tuple(path.name[:2] for path in lessons())


ROUTES = (
    Route(
        "two hours",
        ("00", "04", "05", "10", "11", "20"),
        ("04", "10", "11"),
        "how a batch, its memory and its budget decide which request waits, and what one machine can "
        "take; for prefix caches, add 06 and 07 and half an hour",
    ),
    Route(
        "a day",
        tuple(one for one in _numbers() if one not in ("13", "15", "16", "17", "23")),
        ("04", "05", "08", "09", "10", "11", "20"),
        "why decode is slow, what caches and guesses save, and what several machines change",
    ),
    Route(
        "all of it",
        _numbers(),
        _numbers(),
        "every part of an engine, written by you, and a final project that needs them",
    ),
)


def onward(lesson: str) -> str:
    """Return the last line of a lesson: where each route goes on from it."""
    paths = {path.name[:2]: path.name for path in lessons()}
    return " ".join(_sentences(lesson, paths))


def _sentences(lesson: str, paths: dict[str, str]) -> Iterator[str]:
    for route in ROUTES:
        if lesson not in route.lessons:
            continue
        name = f"{route.name[0].upper()}{route.name[1:]}"
        if rest := route.lessons[route.lessons.index(lesson) + 1 :]:
            yield f"{name}: go on with [{rest[0]}]({paths[rest[0]]})."
        elif route.is_all:
            yield f"{name}: go on with [the final project](../project/README.md)."
        else:
            yield f"{name}: this was the last lesson."
