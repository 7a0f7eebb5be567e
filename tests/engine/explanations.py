"""The facts behind an answer of `why`, for tests that do not read its sentences."""

from typing import NamedTuple

from engine.core.log.log import EventLog
from visualizer.reading.why.answer import why
from visualizer.reading.why.facts import Facts
from visualizer.reading.why.log_index import LogIndex, RequestSpan
from visualizer.reading.why.shortfall import CachedPrefix, Shortfall


class Explanation(NamedTuple):
    """An answer with its facts."""

    log_index: LogIndex
    span: RequestSpan
    step: int
    facts: Facts
    text: str

    @property
    def shortfall(self) -> Shortfall | None:
        return self.facts.shortfall(self.log_index.classes)

    @property
    def head_prefix(self) -> CachedPrefix:
        """The cached prefix of the blocked head of the queue."""
        facts, blocked = self.facts, self.facts.event.blocked
        assert blocked is not None
        head = facts.state.requests[blocked.request]
        return CachedPrefix(facts.state, head)


def explain(log: EventLog, request: int, step: int | None = None) -> Explanation:
    log_index = LogIndex.of(log, len(log))
    span, at = log_index.find(request, step)
    facts = Facts.of(log, request, log_index.steps[at])
    return Explanation(log_index, span, at, facts, why(log, request, step))
