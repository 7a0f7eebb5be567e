"""The log as pandas frames: one row per request, per step, per output token.

Everything is derived from the events. Columns that end in `_ms` are milliseconds since the run
started, or durations; `_step` columns are step numbers; `_tokens` and `_blocks` columns are counts. A
value is missing (NaN or <NA>) if it has not happened yet, if it happened before the log begins, or if
the log was saved without times.
`docs/frames.md` lists the columns.

A window may begin in the middle of requests and of a step. A request that arrived before it has a row,
but all values that depend on the past are missing. A step that began before the window has no row.
"""

from engine.events.frames.requests import requests_frame
from engine.events.frames.steps import steps_frame
from engine.events.frames.tokens import tokens_frame

__all__ = ["requests_frame", "steps_frame", "tokens_frame"]
