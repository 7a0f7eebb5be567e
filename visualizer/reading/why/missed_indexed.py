"""Why a request missed, from an index: only the events from a keyframe before its admission are read.

Of what came before that keyframe, three things matter. The state is in the keyframe. What ended
requests have in common with this one follows from the facts of the index. And a block that was evicted
earlier had been cached by a request with the same prefix: while there is such a request, but no other
reason is found, its eviction is looked up (`evicted_indexed.py`). Only for a prefix that no request of
the log computed, the search begins again further back, and then twice as far away each time.
"""

from array import array
from collections.abc import Iterator, Mapping

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.state import common_length
from visualizer.indexed.facts import Request
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.indexed.known import IndexedKnown, known_of
from visualizer.indexed.part import begin_of
from visualizer.logs import events_between, settings_of
from visualizer.reading.why.evicted_indexed import Sharing
from visualizer.reading.why.miss import WhyMissed
from visualizer.reading.why.missed import Search
from visualizer.reading.why.prompts import Prompts, Similar, Tokens, with_hashes
from visualizer.sources.collector import without_gc

# The kinds that no earlier eviction can replace.
_SETTLED = ("off", "scored", "whole", "no_window", "no_group", "computing", "evicted", "unknown")


@without_gc()
def missed_from_index(log: IndexedLog, request: int, names: Mapping[int, str]) -> WhyMissed | None:
    """Return the answer; None: it cannot be found so, and all events have to be read."""
    known = known_of(log)
    own = known.request(request)
    root = own if own is None or own.id == own.root else known.request(own.root)
    if not isinstance(known, IndexedKnown) or root is None or root.arrived is None:
        return None
    admission = _admission(log, root)
    keyframes = [log.index.ends[one.chunk - 1] for one in log.index.directory.keyframes]
    keyframes = [at for at in keyframes if at <= admission]
    others, back = _Others(log, known, root, admission), 1
    while back <= len(keyframes):
        begin = keyframes[-back]
        state = log.state(others.first + begin - 1)
        search = Search(request, names, others.prompts(state), state)
        answer = search.answer(events_between(log, begin, len(log)))
        if answer.kind in _SETTLED:
            return answer
        for some in others.sharing.evictions(answer.found + others.size, begin):
            early = log.saved_before(some.start) or 1  # the log's first event has the settings
            state = log.state(others.first + early - 1)
            older = Search(request, names, others.prompts(state), state)
            older.fold(events_between(log, early, some.stop))
            if answer.found // others.size in older.evicted:
                return search.evicted_before(older.evicted, answer)
        if not log.index.directory.adopts:
            return answer
        back *= 2
    return None


def _admission(log: IndexedLog, root: Request) -> int:
    """Return the index of a request's first admission; 0 if the log does not have it."""
    begin = begin_of(log, root.admitted[0]) if root.admitted else len(log)
    for at, event in enumerate(events_between(log, begin, len(log)), begin):
        if isinstance(event, v.Admitted) and event.request == root.id:
            return at
    return 0


class _Others:
    """What other requests that have ended have in common with the one asked about.

    first  the number of the log's first event
    size   of a block, in tokens
    """

    def __init__(
        self, log: IndexedLog, known: IndexedKnown, asked: Request, admission: int
    ) -> None:
        self.first = log.next_seq - len(log)
        self._known, self._asked = known, asked
        self.size = settings_of(log)["block_size"]
        # Columns, because a long log has many: the event of their end, tokens in common, which of all
        # arrivals it was, the request, and whether they may share KV.
        self._ends, self._agree, self._index = array("q"), array("i"), array("q")
        self._ids, self._shares = array("q"), bytearray()
        self.sharing = Sharing(log, self.size)
        for one, agree in self._agreements():
            if one.root == asked.id or one.admitted is None:
                continue
            if one.extra_key == asked.extra_key:
                self.sharing.add(one, agree)
            if one.finished is None:
                continue
            if (end := one.finished[3]) >= self.first + admission:
                continue
            if agree:
                self._ends.append(end)
                self._agree.append(agree)
                self._index.append(one.index)
                self._ids.append(one.id)
                self._shares.append(one.extra_key == asked.extra_key)

    def _agreements(self) -> Iterator[tuple[Request, int]]:
        """Yield the requests whose first tokens are those of the one asked about, and how many are."""
        own = self._asked.tokens[: self._asked.prompt_length]
        if not self._asked.hashes:
            yield from self._known.agreements(own)
            return
        own_hashed = with_hashes(self._asked, own, self.size)
        for one in self._known.requests_near(
            self._asked.hashes[0], "tokens", "hashes", "extra_key"
        ):
            yield one, common_length(with_hashes(one, one.tokens, self.size), own_hashed)

    def prompts(self, state: State) -> Prompts:
        """Return the prompts at the moment of a state."""
        nearest = dict[int, tuple[int, int, int]]()
        rows = zip(self._shares, self._ends, self._agree, self._index, self._ids, strict=True)
        for shares, end, *similar in rows:
            if end <= state.seq:
                agree, index, request = similar
                nearest[shares] = max((agree, index, request), nearest.get(shares, (0, 0, 0)))
        living = {
            id_: (self._known.index_of(id_), self._prompt(id_)) for id_ in sorted(state.requests)
        }
        with_text = [(bool(shares), self._similar(*one)) for shares, one in nearest.items()]
        nodes = self.sharing.own_blocks(state.seq + 1 - self.first) if self._asked.hashes else {}
        return Prompts.at(self._asked, state, with_text, living, nodes)

    def _prompt(self, request: int) -> Tokens:
        """Return the prompt of a request, if its blocks have hashes; else the state has it."""
        if not self._asked.hashes or (one := self._known.request(request)) is None:
            return []
        return with_hashes(one, one.tokens[: one.prompt_length], self.size)

    def _similar(self, agree: int, index: int, request: int) -> Similar:
        one = self._known.request(request)
        tokens = with_hashes(one, one.tokens, self.size) if one else []
        text = one.texts[agree] if one and len(one.texts) > agree else ""
        return Similar(agree, index, request, len(tokens) > agree, text)
