"""The drafts of a log, replayed: at each position of an output, the drafts that the log has there.

A log says which drafts a row had and how many of them became output. An unchanged replay has the same
rows, so its drafts are the recorded ones. A changed replay may begin a row between two recorded ones.
What is known of the drafter there?

    recorded:  a row at output position 10 with the drafts a b c, of which a b were accepted
    replayed:  a row at 10 with one draft, a; then a row at 12, for which c is known to be wrong

Where all drafts of a row were accepted, nothing is known of a draft of the token after them; it is
taken to be right, too, as those before it were. Where a recorded row had no drafts, a replay has none.

A request of vLLM gets its drafts together with its next token; see `vllm_drafts.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from engine.core.config import ConfigError
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.core.request import Request
from engine.core.speculation.verification import count_accepted
from engine.simulation.log_part import started_of


class Drafted(Protocol):
    """An answer; `drafts` are by the output position at which their row began."""

    ids: list[int]
    drafts: dict[int, list[int]]


@dataclass(frozen=True, slots=True)
class Drafting:
    """How a workload's drafts are replayed.

    length     the most drafts of a row
    most       the most drafts of a row in the log
    is_vllm    whether drafts compete for budget and memory, as in vLLM
    lookahead  slots for a draft model's KV behind each row of vLLM
    slots      what each row of vLLM takes of the budget besides its tokens, for the draft model's input
    """

    length: int
    most: int
    is_vllm: bool = False
    lookahead: int = 0
    slots: int = 0


class RecordedDrafts:
    """A drafter that proposes what a log has; see `Drafter`.

    answers  by request; see `Answer`. Those of new requests are added while the engine runs
    """

    def __init__(self, answers: Mapping[int, Drafted], drafting: Drafting) -> None:
        self._answers = answers
        self._length, self._most = drafting.length, drafting.most

    def propose(self, request: Request) -> list[int]:
        """Return the drafts at the end of a request's output."""
        answer = self._answers.get(request.id)
        if answer is None or not answer.drafts:
            return []
        at = len(request.tokens) - request.prompt_length
        drafts = answer.drafts.get(at)
        return (drafts or self._between(answer, at))[: self._length]

    def _between(self, answer: Drafted, at: int) -> list[int]:
        """Return the drafts where no recorded row with drafts begins, as many as the row before had."""
        begins = range(at - 1, max(-1, at - 1 - self._most), -1)
        begin = next((one for one in begins if one in answer.drafts), at)
        drafts = answer.drafts.get(begin, [])
        accepted = count_accepted(drafts, answer.ids[begin:])
        if not begin < at <= begin + accepted:
            return []
        known = drafts[at - begin :]
        if accepted == len(drafts):
            after = begin + accepted
            known += [*answer.ids[after : after + 1], *answer.drafts.get(after + 1, [])]
        return [*known, *known[-1:] * len(drafts)][: len(drafts)]


def drafting_of(log: EventLog) -> Drafting | None:
    """Return how the drafts of a log are replayed; None if it has none, or other rules for them."""
    rows = (row for event in log.each(v.StepScheduled) for row in event.rows)
    most = max((len(row.drafts) for row in rows), default=0)
    started = started_of(log)
    if not most or started is None:
        return None
    settings, others = started.settings, started.source.get("others", {})
    if settings.get("async_scheduling") or settings.get("scheduler", "vllm") != "vllm":
        return None
    length = max(most, others.get(NUM_DRAFTS, 0))
    is_vllm = "vllm" in started.source.get("engine", "").lower()
    return Drafting(length, length, is_vllm, others.get(LOOKAHEAD, 0), others.get(SLOTS, 0))


def with_length(drafting: Drafting | None, length: int | None) -> Drafting | None:
    """Return a drafting with at most `length` drafts in a row; None for a length of 0.

    Raises ConfigError for more drafts than the log has.
    """
    most = drafting.most if drafting else 0
    if length is None or (drafting is None and not length):
        return drafting
    if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= most:
        if not most:
            raise ConfigError(f"draft_length must be 0, got {length}: the log has no drafts")
        raise ConfigError(
            f"draft_length must be at least 0 and at most {most}, got {length}: what more drafts would "
            "guess is unknown"
        )
    if drafting is None or not length:
        return None
    lookahead = min(drafting.lookahead, length)  # vLLM reserves as many as there are drafts
    return replace(drafting, length=length, lookahead=lookahead)


# The names of vLLM's settings in a recording.
NUM_DRAFTS = "vllm_config.num_speculative_tokens"
SLOTS = "speculative_config.max_num_new_slots_for_drafting"
LOOKAHEAD = "vllm_config.num_lookahead_tokens"
