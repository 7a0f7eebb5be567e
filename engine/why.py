"""Why did this request wait, run, stop, find that much in the cache? Answered from the log alone.

An answer is a chain in words: what happened to the request in a step, the reason with its numbers,
who stood in the way, and what would have had to differ. Every number is counted in the state folded
from the log up to that moment, and what would have helped is said only where the same checks that
the scheduler makes (`scheduling/scheduler.py`) would then all have passed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.events import vocabulary as v
from engine.events.fold import ROOT, NodeState, RequestState, State
from engine.events.log import EventLog


class WhyError(ValueError):
    """The log knows no such request, or no such step."""


def why(log: EventLog, request: int, step: int | None = None) -> str:
    """Why `request` was treated as it was in `step`; None: the last step that it lived to see.

    Raises WhyError for a request or a step that is not in the log.
    """
    scheduled = _scheduled(log)
    if not scheduled:
        raise WhyError("step: the log has no scheduled step yet; run one")
    lives = _lives(log)
    if request not in lives:
        known = f"{min(lives)} to {max(lives)}" if lives else "none"
        raise WhyError(f"request: {request} is not in this log; its requests are {known}")
    life = lives[request]
    if step is None:
        seen = [number for number, index in scheduled.items() if life.begin < index < life.end]
        step = max(seen, default=max(scheduled))
    if step not in scheduled:
        raise WhyError(
            f"step: {step} is not in this log; its steps are {min(scheduled)} to {max(scheduled)}"
        )
    return " ".join(_Answer(log, request, step, scheduled[step], life).sentences())


@dataclass(slots=True)
class _Life:
    """From which event to which a request lives: indexes in the log; `last` is what ended it."""

    begin: int
    end: int
    first: v.Event | None = None
    last: v.RequestFinished | None = None


def _scheduled(log: EventLog) -> dict[int, int]:
    """Step -> index of its step_scheduled."""
    found, step = dict[int, int](), 0
    for index, event in enumerate(log):
        if isinstance(event, v.Keyframe):
            step = event.state["step"]
        elif isinstance(event, v.StepStarted):
            step = event.step
        elif isinstance(event, v.StepScheduled):
            found[step] = index
    return found


def _lives(log: EventLog) -> dict[int, _Life]:
    lives: dict[int, _Life] = {}
    for index, event in enumerate(log):
        match event:
            case v.Keyframe():
                for entry in event.state["requests"]:
                    lives[entry["id"]] = _Life(-1, len(log))
            case v.RequestArrived() | v.Forked():
                lives[event.request] = _Life(index, len(log), event)
            case v.RequestFinished():
                lives[event.request].end = index
                lives[event.request].last = event
    return lives


def _fold(log: EventLog, count: int) -> State:
    """The state after the first `count` events of what the log keeps."""
    state = State()
    for event in log[:count]:
        state.apply(event)
    return state


class _Answer:
    """One question: the state when the step was scheduled, and what led there."""

    def __init__(self, log: EventLog, request: int, step: int, at: int, life: _Life) -> None:
        self.log, self.id, self.step, self.life = log, request, step, life
        self.at = at
        self._told = False  # whether the answer has named step and request already
        self.state = _fold(log, at + 1)
        event = log[at]
        assert isinstance(event, v.StepScheduled)
        self.event = event
        fields = EngineConfig.__struct_fields__
        settings = self.state.settings
        self.config = EngineConfig(**{name: settings[name] for name in fields if name in settings})
        self.left = self.config.token_budget - sum(row.count for row in event.rows)

    def sentences(self) -> Iterator[str]:
        """The answer, most important first."""
        if self.id not in self.state.requests:
            yield self._absent()
            return
        preempted = self._event_of_step(v.Preempted)
        if preempted is not None:
            yield from self._preempted(preempted)
        if self.id in self.state.waiting:
            if preempted is None:
                yield from self._waits()
            return
        admitted = self._event_of_step(v.Admitted)
        if admitted is not None:
            yield from self._found(admitted)
        yield self._runs()

    # Words

    def _name(self, request: int, state: State | None = None) -> str:
        known = (state or self.state).requests.get(request)
        label = known.label if known else ""
        return f"{label} (r{request})" if label not in ("", f"r{request}") else f"r{request}"

    def _names(self, requests: list[int]) -> str:
        return ", ".join(self._name(request) for request in requests) or "nobody"

    def _lead(self, what: str) -> str:
        first, self._told = not self._told, True
        return f"Step {self.step}: {self._name(self.id)} {what}" if first else f"It {what}"

    # Not there

    def _absent(self) -> str:
        first, last = self.life.first, self.life.last
        if self.life.begin > self.at:
            if isinstance(first, v.Forked):
                return self._lead(
                    f"does not exist yet: it is sample {first.sample} of {self._name(first.parent)} "
                    "and forks off when the prompt is complete."
                )
            return self._lead("has not arrived yet.")
        assert last is not None
        return self._lead(f"is gone: it has ended, with reason {last.reason}.")

    # Running

    def _runs(self) -> str:
        for row in self.event.rows:
            if row.request == self.id:
                return self._row(row)
        ahead = ", ".join(
            f"{self._name(row.request)} {row.count}" for row in self.event.rows if row.count
        )
        return self._lead(
            f"runs but computes nothing: the budget of {_count(self.config.token_budget, 'token')} "
            f"was used up by those before it ({ahead})."
        )

    def _row(self, row: v.ScheduledRow) -> str:
        request = self.state.requests[self.id]
        end = row.start + row.count - len(row.drafts)
        if row.start < request.prompt_length:
            what = f"its prompt has {request.prompt_length}"
        elif end - row.start > 1 or end < len(request.tokens):
            what = "it catches up"
        else:
            what = "a decode"
        then = "samples a next token" if end == len(request.tokens) else "samples nothing yet"
        drafts = f", {_count(len(row.drafts), 'draft')} among them" if row.drafts else ""
        return self._lead(
            f"computes {_count(row.count, 'token')} from position {row.start}{drafts}; {what}. "
            f"It has {_count(len(request.tokens), 'token')} and {then}."
        )

    # Waiting

    def _waits(self) -> Iterator[str]:
        blocked = self.event.blocked
        assert blocked is not None, "somebody waits, so the step says who is blocked"
        if blocked.request == self.id:
            yield self._lead(f"waits. {self._reason(blocked)}")
        else:
            yield self._lead(
                f"waits behind {self._name(blocked.request)}, which is asked first and does not "
                f"fit; nobody overtakes it, and {_count(blocked.behind, 'request')} "
                f"{_are(blocked.behind)} behind it. {self._reason(blocked)}"
            )
        yield from self._would_start(blocked)

    def _reason(self, blocked: v.Blocked) -> str:
        who = self._name(blocked.request)
        numbers = f"needs {blocked.need}, has {blocked.have}"
        state, running = self.state, self.state.running
        text = "The policy put it off."
        match blocked.reason:
            case "batch_full":
                text = (
                    f"No place in the batch: {who} {numbers} of "
                    f"{_count(self.config.max_batch_size, 'place')}. In the batch: "
                    f"{self._names(running)}."
                )
            case "token_budget":
                rows = ", ".join(f"{self._name(r.request)} {r.count}" for r in self.event.rows)
                text = (
                    f"The token budget: {who} {numbers} of "
                    f"{_count(self.config.token_budget, 'token')}. The others took: {rows}."
                )
            case "no_free_blocks":
                held = ", ".join(
                    f"{self._name(id_)} {len(state.requests[id_].table)}" for id_ in running
                )
                text = (
                    f"No free blocks: {who} needs {blocked.need}, {self._room(blocked.request)}. "
                    f"Blocks held, shared ones counted for each: {held}."
                )
            case "reserved_blocks":
                text = (
                    "Blocks are reserved, because preemption is off and everybody gets the worst "
                    f"case in advance: {who} {numbers} KV blocks that are not promised to "
                    f"{self._names(running)}."
                )
            case "after_preemption":
                victims = [e.request for e in self._step_events() if isinstance(e, v.Preempted)]
                text = f"A step that preempts admits nobody: preempted {self._names(victims)}."
            case "static_batch":
                text = (
                    "The batch is static: nobody joins until its last member has finished. "
                    f"Still in it: {self._names(running)}."
                )
        return text

    def _room(self, request: int) -> str:
        """ "free 0, evictable 3, all 3 part of its own match"."""
        match = _Match(self.state, self.state.requests[request])
        evictable = _evictable(self.state)
        text = f"free {len(self.state.free)}, evictable {evictable}"
        if not match.unlocked:
            return text
        part = f"all {evictable}" if match.unlocked == evictable else f"{match.unlocked} of them"
        return f"{text}, {part} part of its own match"

    def _would_start(self, blocked: v.Blocked) -> Iterator[str]:
        """What would have let the head of the queue in, if that alone is enough."""
        who = "it" if blocked.request == self.id else self._name(blocked.request)
        lack = blocked.need - blocked.have
        unit = {
            "batch_full": "place",
            "token_budget": "token",
            "no_free_blocks": "free block",
            "reserved_blocks": "free block",
        }.get(blocked.reason)
        if unit is not None and self._fits(blocked, lack):
            yield f"With {lack} more {unit if lack == 1 else unit + 's'} {who} would have started."

    def _fits(self, blocked: v.Blocked, lack: int) -> bool:
        """Whether every check of an admission passes, had there been `lack` more of what lacked."""
        if not (self.config.preemption and self.config.chunked_prefill):
            return False  # worst cases and whole prompts: not recounted here, so nothing is claimed
        request = self.state.requests[blocked.request]
        match = _Match(self.state, request)
        left = self.left + (lack if blocked.reason == "token_budget" else 0)
        room = len(self.state.free) + _evictable(self.state) - match.unlocked
        room += lack if blocked.reason == "no_free_blocks" else 0
        end = min(len(request.tokens), match.blocks * self.state.block_size + left)
        return left > 0 and self.config.blocks_for(end) - match.blocks <= room

    # Preempted

    def _preempted(self, index: int) -> Iterator[str]:
        event = self.log[index]
        assert isinstance(event, v.Preempted)
        before, after = _fold(self.log, index), _fold(self.log, index + 1)
        table = before.requests[self.id].table
        tables = {block for request in after.requests.values() for block in request.table}
        free = len(set(table) & set(after.free))
        others = len(set(table) & tables)
        for_whom = (
            "needed blocks itself"
            if event.needed_by == self.id
            else f"gives way to {self._name(event.needed_by, before)}, which needed blocks"
        )
        yield self._lead(
            f"is preempted: it {for_whom}, and too few could be had (free {len(before.free)}, "
            f"evictable {_evictable(before)}). The victim is the choice of the policy "
            f"({before.settings['policy']})."
        )
        yield (
            f"Of its {_count(len(table), 'block')} others keep {others}, the cache keeps "
            f"{len(table) - others - free}, {free} fell free."
        )
        if event.refunded:
            yield f"{_count(event.refunded, 'token')} of the step's budget went back as well."
        yield "It waits at the front of the queue; what the cache keeps need not be computed again."

    # Admitted: hit or miss

    def _found(self, index: int) -> Iterator[str]:
        event = self.log[index]
        assert isinstance(event, v.Admitted)
        before = _fold(self.log, index)
        request, size = before.requests[self.id], before.block_size
        found, most = len(event.blocks) * size, (len(request.tokens) - 1) // size * size
        start = "resumes" if event.resumed else "starts"
        text = self._lead(f"{start} with {found} of {_count(len(request.tokens), 'token')} found.")
        if not self.config.prefix_cache:
            yield f"{text} The prefix cache is off."
            return
        yield text
        if found:
            sharers = [
                other.id
                for other in before.requests.values()
                if other.id != self.id and set(other.table) & set(event.blocks)
            ]
            yield (
                f"Shared with {self._names(sharers)}."
                if sharers
                else "Nobody held them; the cache kept them."
            )
        if found == most:
            yield (
                "That is all there could be: hits come in whole blocks "
                f"of {size}, and one token at least is computed."
            )
            return
        yield self._divergence(before, request.tokens, found)
        lost = self._evicted(index, request.tokens, found)
        if lost:
            yield lost

    def _divergence(self, state: State, tokens: list[int], found: int) -> str:
        best = 0
        for node in state.nodes.values():
            best = max(best, _common(_spelled(state, node), tokens))
        if best > found:
            return (
                f"What is cached agrees with it for {_count(best, 'token')} and then differs, "
                "inside a block."
            )
        return f"Nothing cached goes on with its token at position {found}."

    def _evicted(self, index: int, tokens: list[int], found: int) -> str:
        """The last eviction that took blocks this admission could have used."""
        state, text = State(), ""
        for event in self.log[:index]:
            if isinstance(event, v.RadixEvicted):
                path = _spelled(state, state.nodes[event.node])
                most = min(_common(path, tokens), len(tokens) - 1)
                usable = most // state.block_size * state.block_size
                if usable > max(found, len(path) - len(state.nodes[event.node].tokens)):
                    room = f"to make room for {self._name(event.needed_by, state)}"
                    cleared = "when the cache was cleared"
                    how = cleared if event.reason == "cleared" else room
                    text = (
                        f"Once {_count(usable, 'token')} of it were cached; node {event.node} was "
                        f"evicted in step {state.step}, {how}."
                    )
            state.apply(event)
        return text

    # The step's events

    def _step_events(self) -> list[v.Event]:
        return self.log[self._step_start() : self.at]

    def _step_start(self) -> int:
        at = self.at
        while at > 0 and not isinstance(self.log[at], v.StepStarted):
            at -= 1
        return at

    def _event_of_step(self, kind: type[v.Preempted] | type[v.Admitted]) -> int | None:
        for index in range(self.at - 1, self._step_start(), -1):
            event = self.log[index]
            if isinstance(event, kind) and event.request == self.id:
                return index
        return None


class _Match:
    """The cached prefix of a waiting request, found by comparing texts.

    blocks    whole blocks found, of which
    unlocked  nobody has locked: evicting them would destroy what is about to be reused
    """

    def __init__(self, state: State, request: RequestState) -> None:
        size = state.block_size
        cached = state.settings["prefix_cache"]
        limit = (len(request.tokens) - 1) // size if cached else 0
        self.blocks = self.unlocked = 0
        node = state.nodes[ROOT]
        while self.blocks < limit:
            rest = request.tokens[self.blocks * size : limit * size]
            below = [state.nodes[child] for child in node.children]
            shared = {child.id: _common(child.tokens, rest) // size for child in below}
            node = max(below, key=lambda child: shared[child.id], default=node)
            depth = shared.get(node.id, 0)
            self.blocks += depth
            self.unlocked += 0 if node.lock else depth
            if depth == 0 or depth < len(node.blocks):
                break


def _spelled(state: State, node: NodeState) -> list[int]:
    """All tokens from the root to the end of a node's edge."""
    tokens: list[int] = []
    while node.id != ROOT:
        tokens = node.tokens + tokens
        node = state.nodes[node.parent]
    return tokens


def _common(one: list[int], other: list[int]) -> int:
    """Length of the longest common beginning."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def _evictable(state: State) -> int:
    """Blocks in the tree that nobody has locked."""
    return sum(len(node.blocks) for node in state.nodes.values() if not node.lock)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
