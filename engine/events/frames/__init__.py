"""The log as pandas frames: one row per request, per step, per output token.

Everything is derived from the events. Columns that end in `_ms` are milliseconds since the run
started, or durations; `_step` are step numbers, `_tokens` and `_blocks` are counts. A missing value
(NaN or <NA>) says that it has not happened, or that it happened before the log begins, or that the log
was saved without times. `docs/frames.md` lists the columns.

A log's window may begin in the middle of requests and of a step. A request that came before it has a
row with what is known of it: what would need the past is missing. The step the window begins in has no
row, unless the window begins before it.
"""

from engine.events.frames.requests import requests_frame
from engine.events.frames.steps import steps_frame
from engine.events.frames.tokens import tokens_frame

__all__ = ["requests_frame", "steps_frame", "tokens_frame"]
