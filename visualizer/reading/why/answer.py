"""The answer in words: what happened to the request, why, and what would have changed it.

Every number comes from `facts.py` or `shortfall.py`, and so from the folded log. The phrases for
decisions are the board's: `visualizer/reading/messages.py`.
"""

from collections.abc import Iterable, Iterator

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from visualizer.reading.knowledge import LogKnowledge, gap_words
from visualizer.reading.messages import (
    MESSAGES,
    Words,
    admission_words,
    count,
    mask_words,
    preemption_words,
    put_off_words,
    reason_words,
    row_words,
    stalled_words,
    text,
)
from visualizer.reading.why.facts import Admission, Facts, Preemption
from visualizer.reading.why.log_index import LogIndex, RequestSpan, index_of
from visualizer.reading.why.shortfall import is_scored


def why(log: EventLog, request: int, step: int | None = None) -> str:
    """Explain what happened to `request` in `step`; None: its last step.

    Raises WhyError for a request or a step that is not in the log.
    """
    log_index = index_of(log)
    span, step = log_index.find(request, step)
    facts = Facts.of(log, request, log_index.steps[step])
    return " ".join(_Answer(log_index, request, step, span, facts).sentences())


class _Answer:
    """The answer about one request in one step."""

    def __init__(
        self, log_index: LogIndex, request: int, step: int, span: RequestSpan, facts: Facts
    ) -> None:
        self.log_index, self.id, self.step, self.span = log_index, request, step, span
        self.facts, self.state, self.event = facts, facts.state, facts.event
        self.name, self.names = log_index.name, log_index.names
        self.policy = (log_index.classes or {}).get("policy", "")

    def sentences(self) -> Iterator[str]:
        """Yield the answer's sentences, the most important first."""
        first, *rest = self._parts()
        yield f"Step {self.step}: {self.name(self.id)} {first}"
        yield from rest
        for gap in self.facts.gaps:
            words = gap_words(gap.count, gap.message)
            yield f"{words[0].upper()}{words[1:]}."

    def _parts(self) -> Iterator[str]:
        """Yield the sentences; the first has no subject."""
        facts = self.facts
        if self.id not in self.state.requests:
            yield self._absent()
        elif facts.preemption is not None:
            yield from self._preempted(facts.preemption)
        elif self.id in self.state.waiting:
            yield from self._waits()
        elif facts.admission is not None:
            yield from self._admitted(facts.admission)
            if facts.slot:
                yield f"{facts.slot[0].upper()}{facts.slot[1:]}."
            first, *rest = self._runs()
            yield f"It {first}"
            yield from rest
        else:
            yield from self._runs()

    def _plain(self, words: Words) -> str:
        return "".join(word if isinstance(word, str) else self.name(word) for word in words)

    def _amounts(self, amounts: Iterable[tuple[int, int]]) -> str:
        return ", ".join(f"{self.name(request)} {amount}" for request, amount in amounts)

    def _absent(self) -> str:
        span, at = self.span, self.log_index.steps[self.step]
        if span.begin is not None and span.begin <= at:
            return f"has ended, with reason {span.reason}."
        if span.parent is None:
            return "has not arrived yet."
        parent = self.log_index.spans[span.parent]
        sample = f"sample {span.sample} of {self.name(span.parent)}"
        if parent.end < at:
            return (
                f"never existed: it would have been {sample}, which ended before its prompt was "
                f"complete, with reason {parent.reason}."
            )
        return f"does not exist yet: it is {sample} and forks off when the prompt is complete."

    # Running

    def _runs(self) -> Iterator[str]:
        for row in self.event.rows:
            if row.request == self.id:
                yield f"{row_words(self.state, row)}."
                wasted = self.facts.wasted
                yield f"Its row was {wasted}." if wasted else self._samples(row)
                yield from self._masked()
                if error := self.facts.draft_error:
                    sentence = text(MESSAGES["draft_failed"], error=error)
                    yield f"{sentence[0].upper()}{sentence[1:]}."
                return
        rows = self._amounts((row.request, row.count) for row in self.event.rows)
        reason = dict(self.event.skipped).get(self.id)
        yield f"{stalled_words(self.state, reason)}." if reason else "gets nothing."
        if rows:
            yield f"Tokens of the others: {rows}."

    def _samples(self, row: v.ScheduledRow) -> str:
        request = self.state.requests[self.id]
        if row.start + row.count - len(row.drafts) < len(request.tokens):
            return "It samples nothing yet."
        if request.num_seqs > 1:
            return f"It samples a token for each of its {request.num_seqs} samples."
        return "It samples the next token."

    def _masked(self) -> Iterator[str]:
        """Say how many tokens its grammar allowed, if it has one."""
        if not (tokens := self.facts.masked):
            return
        first, forced = tokens[0], sum(token.forced for token in tokens)
        if first.mass is not None:  # a log without measured values does not say more
            vocab, wanted = self.log_index.vocab, first.wanted_text
            yield f"{mask_words(first.allowed, vocab, first.mass, wanted)}."
        if forced:
            yield f"It then forced {count(forced, 'token')}."

    # Waiting

    def _users(self, adapter: str) -> list[int]:
        requests = self.state.requests
        return [one for one in self.state.running if adapter in requests[one].extra_key[:1]]

    def _waits(self) -> Iterator[str]:
        if (reason := dict(self.event.skipped).get(self.id)) is not None:
            yield f"waits because {put_off_words(self.state, reason, self.id)}."
            if reason == "adapter_slot":
                users = ((self.names(self._users(one)), one) for one in self.state.adapters)
                yield "In use: " + "; ".join(f"{one} by {names}" for names, one in users) + "."
            else:
                yield from self._deferral()
            return
        blocked = self.event.blocked
        if blocked is None:  # the log of another engine may not say why
            yield f"waits. {LogKnowledge(self.state.source).missing('waiting_reasons')}"
            return
        if blocked.request == self.id:
            yield f"waits because {self._plain(reason_words(self.state, self.event))}."
        else:
            behind = count(blocked.behind, "request")
            yield f"waits behind {self.name(blocked.request)}: {behind} in all."
            reason = self._plain(reason_words(self.state, self.event, blocked.request))
            yield f"{reason[0].upper()}{reason[1:]}."
        yield from self._circumstances(blocked.reason)
        shortfall = self.facts.shortfall(self.log_index.classes)
        if shortfall is not None:
            head = "it" if blocked.request == self.id else self.name(blocked.request)
            where = " in the budget" if shortfall.unit == "token" else ""
            more = count(shortfall.more, f"more {shortfall.unit}")
            yield f"With {more}{where} {head} would have started."

    def _deferral(self) -> Iterator[str]:
        yield f"The policy is {self.policy}."
        if self.policy == "LongestPrefixMatch":
            other, shared = self.facts.longest_shared_prefix(self.id)
            yield (
                f"{self.name(other)} computes the same first {count(shared, 'token')} now. "
                "Afterwards they are cached, and only the rest has to be computed."
            )

    def _circumstances(self, reason: v.WaitingReason) -> Iterator[str]:
        state = self.state
        match reason:
            case "batch_full" | "static_batch" | "reserved_blocks":
                yield f"Running: {self.names(state.running)}."
            case "token_budget":
                # Drafts do not count: they get what the head of the queue leaves.
                rows = ((row.request, row.count - len(row.drafts)) for row in self.event.rows)
                yield f"Tokens of the others: {self._amounts(rows)}."
            case "no_free_blocks" | "whole_sequence":
                tables = ((id_, len(state.requests[id_].held_blocks)) for id_ in state.running)
                yield f"Blocks of the others, shared ones counted for each: {self._amounts(tables)}."
            case "after_preemption" if self.facts.victims:
                yield f"Preempted: {self.names(self.facts.victims)}."
            case "after_preemption":
                yield "The preemption is not in this log, which begins later."

    # Preempted

    def _preempted(self, lost: Preemption) -> Iterator[str]:
        words = preemption_words(lost.event, lost.free, lost.evictable, self.state.source)
        yield f"{self._plain(words)}."
        if self.policy:
            yield f"The policy {self.policy} chose the victim."
        if not LogKnowledge(self.state.source).lacks("block_tables"):
            yield (
                f"Of its {count(lost.held, 'block')}, other requests keep {lost.shared}, "
                f"the cache keeps {lost.cached}, and the pool gets back {lost.freed}."
            )
        if lost.event.refunded:
            yield f"The step's budget gets back {count(lost.event.refunded, 'token')}."
        front = self.facts.config.scheduler == "vllm"
        yield f"It waits at the {'front' if front else 'back'} of the queue."
        if lost.cached and not is_scored(self.state.requests[self.id]):
            yield "What is still cached when it resumes is not computed again."

    # Admitted: hit or miss

    def _admitted(self, admission: Admission) -> Iterator[str]:
        found, size = admission.found, self.state.block_size
        words = admission_words(
            found,
            admission.tokens,
            resumed=admission.resumed,
            adopted=admission.adopted,
            source=self.state.source,
        )
        yield f"{words}."
        unknown = LogKnowledge(self.state.source).lacks("cached_tokens")
        if unknown or -1 in self.state.requests[self.id].tokens:
            return  # a larger hit cannot be judged without tokens
        if self.facts.config.prefix_cache == "off":
            yield "The prefix cache is off."
            return
        if admission.scored:
            yield "Its prompt is scored, so all of it is computed: the cache keeps no probabilities."
            return
        if admission.sharers:
            yield f"It shares them with {self.names(admission.sharers)}."
        elif found:
            yield "No other request uses them."
        if found == admission.most:
            yield (
                f"No larger hit is possible: hits come in whole blocks of {size}, and at least one "
                "token is computed."
            )
            return
        in_cache = min(admission.agree, admission.tokens - 1) // size * size
        if self.facts.state.has_windows and in_cache > found:
            yield text(f"{MESSAGES['missed']['no_window']}.", agree=in_cache)
        elif admission.agree > found:
            yield (
                f"A cached prefix agrees with its first {count(admission.agree, 'token')}, but "
                "differs inside the next block."
            )
        else:
            yield f"No cached prefix continues with its token at position {found}."
        if admission.lost is not None:
            usable, event = admission.lost.usable(admission, size), admission.lost.event
            cause = f"for {self.name(event.needed_by)}" if event.needed_by >= 0 else ""
            if event.reason == "cleared":
                cause = "when the cache was cleared"
            elif event.reason == "adopted":
                cause = "for an adopted prefix"
            yield (
                f"Earlier, {count(usable, 'token')} of it were cached: node {event.node} was evicted "
                f"in step {admission.lost.step} {cause}".rstrip()
                + "."
            )
