"""Make a log replayable whose tokens are unknown: invent tokens, shared as the logged ones were.

A recording of vLLM has no text: each token id is -1. Decisions depend on tokens in only one way:
equal blocks share memory. The log says which blocks were equal, because it says which cached blocks
a request found and which nodes of the prefix tree its own blocks became. All places that must be
equal get the same invented tokens, and all others differ. So the replay finds what the recorded run
found in its cache.

Such a log cannot say whether two prompts were equal if their blocks were never cached at the same
time. A reader that knows the hashes of blocks can: where it gives a node the same number when its
block is stored again, the invented tokens are equal, too.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.facts import Fact, knowledge
from engine.simulation.sharing import Sharing
from engine.simulation.unknown_tokens import UNKNOWN

_END = 0  # ends an output
_NEEDED: tuple[Fact, ...] = ("arrivals", "scheduled_tokens")


def replayable(log: EventLog) -> EventLog:
    """Return a log with the same inputs in which every token id is known; `log` itself if they are.

    Each output ends as it did, after as many tokens. A request that had not ended when the recording
    stopped ends there. Raises ValueError for a log that knows neither arrivals nor what steps computed.
    """
    started = log[0] if len(log) else None
    if not isinstance(started, v.RunStarted) or (not started.source and not has_unknown(log)):
        return log
    for fact in _NEEDED:
        if knowledge(started.source, fact) == "unknown":
            raise ValueError(f"the log does not know its {fact}, so it cannot be replayed")
    inputs = EventLog()
    for event in _Inventor(log, started).events():
        inputs.append(event)
    return inputs


def has_unknown(log: EventLog) -> bool:
    """Return whether any token id of a prompt or an output is unknown."""
    started = log[0]
    if isinstance(started, v.RunStarted) and started.tokenizer.get("trace_text") == "off":
        return True
    return any(
        UNKNOWN in event.tokens
        if isinstance(event, v.RequestArrived)
        else any(UNKNOWN in row.ids for row in event.tokens)
        for event in log
        if isinstance(event, v.RequestArrived | v.StepFinished)
    )


def replayed_steps(log: EventLog) -> dict[int, int]:
    """Return each step of a log and its number in a replay.

    Steps of another engine that decide nothing are left out: vLLM also calls its scheduler when nothing
    can run. Asynchronous steps may wait for a token.
    """
    started = log[0]
    assert isinstance(started, v.RunStarted)
    keeps_all = not started.source or bool(started.settings.get("async_scheduling"))
    step, at, numbers = 0, 0, dict[int, int]()
    for index, event in enumerate(log):
        if isinstance(event, v.StepStarted):
            step, at = event.step, index
        elif isinstance(event, v.StepScheduled) and (event.rows or index > at + 1 or keeps_all):
            numbers[step] = len(numbers) + 1
    return numbers


class _Inventor:
    """Replaces the tokens of a log."""

    def __init__(self, log: EventLog, started: v.RunStarted) -> None:
        self._log = log
        self._invents = has_unknown(log)
        self._ends = {event.request: event.reason for event in log.of(v.RequestFinished)}
        self._outputs: defaultdict[int, int] = defaultdict(int)  # request -> output tokens
        for event in log.of(v.StepFinished):
            for row in event.tokens:
                self._outputs[row.request] += len(row.ids)
        # with what another replica generated
        self._prompts = {event.request: len(event.tokens) for event in log.of(v.RequestArrived)}
        for fork in log.of(v.Forked):
            self._prompts[fork.request] = self._prompts[fork.parent]
        self._size = int(started.settings["block_size"])
        self._shared = Sharing(self._size)
        if self._invents:
            for one in log:
                self._shared.note(one)
            for request, tokens in self._prompts.items():
                self._shared.token(request, tokens + self._outputs[request])

    def events(self) -> Iterator[v.Event]:
        """Yield the log's events. Steps that decide nothing are left out: a replay has none."""
        known = defaultdict[int, int](int)  # request -> output tokens so far
        numbers = replayed_steps(self._log)
        for event in self._log:
            match event:
                case v.StepStarted():
                    if event.step in numbers:
                        yield v.StepStarted(numbers[event.step])
                case v.RunStarted():
                    yield msgspec.structs.replace(event, tokenizer=self._tokenizer(event))
                case v.RequestArrived():
                    yield self._arrival(event)
                case v.StepFinished():
                    rows = []
                    for row in event.tokens:
                        first = known[row.request]
                        known[row.request] += len(row.ids)
                        ids = self._output(row, first)
                        rows.append(
                            v.TokenRow(row.request, ids, [""] * len(ids), row.accepted, row.forced)
                        )
                    number = numbers.get(event.step, event.step)
                    yield msgspec.structs.replace(event, tokens=rows, step=number)
                case _:
                    yield event

    def _tokenizer(self, started: v.RunStarted) -> dict[str, Any]:
        largest = max(
            (max(one.tokens, default=0) for one in self._log.of(v.RequestArrived)), default=0
        )
        size = max(self._shared.next_token, largest + 1, started.tokenizer.get("vocab_size", 0))
        return {"name": "invented tokens", "vocab_size": size, "eos_ids": [_END]}

    def _arrival(self, event: v.RequestArrived) -> v.RequestArrived:
        """Return the arrival with a limit at which the output ends as it did."""
        request, most = event.request, max(1, event.max_tokens)
        if event.n == 1 and self._ends.get(request, "length") == "length":
            most = max(1, len(event.output) + self._outputs[request])
        kept = {name: event.sampling[name] for name in _KEPT if name in event.sampling}
        tokens, prompt = event.tokens, len(event.prompt)
        if self._invents:
            tokens = [self._shared.token(request, at) for at in range(len(tokens))]
        return msgspec.structs.replace(
            event,
            prompt=tokens[:prompt],
            output=tokens[prompt:],
            texts=[""] * len(tokens),
            max_tokens=most,
            sampling=kept | {"max_tokens": most},
        )

    def _output(self, row: v.TokenRow, first: int) -> list[int]:
        begin, ids = self._prompts[row.request] + first, list(row.ids)
        if self._invents:
            ids = [self._shared.token(row.request, begin + at) for at in range(len(ids))]
        if self._ends.get(row.request) == "stop" and first + len(ids) == self._outputs[row.request]:
            ids[-1] = _END
        return ids


# What scheduling depends on.
_KEPT = ("n", "best_of", "prompt_logprobs", "seed", "temperature")
