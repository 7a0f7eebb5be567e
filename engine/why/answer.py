"""The answer in words: what happened to the request, the reason with its numbers, who stood in the
way, and what would have had to differ.

Every number is from `facts.py` or `room.py`, hence from the folded log.
"""

from collections.abc import Iterator

from engine.events import vocabulary as v
from engine.events.log import EventLog
from engine.why.blocked import count, why_blocked
from engine.why.facts import Admission, Facts, Preemption
from engine.why.log_index import LogIndex, RequestSpan


def why(log: EventLog, request: int, step: int | None = None) -> str:
    """Why `request` was treated as it was in `step`; None: the last step that it lived to see.

    Raises WhyError for a request or a step that is not in the log.
    """
    directory = LogIndex.of(log)
    life, step = directory.find(request, step)
    facts = Facts.of(log, request, directory.steps[step])
    return " ".join(_Answer(directory, request, step, life, facts).sentences())


class _Answer:
    """One question: a request in a step."""

    def __init__(
        self, directory: LogIndex, request: int, step: int, life: RequestSpan, facts: Facts
    ) -> None:
        self.who, self.id, self.step, self.life, self.facts = directory, request, step, life, facts
        self.state, self.event, self.config = facts.state, facts.event, facts.config
        self._told = False  # whether the answer has named step and request already

    def sentences(self) -> Iterator[str]:
        """The answer, most important first."""
        facts = self.facts
        if self.id not in self.state.requests:
            yield self._absent()
            return
        if facts.preemption is not None:
            yield from self._preempted(facts.preemption)
        elif self.id in self.state.waiting:
            yield from self._waits()
        if self.id in self.state.waiting:
            return
        if facts.admission is not None:
            yield from self._found(facts.admission)
        yield self._runs()

    def _lead(self, what: str) -> str:
        first, self._told = not self._told, True
        return f"Step {self.step}: {self.who.name(self.id)} {what}" if first else f"It {what}"

    def _policy(self) -> str:
        return f" ({self.who.classes['policy']})" if self.who.classes else ""

    # Not there

    def _absent(self) -> str:
        life, at = self.life, self.who.steps[self.step]
        if life.begin is not None and life.begin <= at:
            return self._lead(f"is gone: it has ended, with reason {life.reason}.")
        if life.parent is None:
            return self._lead("has not arrived yet.")
        parent = self.who.lives[life.parent]
        sample = f"it is sample {life.sample} of {self.who.name(life.parent)}"
        if parent.end < at:
            return self._lead(
                f"never came to be: {sample}, which ended before its prompt was complete, with "
                f"reason {parent.reason}."
            )
        return self._lead(
            f"does not exist yet: {sample} and forks off when the prompt is complete."
        )

    # Running

    def _runs(self) -> str:
        for row in self.event.rows:
            if row.request == self.id:
                return self._row(row)
        ahead = ", ".join(f"{self.who.name(row.request)} {row.count}" for row in self.event.rows)
        return self._lead(
            f"runs but computes nothing: the budget of {count(self.config.token_budget, 'token')} "
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
        then = "samples nothing yet"
        if end == len(request.tokens):
            each = f" for each of {request.slots} samples" if request.slots > 1 else ""
            then = f"samples a next token{each}"
        drafts = f", {count(len(row.drafts), 'draft')} among them" if row.drafts else ""
        return self._lead(
            f"computes {count(row.count, 'token')} from position {row.start}{drafts}; {what}. "
            f"It has {count(len(request.tokens), 'token')} and {then}."
        )

    # Waiting

    def _waits(self) -> Iterator[str]:
        if (self.id, "policy") in self.event.skipped:
            yield self._lead(f"waits. The policy{self._policy()} put it off and asked the next.")
            yield from self._worth_waiting_for()
            return
        blocked = self.event.blocked
        assert blocked is not None, "who waits is put off, or blocked, or behind the one who is"
        if blocked.request == self.id:
            yield self._lead("waits.")
        else:
            yield self._lead(
                f"waits behind {self.who.name(blocked.request)}, which is asked first and cannot "
                f"start; nobody overtakes it, and {count(blocked.behind, 'request')} "
                f"{'is' if blocked.behind == 1 else 'are'} behind it."
            )
        yield from why_blocked(self.who, self.facts, blocked, asked=self.id)

    def _worth_waiting_for(self) -> Iterator[str]:
        """Under lpm: who computes what the request then finds in the cache."""
        if not self.who.classes or self.who.classes["policy"] != "LongestPrefixMatch":
            return
        other, shared = self.facts.shares_most(self.id)
        yield (
            f"Its first {count(shared, 'token')} are those of {self.who.name(other)}, which "
            "computes them now: it finds them in the cache afterwards and computes only the rest."
        )

    # Preempted

    def _preempted(self, gave: Preemption) -> Iterator[str]:
        for_whom = (
            "needed blocks itself"
            if gave.needed_by == self.id
            else f"gives way to {self.who.name(gave.needed_by)}, which needed blocks"
        )
        yield self._lead(
            f"is preempted: it {for_whom}, and too few could be had (free {gave.free}, evictable "
            f"{gave.evictable}). The victim is the choice of the policy{self._policy()}."
        )
        yield (
            f"Of its {count(gave.held, 'block')} others keep {gave.shared}, the cache keeps "
            f"{gave.cached}, {gave.freed} fell free."
        )
        if gave.refunded:
            yield f"{count(gave.refunded, 'token')} of the step's budget went back as well."
        yield "It waits at the front of the queue."
        if gave.cached and self.id not in self.facts.unscored:
            yield "What the cache still has of it then need not be computed again."

    # Admitted: hit or miss

    def _found(self, came: Admission) -> Iterator[str]:
        start = "resumes" if came.resumed else "starts"
        yield self._lead(f"{start} with {came.found} of {count(came.tokens, 'token')} found.")
        if not self.config.prefix_cache:
            yield "The prefix cache is off."
            return
        if came.scored:
            yield "Its prompt is scored, so all of it is computed: the cache keeps no probabilities."
            return
        if came.sharers:
            yield f"Shared with {self.who.names(came.sharers)}."
        elif came.found:
            yield "Nobody held them; the cache kept them."
        size = self.state.block_size
        if came.found == came.most:
            yield (
                f"That is all there could be: hits come in whole blocks of {size}, and one token at "
                "least is computed."
            )
            return
        if came.agree > came.found:
            yield (
                f"What is cached agrees with it for {count(came.agree, 'token')} and then differs, "
                "inside a block."
            )
        else:
            yield f"Nothing cached goes on with its token at position {came.found}."
        if came.lost is not None:
            usable, event = came.lost.usable(came, size), came.lost.event
            how = f"to make room for {self.who.name(event.needed_by)}"
            if event.reason == "cleared":
                how = "when the cache was cleared"
            yield (
                f"Once {count(usable, 'token')} of it were cached; node {event.node} was evicted in "
                f"step {came.lost.step}, {how}."
            )
