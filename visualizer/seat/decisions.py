"""The decisions of one step, each with its candidates and what is known of them at that instant.

A scheduler knows what a request holds and has computed. It does not know how long an answer will be,
nor which prefix will be asked for again: such facts come from the rest of the log and are marked as
hindsight. No candidate is called right.
"""

from collections.abc import Iterator

import msgspec

from engine.core.log import EventLog, State
from engine.core.log import vocabulary as v
from engine.core.log.state import ROOT, NodeState, common_length
from engine.simulation.choice import Budget, Choice, Evict, First, Later, Victim
from visualizer.reading.messages import Words, count, supply_words
from visualizer.reading.story import Story, prefix_text

MOST = 6  # candidates of one decision


class Fact(msgspec.Struct, frozen=True):
    """What is known of a candidate. `hindsight`: the scheduler could not know it."""

    name: str
    words: Words
    hindsight: bool = False


class Candidate(msgspec.Struct, frozen=True):
    """One way to decide.

    words     the candidate's name; a request is a number
    happened  whether the log decided this way
    blocks    the KV blocks that it holds or would use from the cache
    progress  output tokens that it has, and those that its answer gets; the second is hindsight
    """

    choice: Choice
    words: Words
    happened: bool
    facts: list[Fact]
    blocks: list[int] = []
    progress: tuple[int, int] | None = None


class Decision(msgspec.Struct, frozen=True):
    """A decision of a step. `offset`: its event's index among those of the step's scheduling."""

    kind: str
    step: int
    question: Words
    candidates: list[Candidate]
    offset: int


def decisions(log: EventLog, step: int) -> list[Decision]:
    """Return what a step of a log decided between at least two candidates, in order.

    Empty for a log of SGLang's scheduler, which weighs other facts than are told here. Raises
    ValueError for a step that the log does not have in full.
    """
    return list(_Decisions(log, step))


class _Decisions:
    """Finds the decisions of a step."""

    def __init__(self, log: EventLog, step: int) -> None:
        self._log = log
        self._story = Story(log, step)
        self._outputs: dict[int, int] = {}  # request -> output tokens in the whole log
        for event in log.of(v.StepFinished):
            for row in event.tokens:
                self._outputs[row.request] = self._outputs.get(row.request, 0) + len(row.ids)

    def __iter__(self) -> Iterator[Decision]:
        if self._story.after.settings.get("scheduler", "vllm") != "vllm":
            return
        victims = leaves = 0
        entered = False
        for offset, event in enumerate(self._story.events):
            match event:
                case v.Preempted():
                    yield from self._victim(event, offset, victims)
                    victims += 1
                case v.RadixEvicted() if event.reason == "room":
                    yield from self._leaf(event, offset, leaves)
                    leaves += 1
                case v.Admitted() if not entered:
                    entered = True
                    yield from self._entry(event.request, offset, enters=True)
                case v.StepScheduled():
                    blocked = event.blocked
                    if not entered and blocked is not None and blocked.reason in _FOR_ROOM:
                        yield from self._entry(blocked.request, offset, enters=False)
                    yield from self._chunk(event, offset)

    def _decision(
        self, kind: str, question: Words, candidates: list[Candidate], offset: int
    ) -> Iterator[Decision]:
        if len(candidates) > 1:
            yield Decision(kind, self._story.step, question, candidates, offset)

    # Preemption

    def _victim(self, event: v.Preempted, offset: int, nth: int) -> Iterator[Decision]:
        state = self._story.state_at(offset)
        running = state.running
        candidates = [
            Candidate(
                Victim(request, nth),
                [request],
                request == event.request,
                self._held(state, request, is_needy=request == event.needed_by),
                list(state.requests[request].block_table),
                self._progress(state, request),
            )
            for request in running
        ]
        lead: Words = [event.needed_by, " needs KV memory; "]
        if event.needed_by < 0:
            lead = ["A running request needs KV memory; "]
        supply = supply_words(len(state.free), state.evictable)
        asks = f"{supply}. One of {len(running)} running requests has to give up its blocks. Which one?"
        yield from self._decision("victim", [*lead, asks], candidates, offset)

    def _held(self, state: State, request: int, *, is_needy: bool) -> list[Fact]:
        one = state.requests[request]
        blocks = one.block_table
        shared = sum(state.refs[block] > 1 for block in blocks) if state.refs else 0
        computed = count(one.num_computed_tokens, "computed token")
        held = f"; {shared} of {count(len(blocks), 'block')} shared or cached" if shared else ""
        again = f"up to {count(one.num_computed_tokens, 'token')}: what is no longer cached by then"
        facts = [
            Fact("holds", [computed, held]),
            Fact("again", [again]),
            self._to_do(state, request),
        ]
        return [Fact("needs", ["the memory itself"]), *facts] if is_needy else facts

    def _progress(self, state: State, request: int) -> tuple[int, int]:
        one = state.requests[request]
        return len(one.tokens) - one.prompt_length, self._outputs.get(request, 0)

    def _to_do(self, state: State, request: int) -> Fact:
        left = state.requests[request].max_tokens - self._progress(state, request)[0]
        return Fact("to do", [f"at most {count(left, 'output token')}"])

    # Eviction

    def _leaf(self, event: v.RadixEvicted, offset: int, nth: int) -> Iterator[Decision]:
        state = self._story.state_at(offset)
        leaves = sorted(
            evictable_leaves(state), key=lambda node: (node.id != event.node, node.last, node.id)
        )
        candidates = [
            Candidate(
                Evict(node.id, nth),
                [f"“{prefix_text(state, node.id, 48)}”"],
                node.id == event.node,
                [
                    Fact("frees", [count(len(node.blocks), "block")]),
                    Fact("wanted", self._asked_again(state, node), True),
                ],
                list(node.blocks),
            )
            for node in leaves[:MOST]
        ]
        candidates.sort(key=lambda one: one.choice.node if isinstance(one.choice, Evict) else 0)
        asks: Words = [" needs KV memory. Which cached prefix is evicted?"]
        who: Words = [event.needed_by] if event.needed_by >= 0 else ["A request"]
        yield from self._decision("evict", [*who, *asks], candidates, offset)

    def _asked_again(self, state: State, leaf: NodeState) -> Words:
        """Say which later request begins with the path to a leaf, or with more than the parent's."""
        path = state.prefix_tokens(leaf.id)
        above, key = len(path) - len(leaf.tokens), state.prefix_key(leaf.id)
        step = self._story.step
        for event in self._log[self._story.index :]:
            if isinstance(event, v.StepStarted):
                step = event.step
            if isinstance(event, v.RequestArrived):
                agree = common_length(event.prompt, path)
                if agree - above >= state.block_size and event.extra_key == key:
                    return ["again by ", event.request, f", which comes after step {step}"]
        return ["by no later request"]

    # Admission

    def _entry(self, first: int, offset: int, *, enters: bool) -> Iterator[Decision]:
        state = self._story.state_at(offset)
        waiting = list(state.waiting)
        shown = sorted(waiting, key=lambda request: request != first)[:MOST]
        candidates = [
            Candidate(
                First(request),
                [request],
                request == first,
                self._waiting(state, request),
                progress=self._progress(state, request),
            )
            for request in sorted(shown, key=waiting.index)
        ]
        if enters and state.running:
            put_off: Words = [first, " waits for one more step"]
            candidates.append(Candidate(Later(first), put_off, False, []))
        wait = f"{count(len(waiting), 'request')} {'waits' if len(waiting) == 1 else 'wait'}"
        more = len(waiting) - len(shown)
        rest = f", of which {len(shown)} are listed" if more else ""
        asks: Words = [f"{wait}{rest}. Which one is considered first?"]
        yield from self._decision("first", asks, candidates, offset)

    def _waiting(self, state: State, request: int) -> list[Fact]:
        one = state.requests[request]
        length = len(one.tokens)
        agree = 0
        if not state.is_hashed:
            _, agree = state.cached_prefix(one.tokens, extra_key=one.extra_key)
        cached = min(agree, length - 1) // state.block_size * state.block_size
        facts = [
            Fact("has", [count(length, "token"), f", {cached} of them cached" if cached else ""])
        ]
        if one.preemptions:
            facts.append(Fact("was preempted", [count(one.preemptions, "time")]))
        return [*facts, self._to_do(state, request)]

    # The last chunk of a step

    def _chunk(self, event: v.StepScheduled, offset: int) -> Iterator[Decision]:
        rows = event.rows
        if not rows or rows[-1].count - len(rows[-1].drafts) < 2:
            return
        if not self._story.before.settings.get("chunked_prefill", True):
            return
        row, state = rows[-1], self._story.after
        others = sum(one.count - len(one.drafts) for one in rows[:-1])
        here = row.count - len(row.drafts)
        left = len(state.requests[row.request].tokens) - row.start
        budget = state.settings["token_budget"]
        sizes = {here, left, max(1, here // 2), max(1, here // 4), min(left, 2 * here)}
        candidates = [
            Candidate(
                Budget(budget if size == here else others + size),
                [count(size, "token")],
                size == here,
                [Fact("leaves", [f"{count(left - size, 'token')} of its prompt for later steps"])],
            )
            for size in sorted(sizes)
        ]
        asks = (
            f" has {count(left, 'token')} to compute, and the step has "
            f"{budget - others} of {budget} left for it. How many does it compute now?"
        )
        yield from self._decision("chunk", [row.request, asks], candidates, offset)


_FOR_ROOM = ("no_free_blocks", "whole_sequence", "reserved_blocks", "token_budget")


def evictable_leaves(state: State) -> Iterator[NodeState]:
    """Yield the leaves of the radix tree that can be evicted."""
    for node in state.nodes.values():
        if node.id != ROOT and not node.lock_ref and not node.children:
            yield node
