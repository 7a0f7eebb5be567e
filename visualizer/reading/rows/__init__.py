"""The log as plain records: one per request, per step, per output token.

Everything is derived from the events. Fields that end in `_ms` are milliseconds since the run
started, or durations; `_step` fields are step numbers; `_tokens` and `_blocks` fields are counts. A
value is None if it has not happened yet, if it happened before the log begins, if the log was saved
without times, or if the source of a foreign log does not know it. `docs/frames.md` describes every
field.

A window may begin in the middle of requests and of a step. A request that arrived before it has a row,
but all values that depend on the past are None. A step that began before the window has no row.
"""

from visualizer.reading.rows.requests import RequestRow, request_rows
from visualizer.reading.rows.steps import StepRow, step_rows
from visualizer.reading.rows.tokens import OutputTokenRow, token_rows

__all__ = [
    "OutputTokenRow",
    "RequestRow",
    "StepRow",
    "request_rows",
    "step_rows",
    "token_rows",
]
