"""One row per output token: its id and text, its source and its time."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from engine.events import vocabulary as v
from engine.events.frames.columns import ANY, COUNT, FLAG, MS, US_PER_MS, build
from engine.events.paused_time import PausedTime

if TYPE_CHECKING:
    from engine.events.log import EventLog

TYPES = {
    "request": COUNT,
    "index": COUNT,
    "step": COUNT,
    "id": COUNT,
    "text": ANY,
    "logprob": MS,
    "forced": FLAG,
    "drafted": FLAG,
    "time_ms": MS,
    "gap_ms": MS,
}


def tokens_frame(log: "EventLog") -> pd.DataFrame:
    """One row per output token, in order of appearance.

    request, index (0 is the request's first output token), step, id, text (its piece; joined, they are
    the output; if a stop string ended the request, the returned text ends before it), logprob (natural
    logarithm; missing for forced tokens), forced (by a tool, not sampled), drafted (proposed by a
    drafter and accepted), time_ms (when its step ended, since the run started), gap_ms (since the
    request's previous token, without the time in which the engine was paused; 0 within a step, missing
    for the first).
    """
    columns: dict[str, list[Any]] = {name: [] for name in TYPES}
    output: dict[int, int] = {}  # request -> output tokens so far
    last = _LastTokens()
    step = 0
    for event in log:
        last.paused.note(event)
        match event:
            case v.Keyframe():
                step = event.state["step"]
                for entry in event.state["requests"]:
                    output[entry["id"]] = len(entry["tokens"]) - entry["prompt_length"]
            case v.StepStarted():
                step = event.step
            case v.StepFinished():
                _add(columns, event, event.step or step, output, last)
    return build(columns, TYPES)


class _LastTokens:
    """The time of each request's last token, in microseconds."""

    def __init__(self) -> None:
        self.times: dict[int, int | None] = {}
        self.paused = PausedTime()

    def gap_ms(self, request: int, end: int) -> float | None:
        """Return the time since then in ms, without that in which the engine was paused."""
        before = self.times.get(request)
        if before is None:
            return None
        return (end - before - self.paused.between(before, end)) / US_PER_MS


def _add(
    columns: dict[str, list[Any]],
    event: v.StepFinished,
    step: int,
    output: dict[int, int],
    last: "_LastTokens",
) -> None:
    end = event.t.get("end")
    logprobs = event.t.get("logprobs")
    for index, gain in enumerate(event.tokens):
        count, first = len(gain.ids), output.get(gain.request, 0)
        sampled = count - gain.forced
        gap = None if end is None else last.gap_ms(gain.request, end)
        values = [None] * sampled if logprobs is None else logprobs[index][:sampled]
        columns["request"] += [gain.request] * count
        columns["index"] += range(first, first + count)
        columns["step"] += [step] * count
        columns["id"] += gain.ids
        columns["text"] += gain.texts
        columns["logprob"] += [*values, *[None] * gain.forced]
        columns["forced"] += [False] * sampled + [True] * gain.forced
        columns["drafted"] += [True] * gain.accepted + [False] * (count - gain.accepted)
        columns["time_ms"] += [None if end is None else end / US_PER_MS] * count
        columns["gap_ms"] += [gap, *[None if end is None else 0.0] * (count - 1)]
        output[gain.request] = first + count
        last.times[gain.request] = end
