"""Connect a server's event stream to the page. This is the base of every live board.

The kernel holds the connection and forwards the events, because the browser may not be able to reach
the server (a notebook on another machine) or may not be allowed to (CORS). The connection is open
while the page shows the board. A message sent before a view exists is lost, so each new view sends
"hello" and gets the current state to start from. `frontend/src/live/live_feed.ts` describes the
messages and makes the same ones of the same stream.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anywidget
import httpx
import ipywidgets
import msgspec
import traitlets
from httpx_sse import ServerSentEvent

from engine.cluster.events import ClusterStarted
from engine.core.log.vocabulary import Keyframe, RunStarted
from visualizer.live.server_events import UnauthorizedError, batches
from visualizer.sources.reader import LogEvent

RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)

logger = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class Feed(ipywidgets.Widget):  # type: ignore[misc]
    """The channel between the kernel and the page: messages, and `shown`, which the browser sets.

    This is an ipywidgets.Widget because an anywidget gets no messages from the kernel if the page is
    too busy to start it within two seconds.
    """

    shown = traitlets.Dict().tag(sync=True)


@dataclass
class _Series:
    """Consecutive lines to send: the number of the first and how many have numbers.

    joins    whether they begin a run or a state; of a cluster's state, only the last line has a number
    dropped  how many events were missed before them
    """

    joins: bool = False
    dropped: int = 0
    first: int = 0
    count: int = 0
    lines: list[str] = field(default_factory=list)


class FeedWidget(anywidget.AnyWidget):
    """A widget that shows a server's event stream. A subclass says how its events are folded.

    url         the server's URL
    connected   whether the event stream is open
    """

    _decode: Callable[[str], LogEvent]  # a line of the stream
    _new_state: Callable[[], Any]
    _fold: Callable[[Any, Any], None]  # applies an event to the state

    live = traitlets.Bool(True).tag(sync=True)
    feed = traitlets.Instance(Feed).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(self, url: str, api_key: str | None = None) -> None:
        super().__init__(feed=Feed())
        self.url = url.rstrip("/")
        self.connected = False
        self._key = api_key
        self._lock = threading.Lock()  # guards the state and the order of messages
        self._state: Any = None
        self._last_id = ""  # of the newest event, such as "5f0c9a1e:412"
        self._unsent = _Series()
        self._status: dict[str, Any] = {}
        self._views: set[str] = set()
        self._task: asyncio.Task[None] | None = None  # on the listening thread's event loop
        self.feed.on_msg(self._on_message)

    def close(self) -> None:
        """Disconnect from the server and close the widget."""
        self._views.clear()
        self._disconnect()
        self.feed.close()
        super().close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url})"

    def _head(self) -> Sequence[LogEvent]:
        """Return the state as events, with which a view can go on."""
        raise NotImplementedError

    def _send_state(self, view: str) -> None:
        """Send the current state to one view, if it is known. Later events go to all views."""
        with self._lock:
            if self._state is not None and self._last_id and self.connected:
                lines = [_encode(event).decode() for event in self._head()]
                number = int(self._last_id.partition(":")[2])
                self._send_series(_Series(joins=True, first=number, count=1, lines=lines), view)
                self.feed.send({"type": "status", "status": self._status, "to": view})

    def _forward(self, batch: list[ServerSentEvent]) -> None:
        """Fold a batch and send it to all views, one message per series of consecutive lines."""
        with self._lock:
            for received in batch:
                if received.event == "status":
                    self._status = json.loads(received.data)
                elif received.event == "dropped":
                    self._flush()
                    self._unsent.dropped = json.loads(received.data)["dropped"]
                else:
                    self._take(received)
            self._flush()
            if any(received.event == "status" for received in batch):
                self.feed.send({"type": "status", "status": self._status})

    def _take(self, received: ServerSentEvent) -> None:
        event = self._decode(received.data)
        if isinstance(event, Keyframe | RunStarted | ClusterStarted):  # also of a restarted engine
            self._flush()
            self._unsent = _Series(joins=True, dropped=self._unsent.dropped)
            self._state = self._new_state()
        assert self._state is not None, "a feed begins with a state or a run"
        self._fold(self._state, event)
        self._unsent.lines.append(received.data)
        # The decoder gives an event without an id that of the event before it.
        if received.id and received.id != self._last_id:
            self._last_id = received.id
            if not self._unsent.count:
                self._unsent.first = int(received.id.partition(":")[2])
            self._unsent.count += 1

    def _flush(self) -> None:
        """Send the lines to all views, unless a cluster's state is still incomplete."""
        if self._unsent.count:
            self._send_series(self._unsent)
            self._unsent = _Series()

    def _send_series(self, series: _Series, view: str = "") -> None:
        self.feed.send(
            {
                "type": "events",
                "run": self._last_id.partition(":")[0],
                "first": series.first,
                "count": series.count,
                "text": "\n".join(series.lines) + "\n",
                "joins": series.joins,
                "dropped": series.dropped,
                "to": view,
            }
        )

    def _forget(self) -> None:
        """Drop the state. Called with the lock held."""
        self._state, self._last_id, self._unsent = None, "", _Series()

    def _on_message(self, _widget: object, message: dict[str, Any], _buffers: object) -> None:
        if view := message.get("hello"):
            self._views.add(view)
            self._send_state(view)
            self._connect()
        elif view := message.get("bye"):
            self._views.discard(view)
            if not self._views:
                self._disconnect()

    def _connect(self) -> None:
        """Start the listening thread unless it is already running."""
        with self._lock:
            if self._task is not None:
                return
            runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            task = self._task = runner.get_loop().create_task(self._listen())

        def listen() -> None:
            with runner:
                runner.run(asyncio.wait({task}))
            if not task.cancelled():
                task.result()  # re-raises an unexpected error so that the thread reports it

        threading.Thread(target=listen, name=f"watch {self.url}", daemon=True).start()

    def _disconnect(self) -> None:
        with self._lock:
            if self._task is not None:
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
                self._task = None
                self._forget()

    async def _listen(self) -> None:
        try:
            await self._keep_listening()
        finally:
            self.connected = False
            with self._lock:
                if self._task is asyncio.current_task():  # the server rejected the key
                    self._task = None

    async def _keep_listening(self) -> None:
        attempt = 0
        # A connection that is being opened can swallow the cancellation, so check the task, too.
        while self._task is asyncio.current_task():
            try:
                async with aclosing(
                    batches(self.url, self._key, self._last_id or None)
                ) as received:
                    async for batch in received:
                        self.connected = True
                        self._forward(batch)
                        attempt = 0
            except UnauthorizedError:
                self._send_to_all({"type": "refused", "status": 401})
                return
            except httpx.HTTPError:
                pass
            except Exception:
                logger.exception("cannot read the events of %s; starting over", self.url)
                with self._lock:
                    self._forget()  # the state may be incomplete; the next connection sends all of it
            self.connected = False
            seconds = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
            attempt += 1
            self._send_to_all({"type": "lost", "seconds": seconds})
            await asyncio.sleep(seconds)

    def _send_to_all(self, message: dict[str, Any]) -> None:
        with self._lock:
            self.feed.send(message)
