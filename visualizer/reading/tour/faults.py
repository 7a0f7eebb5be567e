"""The scenes about what went wrong, and what a client stopped."""

from visualizer.reading.tour.claims import sentence, verb
from visualizer.reading.tour.happenings import Fault
from visualizer.reading.tour.material import Material
from visualizer.reading.tour.scene import Scene


def the_faults(of: Material) -> list[Scene]:
    """Tell what went wrong and what was stopped: at most two kinds of it, the gravest first."""
    order = ("failed", "error", "missing", "draft", "abort", "paused")
    found = [of.happenings.faults[kind] for kind in order if kind in of.happenings.faults]
    if any(one.kind == "failed" for one in found):
        found = [one for one in found if one.kind != "error" or one.step != found[0].step]
    scenes = [_fault(of, one) for one in found]
    return [one for one in scenes if one is not None][:2]


def _fault(of: Material, fault: Fault) -> Scene | None:
    facts, number = of.facts.at(step=fault.step, kind=fault.kind), len(fault.requests)
    step = facts.step("fault", fault.step)
    where = "after" if fault.is_after else "in"
    requests, said = tuple(fault.requests[:3]), []
    match fault.kind:
        case "failed":
            title = "a step that fails"
            said = [sentence("The scheduling of {} fails, so it gives no request a token.", step)]
        case "error":
            title = "requests that end with an error"
            ended = facts.number("ended", number, "request")
            first = facts.name("ended first", fault.requests[0])
            if number == 1:
                said = [sentence(f"{{}} ends with an error {where} {{}}.", first, step)]
            else:
                words = f"{{}} end with an error {where} {{}}, {{}} first."
                said = [sentence(words, ended, step, first)]
            if fault.message:
                said.append(sentence("The message is “{}”.", facts.said("message", fault.message)))
        case "missing":
            title = "messages that are missing"
            lost = facts.number("missing", fault.amount, "message")
            words = f"{{}} of the recording {verb(fault.amount, 'is', 'are')} missing after {{}}."
            said = [sentence(words, lost, step)] if fault.amount else []
            said = said or [sentence("Messages of the recording are missing after {}.", step)]
            said.append(sentence("What happened there is unknown."))
        case "draft":
            title = "a draft model that fails"
            said = [
                sentence("After the forward pass of {}, the draft model fails.", step),
                sentence("The message is “{}”.", facts.said("message", fault.message)),
            ]
        case "abort":
            title = "a request that is aborted"
            one = facts.name("ended first", fault.requests[0])
            output = facts.number("output", fault.amount, "token")
            said = [
                sentence(
                    f"{{}} is aborted {where} {{}}, when it has {{}} of output.", one, step, output
                )
            ]
            if number > 1:
                more = facts.number("more ended", number - 1)
                said.append(
                    sentence(f"{{}} more {verb(number - 1, 'is', 'are')} aborted then.", more)
                )
        case _:
            title = "a pause"
            time = of.facts.at(step=fault.step, kind="paused").time("paused", fault.amount)
            said = [sentence("After {}, the engine is paused for {}.", step, time)]
            if of.in_steps:
                return None
    if not fault.step or of.index(fault.step) is None:
        return None
    return Scene(
        kind=fault.kind,
        title=title,
        sentences=said,
        step=fault.step,
        beside=of.known("queue"),
        requests=requests,
    )
