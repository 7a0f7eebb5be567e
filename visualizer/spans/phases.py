"""Cut the time of a request into the phases that tracing tools show, each with the causes of its time.

queue      from its arrival to its first forward pass
prefill    to its first token
decode     to its end
preempted  between being preempted and the next forward pass; the phase before goes on after it

A phase adds up the waterfall's spans: one decode of a thousand steps is one phase, not a thousand
spans, and a pause while the request is preempted belongs to `preempted`. Its causes are those of the
waterfall, so a trace, the board and `why` give the same numbers.
"""

from collections import Counter
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Literal

from visualizer.reading.waterfall.stretches import Stretch
from visualizer.reading.waterfall.waterfall import RequestTime

PhaseName = Literal["queue", "prefill", "decode", "preempted"]
# Others that a phase names: the ones that it waited behind the longest.
_MOST_LINKS = 8


@dataclass
class Phase:
    """A phase of a request. Times are microseconds since the run started.

    causes   time by cause; they add up to its length
    about    time by request: that it waited behind, or, if it is `preempted`, that needed its blocks
    steps    number of the engine's steps that it spans
    """

    name: PhaseName
    start: int
    end: int
    causes: Counter[str] = field(default_factory=Counter)
    about: Counter[int] = field(default_factory=Counter)
    first_step: int = 0
    last_step: int = 0

    @property
    def steps(self) -> int:
        """Number of the engine's steps that it spans."""
        return self.last_step - self.first_step + 1

    @property
    def longest(self) -> list[tuple[int, int]]:
        """The requests with the most time in `about`, and it; of equal times, lower ids first."""
        return nsmallest(_MOST_LINKS, self.about.items(), key=lambda one: (-one[1], one[0]))

    def add(self, stretch: Stretch) -> None:
        """Add the stretch that follows."""
        self.end, self.last_step = stretch.end, stretch.last
        self.causes.update(stretch.causes)
        self.about.update(stretch.about)


def phases_of(time: RequestTime) -> list[Phase]:
    """Return the phases of a request, in order and without a gap; [] if it has no time at all."""
    phases: list[Phase] = []
    for stretch in time.stretches:
        if stretch.is_away:
            name: PhaseName = "preempted"
        elif time.first_token is not None and stretch.start >= time.first_token:
            name = "decode"
        elif stretch.has_row or (phases and phases[-1].name != "queue"):
            name = "prefill"
        else:
            name = "queue"
        if not phases or phases[-1].name != name:
            phases.append(Phase(name, stretch.start, stretch.end, first_step=stretch.first))
        phases[-1].add(stretch)
    return phases
