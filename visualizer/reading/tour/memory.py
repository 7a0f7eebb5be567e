"""The scenes about KV blocks: a preemption, an eviction, a hit, a copy."""

from visualizer.reading.tour.claims import Facts, Sentence, sentence, verb
from visualizer.reading.tour.happenings import Loss
from visualizer.reading.tour.material import Material
from visualizer.reading.tour.scene import Bracket, Scene


def the_preemption(of: Material) -> Scene | None:
    """Tell what the preemption cost that made its victim compute the most tokens again."""
    if of.lacks("preemptions") or not of.happenings.losses:
        return None
    loss = max(of.happenings.losses, key=lambda one: (one.again, of.times.away(one), -one.step))
    facts = of.facts.at(request=loss.request, step=loss.step)
    victim, step = facts.name("victim", loss.request), facts.step("preempted", loss.step)
    if loss.by < 0:
        said = [sentence("{} is preempted in {}.", victim, step)]
    elif loss.by == loss.request:
        free, is_free = (
            facts.number("free blocks", loss.free, "block"),
            verb(loss.free, "is", "are"),
        )
        template = (
            f"{{}} needs a KV block, but {{}} {is_free} free, so it is preempted itself in {{}}."
        )
        said = [sentence(of.mark("preemption_causes") + template, victim, free, step)]
    else:
        by, free = facts.name("needed by", loss.by), facts.number("free blocks", loss.free, "block")
        is_free = verb(loss.free, "is", "are")
        template = f"{{}} needs a KV block in {{}} and {{}} {is_free} free, so {{}} is preempted."
        said = [sentence(of.mark("preemption_causes") + template, by, step, free, victim)]
    brackets = []
    if loss.resumed is not None:
        long = [facts.number("steps away", loss.resumed - loss.step, "step")]
        words = "It is away for {}"
        if (absence := of.times.absence(loss)) is not None:
            long.append(facts.time("time away", of.times.away(loss)))
            words += f" and {{}}{of.of_busy_time(*absence)}"
        said.append(sentence(f"{words}.", *long))
        brackets.append(
            Bracket(loss.request, loss.step, loss.resumed - 1, sentence("{} away", long[-1]))
        )
        said += _price(of, loss, facts)
        if loss.again:
            again = facts.number("tokens again", loss.again, "token")
            brackets.append(
                Bracket(loss.request, loss.resumed, loss.resumed, sentence("{} again", again))
            )
    elif loss.request in of.happenings.state.waiting:
        open_ = facts.said("not resumed", 1, "It has not resumed when the log ends")
        said.append(sentence("{}.", open_))
    lit = [loss.request] + [loss.by] * (loss.by >= 0 and loss.by != loss.request)
    return Scene(
        kind="preemption",
        title="the price of a preemption",
        sentences=said,
        step=loss.step,
        beside=of.known("blocks", "queue", "time"),
        requests=tuple(lit),
        blocks=tuple(loss.table),
        brackets=tuple(brackets),
        question="why {}?",
        why=of.why(loss.request, loss.step),
    )


def _price(of: Material, loss: Loss, facts: Facts) -> list[Sentence]:
    """Say how much of a victim's work was lost."""
    if of.lacks("scheduled_tokens", "cached_tokens") or not loss.computed:
        return []
    computed = facts.number("computed tokens", loss.computed, "computed token")
    found = facts.number("found tokens", loss.found)
    again = facts.number("tokens again", loss.again)
    is_found, is_again = verb(loss.found, "is", "are"), verb(loss.again, "is", "are")
    template = f"Of its {{}}, {{}} {is_found} in the cache when it returns, "
    template += f"and {{}} {is_again} computed again."
    return [sentence(of.mark("cached_tokens") + template, computed, found, again)]


def the_eviction(of: Material) -> Scene | None:
    """Tell about the step in which a request needed the most cached blocks of others."""
    most = of.happenings.eviction
    if of.lacks("evictions") or most is None:
        return None
    facts, number = of.facts.at(step=most.step, request=most.request), len(most.blocks)
    step, blocks = (
        facts.step("evicted", most.step),
        facts.number("evicted blocks", number, "cached block"),
    )
    are, lit = verb(number, "is", "are"), [most.request] * (most.request >= 0)
    if most.request < 0:
        said = [sentence(f"In {{}}, {{}} {are} evicted.", step, blocks)]
    else:
        by = facts.name("evicted for", most.request)
        words = f"In {{}}, {{}} {are} evicted {of.mark('eviction_causes')}for {{}}"
        if of.lacks("free_blocks"):
            said = [sentence(f"{words}.", step, blocks, by)]
        else:
            free = facts.number("free blocks", most.free, "block")
            is_free = verb(most.free, "is", "are")
            said = [sentence(f"{words}, because {{}} {is_free} free.", step, blocks, by, free)]
    whole = of.happenings.evicted
    if whole > number:
        every = of.facts.number("all evicted", whole, "block")
        said.append(sentence("In the whole run, {} are evicted.", every))
    else:
        only = of.facts.said("all evicted", whole, "No other block is evicted")
        said.append(sentence("{} in the whole run.", only))
    return Scene(
        kind="eviction",
        title="an eviction",
        sentences=said,
        step=most.step,
        panel="blocks" if not of.lacks("block_tables") else "lanes",
        beside=of.known("lanes"),
        requests=tuple(lit),
        blocks=tuple(most.blocks),
        question="why for {}?" if lit else "",
        why=of.why(most.request, most.step) if lit else "",
    )


def the_hit(of: Material) -> Scene | None:
    """Tell about the largest prefix that a request found in the cache."""
    hit = of.happenings.hit
    if hit is None or of.lacks("cached_tokens", "admissions"):
        return None
    facts = of.facts.at(request=hit.request, step=hit.step)
    name, step = facts.name("hit", hit.request), facts.step("admitted", hit.step)
    found, prompt = (
        facts.number("found tokens", hit.found),
        facts.number("prompt", hit.prompt, "prompt token"),
    )
    template = "{} finds {} of its {} in the cache when it is admitted in {}."
    said = [sentence(of.mark("cached_tokens") + template, name, found, prompt, step)]
    left = hit.prompt - hit.found
    if left > 0:
        rest = facts.number("prompt left", left, "token")
        said.append(sentence("It has to compute only the other {} of its prompt.", rest))
    if hit.adopted[0]:
        moved, source = (
            facts.number("adopted", hit.adopted[0], "token"),
            facts.said("source", hit.adopted[1]),
        )
        said.append(sentence("Replica {} computed {} of them.", source, moved))
    if hit.sharers and not of.lacks("block_tables"):
        first = facts.name("sharer", hit.sharers[0])
        if len(hit.sharers) == 1:
            said.append(sentence("{} used the same blocks already.", first))
        else:
            more = facts.number("more sharers", len(hit.sharers) - 1)
            said.append(sentence("{} and {} more used the same blocks already.", first, more))
    return Scene(
        kind="hit",
        title="a prefix found in the cache",
        sentences=said,
        step=hit.step,
        panel="blocks" if not of.lacks("block_tables") else "lanes",
        beside=of.known("lanes", "time"),
        requests=(hit.request, *hit.sharers[:1]),
        blocks=tuple(hit.blocks),
        question="why {}?",
        why=of.why(hit.request, hit.step),
    )


def the_copy(of: Material) -> Scene | None:
    """Tell about the first block that was copied because several requests shared it."""
    copy = of.happenings.copy
    if copy is None or of.lacks("block_tables"):
        return None
    facts = of.facts.at(request=copy.request, step=copy.step)
    claims = [
        facts.step("copied", copy.step),
        facts.name("writer", copy.request),
        facts.index("source", copy.source),
        facts.number("sharers", copy.sharers, "request"),
    ]
    said = [
        sentence("In {}, {} has to write into block {}, which {} share.", *claims),
        sentence("So it gets a copy of it, block {}.", facts.index("copy", copy.block)),
    ]
    return Scene(
        kind="copy",
        title="a block that is copied before it is written",
        sentences=said,
        step=copy.step,
        panel="blocks",
        beside=of.known("lanes"),
        requests=(copy.request,),
        blocks=(copy.source, copy.block),
        question="why {}?",
        why=of.why(copy.request, copy.step),
    )
