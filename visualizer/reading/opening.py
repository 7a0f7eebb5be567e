"""Choose the step at which a board opens, and the request that the board selects.

A run with a limit opens at its worst step (`regimes`), and any other one at the step in which most
happens. `visualizer/frontend/src/model/opening.ts` finds the latter in a log that Python
has not read.
"""

from engine.core.log import Event, EventLog, State
from engine.core.log import vocabulary as v
from visualizer.logs import StepIndex
from visualizer.reading.regimes import Regimes

# Events to search, because the browser draws a long log before it has read all of it.
SEARCHED = 50_000

# Scores in quarters of a point.
_PREEMPTED, _FATE, _SPLIT, _LARGE_HIT = 24, 12, 12, 8
_EVICTED, _WAITING, _RUNNING, _EDGE = 4, 4, 1, 16
_MOST_WAITING, _MOST_RUNNING = 5, 8
# What a step is about, the rarest kind first.
_KINDS = ("preempted", "copied", "forked", "rejected", "hit", "evicted", "row")


def opening(log: EventLog, steps: StepIndex, regimes: Regimes) -> tuple[int, int | None]:
    """Return the step at which to open the board of a log, and the request to select."""
    if regimes.worst is None:
        return eventful(log, steps)
    worst, number = regimes.worst, list(steps.ends).index(regimes.worst)
    request = steps.notable_request(worst)
    begin = list(steps.ends.values())[number - 1] if number else 0
    for event in log[begin : steps.ends[worst]]:
        if request is None and isinstance(event, v.StepScheduled) and event.blocked:
            request = event.blocked.request  # the head of the queue
    return worst, request


def eventful(log: EventLog, steps: StepIndex) -> tuple[int, int | None]:
    """Return the step with the highest score, and the request that the step is about.

    The score of a step is the sum of these points:

    - 6 for a preemption
    - 3 for each fate of the victims' blocks: held by others, cached, or allocated to a new owner
    - 3 for a copied block, a fork or a rejected draft
    - 2 for a cache hit of at least half the prompt
    - 1 for an eviction
    - 1 for each waiting request, up to 5
    - 1/4 for each running request, up to 8

    Steps in the first and the last tenth of the run lose 4 points. If several steps have the highest
    score, the earliest one wins in which something happens or a request waits. If there is no such
    step, the last one wins, because the answers are longest there. Only steps that end within the first
    50,000 events are considered.
    """
    ends = list(steps.ends.items())
    count = max(1, sum(end <= SEARCHED for _, end in ends))
    tenth = count // 10
    state, begin = State(), 0
    best: tuple[int, int, int | None] | None = None
    is_dull = True  # whether nothing happens in the best step
    for index, (step, end) in enumerate(ends[:count]):
        facts = _StepFacts()
        for event in log[begin:end]:
            facts.note(event, state)
            state.apply(event)
        begin = end
        is_edge = index < tenth or index >= count - tenth
        score = facts.score(state)
        ranked = score - _EDGE * is_edge
        if best is None or ranked > best[0] or (ranked == best[0] and is_dull):
            best = ranked, step, facts.request(state)
            is_dull = score == _RUNNING * min(len(state.running), _MOST_RUNNING)
    return (0, None) if best is None else best[1:]


class _StepFacts:
    """What happened in a step: the first request of each kind, and the victims' blocks."""

    def __init__(self) -> None:
        self.first: dict[str, int] = {}
        self.has_large_hit = self.has_eviction = False
        self.losses: dict[int, tuple[list[int], int]] = {}  # victim -> its table, event number
        self.taken: list[tuple[int, int, int]] = []  # block, request, event number

    def note(self, event: Event, state: State) -> None:
        """Record an event that is about to be applied to `state`."""
        number = state.seq + 1
        match event:
            case v.Admitted(request=request, blocks=blocks) if blocks:
                self.first.setdefault("hit", request)
                found = len(blocks) * state.block_size
                self.has_large_hit |= 2 * found >= state.requests[request].prompt_length
            case v.Preempted(request=request):
                self.first.setdefault("preempted", request)
                self.losses[request] = list(state.requests[request].block_table), number
            case v.BlocksAllocated(request=request, blocks=blocks):
                self.taken += [(block, request, number) for block in blocks]
            case v.BlockCopied(request=request, block=block):
                self.first.setdefault("copied", request)
                self.taken.append((block, request, number))
            case v.RadixEvicted(needed_by=request) | v.BlockEvicted(needed_by=request):
                self.has_eviction = True
                if request > 0:
                    self.first.setdefault("evicted", request)
            case v.Forked(request=request):
                self.first.setdefault("forked", request)
            case v.StepScheduled(rows=rows) if rows:
                self.first.setdefault("row", rows[0].request)
            case v.StepFinished():
                drafts = {row.request: len(row.drafts) for row in state.plans.get(event.step, [])}
                for gain in event.tokens:
                    if gain.accepted < drafts.get(gain.request, 0):
                        self.first.setdefault("rejected", gain.request)

    def score(self, state: State) -> int:
        """Return the step's score in quarters of a point; `state` is the state at its end."""
        return (
            _PREEMPTED * ("preempted" in self.first)
            + _FATE * len(self._fates(state))
            + _SPLIT * bool({"copied", "forked", "rejected"} & self.first.keys())
            + _LARGE_HIT * self.has_large_hit
            + _EVICTED * self.has_eviction
            + _WAITING * min(len(state.waiting), _MOST_WAITING)
            + _RUNNING * min(len(state.running), _MOST_RUNNING)
        )

    def request(self, state: State) -> int | None:
        """Return the request that the step is about."""
        kinds = [self.first[kind] for kind in _KINDS if kind in self.first]
        return next(iter([*kinds, *state.running, *state.waiting]), None)

    def _fates(self, state: State) -> set[str]:
        """Return the fates of the victims' blocks, except of those that are free."""
        if not self.losses:
            return set()
        cached = {block for node in state.nodes.values() for block in (*node.blocks, *node.copies)}
        fates = set()
        for table, lost_at in self.losses.values():
            for block in table:
                takers = [(r, at) for one, r, at in self.taken if one == block and at > lost_at]
                if takers and self.losses.get(takers[-1][0], ([], -1))[1] <= takers[-1][1]:
                    fates.add("taken")
                elif state.refs[block] - (block in cached):
                    fates.add("others")
                elif block in cached:
                    fates.add("cached")
        return fates
