"""Describe one step of a log in words: what happened to each request, and why.

The sentences come from `visualizer/reading/messages.py`. Each is a list of texts and request ids, which
`plain` turns into a string. Every number is read from the folded log.
"""

import copy
import itertools
import re
import unicodedata

from engine.core.log import EventLog, State
from engine.core.log import vocabulary as v
from engine.core.log.state import ROOT
from visualizer.logs import state_before
from visualizer.reading.knowledge import half_dot
from visualizer.reading.messages import (
    Words,
    admission_words,
    count,
    moved_words,
    preemption_words,
    put_off_words,
    reason_words,
    row_words,
    slot_words,
    stalled_words,
    supply_words,
    wasted_words,
)

_SAME_FOR_ALL = ("after_preemption", "static_batch")
_NAME_LENGTH = 16
# The hexadecimal number in a label, such as "cmpl-3f1e2a4b5c6d7e8f-0" or a UUID, and how many of its
# digits a name has.
_HEX = re.compile(
    r"(?<![0-9a-z])(?=[0-9-]*[a-f])(?=[a-f-]*[0-9])[0-9a-f]{8}-?[0-9a-f]{4}[0-9a-f-]*",
    re.IGNORECASE,
)
_DIGITS = range(4, 7)
# What vLLM puts around a client's id: "cmpl-ask-7-0-8935272d", "chatcmpl-ask-7-8935272d".
_OF_VLLM = re.compile(r"^(?:cmpl-(.+)-[0-9]+|chatcmpl-(.+))-[0-9a-f]{8}$")


def names_of(log: EventLog) -> dict[int, str]:
    """Return each request's name on the board: its label, shortened and made unique, or else "r7".

    `visualizer/frontend/src/model/request_spans.ts` produces the same names.
    """
    names: dict[int, str] = {}
    labels: dict[int, str] = {}
    taken: set[str] = set()
    for event in log:
        match event:
            case v.RequestArrived():
                added = {event.request: event.label}
            case v.Forked():
                added = {event.request: labels.get(event.parent, "")}
            case v.Keyframe():
                added = {one.id: one.label for one in event.state.requests}
            case _:
                continue
        labels |= added
        for request, label in added.items():
            if request not in names:
                names[request] = _unique_name(request, label, taken)
                taken.add(names[request])
    return names


def _unique_name(request: int, label: str, taken: set[str]) -> str:
    printable = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in label)
    base = _OF_VLLM.sub(r"\1\2", " ".join(printable.split()))
    if found := _HEX.search(base):
        digits = found[0].replace("-", "")
        shortened = [digits[:most] for most in _DIGITS]
        if free := [name for name in shortened if name not in taken]:
            return free[0]
        base = shortened[-1]
    if len(base) > _NAME_LENGTH:
        base = base[: _NAME_LENGTH - 1] + "…"
    base = base or f"r{request}"
    name, number = base, 2
    while name in taken:
        name, number = f"{base} {number}", number + 1
    return name


def plain(words: Words, names: dict[int, str]) -> str:
    """Return the words as a string."""
    return "".join(word if isinstance(word, str) else names.get(word, f"r{word}") for word in words)


def prefix_text(state: State, node: int, room: int = 36) -> str:
    """Return the text of a cached path from the root to `node`, shortened in the middle."""
    pieces: list[str] = []
    while node != ROOT:
        pieces[:0] = state.nodes[node].texts
        node = state.nodes[node].parent
    text = "".join(pieces).replace("\n", "⏎")
    return text if len(text) <= room else f"{text[: room // 3]}…{text[-(2 * room // 3) :]}"


class Story:
    """The scheduling of one step. Raises ValueError if part of the step is missing from the log.

    index    index in the log of the step's step_started
    events   from step_started to step_scheduled, or to the failure that ended the scheduling
    before   the state when scheduling began
    after    the state when scheduling ended
    """

    def __init__(self, log: EventLog, step: int) -> None:
        self.log, self.step = log, step
        self.index = next(
            (i for i, e in enumerate(log) if isinstance(e, v.StepStarted) and e.step == step), -1
        )
        if self.index < 0:
            raise ValueError(f"step must be one that the log has in full, got {step}")
        self.events: list[v.Event] = []
        self.scheduled: v.StepScheduled | None = None
        for event in log[self.index :]:
            if isinstance(event, v.StepFinished):
                break
            self.events.append(event)
            if isinstance(event, v.StepScheduled):
                self.scheduled = event
                break
        self.before = state_before(log, self.index)
        self.after = self.state_at(len(self.events))
        self.classes = self.before.classes
        self.rows = {row.request: row for row in self.scheduled.rows} if self.scheduled else {}

    def state_at(self, offset: int) -> State:
        """Return the state before `events[offset]`."""
        state = copy.deepcopy(self.before)
        for event in self.events[:offset]:
            state.apply(event)
        return state

    def fate(self, request: int) -> Words:
        """Say what happened to a request in this step, and why, in a sentence without a subject."""
        state = self.after
        for event in self.events:
            if isinstance(event, v.Preempted) and event.request == request:
                return self.preempted(event)
        for event in self.events:
            if isinstance(event, v.Admitted) and event.request == request:
                return self.admitted(event)
        if request in self.rows:
            return [row_words(state, self.rows[request]) + self._in_vain(request)]
        if request in state.waiting:
            return self.waits(request)
        if request in state.requests:
            skipped = dict(self.scheduled.skipped) if self.scheduled else {}
            reason = skipped.get(request, "" if state.source else "token_budget")
            return [stalled_words(state, reason) if reason else "gets nothing"]
        return [self._absent(request)]

    def evicted(self, event: v.RadixEvicted | v.BlockEvicted) -> Words:
        """Say which cached prefix is evicted, and for which request."""
        at = self.state_at(self.events.index(event))
        number = len(at.evicted_blocks(event))
        eviction = self.classes.get("eviction")
        text = prefix_text(at, event.node)
        blocks = f"{count(number, 'cached block')}" + (f" (“{text}”)" if text else "")
        chosen = f", chosen by {eviction}" if eviction else ""
        verb = "is" if number == 1 else "are"
        supply = supply_words(len(at.free), at.evictable)
        if event.needed_by < 0:
            return [f"{blocks} {verb} evicted"]
        mark = half_dot(at.source, "eviction_causes")
        return [f"{blocks} {verb} evicted {mark}for ", event.needed_by, f"{chosen}: {supply}"]

    def preempted(self, event: v.Preempted) -> Words:
        """Say why a request is preempted."""
        policy = self.classes.get("policy")
        chosen = f"; the policy {policy} chose the victim" if policy else ""
        at = self.state_at(self.events.index(event))
        return [*preemption_words(event, len(at.free), at.evictable, at.source), chosen]

    def admitted(self, event: v.Admitted) -> Words:
        """Say how much of an admitted request is cached, and which tokens it computes."""
        found = len(event.blocks) * self.after.block_size
        length = len(self.after.requests[event.request].tokens)
        row = self.rows.get(event.request)
        computes = f"; it {row_words(self.after, row)}" if row else ""
        computes += self._in_vain(event.request) if row else ""
        adopted = self.state_at(self.events.index(event)).adopted_prefix(event.node)
        words = admission_words(
            found, length, resumed=event.resumed, adopted=adopted, source=self.after.source
        )
        more = (
            moved_words(self.events, event.request, self.after.block_size),
            slot_words(self.events, event.request),
        )
        return ["; ".join(filter(None, (words, *more))) + computes]

    def waits(self, request: int) -> Words:
        """Say why a waiting request is not admitted."""
        if self.scheduled is None:
            return ["waits: scheduling the step failed"]
        if (put_off := dict(self.scheduled.skipped).get(request)) is not None:
            return ["waits because ", put_off_words(self.after, put_off, request)]
        blocked = self.scheduled.blocked
        if blocked is None:
            return ["waits"]
        if blocked.request == request or blocked.reason in _SAME_FOR_ALL:
            return ["waits because ", *reason_words(self.after, self.scheduled)]
        reason = reason_words(self.after, self.scheduled, blocked.request)
        return ["waits behind ", blocked.request, " because ", *reason]

    def _in_vain(self, request: int) -> str:
        later = itertools.islice(self.log, self.index + len(self.events), None)
        why = wasted_words(self.after, later, request)
        return f", {why}" if why else ""

    def _absent(self, request: int) -> str:
        for event in self.log[self.index :]:
            if isinstance(event, v.RequestArrived) and event.request == request:
                return "has not arrived yet"
            if isinstance(event, v.Forked) and event.request == request:
                return "does not exist yet"
        return "has ended already"
