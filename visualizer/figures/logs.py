"""One log or several by name, as every figure takes them."""

from collections.abc import Mapping

import pandas as pd

from engine.events import EventLog
from visualizer.logs import LogLike, read_log

Logs = LogLike | Mapping[str, LogLike]
AXES = {"step": "step", "time": "time since the run started (ms)"}
POINTS = 1500  # more cannot be told apart on a screen


def named(logs: Logs) -> dict[str, EventLog]:
    """Names and logs, in order; a log alone has the name ""."""
    if isinstance(logs, Mapping):
        if not logs:
            raise ValueError("there is no log to draw: give one, or several as {name: log}")
        return {str(name): read_log(log) for name, log in logs.items()}
    return {"": read_log(logs)}


def sequence(steps: pd.DataFrame, x: str) -> pd.Series:
    """Where steps lie on the axis `x`. Raises ValueError for an axis that does not exist."""
    if x not in AXES:
        raise ValueError(f'x must be "step" or "time", got {x!r}')
    return steps.index.to_series() if x == "step" else steps.start_ms


def steps_a_point(frames: dict[str, pd.DataFrame]) -> int:
    """How many neighbouring steps share a point, so that the longest run has no more than POINTS."""
    return -(-max(len(steps) for steps in frames.values()) // POINTS)


def groups(steps: pd.DataFrame, size: int) -> pd.Series:
    """For each step the number of its point."""
    return pd.Series(range(len(steps)), index=steps.index) // size


def drawable(logs: dict[str, EventLog], x: str) -> dict[str, pd.DataFrame]:
    """The steps of each log that lie somewhere on the axis; logs without any are left out."""
    frames = {name: log.steps for name, log in logs.items()}
    frames = {name: steps[sequence(steps, x).notna()] for name, steps in frames.items()}
    return {name: steps for name, steps in frames.items() if len(steps)}


def edges(steps: pd.DataFrame, x: str, group: pd.Series) -> list[float]:
    """Where each group of steps begins, and where the last one ends."""
    starts = sequence(steps, x).groupby(group).first().tolist()
    last = steps.iloc[-1]
    return [*starts, last.name + 1 if x == "step" else last.start_ms + last.duration_ms]


def shared_points(size: int, what: str) -> list[tuple[str, str]]:
    """A key that says so, where steps share a point."""
    return [("", f"a point is the {what} of {size} steps")] if size > 1 else []
