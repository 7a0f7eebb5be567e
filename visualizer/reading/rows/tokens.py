"""One row per output token: its id and text, its source and its time."""

from collections.abc import Iterable, Iterator

import msgspec

from engine.core.log import vocabulary as v
from engine.simulation.latencies import Latencies
from visualizer.reading.rows.times import in_ms


class OutputTokenRow(msgspec.Struct, gc=False):
    """One output token.

    request  the id of its request
    index    0 is the request's first output token
    step     the step that produced it
    id       its token id
    text     its piece; joined, they are the output. If a stop string ended the request, the returned
             text ends before it
    logprob  natural logarithm; None for a forced token
    forced   not sampled, but written by a tool or, if `allowed` is 1, by the request's grammar
    drafted  proposed by a drafter and accepted
    time_ms  when its step ended, since the run started
    gap_ms   since the request's previous token, without the time in which the engine was paused; 0
             within a step, None for the first

    Of a request whose output must have a shape (`SamplingParams.structured`):

    allowed      number of tokens that its grammar allowed here; 0 without a grammar
    wanted       id of the token that the model found most likely, if the grammar forbids it
    wanted_text  the text of that token
    mass         the model's probability of all allowed tokens together; None for a forced token
    """

    request: int
    index: int
    step: int
    id: int | None
    text: str | None
    logprob: float | None
    forced: bool
    drafted: bool
    time_ms: float | None
    gap_ms: float | None
    allowed: int = 0
    wanted: int | None = None
    wanted_text: str | None = None
    mass: float | None = None


def token_rows(events: Iterable[v.Event]) -> Iterator[OutputTokenRow]:
    """Yield one row per output token, in order of appearance."""
    counts: dict[int, int] = {}  # request -> output tokens so far
    latencies = Latencies()
    for event in events:
        latencies.note(event)
        match event:
            case v.Keyframe():
                for one in event.state.requests:
                    counts[one.id] = len(one.tokens) - one.prompt_length
            case v.RequestArrived(output=begun) if begun:
                counts[event.request] = len(begun)
            case v.StepFinished():
                yield from _rows(event, counts, latencies)


def _rows(
    event: v.StepFinished, counts: dict[int, int], latencies: Latencies
) -> Iterator[OutputTokenRow]:
    """Yield a step's rows and count them in `counts`."""
    end, logprobs = event.t.get("end"), event.t.get("logprobs")
    for number, gain in enumerate(event.tokens):
        sampled, first = len(gain.ids) - gain.forced, counts.get(gain.request, 0)
        before = latencies.gaps(gain, end)
        for at, id_ in enumerate(gain.ids):
            forced = at >= sampled
            allowed = gain.allowed[at] if gain.allowed else 0
            is_known = allowed > 0 and "wanted" in event.t
            wanted, wanted_text = (is_known and event.t["wanted"][number][at]) or (None, None)
            yield OutputTokenRow(
                request=gain.request,
                index=first + at,
                step=event.step,
                id=id_,
                text=gain.texts[at],
                logprob=None if forced or logprobs is None else logprobs[number][at],
                forced=forced,
                drafted=at < gain.accepted,
                time_ms=in_ms(end),
                gap_ms=before[at],
                allowed=allowed,
                wanted=wanted,
                wanted_text=wanted_text,
                mass=event.t["mass"][number][at] if is_known else None,
            )
        counts[gain.request] = first + len(gain.ids)
