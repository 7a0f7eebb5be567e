"""Differences between the inputs of two runs: arrivals, aborts and request parameters."""

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer.comparing.engines import is_foreign

_PARAMETERS = ("priority", "max_tokens", "n", "sampling")
_MAX_LINES = 5  # a different arrival rate would change every request


def input_changes(
    a: EventLog, b: EventLog, pairs: dict[int, int], names: dict[int, str]
) -> list[str]:
    """Return one line per change, for the first few. `names` maps request ids in `a` to names."""
    inputs_a, inputs_b = _inputs(a), _inputs(b)
    # Another engine's sampling parameters are not recorded.
    ignored = {"sampling"} if is_foreign(a, b) else set()
    lines: list[str] = []
    for request, other in pairs.items():
        if request not in inputs_a or other not in inputs_b:
            continue
        for name, before in inputs_a[request].items():
            after = inputs_b[other][name]
            if before == after or name in ignored:
                continue
            if name == "arrives":
                lines.append(f"{names[request]} arrives before step {after} instead of {before}")
            else:
                lines.append(f"{names[request]}: {name} {before} -> {after}")
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES - 1 :] = [f"and {len(lines) - _MAX_LINES + 1} more"]
    return lines


def _inputs(log: EventLog) -> dict[int, dict[str, object]]:
    """Return the inputs of each request that arrives in the log."""
    known: dict[int, dict[str, object]] = {}
    step = 0
    for event in log:
        match event:
            case v.Keyframe():
                step = event.state.step
            case v.StepStarted():
                step = event.step
            case v.RequestArrived():
                parameters = {name: getattr(event, name) for name in _PARAMETERS}
                known[event.request] = {
                    "arrives": step + 1,
                    "prompt tokens": len(event.prompt),
                    **parameters,
                    "aborted": None,
                }
            case v.RequestFinished(reason="abort") if event.request in known:
                known[event.request]["aborted"] = step + 1
    return known
