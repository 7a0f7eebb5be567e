"""What came from outside differently in two runs: who arrives when, and what they ask for."""

from engine.events import EventLog
from engine.events import vocabulary as v

_ASKED = ("priority", "max_tokens", "n")
_MOST = 5  # lines; one changed arrival rate changes them all


def input_changes(
    a: EventLog, b: EventLog, pairs: dict[int, int], names: dict[int, str]
) -> list[str]:
    """A line per change, of the first few requests; `names` are those of `a`."""
    there, here = _inputs(b), _inputs(a)
    lines: list[str] = []
    for request, one in here.items():
        other = there.get(pairs.get(request, -1))
        if other is None:
            continue
        who = names[request]
        for name, before, after in zip(one, one.values(), other.values(), strict=True):
            if before == after:
                continue
            if name == "arrives":
                lines.append(f"{who} arrives before step {after} instead of {before}")
            else:
                lines.append(f"{who}: {name} {before} -> {after}")
    if len(lines) > _MOST:
        lines[_MOST - 1 :] = [f"and {len(lines) - _MOST + 1} more"]
    return lines


def _inputs(log: EventLog) -> dict[int, dict[str, object]]:
    """What is known of each request that arrives in the log."""
    known: dict[int, dict[str, object]] = {}
    step = 0
    for event in log:
        if isinstance(event, v.Keyframe):
            step = event.state["step"]
        elif isinstance(event, v.StepStarted):
            step = event.step
        elif isinstance(event, v.RequestArrived):
            asked = {name: getattr(event, name) for name in _ASKED}
            known[event.request] = {"arrives": step + 1, **asked, "sampling": event.sampling}
        elif isinstance(event, v.RequestFinished) and event.reason == "abort":
            known.get(event.request, {})["aborted"] = step + 1
    for one in known.values():
        one.setdefault("aborted", None)
    return known
