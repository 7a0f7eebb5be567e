"""Take the invented tokens out of a simulated log again, because the log must not show invented text.

What they shared stays: in the log of the hash cache, a node gets the number of the first node with
the same tokens after the same prefix. So a later replay of the log knows that two prompts were equal,
even if the first was evicted before the second came.
"""

from collections import defaultdict
from typing import Any

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog

UNKNOWN = -1


def with_unknown_tokens(log: EventLog, source: dict[str, Any]) -> EventLog:
    """Return a log without its token ids and texts. `source` says where it comes from."""
    started = log[0]
    assert isinstance(started, v.RunStarted)
    masked = EventLog()
    masked.append(msgspec.structs.replace(started, source=source))
    nodes = _Nodes(started.settings)
    for event in log[1:]:
        masked.append(_masked(nodes.renumbered(event)))
    return masked


def _masked(event: v.Event) -> v.Event:
    match event:
        case v.RequestArrived():
            prompt, output = ([UNKNOWN] * len(ids) for ids in (event.prompt, event.output))
            texts = [""] * len(event.tokens)
            return msgspec.structs.replace(event, prompt=prompt, output=output, texts=texts)
        case v.PrefixAdopted(tokens=ids):
            unknown, texts = [UNKNOWN] * len(ids), [""] * len(ids)
            return msgspec.structs.replace(event, tokens=unknown, texts=texts)
        case v.StepScheduled():
            return msgspec.structs.replace(event, rows=[_undrafted(row) for row in event.rows])
        case v.StepFinished():
            return msgspec.structs.replace(event, tokens=[_unknown(row) for row in event.tokens])
    return event


def _undrafted(row: v.ScheduledRow) -> v.ScheduledRow:
    unknown = [UNKNOWN] * len(row.drafts)
    return msgspec.structs.replace(row, drafts=unknown) if unknown else row


def _unknown(row: v.TokenRow) -> v.TokenRow:
    size = len(row.ids)
    return msgspec.structs.replace(row, ids=[UNKNOWN] * size, texts=[""] * size, allowed=[])


class _Nodes:
    """Numbers the nodes of the hash cache by their tokens."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._is_hashed = settings.get("prefix_cache") == "hash"
        self._size = int(settings["block_size"])
        self._tokens: defaultdict[int, list[int]] = defaultdict(list)  # of a request
        self._numbers = {0: 0}  # the log's number -> the one it gets
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}  # (parent, tokens) -> number
        self._depth = {0: 0}  # of a number

    def renumbered(self, event: v.Event) -> v.Event:
        """Return the event with the numbers that its nodes get."""
        if not self._is_hashed:
            return event
        match event:
            case v.RequestArrived():
                self._tokens[event.request] = event.tokens
            case v.Forked():
                self._tokens[event.request] = list(self._tokens[event.parent])
            case v.StepFinished():
                for row in event.tokens:
                    self._tokens[row.request] += row.ids
            case v.RequestFinished():
                self._tokens.pop(event.request, None)
            case v.BlocksStored():
                begin = self._depth[self._numbers[event.parent]] * self._size
                return self._stored(event, self._tokens[event.request][begin:])
            case v.PrefixAdopted():
                return self._stored(event, event.tokens)
            case v.Admitted() | v.BlockEvicted() | v.BlockWithdrawn() | v.PrefixHeld():
                return msgspec.structs.replace(event, node=self._numbers[event.node])
        return event

    def _stored(self, event: v.BlocksStored | v.PrefixAdopted, tokens: list[int]) -> v.Event:
        """Return the event with the numbers that its nodes get. `tokens` begin at its first block."""
        parent = above = self._numbers[event.parent]
        numbers = list[int]()
        for index, node in enumerate(event.nodes):
            key = above, tuple(tokens[index * self._size : (index + 1) * self._size])
            number = node if UNKNOWN in key[1] else self._known.setdefault(key, node)
            self._numbers[node] = number
            self._depth[number] = self._depth[above] + 1
            numbers.append(number)
            above = number
        return msgspec.structs.replace(event, parent=parent, nodes=numbers)
