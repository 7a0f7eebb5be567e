"""What vLLM's metrics do not say: why requests waited, what was computed twice, what hits missed.

A part of `Measures`, computed from the event log as it is written. Waits and repeated tokens are those
of `read(log).regimes`; a missed token has the cause that `read(log).why_missed(request)` finds, as far
as it can be told without a search through the log.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from engine.core.log.vocabulary import (
    Admitted,
    Event,
    Forked,
    Preempted,
    RequestArrived,
    RequestFinished,
    RunStarted,
    ScheduledRow,
    StepFinished,
    StepScheduled,
    StepStarted,
    WaitingReason,
)

# A preempted request waits for its blocks, whatever its place in the queue.
WAIT_CAUSES = ("preempted", *get_args(WaitingReason), "unknown")
MissCause = Literal[
    "never_computed",  # nothing before it had these tokens
    "computing",  # another request was about to compute them
    "lost",  # they were computed before, and the cache does not have them any more
    "last_tokens",  # no hit has them: those after the last whole block, and the last one
    "scored",  # the prompt is scored, so the cache cannot be used
    "unknown",  # the log has no token ids: `--trace-text off`
]
# Hashes of blocks that are remembered. A block that was forgotten counts as never computed.
REMEMBERED = 100_000


@dataclass(slots=True)
class _Sample:
    """A sample of a request.

    key       only requests with equal keys share blocks
    blocks    of each whole block of its prompt and output, a hash of all tokens up to its end
    tail      the tokens after these
    computed  how many tokens its rows have covered, and `lost` of them before its last preemption
    marked    how many of its blocks are known to be computed; it is going to compute the others up to
              `promised`
    """

    key: int
    has_ids: bool
    is_scored: bool
    blocks: list[int] = field(default_factory=list)
    tail: list[int] = field(default_factory=list)
    computed: int = 0
    lost: int = 0
    marked: int = 0
    promised: int = 0


@dataclass(slots=True)
class _Step:
    """An unfinished step: its rows with their samples, and how many requests wait, by cause."""

    rows: list[tuple[ScheduledRow, _Sample]] = field(default_factory=list)
    waits: dict[str, int] = field(default_factory=dict)


class Causes:
    """Counts over a whole run.

    waited      microseconds that requests waited, by cause, added up over the requests
    recomputed  tokens that were computed again because of preemptions
    missed      prompt tokens that were looked up in the prefix cache and not found, by cause
    """

    def __init__(self) -> None:
        self.waited = Counter(dict.fromkeys(WAIT_CAUSES, 0))
        self.missed = Counter(dict.fromkeys(get_args(MissCause), 0))
        self.recomputed = 0
        self._block_size = 1
        self._has_cache = True
        self._samples: dict[int, _Sample] = {}
        self._waiting: set[int] = set()
        self._away: set[int] = set()  # those of them that were preempted
        self._number, self._end = 0, -1  # the last step, and when the one before ended
        self._steps: dict[int, _Step] = {}
        self._computed = OrderedDict[int, None]()  # hashes of blocks; the latest last
        self._computing = Counter[int]()  # those that running requests are going to compute

    def apply(self, event: Event) -> None:
        """Count an event."""
        if type(event) is RunStarted:
            self._block_size = event.settings["block_size"]
            self._has_cache = event.settings["prefix_cache"] != "off"
        elif type(event) is RequestArrived:
            self._arrived(event)
        elif type(event) is StepStarted:
            self._number = event.step
            self._steps[event.step] = _Step()
        elif type(event) is Admitted:
            self._admitted(event)
        elif type(event) is Preempted:
            sample = self._samples[event.request]
            sample.lost = max(sample.lost, sample.computed)
            self._waiting.add(event.request)
            self._away.add(event.request)
            self._break_promise(sample)
        elif type(event) is StepScheduled:
            self._scheduled(event)
        elif type(event) is Forked:
            parent = self._samples[event.parent]
            self._samples[event.request] = replace(
                parent, blocks=[*parent.blocks], tail=[*parent.tail], promised=0
            )
        elif type(event) is StepFinished:
            self._finished(event)
        elif type(event) is RequestFinished:
            self._break_promise(self._samples.pop(event.request))
            self._waiting.discard(event.request)
            self._away.discard(event.request)

    def _arrived(self, event: RequestArrived) -> None:
        is_scored = event.sampling.get("prompt_logprobs") is not None and len(event.prompt) > 1
        sample = _Sample(hash(tuple(event.extra_key)), -1 not in event.prompt, is_scored)
        self._append(sample, event.tokens)
        self._samples[event.request] = sample
        self._waiting.add(event.request)

    def _append(self, sample: _Sample, tokens: Sequence[int]) -> None:
        size, tail = self._block_size, sample.tail + list(tokens)
        whole = len(tail) // size * size
        for at in range(0, whole, size):
            before = sample.blocks[-1] if sample.blocks else sample.key
            sample.blocks.append(hash((before, *tail[at : at + size])))
        sample.tail = tail[whole:]

    def _admitted(self, event: Admitted) -> None:
        sample, found = self._samples[event.request], len(event.blocks)
        self._waiting.discard(event.request)
        self._away.discard(event.request)
        if self._has_cache and not event.resumed:
            self._count_missed(sample, found)
        sample.computed = max(sample.computed, found * self._block_size)
        self._mark(sample, sample.computed)
        sample.promised = len(sample.blocks)
        self._computing.update(sample.blocks[sample.marked :])

    def _count_missed(self, sample: _Sample, found: int) -> None:
        size = self._block_size
        tokens = len(sample.blocks) * size + len(sample.tail)
        most = (tokens - 1) // size
        self.missed["last_tokens"] += tokens - max(most, found) * size
        if not sample.has_ids or sample.is_scored:
            cause = "scored" if sample.is_scored else "unknown"
            self.missed[cause] += max(0, most - found) * size
            return
        for block in sample.blocks[found:most]:
            if block in self._computed:
                cause = "lost"
            else:
                cause = "computing" if block in self._computing else "never_computed"
            self.missed[cause] += size

    def _scheduled(self, event: StepScheduled) -> None:
        step = self._steps.setdefault(self._number, _Step())
        known = self._samples
        step.rows = [(row, known[row.request]) for row in event.rows if row.request in known]
        for row, sample in step.rows:
            end = row.start + row.count - len(row.drafts)
            self.recomputed += max(0, min(end, sample.lost) - row.start)
            sample.computed = max(sample.computed, end)
        waits = step.waits = Counter[str]()
        for request, reason in event.skipped:
            if request in self._waiting and request not in self._away:
                waits[reason] += 1
        waits["preempted"] = len(self._away)
        if rest := len(self._waiting) - waits.total():
            waits[event.blocked.reason if event.blocked else "unknown"] += rest

    def _finished(self, event: StepFinished) -> None:
        step = self._steps.pop(event.step, None) or _Step()
        start, end = event.t["start"], event.t["end"]
        for cause, requests in step.waits.items():
            self.waited[cause] += requests * max(0, end - max(start, self._end))
        self._end = max(self._end, end)
        accepted = {gain.request: gain.accepted for gain in event.tokens if gain.accepted}
        for row, sample in step.rows:
            end = row.start + row.count - len(row.drafts) + accepted.get(row.request, 0)
            sample.computed = max(sample.computed, end)
            self._mark(sample, end)
        for gain in event.tokens:
            self._append(self._samples[gain.request], gain.ids)

    def _mark(self, sample: _Sample, computed: int) -> None:
        """Note that a sample's first tokens are computed."""
        whole = computed // self._block_size
        for index, block in enumerate(sample.blocks[sample.marked : whole], sample.marked):
            self._computed[block] = None
            self._computed.move_to_end(block)
            if index < sample.promised:
                self._forget([block])
        sample.marked = max(sample.marked, min(whole, len(sample.blocks)))
        while len(self._computed) > REMEMBERED:
            self._computed.popitem(last=False)

    def _break_promise(self, sample: _Sample) -> None:
        self._forget(sample.blocks[sample.marked : sample.promised])
        sample.promised = 0

    def _forget(self, blocks: Sequence[int]) -> None:
        """Note that one request less is going to compute these blocks."""
        for block in blocks:
            if self._computing[block] == 1:
                del self._computing[block]
            else:
                self._computing[block] -= 1
