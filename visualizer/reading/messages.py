"""The words for decisions, shared by all surfaces. The catalogue is `messages.json`.

`why`, the visualizer's texts and the board (`visualizer/frontend/src/model/messages.ts`) use the same
messages. A placeholder is one of

    {name}         the value
    {name:seat}    a number with its noun: "1 seat", "2 seats"
    {name:is|are}  the form that agrees with the number
    {name:none}    the number, or "none"

A result is a list of texts and request ids, so a page can draw a request in its color.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from visualizer.reading.durations import duration
from visualizer.reading.knowledge import LogKnowledge, half_dot

if TYPE_CHECKING:
    from visualizer.reading.expert_loads import ExpertLoads

Words = list[str | int]

MESSAGES: dict[str, Any] = json.loads(Path(__file__).with_name("messages.json").read_text("utf-8"))
_ALLOWED = "The grammar allowed {amount}, {mass} of the probability{wanted}"
_FORBADE = ", and forbade {text}, the likeliest"
_PLACEHOLDER = re.compile(r"\{(\w+)(?::([^}]*))?\}")


def fill(message: str, **values: int | str) -> Words:
    """Fill a message's placeholders. An integer `who` is a request id and stays an integer."""
    begin, *rest = _PLACEHOLDER.split(message)
    words: Words = [begin]
    for name, form, after in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        value = values[name]
        words += [value if name == "who" else _formatted(value, form), after]
    return [word for word in words if word != ""]


def text(message: str, **values: int | str) -> str:
    """Fill a message that names no request."""
    return "".join(str(word) for word in fill(message, **values))


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 block", "2 blocks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _formatted(value: int | str, form: str | None) -> str:
    if isinstance(value, str) or not form:
        return str(value)
    if form == "none":
        return str(value or form)
    one, _, many = form.partition("|")
    if not many:
        return count(value, one)
    return one if value == 1 else many


def reason_words(state: State, scheduled: v.StepScheduled, who: int | str = "it") -> Words:
    """Say why the head of the queue was not admitted.

    state  the state after `scheduled`
    who    how the sentence refers to the head of the queue
    """
    blocked = scheduled.blocked
    assert blocked is not None
    message = MESSAGES["reasons"][blocked.reason]
    mark = half_dot(state.source, "waiting_reasons")
    if "numbers" not in message:
        return fill(f"{mark}{message['clause']}", who=who)
    # `have` leaves out the head's own cached prefix: evicting what it is about to use gains nothing.
    free = state.free_before_drafts(scheduled.rows)
    others = blocked.have - free
    own = state.evictable - others
    limit = "max_batch_size" if blocked.reason == "batch_full" else "token_budget"
    return fill(
        f"{mark}{message['clause']}: {message['numbers']}",
        who=who,
        need=blocked.need,
        have=max(0, blocked.have),
        limit=state.settings[limit],
        supply=supply_words(free, others),
        prefix=text(MESSAGES["own_prefix"], own=own) if own > 0 else "",
    )


def put_off_words(state: State, reason: str, request: int) -> str:
    """Say why a waiting request was passed over."""
    adapter = next(iter(state.requests[request].extra_key), "")
    clause = MESSAGES["reasons"][reason]["clause"]
    return text(clause, who="it", whose=f"its adapter {adapter} is")


def slot_words(events: Iterable[v.Event], request: int) -> str:
    """Say what an admission does to the slots for adapters; "" if it changes none."""
    words = MESSAGES["adapter"]
    for one in events:
        if isinstance(one, v.AdapterChanged) and one.request == request:
            replaced = text(words["replaced"], evicted=one.evicted) if one.evicted else ""
            return text(words["loaded"], adapter=one.adapter, slot=str(one.slot)) + replaced
    return ""


def supply_words(free: int, evictable: int) -> str:
    """Say how many KV blocks are free and how many can be evicted."""
    return text(MESSAGES["supply"], free=free, evictable=evictable)


def preemption_words(
    event: v.Preempted, free: int, evictable: int, source: Mapping[str, Any]
) -> Words:
    """Say why a request is preempted, with the blocks that were free or evictable before that.

    source  `run_started.source`; the log of another engine may not say why
    """
    message: str = MESSAGES["preempted"]
    if event.needed_by < 0:
        return [message.partition(":")[0]]
    who: int | str = "it" if event.needed_by == event.request else event.needed_by
    supply = supply_words(free, evictable)
    marked = message.replace("{who}", half_dot(source, "preemption_causes") + "{who}")
    return fill(marked, who=who, blocks="more KV blocks", supply=supply)


def admission_words(
    found: int,
    length: int,
    *,
    resumed: bool,
    adopted: tuple[int, str] = (0, ""),
    source: Mapping[str, Any],
) -> str:
    """Say that a request is admitted, and how many of its `length` tokens were cached, if it is known.

    adopted  how many of these were adopted, and from which replica
    source   `run_started.source`
    """
    message = MESSAGES["resumed" if resumed else "admitted"]
    if LogKnowledge(source).lacks("cached_tokens"):
        return text(message.partition(":")[0], after="")
    return text(message, after="", found=found, length=length) + adopted_words(*adopted)


def adopted_words(adopted: int, source: str) -> str:
    """Say which replica computed cached tokens that were adopted; "" if none were."""
    return text(MESSAGES["adopted"], adopted=adopted, source=source) if adopted else ""


def moved_words(events: Iterable[v.Event], request: int, block_size: int) -> str:
    """Say what an admitted request fetches from the tiers below the GPU, or why it does not.

    events  those after its admission, in the same step
    """
    moves = [
        event
        for event in events
        if isinstance(event, v.BlocksMoved)
        and event.request == request
        and (event.target == "gpu" or event.reason in ("dearer", "late"))
    ]
    # What came is more than what did not come.
    if not (moves := [one for one in moves if one.reason != "late"] or moves):
        return ""
    words, t = MESSAGES["moved"], moves[0].t
    values: dict[str, int | str] = {
        "tokens": block_size * sum(len(move.slots) for move in moves),
        "tier": " and ".join(words[move.source] for move in moves),
        "us": duration(t.get("us", 0) / 1000),
        "fetch": duration(t.get("fetch_us", 0) / 1000),
        "compute": duration((t.get("compute_us") or 0) / 1000),
        "detail": moves[0].detail,
    }
    if moves[0].target != "gpu":
        return text(words[moves[0].reason], **values)
    instead = "" if t.get("compute_us") is None else text(words["instead"], **values)
    return text(words["fetched"], **values) + instead


def row_words(state: State, row: v.ScheduledRow) -> str:
    """Say what a request computes in a step. `state` is the state before the commit."""
    request = state.requests[row.request]
    own, length = row.count - len(row.drafts), len(request.tokens)
    end = row.start + own
    kind = "decode"
    if row.start < request.prompt_length:
        kind = "prefill"
        length = request.prompt_length if end <= request.prompt_length else length
    elif own > 1 or end < length:
        kind = "catchup"
    left = max(0, len(request.tokens) - end)
    return text(
        MESSAGES[kind],
        count=own,
        range=str(end) if own == 1 else f"{row.start + 1} to {end}",
        length=max(length, end),  # a placeholder's position may be the one after the last token
        left=text(MESSAGES["left"], left=left) if left else "",
        drafts=text(MESSAGES["drafts"], drafts=len(row.drafts)) if row.drafts else "",
    )


def wasted_words(state: State, later: Iterable[v.Event], request: int) -> str | None:
    """Say why a request's row was wasted, which the log records later; None if it was not.

    state  when the step was scheduled
    later  the events after its step_scheduled
    """
    if not state.settings.get("async_scheduling"):
        return None
    why = "dropped"
    for event in later:
        match event:
            case v.StepFinished() if event.step == state.step:
                wasted = request in event.wasted
                return text(MESSAGES["wasted"][why], step="") if wasted else None
            case v.RequestFinished() if event.request == request:
                why = "ended"
            case v.Preempted() if event.request == request:
                why = "preempted"
    return None


def mask_words(allowed: int, vocab: int, mass: float, wanted: str | None) -> str:
    """Say how many tokens a grammar allowed.

    vocab   number of tokens in the vocabulary; 0 if the log does not say
    wanted  the text of the token that the model preferred, if it is forbidden
    """
    tokens = count(allowed, "token")
    quoted = json.dumps(wanted, ensure_ascii=False)
    return text(
        _ALLOWED,
        amount=f"{allowed}{text(MESSAGES['mask']['of'], vocab=f'{vocab:,}')} tokens"
        if vocab
        else tokens,
        mass=percent(mass),
        wanted=text(_FORBADE, text=quoted) if wanted is not None else "",
    )


def percent(share: float) -> str:
    """Return a share in percent: "42%", "3%", "0.05%", "under 0.01%"."""
    if 0 < share < 0.0001:
        return "under 0.01%"
    return f"{100 * share:.2g}%" if share < 0.1 else f"{round(100 * share)}%"


def expert_load_words(loads: "ExpertLoads") -> str:
    """Say which expert is the busiest and how many have nothing to do."""
    busiest, words = loads.busiest, MESSAGES["experts"]
    return text(
        words["busiest"],
        **busiest._asdict() | {"times_mean": f"{busiest.times_mean:.1f}"},
    ) + text(words["idle"], idle=loads.idle and f"{loads.idle:,}", experts=f"{loads.experts:,}")


def stalled_words(state: State, reason: str) -> str:
    """Say that a running request got no tokens, with the reason in `step_scheduled`."""
    mark = half_dot(state.source, "waiting_reasons")
    message = MESSAGES["stalled"][reason].replace(": ", f": {mark}", 1)
    return text(message, requests=1, budget=state.settings["token_budget"])
