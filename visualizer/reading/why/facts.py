"""Facts about one request in one step, counted from the folded state.

`Facts.of` folds the log once, up to the step's step_scheduled, and counts at the decisive moments: the
request's preemption, its admission, and earlier evictions of its prefix.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.state import common_length
from visualizer.indexed.facts import Request
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.indexed.known import known_of
from visualizer.logs import events_between, state_before
from visualizer.reading.messages import slot_words, wasted_words
from visualizer.reading.rows import OutputTokenRow, token_rows
from visualizer.reading.why.evicted_indexed import Sharing
from visualizer.reading.why.shortfall import Shortfall, is_scored, shortfall
from visualizer.sources.collector import without_gc


@dataclass(slots=True)
class Preemption:
    """A victim's losses.

    free, evictable  blocks before the preemption
    held             number of blocks that the victim held
    shared           how many of them other requests keep
    cached           how many of them only the cache keeps
    freed            how many of them become free
    """

    event: v.Preempted
    free: int
    evictable: int
    held: int
    shared: int
    cached: int
    freed: int


@dataclass(slots=True)
class Eviction:
    """An eviction from a cached prefix of the request: of what follows its first `begin` tokens.

    tokens  how long the prefix was until then
    """

    begin: int
    tokens: int
    step: int
    event: v.RadixEvicted | v.BlockEvicted

    def usable(self, admission: "Admission", size: int) -> int:
        """Return how many of `tokens` an admission could use: whole blocks, but not its last token."""
        return min(self.tokens, admission.tokens - 1) // size * size


@dataclass(slots=True)
class Admission:
    """The cached prefix of a request when it was admitted.

    tokens   number of tokens of the request
    found    how many of its tokens were cached
    most     largest possible hit: hits come in whole blocks, and at least one token is computed
    agree    length of its longest common prefix with anything cached
    sharers  requests that held the found blocks
    lost     the last eviction from a cached prefix that would have been a larger hit
    scored   its prompt is scored (prompt_logprobs), so all of it is computed
    adopted  how many of the found tokens another replica computed, and which one
    """

    resumed: bool
    tokens: int
    found: int
    most: int
    agree: int
    sharers: list[int]
    lost: Eviction | None = None
    scored: bool = False
    adopted: tuple[int, str] = (0, "")

    def useful(self, size: int) -> int:
        """Return how many tokens in whole blocks were cached."""
        # With sliding layers, the cache may have more tokens than the request can use.
        return max(self.found, self.agree // size * size)

    def lose(self, evictions: Iterable[Eviction], size: int) -> None:
        """Note the last eviction of the block after those that were cached."""
        useful = self.useful(size)
        for one in evictions:
            if one.begin <= useful < one.usable(self, size):
                self.lost = one


@dataclass(slots=True)
class Facts:
    """One request in one step.

    state       when the step was scheduled
    event       the decision
    victims     requests preempted in the step, as far as the log shows
    preemption  of this request in this step, if any
    admission   of this request in this step, if any
    wasted      why the work of its row was wasted, in words; None if it was not
    slot        what its admission did to the slots for adapters, in words; "" if nothing
    draft_error why the draft model failed after the forward pass of this step, usually ""
    masked      the tokens of this step that its grammar allowed or forced
    gaps        missing messages of a foreign log just before the step
    """

    state: State
    event: v.StepScheduled
    victims: list[int] = field(default_factory=list)
    preemption: Preemption | None = None
    admission: Admission | None = None
    wasted: str | None = None
    slot: str = ""
    draft_error: str = ""
    masked: list[OutputTokenRow] = field(default_factory=list)
    gaps: list[v.EventsMissing] = field(default_factory=list)

    @classmethod
    @without_gc()
    def of(cls, log: EventLog, request: int, at: int) -> "Facts":
        """Return the facts about `request` in the step whose step_scheduled is event `at` of `log`.

        If the request is admitted in the step, any earlier eviction may be the reason why no more of
        its prompt is cached. So the log is folded from its beginning then; with an index, only around
        the step and around that eviction. Without token ids, no prefix can be recognized.
        """
        event, first = log[at], log.next_seq - len(log)
        assert isinstance(event, v.StepScheduled)
        facts, lost = cls(State(), event), list[Eviction]()
        own = _own(log, request, at) if _is_admitted(log, request, at) else None
        begin = _begin(log, at, is_admitted=own is not None)
        facts.state = state_before(log, begin)
        for before in events_between(log, begin, at + 1):
            match before:
                case v.StepStarted():
                    facts.victims, facts.preemption, facts.admission = [], None, None
                    facts.slot = ""
                case v.AdapterChanged():
                    facts.slot = facts.slot or slot_words([before], request)
                case v.RadixEvicted() | v.BlockEvicted() if own is not None:
                    _note_eviction(lost, facts.state, before, *own)
                case v.EventsMissing():
                    facts.gaps.append(before)
                case v.StepScheduled() if facts.state.seq + 1 < first + at:
                    facts.gaps = []
                case v.Preempted():
                    facts.victims.append(before.request)
                    if before.request == request:
                        facts.preemption = _preemption(facts.state, before)
                case v.Admitted() if before.request == request:
                    facts.admission = _admission(facts.state, before, lost)
                    facts.admission.scored = is_scored(facts.state.requests[request])
            facts.state.apply(before)
        if facts.admission is not None and own is not None and isinstance(log, IndexedLog):
            _find_lost(log, begin, request, facts)
        facts.wasted = wasted_words(facts.state, events_between(log, at + 1, len(log)), request)
        later = events_between(log, at + 1, len(log))
        ends = (one for one in later if isinstance(one, v.StepFinished))
        facts.draft_error = next(
            (one.draft_error for one in ends if one.step == facts.state.step), ""
        )
        live = facts.state.requests.get(request)
        if live is not None and "structured" in live.sampling:
            step = facts.state.step
            facts.masked = [
                token
                for token in token_rows(log)
                if token.request == request and token.step == step and token.allowed
            ]
        return facts

    @property
    def config(self) -> EngineConfig:
        """The run's settings."""
        names, settings = EngineConfig.__struct_fields__, self.state.settings
        return EngineConfig(**{name: settings[name] for name in names if name in settings})

    def shortfall(self, classes: dict[str, str] | None) -> Shortfall | None:
        """Return what the blocked head of the queue would have needed to start, if that alone is
        enough."""
        return shortfall(self.state, self.event, self.config, classes)

    def longest_shared_prefix(self, request: int) -> tuple[int, int]:
        """Return the scheduled request with the longest prefix in common with `request`, and how
        many tokens of it fill whole blocks.
        """
        requests, size = self.state.requests, self.state.block_size
        tokens = requests[request].tokens[:-1]
        shared = {
            row.request: common_length(requests[row.request].tokens, tokens)
            for row in self.event.rows
            if requests[row.request].extra_key == requests[request].extra_key
        }
        other = max(shared, key=lambda id_: shared[id_] // size)
        return other, shared[other] // size * size


def _preemption(before: State, event: v.Preempted) -> Preemption:
    table = before.requests[event.request].held_blocks
    others = {
        block
        for other in before.requests.values()
        if other.id != event.request
        for block in other.held_blocks
    }
    others.update(block for hold in before.holds.values() for block in hold.block_table)
    shared = sum(block in others for block in table)
    freed = sum(before.refs[block] == 1 for block in table)
    return Preemption(
        event=event,
        free=len(before.free),
        evictable=before.evictable,
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
        adopted=before.adopted_prefix(event.node),
        most=(len(request.tokens) - 1) // size * size,
        agree=before.cached_prefix(request.tokens, extra_key=request.extra_key)[1],
        sharers=[
            other.id
            for other in before.requests.values()
            if other.id != request.id and blocks & set(other.block_table)
        ],
    )
    admission.lose(lost, size)
    return admission


def _own(log: EventLog, request: int, at: int) -> tuple[list[int], list[str]] | None:
    """Return the tokens and the extra key of a request that is admitted before event `at`.

    An index has its later tokens, too, which no cached prefix can be about. None: they are unknown.
    """
    if isinstance(log, IndexedLog) and (known := known_of(log).request(request)) is not None:
        own: Request | v.RequestState = known
    else:
        own = log.state(log.next_seq - len(log) + at).requests[request]
    return None if -1 in own.tokens[: own.prompt_length] else (own.tokens, own.extra_key)


def _begin(log: EventLog, at: int, *, is_admitted: bool) -> int:
    """Return the index of the first event that is needed for event `at`, a step_scheduled."""
    begin = at
    while begin > 0 and not isinstance(log[begin - 1], v.StepScheduled):
        begin -= 1
    if not is_admitted:
        return begin
    if isinstance(log, IndexedLog) and not log.index.directory.adopts:
        return log.saved_before(begin)
    return 0


def _find_lost(log: IndexedLog, begin: int, request: int, facts: Facts) -> None:
    """Find the eviction that an admission suffers from before the index `begin`, if none is known."""
    admission, own, size = facts.admission, facts.state.requests[request], facts.state.block_size
    assert admission is not None
    prefix = admission.useful(size) + size
    if admission.lost is not None or prefix > admission.most or not begin:
        return
    sharing = Sharing.of(log, own.tokens[:prefix], own.extra_key, size)
    for some in sharing.evictions(prefix, begin):
        early = log.saved_before(some.start)
        state = state_before(log, early)
        lost = list[Eviction]()
        for event in events_between(log, early, some.stop):
            _note_eviction(lost, state, event, own.tokens, own.extra_key)
            state.apply(event)
        admission.lose(lost, size)
        if admission.lost is not None:
            return


def _note_eviction(
    lost: list[Eviction], state: State, event: v.Event, tokens: list[int], key: list[str]
) -> None:
    """Add an event to `lost` if it evicts a prefix that may be one of `tokens`, after `state`."""
    if isinstance(event, v.RadixEvicted | v.BlockEvicted) and state.prefix_key(event.node) == key:
        path = state.prefix_tokens(event.node)
        begin = len(path) - len(state.nodes[event.node].tokens)
        lost.append(Eviction(begin, common_length(path, tokens), state.step, event))


def _is_admitted(log: EventLog, request: int, at: int) -> bool:
    """Return whether the request is admitted in the step whose step_scheduled is event `at`."""
    while at > 0 and not isinstance(log[at], v.StepStarted):
        at -= 1
        event = log[at]
        if isinstance(event, v.Admitted) and event.request == request:
            return True
    return False
