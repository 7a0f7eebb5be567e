"""A log that is told: what its scenes are made from, each computed once."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.facts import Fact
from visualizer.indexed.known import Known, known_of
from visualizer.reading.knowledge import LogKnowledge, half_dot
from visualizer.reading.regimes import Regimes, regimes_of
from visualizer.reading.tour.claims import Facts
from visualizer.reading.tour.drafting import Drafting
from visualizer.reading.tour.happenings import Happenings
from visualizer.reading.tour.lives import Lives, Times
from visualizer.reading.tour.moments import happenings_of
from visualizer.reading.tour.scene import Panel
from visualizer.reading.waterfall.causes import FOR_BLOCKS
from visualizer.reading.waterfall.waterfall import Waterfall
from visualizer.reading.waterfall.words import in_words
from visualizer.reading.why import WhyError, answer

# What requests wait for: the causes of their waiting, and the words for them.
WAITS: dict[str, tuple[str, ...]] = {
    "for blocks": FOR_BLOCKS,
    "for a seat": ("batch_full",),
    "for the static batch to end": ("static_batch",),
    "for the token budget": ("token_budget",),
    "because the policy defers them": ("policy",),
    "for an adapter slot": ("adapter_slot",),
}
# The facts without which a log has no such panel.
_NEEDS: dict[Panel, tuple[Fact, ...]] = {
    "blocks": ("block_tables",),
    "queue": ("queue",),
    "time": ("arrivals", "step_times"),
}


@dataclass(frozen=True)
class Material:
    """A log and what is known about it."""

    log: EventLog
    names: Mapping[int, str]

    @cached_property
    def happenings(self) -> Happenings:
        """What happens in it."""
        return happenings_of(self.log, self.known_facts, self.times)

    @cached_property
    def drafting(self) -> Drafting:
        """Its drafts."""
        return Drafting(self.log, self.known_facts)

    @cached_property
    def times(self) -> Times:
        """When its steps ran."""
        return Times(self.known_facts, self.regimes.columns.steps.number)

    @cached_property
    def lives(self) -> Lives:
        """Its requests."""
        return Lives(self.known_facts, self.times)

    @cached_property
    def known_facts(self) -> Known:
        """What is known of its steps and requests."""
        return known_of(self.log)

    @cached_property
    def regimes(self) -> Regimes:
        """What limits it."""
        return regimes_of(self.log, self.known_facts)

    @cached_property
    def waterfall(self) -> Waterfall:
        """Where the time of its requests went."""
        return Waterfall(self.log)

    @property
    def facts(self) -> Facts:
        """Makes claims about it."""
        return Facts(self.names, self.regimes.unit)

    @property
    def in_steps(self) -> bool:
        """Whether the log has no times."""
        return self.regimes.unit == "steps"

    def lacks(self, *facts: Fact) -> bool:
        """Return whether at least one of the facts is unknown."""
        return LogKnowledge(self.regimes.columns.source).lacks(*facts)

    def mark(self, *facts: Fact) -> str:
        """Return the half dot if at least one of the facts is inferred, otherwise ""."""
        source = self.regimes.columns.source
        return next(filter(None, (half_dot(source, fact) for fact in facts)), "")

    def why(self, request: int, step: int) -> str:
        """Return the answer about a request in a step; "" if the log has none."""
        try:
            return answer.why(self.log, request, step)
        except WhyError:
            return ""

    def scheduled(self, step: int) -> v.StepScheduled | None:
        """Return the decision in a step; None: the log has none."""
        at = self.known_facts.scheduled.get(step)
        event = self.log[at] if at is not None else None
        return event if isinstance(event, v.StepScheduled) else None

    def of_busy_time(self, begin: int, end: int) -> str:
        """Return " of busy time" if the time between two instants is longer, otherwise ""."""
        busy, whole = self.times.between(begin, end), max(0, end - begin)
        return " of busy time" * (in_words(busy, "us") != in_words(whole, "us"))

    def index(self, step: int) -> int | None:
        """Return the place of a finished step in the columns."""
        numbers = self.regimes.columns.steps.number
        return numbers.index(step) if step in numbers else None

    def known(self, *panels: Panel) -> tuple[Panel, ...]:
        """Return the panels whose facts the log has."""
        return tuple(one for one in panels if not self.lacks(*_NEEDS.get(one, ())))
