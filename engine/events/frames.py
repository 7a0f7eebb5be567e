"""The log as pandas frames: one row per request, per step, per output token.

Everything is derived from the events. Times are milliseconds, `*_step` columns are step numbers, and
a missing value means that it has not happened. Requests whose arrival lies before the log's window
are left out.
"""

from typing import TYPE_CHECKING, Any

import pandas as pd

from engine.events import vocabulary as v
from engine.events.fold import State

if TYPE_CHECKING:
    from engine.events.log import EventLog

US_PER_MS = 1000

_REQUEST_COLUMNS = {
    "label": "",
    "prompt_tokens": 0,
    "cached_tokens": 0,
    "output_tokens": 0,
    "preemptions": 0,
    "finish_reason": None,
    "arrived_step": None,
    "admitted_step": None,
    "first_token_step": None,
    "finished_step": None,
    "arrived_ms": None,
    "ttft_ms": None,
    "itl_ms": None,
    "e2e_ms": None,
}


def requests_frame(log: "EventLog") -> pd.DataFrame:
    """One row per request and sample, indexed by id.

    label, prompt_tokens, cached_tokens (found in the prefix cache at the first admission),
    output_tokens, preemptions, finish_reason; arrived_step (the first step it could be part of),
    admitted_step, first_token_step, finished_step; arrived_ms (since the run started), ttft_ms
    (arrival to first token), itl_ms (mean time between tokens), e2e_ms (arrival to last token).
    """
    rows: dict[int, dict[str, Any]] = {}
    state = State()
    for event in log:
        state.apply(event)
        match event:
            case v.RequestArrived():
                rows[event.request] = _REQUEST_COLUMNS | {
                    "label": event.label,
                    "prompt_tokens": len(event.prompt),
                    "arrived_step": state.step + 1,
                    "arrived_ms": event.t["at"] / US_PER_MS,
                }
            case v.Forked() if event.parent in rows:
                rows[event.request] = dict(rows[event.parent])
            case v.Admitted() if event.request in rows and not event.resumed:
                row = rows[event.request]
                row["admitted_step"] = state.step
                row["cached_tokens"] = len(event.blocks) * state.block_size
            case v.Preempted() if event.request in rows:
                rows[event.request]["preemptions"] += 1
            case v.StepFinished():
                for tokens in event.tokens:
                    if tokens.request in rows:
                        row = rows[tokens.request]
                        _count_tokens(row, len(tokens.ids), state.step, event.t["end"])
            case v.RequestFinished() if event.request in rows:
                rows[event.request]["finished_step"] = state.step
                rows[event.request]["finish_reason"] = event.reason
    return _frame(rows, "request", _REQUEST_COLUMNS)


def _count_tokens(row: dict[str, Any], count: int, step: int, end_us: int) -> None:
    row["e2e_ms"] = end_us / US_PER_MS - row["arrived_ms"]
    if row["first_token_step"] is None:
        row["first_token_step"] = step
        row["ttft_ms"] = row["e2e_ms"]
    row["output_tokens"] += count
    if row["output_tokens"] > 1:
        row["itl_ms"] = (row["e2e_ms"] - row["ttft_ms"]) / (row["output_tokens"] - 1)


_STEP_COLUMNS = {
    "tokens": 0,
    "prefill_tokens": 0,
    "decode_tokens": 0,
    "sampled_tokens": 0,
    "forced_tokens": 0,
    "batch": 0,
    "waiting": 0,
    "preempted": 0,
    "evicted_blocks": 0,
    "used_blocks": 0,
    "cached_blocks": 0,
    "start_ms": None,
    "duration_ms": None,
}


def steps_frame(log: "EventLog") -> pd.DataFrame:
    """One row per step, indexed by step number.

    tokens (computed in the step) = prefill_tokens (rows that start inside the prompt) +
    decode_tokens (all others); sampled_tokens and forced_tokens (gained); batch (rows), waiting and
    preempted (requests); evicted_blocks; used_blocks (requests hold them) and cached_blocks (only
    the tree does) when the step was scheduled; start_ms, duration_ms.
    """
    rows: dict[int, dict[str, Any]] = {}
    state = State()
    for event in log:
        if isinstance(event, v.RadixEvicted) and state.step in rows:
            rows[state.step]["evicted_blocks"] += len(state.nodes[event.node].blocks)
        state.apply(event)
        match event:
            case v.StepStarted():
                rows[event.step] = dict(_STEP_COLUMNS)
            case v.Preempted() if state.step in rows:
                rows[state.step]["preempted"] += 1
            case v.StepScheduled() if state.step in rows:
                _describe_plan(rows[state.step], state, event)
            case v.StepFinished() if state.step in rows:
                row = rows[state.step]
                row["forced_tokens"] = sum(tokens.forced for tokens in event.tokens)
                gained = sum(len(tokens.ids) for tokens in event.tokens)
                row["sampled_tokens"] = gained - row["forced_tokens"]
                row["start_ms"] = event.t["start"] / US_PER_MS
                row["duration_ms"] = (event.t["end"] - event.t["start"]) / US_PER_MS
    return _frame(rows, "step", _STEP_COLUMNS)


def _describe_plan(row: dict[str, Any], state: State, event: v.StepScheduled) -> None:
    for part in event.rows:
        in_prompt = part.start < state.requests[part.request].prompt_length
        row["prefill_tokens" if in_prompt else "decode_tokens"] += part.count
        row["tokens"] += part.count
    row["batch"] = len(event.rows)
    row["waiting"] = len(state.waiting)
    idle = sum(len(node.blocks) for node in state.nodes.values() if node.lock == 0)
    row["cached_blocks"] = idle
    row["used_blocks"] = len(state.refs) - len(state.free) - idle


_TOKEN_COLUMNS = ("request", "index", "step", "id", "text", "logprob", "forced", "time_ms")


def tokens_frame(log: "EventLog") -> pd.DataFrame:
    """One row per output token, in the order in which they appeared.

    request, index (0 is the request's first output token), step, id, text, logprob (natural
    logarithm), forced (by a tool, not sampled), time_ms (when its step ended, since the run began).
    """
    rows: list[tuple[Any, ...]] = []
    state = State()
    for event in log:
        if isinstance(event, v.StepFinished):
            for tokens, logprobs in zip(event.tokens, event.t["logprobs"], strict=True):
                request = state.requests[tokens.request]
                index = len(request.tokens) - request.prompt_length
                sampled = len(tokens.ids) - tokens.forced
                for place, (id_, text) in enumerate(zip(tokens.ids, tokens.texts, strict=True)):
                    time_ms = event.t["end"] / US_PER_MS
                    forced = place >= sampled
                    row = (tokens.request, index + place, state.step, id_, text)
                    rows.append((*row, logprobs[place], forced, time_ms))
        state.apply(event)
    return pd.DataFrame(rows, columns=list(_TOKEN_COLUMNS))


def _frame(rows: dict[int, dict[str, Any]], index: str, columns: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows.values()), index=list(rows), columns=list(columns))
    numbers = [name for name in columns if name.endswith("_step")]
    frame[numbers] = frame[numbers].astype("Int64")
    return frame.rename_axis(index)
