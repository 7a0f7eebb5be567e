"""The facts behind an answer of `why`, for tests that do not read its sentences."""

from typing import NamedTuple

from engine.events.log import EventLog
from engine.why.answer import why
from engine.why.facts import Facts
from engine.why.log_index import LogIndex, RequestSpan
from engine.why.room import Remedy


class Explanation(NamedTuple):
    """An answer with its facts."""

    directory: LogIndex
    life: RequestSpan
    step: int
    facts: Facts
    text: str

    @property
    def remedy(self) -> Remedy | None:
        return self.facts.remedy(self.directory.classes)


def explain(log: EventLog, request: int, step: int | None = None) -> Explanation:
    directory = LogIndex.of(log)
    life, at = directory.find(request, step)
    facts = Facts.of(log, request, directory.steps[at])
    return Explanation(directory, life, at, facts, why(log, request, step))
