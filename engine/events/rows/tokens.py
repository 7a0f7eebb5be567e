"""One row per output token: its id and text, its source and its time."""

from collections.abc import Iterable, Iterator

import msgspec

from engine.events import vocabulary as v
from engine.events.paused_time import PausedTime
from engine.events.rows.times import TokenGaps, in_ms


class OutputTokenRow(msgspec.Struct, gc=False):
    """One output token.

    request  the id of its request
    index    0 is the request's first output token
    step     the step that produced it
    id       its token id
    text     its piece; joined, they are the output. If a stop string ended the request, the returned
             text ends before it
    logprob  natural logarithm; None for a forced token
    forced   by a tool, not sampled
    drafted  proposed by a drafter and accepted
    time_ms  when its step ended, since the run started
    gap_ms   since the request's previous token, without the time in which the engine was paused; 0
             within a step, None for the first
    """

    request: int
    index: int
    step: int
    id: int
    text: str
    logprob: float | None
    forced: bool
    drafted: bool
    time_ms: float | None
    gap_ms: float | None


def token_rows(events: Iterable[v.Event]) -> list[OutputTokenRow]:
    """Return one row per output token, in order of appearance."""
    rows: list[OutputTokenRow] = []
    counts: dict[int, int] = {}  # request -> output tokens so far
    paused = PausedTime()
    gaps = TokenGaps(paused)
    step = 0
    for event in events:
        paused.note(event)
        match event:
            case v.Keyframe():
                step = event.state["step"]
                for entry in event.state["requests"]:
                    counts[entry["id"]] = len(entry["tokens"]) - entry["prompt_length"]
            case v.StepStarted():
                step = event.step
            case v.StepFinished():
                rows += _rows(event, event.step or step, counts, gaps)
    return rows


def _rows(
    event: v.StepFinished, step: int, counts: dict[int, int], gaps: TokenGaps
) -> Iterator[OutputTokenRow]:
    """Yield a step's rows and count them in `counts`."""
    end, logprobs = event.t.get("end"), event.t.get("logprobs")
    for number, gain in enumerate(event.tokens):
        sampled, first = len(gain.ids) - gain.forced, counts.get(gain.request, 0)
        before = gaps.before(gain, end)
        for at, id_ in enumerate(gain.ids):
            forced = at >= sampled
            yield OutputTokenRow(
                request=gain.request,
                index=first + at,
                step=step,
                id=id_,
                text=gain.texts[at],
                logprob=None if forced or logprobs is None else logprobs[number][at],
                forced=forced,
                drafted=at < gain.accepted,
                time_ms=in_ms(end),
                gap_ms=before[at],
            )
        counts[gain.request] = first + len(gain.ids)
