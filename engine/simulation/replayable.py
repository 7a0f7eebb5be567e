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

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.facts import Fact, knowledge
from engine.simulation.log_part import LogPart, started_of
from engine.simulation.sharing import Sharing
from engine.simulation.unknown_tokens import UNKNOWN

_END = 0  # ends an output
_NEEDED: tuple[Fact, ...] = ("arrivals", "scheduled_tokens")


def replayable(log: EventLog) -> EventLog:
    """Return a log with the same inputs in which every token id is known; `log` itself if they are.

    Each output ends as it did, after as many tokens. A request that had not ended when the recording
    stopped ends there; after a part of a run, it goes on for as many tokens as are known. Raises
    ValueError for a log that knows neither arrivals nor what steps computed.
    """
    started = started_of(log)
    if started is None:
        return log
    if not (started.source or isinstance(log, LogPart) or has_unknown(log)):
        return log
    for fact in _NEEDED:
        if knowledge(started.source, fact) == "unknown":
            raise ValueError(f"the log does not know its {fact}, so it cannot be replayed")
    inventor = _Inventor(log, started)
    events, header = list(inventor.events()), inventor.header()
    if isinstance(log, LogPart):
        part = LogPart.after(header, events)
        part.origin = log.origin
        return part
    return EventLog.from_events([header, *events[1:]])


def has_unknown(log: EventLog) -> bool:
    """Return whether any token id of a prompt or an output is unknown."""
    started = started_of(log)
    if started is not None and started.tokenizer.get("trace_text") == "off":
        return True
    return any(UNKNOWN in ids for event in log for ids in _ids(event))


def _ids(event: v.Event) -> Iterator[list[int]]:
    """Yield the token ids of an event, of its prompts and outputs."""
    match event:
        case v.Keyframe():
            yield from (one.tokens for one in event.state.requests)
        case v.RequestArrived():
            yield event.tokens
        case v.StepFinished():
            yield from (row.ids for row in event.tokens)


def replayed_steps(log: EventLog) -> dict[int, int]:
    """Return each step of a log and its number in a replay.

    Steps of another engine that decide nothing are left out: vLLM also calls its scheduler when nothing
    can run. Asynchronous steps may wait for a token.
    """
    started = started_of(log)
    assert started is not None
    keeps_all = not started.source or bool(started.settings.get("async_scheduling"))
    step, at, numbers = 0, 0, dict[int, int]()
    for index, event in enumerate(log):
        if isinstance(event, v.StepStarted):
            step, at = event.step, index
        elif isinstance(event, v.StepScheduled) and (event.rows or index > at + 1 or keeps_all):
            numbers[step] = len(numbers) + 1
    return numbers


def _end_of(log: EventLog, reasons: Mapping[int, str]) -> int:
    """Return the token that ended all outputs that stopped, if no other token equals it.

    A later prompt may go on behind it, so that the prefix cache finds it. Otherwise it is a token that
    no output has.
    """
    said, last = Counter[int](), dict[int, int]()
    for event in log.of(v.StepFinished):
        for row in event.tokens:
            said.update(row.ids)
            if row.ids:
                last[row.request] = row.ids[-1]
    ends = [last.get(request, _END) for request, reason in reasons.items() if reason == "stop"]
    if ends and said[ends[0]] == len(ends) == ends.count(ends[0]):
        return ends[0]
    return next(token for token in count() if token not in said)


class _Inventor:
    """Replaces the tokens of a log."""

    def __init__(self, log: EventLog, started: v.RunStarted) -> None:
        self._log, self._started = log, started
        self._invents = has_unknown(log)
        self._ends = {event.request: event.reason for event in log.of(v.RequestFinished)}
        self._outputs: defaultdict[int, int] = defaultdict(int)  # request -> output tokens
        self._checked = dict[tuple[int, int], v.TokenRow]()  # (step, request) with drafts -> tokens
        drafted = set[int]()
        for event in log:
            if isinstance(event, v.StepScheduled):
                drafted |= {one.request for one in event.rows if one.drafts}
            elif isinstance(event, v.StepFinished):
                for row in event.tokens:
                    self._outputs[row.request] += len(row.ids)
                    if row.request in drafted:
                        self._checked[event.step, row.request] = row
                        drafted.remove(row.request)
        # with what another replica generated
        self._prompts = {event.request: len(event.tokens) for event in log.of(v.RequestArrived)}
        for first in log.of(v.Keyframe):
            self._prompts |= {one.id: len(one.tokens) for one in first.state.requests}
        for fork in log.of(v.Forked):
            self._prompts[fork.request] = self._prompts[fork.parent]
        for request, tokens in log.later.items() if isinstance(log, LogPart) else ():
            self._outputs[request] += tokens
        self._end = _END if self._invents else _end_of(log, self._ends)
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
        numbers, step = replayed_steps(self._log), 0
        for event in self._log:
            match event:
                case v.StepStarted():
                    step = event.step
                    if step in numbers:
                        yield v.StepStarted(numbers[step])
                case v.StepScheduled() if any(row.drafts for row in event.rows):
                    drafts = [self._drafts(row, step, known[row.request]) for row in event.rows]
                    scheduled = [
                        msgspec.structs.replace(row, drafts=ids)
                        for row, ids in zip(event.rows, drafts, strict=True)
                    ]
                    yield msgspec.structs.replace(event, rows=scheduled)
                case v.Keyframe():
                    yield self._keyframe(event)
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

    def header(self) -> v.RunStarted:
        """Return the beginning of the run with the tokenizer of the invented tokens."""
        largest = max((max(ids, default=0) for one in self._log for ids in _ids(one)), default=0)
        known = self._started.tokenizer.get("vocab_size", 0)
        size = max(self._shared.next_token, largest + 1, known, self._end + 1)
        tokenizer = {"name": "invented tokens", "vocab_size": size, "eos_ids": [self._end]}
        return msgspec.structs.replace(self._started, tokenizer=tokenizer)

    def _keyframe(self, event: v.Keyframe) -> v.Keyframe:
        """Return the beginning of a part: its live requests end as they did, too."""
        state = event.state
        requests = [
            msgspec.structs.replace(
                one,
                tokens=self._tokens(one.id, one.tokens),
                sampling=self._sampling(
                    one.id, one.sampling, one.max_tokens, len(one.tokens) - one.prompt_length
                ),
            )
            for one in state.requests
        ]
        nodes = state.nodes
        if self._invents:
            nodes = [
                msgspec.structs.replace(one, tokens=self._shared.cached_tokens(one))
                for one in nodes
            ]
        state = msgspec.structs.replace(state, requests=requests, nodes=nodes, step=0)
        return msgspec.structs.replace(event, state=state)

    def _tokens(self, request: int, tokens: list[int]) -> list[int]:
        if not self._invents:
            return tokens
        return [self._shared.token(request, at) for at in range(len(tokens))]

    def _sampling(
        self, request: int, sampling: dict[str, Any], most: int, had: int, samples: int = 1
    ) -> dict[str, Any]:
        """Return parameters with which an output ends as it did; at the beginning it `had` tokens."""
        if samples == 1 and self._ends.get(request, "length") == "length":
            most = had + self._outputs[request]
        kept = {name: sampling[name] for name in _KEPT if name in sampling}
        if self._ends.get(request) == "stop":  # by the invented token that ends a sequence
            kept.pop("ignore_eos", None)
        return kept | {"max_tokens": max(1, most)}

    def _arrival(self, event: v.RequestArrived) -> v.RequestArrived:
        """Return the arrival with a limit at which the output ends as it did."""
        request, prompt = event.request, len(event.prompt)
        tokens = self._tokens(request, event.tokens)
        sampling = self._sampling(
            request, event.sampling, event.max_tokens, len(event.output), event.n
        )
        return msgspec.structs.replace(
            event,
            prompt=tokens[:prompt],
            output=tokens[prompt:],
            texts=[""] * len(tokens),
            max_tokens=sampling["max_tokens"],
            sampling=sampling,
        )

    def _drafts(self, row: v.ScheduledRow, step: int, first: int) -> list[int]:
        """Return the drafts of a row: those that were accepted equal the output, the next one does not.

        first  the output position of the row's first draft
        """
        gained = self._checked.get((step, row.request))
        if gained is None:
            return [_END] * len(row.drafts)
        ids, accepted = self._output(gained, first), gained.accepted
        drafts = [*ids[:accepted], *(max(one, _END) for one in row.drafts[accepted:])]
        if accepted < min(len(drafts), len(ids)) and drafts[accepted] == ids[accepted]:
            drafts[accepted] = _END + (ids[accepted] == _END)
        return drafts

    def _output(self, row: v.TokenRow, first: int) -> list[int]:
        begin, ids = self._prompts[row.request] + first, list(row.ids)
        if self._invents:
            ids = [self._shared.token(row.request, begin + at) for at in range(len(ids))]
        if self._ends.get(row.request) == "stop" and first + len(ids) == self._outputs[row.request]:
            ids[-1] = self._end
        return ids


# What scheduling depends on.
_KEPT = ("n", "best_of", "ignore_eos", "prompt_logprobs", "seed", "temperature")
