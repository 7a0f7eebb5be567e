"""The scene about speculative decoding."""

from dataclasses import replace

from visualizer.reading.tour.claims import sentence, verb
from visualizer.reading.tour.material import Material
from visualizer.reading.tour.scene import Scene


def the_drafts(of: Material) -> Scene | None:
    """Tell about the step in which the most drafts of a request were accepted."""
    best = of.drafting.best
    if best is None or of.lacks("scheduled_tokens"):
        return None
    facts = of.facts.at(request=best.request, step=best.step)
    name, step = facts.name("drafted", best.request), facts.step("drafts in", best.step)
    drafts, taken = (
        facts.number("drafts", best.drafts, "draft"),
        facts.some("accepted", best.accepted, best.drafts),
    )
    if best.accepted == best.drafts == 1:
        taken = replace(taken, text="it")
    gained = facts.number("gained", best.gained, "token")
    are = verb(best.accepted, "is", "are")
    template = f"In {{}}, {{}} checks {{}} and {{}} {are} accepted, so it gains {{}} in one step."
    said = [sentence(template, step, name, drafts, taken, gained)]
    whole, good = of.drafting.drafted, of.drafting.accepted
    if whole > best.drafts:
        accepted = of.facts.some("all accepted", good, whole)
        every = of.facts.number("all drafts", whole, "draft")
        template = f"In the whole run, {{}} of {{}} {verb(good, 'is', 'are')} accepted."
        said.append(sentence(template, accepted, every))
    return Scene(
        kind="drafts",
        title="drafts that are accepted and rejected",
        sentences=said,
        step=best.step,
        beside=of.known("time"),
        requests=(best.request,),
        question="why {}?",
        why=of.why(best.request, best.step),
    )
