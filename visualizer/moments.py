"""One step of a log in words: what became of a request in it, and why.

Words are a list of texts and of requests (their ids), so that a page can draw a request with its
swatch; `plain` makes a string of them. Every number is from the folded log.
"""

import copy
import unicodedata

from engine.events import EventLog, State
from engine.events import vocabulary as v
from engine.events.state import ROOT

Words = list[str | int]

_SAME_FOR_ALL = ("after_preemption", "static_batch")
_NAME_LENGTH = 16


def names_of(log: EventLog) -> dict[int, str]:
    """What the board calls each request: its label, cut and numbered if taken, else "r7".

    `visualizer/frontend/src/model/request_spans.js` gives the same names.
    """
    names: dict[int, str] = {}
    labels: dict[int, str] = {}
    taken: set[str] = set()
    for event in log:
        if isinstance(event, v.RequestArrived):
            labels[event.request] = event.label
            _name(event.request, event.label, names, taken)
        elif isinstance(event, v.Forked):
            labels[event.request] = labels.get(event.parent, "")
            _name(event.request, labels[event.request], names, taken)
        elif isinstance(event, v.Keyframe):
            for entry in event.state["requests"]:
                labels[entry["id"]] = entry["label"]
                _name(entry["id"], entry["label"], names, taken)
    return names


def _name(request: int, label: str, names: dict[int, str], taken: set[str]) -> None:
    if request in names:
        return
    printable = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in label)
    base = " ".join(printable.split())
    if len(base) > _NAME_LENGTH:
        base = base[: _NAME_LENGTH - 1] + "…"
    base = base or f"r{request}"
    name, number = base, 2
    while name in taken:
        name, number = f"{base} {number}", number + 1
    names[request] = name
    taken.add(name)


def plain(words: Words, names: dict[int, str]) -> str:
    """The words as text."""
    return "".join(word if isinstance(word, str) else names.get(word, f"r{word}") for word in words)


def count(number: int, noun: str) -> str:
    """ "1 block", "2 blocks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def evictable(state: State) -> int:
    """Blocks in the tree that nobody has locked."""
    return sum(len(node.blocks) for node in state.nodes.values() if not node.lock)


def prefix_text(state: State, node: int, room: int = 36) -> str:
    """What a cached path spells from the root on, cut in the middle: how it differs is at its end."""
    pieces: list[str] = []
    while node != ROOT:
        pieces[:0] = state.nodes[node].texts
        node = state.nodes[node].parent
    text = "".join(pieces).replace("\n", "⏎")
    return text if len(text) <= room else f"{text[: room // 3]}…{text[-(2 * room // 3) :]}"


class Moment:
    """The scheduling of one step. Raises ValueError where the log has no such step.

    index    of its step_started in what the log keeps
    events   from there to its step_scheduled, or as far as it came
    before   the state when scheduling began
    after    the state when it had ended
    """

    def __init__(self, log: EventLog, step: int) -> None:
        self.log, self.step = log, step
        self.index = next(
            (i for i, e in enumerate(log) if isinstance(e, v.StepStarted) and e.step == step), -1
        )
        if self.index < 0:
            raise ValueError(f"the log has no step {step} from its beginning")
        self.events: list[v.Event] = []
        self.scheduled: v.StepScheduled | None = None
        for event in log[self.index :]:
            if isinstance(event, v.StepFinished):
                break
            self.events.append(event)
            if isinstance(event, v.StepScheduled):
                self.scheduled = event
                break
        self.before = State()
        for event in log[: self.index]:
            self.before.apply(event)
        self.after = self.state_at(len(self.events))
        self.classes = self.before.classes
        self.rows = {row.request: row for row in self.scheduled.rows} if self.scheduled else {}

    def state_at(self, offset: int) -> State:
        """The state before the event at that place in `events`."""
        state = copy.deepcopy(self.before)
        for event in self.events[:offset]:
            state.apply(event)
        return state

    def fate(self, request: int) -> Words:
        """What became of a request in this step, and why; to be read behind its name."""
        state = self.after
        for event in self.events:
            if isinstance(event, v.Preempted) and event.request == request:
                return self.preempted(event)
        for event in self.events:
            if isinstance(event, v.Admitted) and event.request == request:
                return self.admitted(event)
        if request in self.rows:
            return self.computes(self.rows[request])
        if request in state.waiting:
            return self.waits(request)
        if request in state.requests:
            budget = state.settings["token_budget"]
            return [f"gets nothing: the budget of {count(budget, 'token')} is spent"]
        return [self._absent(request)]

    def preempted(self, event: v.Preempted) -> Words:
        """Why somebody had to give back everything."""
        at = self.state_at(self.events.index(event))
        who: Words = ["it"] if event.needed_by == event.request else [event.needed_by]
        room = f"{len(at.free)} free, {evictable(at)} to evict"
        rule = self.classes.get("policy")
        chosen = f"; the victim is the choice of the policy {rule}" if rule else ""
        return ["is preempted: ", *who, f" needs more KV blocks ({room}){chosen}"]

    def evicted(self, event: v.RadixEvicted) -> Words:
        """Which cached prefix was given up for whom."""
        at = self.state_at(self.events.index(event))
        number = len(at.nodes[event.node].blocks)
        verb = "is" if number == 1 else "are"
        rule = self.classes.get("eviction")
        chosen = f", the choice of {rule}" if rule else ""
        text = (
            f"{count(number, 'cached block')} (“{prefix_text(at, event.node)}”) {verb} evicted for "
        )
        return [text, event.needed_by, f": {count(len(at.free), 'block')} free{chosen}"]

    def admitted(self, event: v.Admitted) -> Words:
        """What a request found in the cache, and what it computes."""
        length = len(self.after.requests[event.request].tokens)
        found = len(event.blocks) * self.after.block_size
        verb = "resumes" if event.resumed else "is admitted"
        blocks = f" ({count(len(event.blocks), 'block')})" if found else ""
        row = self.rows.get(event.request)
        later = length - row.start - row.count if row else 0
        left = f", {later} left for later" if later > 0 else ""
        rest = f", {row.count} computed now{left}" if row else ""
        return [f"{verb}: {found} of its {count(length, 'token')} are cached{blocks}{rest}"]

    def computes(self, row: v.ScheduledRow) -> Words:
        """A row of the plan."""
        request = self.after.requests[row.request]
        end, length = row.start + row.count - len(row.drafts), len(request.tokens)
        left = f", {length - end} left for later" if end < length else ""
        drafts = f" and checks {count(len(row.drafts), 'draft')}" if row.drafts else ""
        if row.start < request.prompt_length:
            whole = request.prompt_length if end <= request.prompt_length else length
            return [f"prefills tokens {row.start + 1} to {end} of {whole}{left}{drafts}"]
        if end - row.start > 1 or left:
            return [f"catches up with tokens {row.start + 1} to {end} of {length}{left}{drafts}"]
        return [f"decodes one token{drafts}"]

    def waits(self, request: int) -> Words:
        """Why somebody was not admitted."""
        if self.scheduled is None:
            return ["waits: planning the step failed"]
        if (request, "policy") in self.scheduled.skipped:
            return [f"waits: the policy {self.classes.get('policy', '')} put it off"]
        blocked = self.scheduled.blocked
        if blocked is None:
            return ["waits"]
        reason = self._reason(blocked)
        if blocked.request == request or blocked.reason in _SAME_FOR_ALL:
            return [f"waits: {reason}"]
        return ["waits behind ", blocked.request, f", which is asked first: {reason}"]

    def _reason(self, blocked: v.Blocked) -> str:
        settings, need, have = self.after.settings, blocked.need, blocked.have
        places = f"{have} of {settings['max_batch_size']} places left"
        budget = f"{have} of {count(settings['token_budget'], 'token')} left"
        words: dict[v.WaitingReason, str] = {
            "batch_full": f"the batch is full ({places})",
            "token_budget": f"the budget is spent ({budget})",
            "no_free_blocks": f"no free blocks (it needs {need}, {have} can be had)",
            "reserved_blocks": f"blocks are reserved (its worst case needs {need}, {have} are left)",
            "after_preemption": "a step that preempts admits nobody",
            "static_batch": "the static batch has not finished",
            "policy": "the policy put it off",
        }
        return words[blocked.reason]

    def _absent(self, request: int) -> str:
        for event in self.log[self.index :]:
            if isinstance(event, v.RequestArrived) and event.request == request:
                return "has not arrived yet"
            if isinstance(event, v.Forked) and event.request == request:
                return "has not forked off yet"
        return "has ended already"
