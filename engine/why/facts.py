"""What the folded state says about one request in one step: counts, no words.

`Facts.of` folds the log once, up to the scheduling of the step, and counts at the moments that
matter on the way: when the request was preempted, when it was admitted, what had been evicted before.
"""

from dataclasses import dataclass, field

from engine.config import EngineConfig
from engine.events import vocabulary as v
from engine.events.fold import State
from engine.events.log import EventLog
from engine.events.state import ROOT, NodeState
from engine.why.room import Match, Remedy, common, evictable, remedy


@dataclass(slots=True)
class Preemption:
    """What a victim had to give up.

    free, evictable  blocks that could be had before
    held             blocks it held, of which
    shared           are in others' tables as well,
    cached           only the cache keeps, and
    freed            nobody
    """

    needed_by: int
    refunded: int
    free: int
    evictable: int
    held: int
    shared: int
    cached: int
    freed: int


@dataclass(slots=True)
class Eviction:
    """A cached beginning of the request, `tokens` long, that was lost in part or whole."""

    tokens: int
    step: int
    event: v.RadixEvicted

    def usable(self, admission: "Admission", size: int) -> int:
        """Of `tokens`, what an admission could have used: whole blocks, and never its last token."""
        return min(self.tokens, admission.tokens - 1) // size * size


@dataclass(slots=True)
class Admission:
    """What a request found when it left the queue, in tokens.

    tokens   it had, of which
    found    were cached, and
    most     could have been: hits come in whole blocks, and one token at least is computed
    agree    the longest beginning that it has in common with anything cached
    sharers  who held the found blocks
    lost     the last eviction before which more of it was cached than was found
    scored   its prompt is computed whole, because the prompt's tokens are to be scored
    """

    resumed: bool
    tokens: int
    found: int
    most: int
    agree: int
    sharers: list[int]
    lost: Eviction | None = None
    scored: bool = False


@dataclass(slots=True)
class Facts:
    """One request in one step.

    state       when the step was scheduled
    event       the decision
    victims     who was preempted in the step, as far as the log goes back
    preemption  of this request in this step, if any
    admission   likewise
    unscored    requests whose prompt is still to be scored, so that the cache is of no use to them
    """

    state: State
    event: v.StepScheduled
    victims: list[int] = field(default_factory=list)
    preemption: Preemption | None = None
    admission: Admission | None = None
    unscored: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, log: EventLog, request: int, at: int) -> "Facts":
        """The facts about `request` in the step whose step_scheduled is event `at` of `log`."""
        event = log[at]
        assert isinstance(event, v.StepScheduled)
        facts, lost = cls(State(), event), list[Eviction]()
        admitted = _is_admitted(log, request, at)
        tokens = _all_tokens(log, request) if admitted else []
        for before in log[: at + 1]:
            match before:
                case v.StepStarted():
                    facts.victims, facts.preemption, facts.admission = [], None, None
                case v.RadixEvicted() if admitted:
                    lost.append(_eviction(facts.state, before, tokens))
                case v.Preempted():
                    facts.victims.append(before.request)
                    if before.request == request:
                        facts.preemption = _preemption(facts.state, before)
                case v.Admitted() if before.request == request:
                    facts.admission = _admission(facts.state, before, lost)
                    facts.admission.scored = request in facts.unscored
            facts._note_scores(before)
            facts.state.apply(before)
        return facts

    @property
    def config(self) -> EngineConfig:
        """The settings."""
        names, settings = EngineConfig.__struct_fields__, self.state.settings
        return EngineConfig(**{name: settings[name] for name in names if name in settings})

    def head_match(self, blocked: v.Blocked) -> Match:
        """Return the cached prefix of the blocked head of the queue."""
        head = self.state.requests[blocked.request]
        return Match(self.state, head, unscored=head.id in self.unscored)

    def remedy(self, classes: dict[str, str] | None) -> Remedy | None:
        """Return what would have let the blocked head of the queue start, if that alone is enough."""
        blocked = self.event.blocked
        if blocked is None:
            return None
        return remedy(self.state, self.event, self.config, self.head_match(blocked), classes)

    def shares_most(self, request: int) -> tuple[int, int]:
        """Return the scheduled request with the longest prefix in common with `request`, and how
        many tokens of it fill whole blocks.
        """
        tokens, size = self.state.requests[request].tokens[:-1], self.state.block_size
        shared = {
            row.request: common(self.state.requests[row.request].tokens, tokens) // size * size
            for row in self.event.rows
        }
        other = max(shared, key=lambda id_: shared[id_])
        return other, shared[other]

    def _note_scores(self, event: v.Event) -> None:
        """Who asks for prompt_logprobs reads no cache until every token of the prompt is scored."""
        match event:
            case v.RequestArrived() if event.sampling.get("prompt_logprobs") is not None:
                self.unscored.add(event.request)
                self._scored(event.request, 0, len(event.prompt))  # one token is not scored
            case v.Keyframe():
                for entry in event.state["requests"]:
                    if entry["sampling"].get("prompt_logprobs") is not None:
                        self.unscored.add(entry["id"])
                        self._scored(entry["id"], entry["computed"], entry["prompt_length"])
            case v.StepFinished():
                for row in self.state.plan:
                    if row.request in self.state.requests:
                        length = self.state.requests[row.request].prompt_length
                        self._scored(row.request, row.start + row.count, length)

    def _scored(self, request: int, computed: int, prompt_length: int) -> None:
        if computed >= prompt_length - 1:
            self.unscored.discard(request)


def _preemption(before: State, event: v.Preempted) -> Preemption:
    table = before.requests[event.request].table
    others = {
        block
        for other in before.requests.values()
        if other.id != event.request
        for block in other.table
    }
    others.update(block for hold in before.holds.values() for block in hold.table)
    shared = sum(block in others for block in table)
    freed = sum(before.refs[block] == 1 for block in table)
    return Preemption(
        needed_by=event.needed_by,
        refunded=event.refunded,
        free=len(before.free),
        evictable=evictable(before),
        held=len(table),
        shared=shared,
        cached=len(table) - shared - freed,
        freed=freed,
    )


def _admission(before: State, event: v.Admitted, lost: list[Eviction]) -> Admission:
    request, size = before.requests[event.request], before.block_size
    blocks = set(event.blocks)
    admission = Admission(
        resumed=event.resumed,
        tokens=len(request.tokens),
        found=len(event.blocks) * size,
        most=(len(request.tokens) - 1) // size * size,
        agree=max(common(_spelled(before, node), request.tokens) for node in before.nodes.values()),
        sharers=[
            other.id
            for other in before.requests.values()
            if other.id != request.id and blocks & set(other.table)
        ],
    )
    for one in lost:
        if one.usable(admission, size) > admission.found:
            admission.lost = one
    return admission


def _eviction(before: State, event: v.RadixEvicted, tokens: list[int]) -> Eviction:
    node = before.nodes[event.node]
    return Eviction(common(_spelled(before, node), tokens), before.step, event)


def _is_admitted(log: EventLog, request: int, at: int) -> bool:
    """Whether it is admitted in the step whose step_scheduled is event `at`."""
    while at > 0 and not isinstance(log[at], v.StepStarted):
        at -= 1
        event = log[at]
        if isinstance(event, v.Admitted) and event.request == request:
            return True
    return False


def _all_tokens(log: EventLog, request: int) -> list[int]:
    """Every token that a request has by the end of the log; it never loses any."""
    tokens: list[int] = []
    prompts: dict[int, list[int]] = {}
    for event in log:
        match event:
            case v.Keyframe():
                for entry in event.state["requests"]:
                    prompts[entry["id"]] = entry["tokens"]
            case v.RequestArrived():
                prompts[event.request] = event.prompt
            case v.Forked() if event.request == request:
                prompts[request] = prompts[event.parent]
            case v.StepFinished():
                for row in event.tokens:
                    if row.request == request:
                        tokens += row.ids
    return prompts.get(request, []) + tokens


def _spelled(state: State, node: NodeState) -> list[int]:
    """All tokens from the root to the end of a node's edge."""
    tokens: list[int] = []
    while node.id != ROOT:
        tokens = node.tokens + tokens
        node = state.nodes[node.parent]
    return tokens
