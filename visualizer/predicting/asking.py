"""Questions about the next step: wording, choices, answer and explanation.

A question and its choices use only information available before the step.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.core.log import EventLog, State
from engine.core.log import vocabulary as v
from engine.core.log.state import ROOT, NodeState
from visualizer.reading.messages import Words, count
from visualizer.reading.story import Story, prefix_text

MOST_PREFIXES = 6


@dataclass(frozen=True, slots=True)
class Question:
    """A question to ask before `step`.

    index    index in the log of the step's step_started; events before it may be shown
    words    the question
    form     the kind of answer: "requests" or "prefixes" (choose any number), "number" or "yes"
    answer   the correct ids in ascending order, the number, or 1 for yes and 0 for no
    choices  ids to choose from: requests or tree nodes
    texts    the text of each prefix in `choices`
    about    the request that the question is about, or None
    """

    kind: str
    step: int
    index: int
    words: Words
    form: str
    answer: tuple[int, ...]
    choices: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    unit: str = ""
    about: int | None = None

    def explanation(self, log: EventLog) -> list[Words]:
        """Explain the answer with facts from the log, one per line."""
        story = Story(log, self.step)
        if self.kind == "evicted":
            return [
                [*story.evicted(event), "."]
                for event in story.events
                if isinstance(event, v.RadixEvicted) and event.reason == "room"
            ]
        explained = [self.about] if self.about is not None else list(self.answer)
        if self.kind in ("admitted", "scheduled"):
            # Also explain why one other request gets nothing.
            explained += [id_ for id_ in self.choices if id_ not in self.answer][:1]
        lines: list[Words] = [[id_, " ", *story.fate(id_), "."] for id_ in explained]
        if self.kind == "hit":
            size = story.after.block_size
            lines.append(
                [f"Hits come in whole blocks of {size}, and at least one token is computed."]
            )
        if self.kind == "tokens" and story.scheduled:
            budget = story.after.settings["token_budget"]
            rows = story.scheduled.rows
            index = [row.request for row in rows].index(explained[0])
            before = sum(row.count for row in rows[:index])
            lines.append([f"Earlier requests got {before} of the {count(budget, 'token')}."])
        return lines


def ask(log: EventLog, step: int, kind: str) -> Question | None:
    """Return a question of this kind about a scheduled step, or None if it would be unfair."""
    return _ASK[kind](Story(log, step))


def _question(
    story: Story, kind: str, form: str, words: Words, answer: Iterable[int], **more: Any
) -> Question:
    """Return a question whose `words` begin with a string."""
    said: Words = [f"Step {story.step} comes next. {words[0]}", *words[1:]]
    return Question(kind, story.step, story.index, said, form, tuple(sorted(answer)), **more)


def _preempted(story: Story) -> Question | None:
    victims = {event.request for event in story.events if isinstance(event, v.Preempted)}
    choices = tuple(sorted(story.before.running))
    words = "There are too few KV blocks for the running requests. Which are preempted?"
    if not victims <= set(choices):
        return None
    return _question(story, "preempted", "requests", [words], victims, choices=choices)


def _admitted(story: Story) -> Question:
    admitted = {event.request for event in _admissions(story)}
    words: Words = ["Which of the waiting requests are admitted?"]
    choices = tuple(sorted(story.before.waiting))
    return _question(story, "admitted", "requests", words, admitted, choices=choices)


def _scheduled(story: Story) -> Question:
    words: Words = ["Which requests get tokens of the budget?"]
    choices = tuple(sorted([*story.before.running, *story.before.waiting]))
    return _question(story, "scheduled", "requests", words, story.rows, choices=choices)


def _blocked(story: Story) -> Question | None:
    assert story.scheduled is not None
    blocked, admitted = story.scheduled.blocked, _admissions(story)
    request = blocked.request if blocked else admitted[0].request
    if request not in story.before.waiting:
        return None
    answer = int(any(event.request == request for event in admitted))
    words: Words = ["", request, " waits. Is it admitted?"]
    return _question(story, "blocked", "yes", words, [answer], about=request)


def _hit(story: Story) -> Question:
    event = next(event for event in _admissions(story) if event.blocks)
    length = len(story.after.requests[event.request].tokens)
    verb = "resumes" if event.resumed else "is admitted"
    tail = f" {verb} with {count(length, 'token')}. How many of them are cached?"
    found = len(event.blocks) * story.before.block_size
    return _how_many(story, "hit", ["", event.request, tail], found, event.request)


def _tokens(story: Story) -> Question | None:
    live = {*story.before.running, *story.before.waiting}
    rows = [row for row in story.rows.values() if row.count > 1 and row.request in live]
    if not rows:
        return None
    row = next((row for row in rows if _is_cut(story, row)), rows[0])
    budget = count(story.before.settings["token_budget"], "token")
    lead = f"The step has a budget of {budget}. How many does "
    return _how_many(story, "tokens", [lead, row.request, " get?"], row.count, row.request)


def _how_many(story: Story, kind: str, words: Words, answer: int, about: int) -> Question:
    return _question(story, kind, "number", words, [answer], unit="tokens", about=about)


def _is_cut(story: Story, row: v.ScheduledRow) -> bool:
    return row.start + row.count < len(story.after.requests[row.request].tokens)


def _evicted(story: Story) -> Question | None:
    """Ask which leaf of the tree is evicted. The choices are the least recently used leaves."""
    before = story.before
    if before.is_hashed:
        return None  # a hash cache evicts single blocks, of which a prefix has many
    gone = {
        event.node
        for event in story.events
        if isinstance(event, v.RadixEvicted) and event.reason == "room"
    }
    leaves = sorted(evictable_leaves(before), key=lambda node: (node.id not in gone, node.last))
    offered = sorted(node.id for node in leaves[:MOST_PREFIXES])
    if not gone < set(offered):
        return None  # a leaf became evictable only during the step, or there is nothing to choose
    texts = tuple(
        f"“{prefix_text(before, id_, 60)}”, {count(len(before.nodes[id_].blocks), 'block')}"
        for id_ in offered
    )
    words: Words = ["It needs KV blocks. Which cached prefix is evicted?"]
    choices = tuple(offered)
    return _question(story, "evicted", "prefixes", words, gone, choices=choices, texts=texts)


def evictable_leaves(state: State) -> Iterator[NodeState]:
    """Yield the leaves of the radix tree that can be evicted."""
    for node in state.nodes.values():
        if node.id != ROOT and not node.lock_ref and not node.children:
            yield node


def _admissions(story: Story) -> list[v.Admitted]:
    return [event for event in story.events if isinstance(event, v.Admitted)]


_ASK: dict[str, Callable[[Story], Question | None]] = {
    "preempted": _preempted,
    "admitted": _admitted,
    "scheduled": _scheduled,
    "blocked": _blocked,
    "hit": _hit,
    "tokens": _tokens,
    "evicted": _evicted,
}
KINDS = tuple(_ASK)
