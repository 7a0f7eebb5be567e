"""Why the cached prefix of a request was not longer: `read(log).why_missed(request)`.

A hit ends at a block that was not cached when the request was admitted. For that block the log says
which of these it was: cached once and evicted, being computed by another request at that moment, never
computed or never stored, or different from every prompt before it; then from which token on. With
sliding layers, a hit also ends where they lack a part of the window before each later end.

If a foreign log has no tokens but the hashes of their blocks, whole blocks are compared.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.state import common_length
from engine.simulation.facts import Fact, Knowledge, knowledge
from engine.simulation.log_part import started_of
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.reading.messages import moved_words
from visualizer.reading.why.find import request_named, request_names
from visualizer.reading.why.log_index import WhyError
from visualizer.reading.why.miss import MissKind, WhyMissed
from visualizer.reading.why.prompts import Prompts
from visualizer.reading.why.shortfall import is_scored

# The facts that each kind follows from, besides the number of cached tokens.
_FACTS: dict[MissKind, tuple[Fact, ...]] = {
    "evicted": ("evictions",),
    "computing": ("scheduled_tokens",),
    "never_stored": ("scheduled_tokens",),
}
_BY_TOKENS = ("never_stored", "shorter", "differs", "first", "other_key")
_ABOUT = ("computing", "never_stored", "shorter", "differs", "other_key")
_AGREEING = (*_ABOUT, "no_window", "no_group")
_Eviction = v.RadixEvicted | v.BlockEvicted


def why_missed(log: EventLog, request: int | str) -> WhyMissed:
    """Explain how much of a request's prompt was cached when it was admitted, and why not more.

    request  its id or its label; a sample has the answer of the request that it forked from

    Raises WhyError for a request that is not in the log, and if the log does not know what was found.
    """
    started = started_of(log)
    if started is not None and knowledge(started.source, "cached_tokens") == "unknown":
        raise WhyError(
            "the log does not say what was found in the cache; `underglass infer` may add it"
        )
    names = request_names(log)
    found = request_named(names, request)
    if isinstance(log, IndexedLog):
        from visualizer.reading.why.missed_indexed import missed_from_index

        if (answer := missed_from_index(log, found, names)) is not None:
            return answer
    return Search(found, names, Prompts.of(log, found), State()).answer(log)


class Search:
    """A single pass over the events up to the request's admission; `state` is that before them."""

    def __init__(
        self, request: int, names: Mapping[int, str], prompts: Prompts, state: State
    ) -> None:
        self.id, self.names = request, names
        self.state, self.prompts, self.own = state, prompts, prompts.own
        # The last eviction of each block of the prompt, by its index.
        self.evicted: dict[int, tuple[int, _Eviction]] = {}
        self.admitted: v.Admitted | None = None

    def answer(self, log: Iterable[v.Event]) -> WhyMissed:
        """Fold up to the admission and look at that moment."""
        root, events = self.prompts.asked, iter(log)
        self.admitted = self.fold(events)
        if self.admitted is not None:
            later = takewhile(lambda one: not isinstance(one, v.StepScheduled), events)
            moved = moved_words(later, root, self.state.block_size)
            return replace(self._admitted(self.admitted), moved=moved)
        kind: MissKind = "waiting" if root in self.prompts.arrived else "before"
        return WhyMissed(request=self.id, kind=kind, names=self.names)

    def fold(self, events: Iterable[v.Event]) -> v.Admitted | None:
        """Fold events, and note evictions, up to the request's admission, which is returned."""
        for event in events:
            if isinstance(event, v.Admitted):
                if event.request == self.prompts.asked and not event.resumed:
                    return event
            elif isinstance(event, v.RadixEvicted | v.BlockEvicted):
                self._note_eviction(event)
            self.state.apply(event)
            self.prompts.note(event, self.state)
        return None

    def evicted_before(
        self, evicted: dict[int, tuple[int, _Eviction]], answer: WhyMissed
    ) -> WhyMissed:
        """Return an answer with evictions that were before the events that it is from."""
        self.evicted = evicted
        assert self.admitted is not None
        return replace(self._admitted(self.admitted), moved=answer.moved)

    def _note_eviction(self, event: v.RadixEvicted | v.BlockEvicted) -> None:
        state, size = self.state, self.state.block_size
        node = state.nodes[event.node]
        if isinstance(event, v.BlockEvicted) and len(node.copies) + len(node.blocks) > 1:
            return  # another copy of the block stays
        if not self.prompts.finds(event.node, state):
            return
        path = self.prompts.path(event.node, state)
        agree = common_length(path, self.own) // size
        for index in range((len(path) - len(node.tokens)) // size, agree):
            self.evicted[index] = state.step, event

    def _admitted(self, event: v.Admitted) -> WhyMissed:
        state, size, own = self.state, self.state.block_size, self.own
        found, most = len(event.blocks) * size, (len(own) - 1) // size * size
        about, agree = self.prompts.nearest(event.request, own)
        key = state.requests[event.request].extra_key
        _, cached = state.cached_prefix(own, self.prompts.of_node, key)
        if cached > agree:
            about, agree = None, cached
        missing = found // size  # the first block that was not cached
        kind: MissKind
        if state.settings["prefix_cache"] == "off":
            kind = "off"
        elif is_scored(state.requests[event.request]):
            kind = "scored"
        elif found >= most:
            kind = "whole"
        elif state.has_windows and min(cached, most) >= found + size:
            kind, agree = "no_window", min(cached, most) // size * size
        elif len(event.hits) > 1 and found < event.hits[0]:
            kind, agree = "no_group", event.hits[0]
        elif (owner := self._computing(event.request, found + size)) is not None:
            kind, about = "computing", owner
            agree = common_length(self.prompts.so_far[owner], own)
        elif missing in self.evicted:
            kind = "evicted"
        elif not self.prompts.is_known(own[found : found + size]):
            kind = "unknown"
        else:
            kind, about, agree = self._compared(event.request, about, agree, found + size)
        evicted, lost = (
            self.evicted.get(missing, (None, None)) if kind == "evicted" else (None,) * 2
        )
        token, other = (
            self._texts(event.request, about, agree) if kind == "differs" else (None,) * 2
        )
        return WhyMissed(
            request=self.id,
            kind=kind,
            step=state.step,
            length=len(own),
            found=found,
            most=most,
            block_size=size,
            about=about if kind in _ABOUT else None,
            group=self._group(event.hits) if kind == "no_group" else ("", 0),
            agree=agree if kind in _AGREEING else found,
            token=token,
            other=other,
            evicted=evicted,
            needed_by=lost.needed_by if lost is not None and lost.needed_by >= 0 else None,
            eviction="" if lost is None else lost.reason,
            by_hash=self._is_by_hash,
            mark=self._mark(kind, lost),
            names=self.names,
        )

    def _group(self, hits: list[int]) -> tuple[str, int]:
        """Return the group beside full attention that had least of the prompt, and how much."""
        least = min(hits[1:])
        number = hits.index(least, 1)
        return self.state.source.get("groups", {number: f"group {number}"})[number], least

    def _compared(
        self, request: int, about: int | None, agree: int, end: int
    ) -> tuple[MissKind, int | None, int]:
        """Return what follows from the most similar request: the kind, the request, what they share."""
        if agree >= end:
            return "never_stored", about, agree
        other, alike = self.prompts.nearest(request, self.own, may_share=False)
        if alike >= end:
            return "other_key", other, alike
        if not agree:
            return "first", about, agree
        is_end = about is not None and not self.prompts.after(about, agree)[0]
        return "shorter" if is_end else "differs", about, agree

    def _computing(self, request: int, end: int) -> int | None:
        """Return a running request that has the tokens up to `end` and has not computed them all."""
        for other in self.state.running:
            if other == request or self.state.requests[other].num_computed_tokens >= end:
                continue
            if not self.prompts.have_one_key(request, other):
                continue
            if common_length(self.prompts.so_far[other], self.own) >= end:
                return other
        return None

    def _texts(self, request: int, about: int | None, at: int) -> tuple[str | None, str | None]:
        """Return the texts of the two tokens that differ, this request's first, as far as they are
        known."""
        if about is None or not isinstance(self.own[at], int):
            return None, None
        texts, (_, other) = self.prompts.texts[request], self.prompts.after(about, at)
        if not (len(texts) > at and texts[at] and other):
            return None, None
        return texts[at], other

    def _mark(self, kind: MissKind, lost: _Eviction | None) -> Knowledge:
        facts: list[Fact] = ["cached_tokens", *_FACTS.get(kind, ())]
        if lost is not None and lost.needed_by >= 0:
            facts.append("eviction_causes")
        known = {knowledge(self.state.source, fact) for fact in facts}
        if kind == "unknown" or "unknown" in known:
            return "unknown"
        # Only prompts have hashes, so a prefix that continues an output cannot be recognized.
        is_guess = kind in _BY_TOKENS and self._is_by_hash
        return "inferred" if "inferred" in known or is_guess else "recorded"

    @property
    def _is_by_hash(self) -> bool:
        return any(isinstance(token, str) for token in self.own)
