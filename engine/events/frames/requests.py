"""One row per request: what it asked for, what it got, and how long it took."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from engine.events import vocabulary as v
from engine.events.frames.columns import ANY, COUNT, MAYBE_COUNT, MS, US_PER_MS, build, in_ms
from engine.events.paused_time import PausedTime

if TYPE_CHECKING:
    from engine.events.log import EventLog

TYPES = {
    "label": ANY,
    "root": COUNT,
    "sample": COUNT,
    "priority": COUNT,
    "policy_key": ANY,
    "prompt_tokens": COUNT,
    "max_tokens": COUNT,
    "cached_tokens": MAYBE_COUNT,
    "output_tokens": COUNT,
    "forced_tokens": MAYBE_COUNT,
    "drafted_tokens": MAYBE_COUNT,
    "accepted_tokens": MAYBE_COUNT,
    "preemptions": COUNT,
    "finish_reason": ANY,
    "matched": ANY,
    "message": ANY,
    "arrived_step": MAYBE_COUNT,
    "admitted_step": MAYBE_COUNT,
    "first_token_step": MAYBE_COUNT,
    "finished_step": MAYBE_COUNT,
    "arrived_ms": MS,
    "queue_ms": MS,
    "ttft_ms": MS,
    "itl_ms": MS,
    "itl_p95_ms": MS,
    "itl_max_ms": MS,
    "e2e_ms": MS,
}
_COUNTED = ("forced_tokens", "drafted_tokens", "accepted_tokens")
_UNKNOWN: dict[str, Any] = dict.fromkeys(TYPES)


def requests_frame(log: "EventLog") -> pd.DataFrame:
    """One row per request and sample, indexed by id, in order of appearance.

    Identity: label, root and sample (the same for all samples of a prompt), priority, policy_key (the
    policy's sort key at the first admission).
    Tokens: prompt_tokens, max_tokens, cached_tokens (found in the prefix cache at the first admission;
    None before it), output_tokens, of which forced_tokens came from a tool; drafted_tokens were
    verified as drafts, and accepted_tokens of them became output. A sample's counts begin at its fork:
    its prompt was computed, and found in the cache, once for all samples of a root.
    What happened: preemptions, finish_reason (stop, length, abort, error; None while it lives), matched
    (the stop string that ended it), message (of an error). Steps: arrived_step (the first that could
    admit it), admitted_step, first_token_step, finished_step (the last of its life; arrived_step for a
    request that ended before any step).
    Times: arrived_ms (since the run started), queue_ms (arrival to the step that first admitted it),
    ttft_ms (arrival to first token), itl_ms, itl_p95_ms, itl_max_ms (mean, 95th percentile and
    maximum of the time between consecutive tokens; 0 for tokens of one step), e2e_ms (arrival to last
    token). All but e2e_ms leave out the time in which the engine was paused.
    """
    table = _Table()
    for event in log:
        table.add(event)
    return table.frame()


class _Table:
    """Rows by request, filled in while the log is read."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._paused = PausedTime()
        self._step = 0
        self._block_size = 0
        self._admitted: dict[int, list[int]] = {}  # for the first time, by unfinished step
        self._drafts: dict[int, int] = {}  # by request, in this step
        self._gainers: list[int] = []  # one entry per token, and its time
        self._gained_ms: list[float | None] = []
        self._past_tokens: set[int] = set()  # requests with output from before the window

    def add(self, event: v.Event) -> None:
        """Add the next event."""
        self._paused.note(event)
        match event:
            case v.RunStarted():
                self._block_size = event.settings["block_size"]
            case v.Keyframe():
                self._rejoin(event.state)
            case v.StepStarted():
                self._step = event.step
                self._drafts = {}
            case v.RequestArrived():
                self._arrived(event)
            case v.Forked():
                self._rows[event.request] = self._rows[event.parent] | {
                    "sample": event.sample,
                    "preemptions": 0,
                }
                for admitted in self._admitted.values():
                    if event.parent in admitted:
                        admitted.append(event.request)
            case v.Admitted():
                self._admit(event)
            case v.Preempted():
                self._rows[event.request]["preemptions"] += 1
            case v.StepScheduled():
                self._drafts = {row.request: len(row.drafts) for row in event.rows if row.drafts}
            case v.StepFinished():
                self._finish_step(event)
            case v.RequestFinished():
                row = self._rows[event.request]
                row["finished_step"] = max(self._step, row["arrived_step"] or 0)
                row["finish_reason"] = event.reason
                row["matched"], row["message"] = event.matched, event.message

    def _rejoin(self, state: dict[str, Any]) -> None:
        """Begin with a keyframe, which has only part of each request."""
        self._step = state["step"]
        self._block_size = state["settings"]["block_size"]
        for entry in state["requests"]:
            output = len(entry["tokens"]) - entry["prompt_length"]
            never_admitted = entry["id"] in state["waiting"] and not entry["preemptions"]
            counted = dict.fromkeys(_COUNTED, 0) if never_admitted else {}
            self._rows[entry["id"]] = (
                _UNKNOWN
                | counted
                | {
                    "label": entry["label"],
                    "root": entry["root"],
                    "sample": entry["sample"],
                    "priority": entry["priority"],
                    "prompt_tokens": entry["prompt_length"],
                    "max_tokens": entry["max_tokens"],
                    "output_tokens": output,
                    "preemptions": entry["preemptions"],
                }
            )
            if output:
                self._past_tokens.add(entry["id"])

    def _arrived(self, event: v.RequestArrived) -> None:
        self._rows[event.request] = (
            _UNKNOWN
            | dict.fromkeys(_COUNTED, 0)
            | {
                "label": event.label,
                "root": event.request,
                "sample": 0,
                "priority": event.priority,
                "prompt_tokens": len(event.prompt),
                "max_tokens": event.max_tokens,
                "output_tokens": 0,
                "preemptions": 0,
                "arrived_step": self._step + 1,
                "arrived_ms": in_ms(event.t, "at"),
            }
        )

    def _admit(self, event: v.Admitted) -> None:
        row = self._rows[event.request]
        if not event.resumed:
            row["admitted_step"] = self._step
            row["policy_key"] = tuple(event.key)
            row["cached_tokens"] = len(event.blocks) * self._block_size
            self._admitted.setdefault(self._step, []).append(event.request)

    def _finish_step(self, event: v.StepFinished) -> None:
        step = event.step or self._step
        for request in self._admitted.pop(step, ()):
            row = self._rows[request]
            row["queue_ms"] = self._unpaused(row["arrived_ms"], in_ms(event.t, "start"))
        for request, drafts in self._drafts.items():
            if self._rows[request]["finish_reason"] is None:  # else the forward pass failed
                _count(self._rows[request], "drafted_tokens", drafts)
        end = in_ms(event.t, "end")
        for gain in event.tokens:
            row = self._rows[gain.request]
            row["e2e_ms"] = _between(row["arrived_ms"], end)
            if not row["output_tokens"]:
                row["first_token_step"] = step
                row["ttft_ms"] = self._unpaused(row["arrived_ms"], end)
            row["output_tokens"] += len(gain.ids)
            _count(row, "forced_tokens", gain.forced)
            _count(row, "accepted_tokens", gain.accepted)
            self._gainers += [gain.request] * len(gain.ids)
            self._gained_ms += [self._unpaused(0.0, end)] * len(gain.ids)

    def _unpaused(self, start: float | None, end: float | None) -> float | None:
        """Return the time between two times, in ms, without that in which the engine was paused."""
        if start is None or end is None:
            return None
        paused = self._paused.between(round(start * US_PER_MS), round(end * US_PER_MS))
        return end - start - paused / US_PER_MS

    def frame(self) -> pd.DataFrame:
        """Return a frame of all events so far."""
        rows: Iterable[dict[str, Any]] = self._rows.values()
        index = pd.Index(list(self._rows), name="request", dtype="int64")
        frame = build({name: [row[name] for row in rows] for name in TYPES}, TYPES, index)
        gained_us = pd.Series(self._gained_ms, dtype="float64") * US_PER_MS  # whole: no rounding
        by_request = pd.Series(self._gainers, dtype="int64")
        gaps = (gained_us.groupby(by_request).diff() / US_PER_MS).groupby(by_request)
        known = frame.index.difference(list(self._past_tokens))
        for name, measure in (
            ("itl_ms", gaps.mean()),
            ("itl_p95_ms", gaps.quantile(0.95)),
            ("itl_max_ms", gaps.max()),
        ):
            frame.loc[known, name] = measure.reindex(known)
        return frame


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _count(row: dict[str, Any], name: str, more: int) -> None:
    """Add to a count, unless its value before the window is not known."""
    if row[name] is not None:
        row[name] += more
