"""The end of the event log that a server keeps, folded at both ends.

A server runs for weeks and an event log only grows, so the server keeps its last `size` events. What
falls off the front is folded into `first`, which becomes the keyframe that the window starts with;
what comes in at the back is folded into `state`, which is what `/health` reads and what a live
viewer joins with. Each event costs two folds, some two microseconds, and no event costs more.

`EventLog(window=)` of the engine does the same for programs; it folds half a window at once, which a
server would feel as a pause.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from itertools import islice

import msgspec

from engine.events.fold import State
from engine.events.log import EventLog
from engine.events.vocabulary import Event
from server.core.measures import Measures

encode_event = msgspec.json.Encoder().encode


class Outbox(EventLog):
    """The engine's log in a server: holds what was not handed over yet, and no more."""

    def __init__(self) -> None:
        super().__init__()
        self._new: list[Event] = []
        self._count = 0

    def append(self, event: Event) -> None:
        """Add an event."""
        self._new.append(event)
        self._count += 1

    @property
    def next_seq(self) -> int:
        """The number that the next event will get."""
        return self._count

    def take(self) -> list[Event]:
        """The events since the last call."""
        taken, self._new = self._new, []
        return taken


class Window:
    """The last `size` events. Lives on the event loop.

    run         names this log: numbers of another run's events mean nothing here
    first_seq   number of the oldest event kept
    next_seq    number that the next event will get
    state       everything folded, up to the last event
    measures    everything counted, up to the last event
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._first = State()  # everything before the oldest event kept
        self._events: deque[Event] = deque()
        self._changed: asyncio.Future[None] | None = None
        self.run = secrets.token_hex(4)
        self.state = State()
        self.measures = Measures()

    @property
    def first_seq(self) -> int:
        """See the class."""
        return self._first.seq + 1

    @property
    def next_seq(self) -> int:
        """See the class."""
        return self.state.seq + 1

    def extend(self, events: Iterable[Event]) -> None:
        """Take new events in and wake whoever waits for some."""
        for event in events:
            self.state.apply(event)
            self.measures.apply(event)
            self._events.append(event)
        while len(self._events) > self._size:
            self._first.apply(self._events.popleft())
        self.wake()

    def wake(self) -> None:
        """Let whoever waits look again, also where nothing new was logged."""
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def since(self, seq: int) -> list[Event]:
        """The events with number `seq` and later."""
        new = islice(reversed(self._events), max(0, self.next_seq - seq))  # from the near end
        return list(new)[::-1]

    def trace(self) -> list[Event]:
        """The window as a log that loads by itself: it starts with a keyframe if it is not whole."""
        if self.first_seq == 0:
            return list(self._events)
        return [self._first.keyframe(), *self._events]

    async def changed(self, patience: float) -> bool:
        """Wait to be woken; False when `patience` seconds have passed without that."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience):
                await asyncio.shield(self._changed)
        except TimeoutError:
            return False
        return True
