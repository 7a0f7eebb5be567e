"""Why the head of the queue does not start, and what would have let it, in words."""

from collections.abc import Iterator

from engine.events import vocabulary as v
from engine.why.facts import Facts
from engine.why.log_index import LogIndex
from engine.why.room import evictable, free_blocks


def why_blocked(who: LogIndex, facts: Facts, blocked: v.Blocked, *, asked: int) -> Iterator[str]:
    """The reason with its numbers, and what would have helped. `asked` is the request in question."""
    yield _reason(who, facts, blocked)
    found = facts.remedy(who.classes)
    if found is not None:
        head = "it" if blocked.request == asked else who.name(blocked.request)
        where = " in the budget" if found.unit == "token" else ""
        yield f"With {count(found.more, 'more ' + found.unit)}{where} {head} would have started."


def count(number: int, what: str) -> str:
    """ "1 token", "2 tokens"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _reason(who: LogIndex, facts: Facts, blocked: v.Blocked) -> str:
    head, running = who.name(blocked.request), who.names(facts.state.running)
    numbers = f"{head} needs {blocked.need}, has {blocked.have}"
    text = "The policy put it off."
    match blocked.reason:
        case "batch_full":
            places = count(facts.config.max_batch_size, "place")
            text = f"No place in the batch: {numbers} of {places}. In the batch: {running}."
        case "token_budget":
            rows = ", ".join(  # drafts came after the head was asked
                f"{who.name(row.request)} {row.count - len(row.drafts)}" for row in facts.event.rows
            )
            budget = count(facts.config.token_budget, "token")
            text = f"The token budget: {numbers} of {budget}. The others took: {rows}."
        case "no_free_blocks":
            held = ", ".join(
                f"{who.name(id_)} {len(facts.state.requests[id_].table)}"
                for id_ in facts.state.running
            )
            text = (
                f"No free blocks: {head} needs {blocked.need}, {_room(facts, blocked)}. "
                f"Blocks held, shared ones counted for each: {held}."
            )
        case "reserved_blocks":
            text = (
                "Blocks are reserved, because preemption is off and everybody gets the worst case "
                f"in advance: {numbers} KV blocks that are neither promised to {running} nor part "
                "of its own match."
            )
        case "after_preemption":
            # In a log that begins in the middle of this step the victims are not known.
            victims = (
                who.names(facts.victims) if facts.victims else "somebody, before this log begins"
            )
            text = f"A step that preempts admits nobody: preempted {victims}."
        case "static_batch":
            text = (
                "The batch is static: nobody joins while one of its members runs. Running: "
                f"{running}."
            )
    return text


def _room(facts: Facts, blocked: v.Blocked) -> str:
    """ "free 0, evictable 3, all 3 part of its own match"."""
    match, there = facts.head_match(blocked), evictable(facts.state)
    free = free_blocks(facts.state, facts.event, facts.config)
    text = f"free {free}, evictable {there}"
    if not match.unlocked:
        return text
    part = f"all {there}" if match.unlocked == there else f"{match.unlocked} of them"
    return f"{text}, {part} part of its own match"
