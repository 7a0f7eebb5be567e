"""The scenes about requests that wait: the longest queue, and the longest wait."""

from collections import Counter

from visualizer.reading.tour.claims import Sentence, sentence, verb
from visualizer.reading.tour.material import WAITS, Material
from visualizer.reading.tour.scene import Scene

# Why the head of the queue is not admitted, with what it needs and what there is.
_HEADS = {
    "batch_full": ("It waits because it needs {} and {} free.", "seat"),
    "token_budget": (
        "It waits because it needs {} of the step's budget and {} left.",
        "token",
    ),
    "no_free_blocks": ("It waits because it needs {} and {} free or can be evicted.", "block"),
    "whole_sequence": (
        "It waits because all its tokens need {} and {} free or can be evicted.",
        "block",
    ),
    "reserved_blocks": ("It waits because it may need {} and {} not reserved.", "block"),
    "expected_tokens": ("It waits because it may need {} and {} not spoken for.", "token"),
}
_HEADS_ALONE = {
    "after_preemption": "It waits because a step that preempts a request admits none.",
    "static_batch": "It waits because the static batch has not ended.",
}
_REASONS = {
    "for blocks": "KV blocks",
    "for a seat": "a seat",
    "for the static batch to end": "the static batch to end",
    "for the token budget": "a part of the token budget",
}


def the_queue(of: Material) -> Scene | None:
    """Tell about the worst step: how many requests wait, and for what the first of them does."""
    steps = of.regimes.columns.steps
    if of.lacks("queue") or not any(steps.waiting):
        return None
    step = of.regimes.worst
    at = None if step is None else of.index(step)
    if at is None or not steps.waiting[at]:
        at = max(range(len(steps.number)), key=lambda index: (steps.waiting[index], -index))
    step = steps.number[at]
    facts, waiting = of.facts.at(step=step), steps.waiting[at]
    mark = of.mark("queue")
    claims = [facts.step("step", step), facts.number("waiting", waiting, "request")]
    template = f"{mark}In {{}}, {{}} {verb(waiting, 'waits', 'wait')}"
    if not of.lacks("scheduled_tokens"):
        template += f" while {{}} {verb(steps.rows[at], 'computes', 'compute')} {{}}"
        claims += [
            facts.number("rows", steps.rows[at], "request"),
            facts.number("tokens", steps.tokens[at], "token"),
        ]
    said = [sentence(f"{template}.", *claims)]
    event = of.scheduled(step)
    head = event.blocked if event is not None else None
    if head is None:
        return Scene(kind="queue", title="the queue", sentences=said, step=step, beside=("queue",))
    said.append(sentence(f"{mark}{{}} is at its front.", facts.name("head", head.request)))
    mark = of.mark("waiting_reasons")
    if head.reason in _HEADS:
        words, noun = _HEADS[head.reason]
        have = facts.number("have", max(0, head.have))
        words = words.replace("and {}", f"and {{}} {verb(max(0, head.have), 'is', 'are')}")
        said.append(sentence(mark + words, facts.number("need", head.need, noun), have))
    elif head.reason in _HEADS_ALONE:
        said.append(
            sentence("{}", facts.said("reason", head.reason, mark + _HEADS_ALONE[head.reason]))
        )
    seats = of.regimes.columns.settings.get("max_batch_size", 0)
    empty = seats - steps.seats[at]
    if (
        head.reason not in ("batch_full", "static_batch")
        and empty > 0
        and not of.lacks("settings", "admissions")
    ):
        claims = [facts.some("empty seats", empty, seats), facts.number("seats", seats, "seat")]
        is_empty = verb(empty, "is", "are")
        said.append(sentence(f"Meanwhile {{}} of {{}} {is_empty} empty.", *claims))
    return Scene(
        kind="queue",
        title="the longest queue",
        sentences=said,
        step=step,
        beside=of.known("queue", "blocks"),
        requests=(head.request,),
        question="why {}?",
        why=of.why(head.request, step),
    )


def the_wait(of: Material) -> Scene | None:
    """Tell which request waited longest to be admitted, and for what."""
    if of.lacks("arrivals", "admissions"):
        return None
    if of.lives.longest is None:
        return None
    life, wait = of.lives.longest
    reasons, request = of.lives.reasons(life), life.id
    if not reasons:
        return None
    facts = of.facts.at(request=request)
    name, mark = facts.name("longest wait", request), of.mark("arrivals", "admissions")
    time = facts.time("wait", wait)
    busy = "" if of.in_steps else of.of_busy_time(*of.lives.wait(life))
    admitted = life.admitted[0] if life.admitted else None
    if admitted is None:
        words = f"{{}} waits longest: {{}}{busy}, and has not been admitted when the log ends."
        said = [sentence(mark + words, name, time)]
    else:
        step = facts.step("admitted", admitted)
        said = [sentence(f"{mark}{{}} waits longest: {{}}{busy}, until {{}}.", name, time, step)]
    said += _reason_of(of, request, reasons)
    whole = of.waterfall.alone(request)
    if life.finished and life.finished[1] in ("stop", "length") and not of.in_steps:
        said.append(
            sentence("From its arrival to its end it takes {}.", facts.time("total", whole.total))
        )
    step_shown = admitted or of.times.last_step or of.happenings.state.step
    return Scene(
        kind="wait",
        title="the longest wait",
        sentences=said,
        step=step_shown,
        panel="time",
        beside=of.known("lanes", "queue"),
        requests=(request,),
        question="why so long for {}?",
        why=str(whole),
    )


def _reason_of(of: Material, request: int, counts: Counter[str]) -> list[Sentence]:
    if of.lacks("waiting_reasons"):
        return []
    sums = {words: sum(counts[one] for one in WAITS[words]) for words in _REASONS}
    words = max(sums, key=lambda one: sums[one])
    if not sums[words]:
        return []
    facts, steps = of.facts.at(request=request), counts.total()
    whole = facts.number("steps waited", steps, "step")
    part = facts.some("steps waited for it", sums[words], steps)
    thing = facts.said("waits for", words, _REASONS[words])
    template = "In {} of these {}, the front of the queue waits for {}."
    if steps == 1:
        return [
            sentence(
                f"{of.mark('waiting_reasons')}The front of the queue then waits for {{}}.", thing
            )
        ]
    return [sentence(of.mark("waiting_reasons") + template, part, whole, thing)]
