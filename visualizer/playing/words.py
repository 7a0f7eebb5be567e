"""The playground's sentences about a run."""

from typing import Any

from visualizer import read
from visualizer.playing.rerun import Run
from visualizer.playing.settings import NAMES
from visualizer.reading.durations import duration
from visualizer.reading.messages import count


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return the settings that differ, or an empty string."""
    arrow = "\N{RIGHTWARDS ARROW}"
    changed = [
        f"{NAMES.get(name, name)} {_value_text(before[name])} {arrow} {_value_text(new)}"
        for name, new in now.items()
        if before[name] != new
    ]
    return f"Changed: {', '.join(changed)}." if changed else ""


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def description(run: Run, now: dict[str, float]) -> str:
    """Return how many requests and steps a run had, and how long it took."""
    requests, seconds = (
        count(len(read(run.log).request_rows), "request"),
        duration(1000 * run.seconds),
    )
    text = f"{requests} in {now['steps']:.0f} steps; the run took {seconds}."
    if run.left_out:
        text += f" Another {run.left_out} were left out to keep the run short."
    return text
