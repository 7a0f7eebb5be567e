"""Show a running server on a board in a notebook.

    from visualizer import watch
    board = watch("http://localhost:8000")      # draws each step as the engine runs it
    board.step = 12                             # looks back while the engine keeps running
    board.following = True                      # returns to the newest step

The kernel holds the connection and forwards the events, because the browser may not be able to reach
the server (a notebook on another machine) or may not be allowed to (CORS). The connection is open
while the page shows the board. A message sent before a view exists is lost, so each new view sends
"hello" and gets a keyframe to start from. See `frontend/src/live/live_feed.js` for the messages.
"""

import asyncio
import json
import logging
import threading
from contextlib import aclosing
from typing import Any

import anywidget
import httpx
import ipywidgets
import msgspec
import traitlets
from httpx_sse import ServerSentEvent

from engine.events import State
from engine.events.vocabulary import AnyEvent, Event, Keyframe, RunStarted
from visualizer.html import MODULE
from visualizer.watching.server_events import UnauthorizedError, batches

RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)

logger = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(AnyEvent).decode
_encode = msgspec.json.Encoder().encode


class Feed(ipywidgets.Widget):  # type: ignore[misc]
    """The channel between the kernel and the page: messages, and `shown`, which the browser sets.

    This is an ipywidgets.Widget because an anywidget gets no messages from the kernel if the page is
    too busy to start it within two seconds.
    """

    shown = traitlets.Dict().tag(sync=True)


class Live(anywidget.AnyWidget):
    """A board of a server's event stream.

    url         the server's URL
    connected   whether the event stream is open
    """

    _esm = MODULE
    live = traitlets.Bool(True).tag(sync=True)
    feed = traitlets.Instance(Feed).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(self, url: str, api_key: str | None = None) -> None:
        super().__init__(feed=Feed())
        self.url = url.rstrip("/")
        self.connected = False
        self._key = api_key
        self._lock = threading.Lock()  # guards the state and the order of messages
        self._state: State | None = None
        self._run = ""
        self._status: dict[str, Any] = {}
        self._views: set[str] = set()
        self._task: asyncio.Task[None] | None = None  # on the listening thread's event loop
        self.feed.on_msg(self._on_message)

    @property
    def step(self) -> int | None:
        """The step on display, or None before the first step. Set it to look back."""
        return self.feed.shown.get("step")

    @step.setter
    def step(self, step: int) -> None:
        self.feed.send({"type": "go", "step": step})

    @property
    def selected(self) -> int | None:
        """The id of the selected request, or None. Set it to select a request."""
        return self.feed.shown.get("selected")

    @selected.setter
    def selected(self, request: int | None) -> None:
        self.feed.send({"type": "go", "selected": request})

    @property
    def following(self) -> bool:
        """Whether the board follows the newest step. Set it to True to follow or False to stay."""
        return bool(self.feed.shown.get("following", True))

    @following.setter
    def following(self, on: bool) -> None:
        self.feed.send({"type": "go", "following": on})

    def state(self) -> dict[str, Any]:
        """Return the engine's state after the newest event, as plain values (see `State.core`)."""
        with self._lock:
            if self._state is None:
                raise ValueError(f"no events from {self.url} yet: display the board first")
            return self._state.core()

    def close(self) -> None:
        """Disconnect from the server and close the widget."""
        self._views.clear()
        self._disconnect()
        self.feed.close()
        super().close()

    def __repr__(self) -> str:
        return f"Live({self.url})"

    def _on_message(self, _widget: object, message: dict[str, Any], _buffers: object) -> None:
        if view := message.get("hello"):
            self._views.add(view)
            self._send_keyframe(view)
            self._connect()
        elif view := message.get("bye"):
            self._views.discard(view)
            if not self._views:
                self._disconnect()

    def _send_keyframe(self, view: str) -> None:
        """Send the current state to one view. Later events go to all views."""
        with self._lock:
            if self._state is not None and self.connected:
                lines = [_encode(self._state.keyframe()).decode()]
                self._send_events(self._state.seq, lines, joins=True, to=view)
                self.feed.send({"type": "status", "status": self._status, "to": view})

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
                self._task = self._state = None

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
        # A connection that is just being made can swallow the cancellation, so check the task too.
        while self._task is asyncio.current_task():
            try:
                async with aclosing(batches(self.url, self._key, self._last_seen())) as received:
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
                    self._state = None  # may be incomplete; the next connection gets a keyframe
            self.connected = False
            seconds = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
            attempt += 1
            self._send_to_all({"type": "lost", "seconds": seconds})
            await asyncio.sleep(seconds)

    def _last_seen(self) -> str | None:
        return None if self._state is None else f"{self._run}:{self._state.seq}"

    def _forward(self, batch: list[ServerSentEvent]) -> None:
        """Fold a batch and send it to all views, one message per series of consecutive events."""
        with self._lock:
            lines: list[str] = []
            dropped = first = 0
            joins = False
            for received in batch:
                if received.event == "status":
                    self._status = json.loads(received.data)
                elif received.event == "dropped":
                    dropped = json.loads(received.data)["dropped"]
                elif received.id:
                    run, _, number = received.id.partition(":")
                    event: Event = _decode(received.data)
                    # A restarted engine begins with run_started.
                    begins = isinstance(event, Keyframe | RunStarted)
                    if begins or not lines:
                        self._send_events(first, lines, joins=joins, dropped=dropped)
                        lines, first, joins = [], int(number), begins
                    if begins:
                        self._state, self._run = State(), run
                    assert self._state is not None, "a server's first event is a keyframe"
                    self._state.apply(event)
                    lines.append(received.data)
            self._send_events(first, lines, joins=joins, dropped=dropped)
            if any(received.event == "status" for received in batch):
                self.feed.send({"type": "status", "status": self._status})

    def _send_events(
        self, first: int, lines: list[str], *, joins: bool, dropped: int = 0, to: str = ""
    ) -> None:
        """Send consecutive events, if any, to the view `to`, or to all views if it is empty."""
        if not lines:
            return
        self.feed.send(
            {
                "type": "events",
                "run": self._run,
                "first": first,
                "count": len(lines),
                "text": "\n".join(lines) + "\n",
                "joins": joins,
                "dropped": dropped,
                "to": to,
            }
        )

    def _send_to_all(self, message: dict[str, Any]) -> None:
        with self._lock:
            self.feed.send(message)


def watch(url: str = "http://localhost:8000", api_key: str | None = None) -> Live:
    """Show a board that follows a server: `underglass serve`, or `serve_in_background().url`.

    The board can join at any time. It resumes after a lost connection and starts over if the server
    has been restarted. `api_key` is the server's API key, if it has one.
    """
    return Live(url, api_key)
