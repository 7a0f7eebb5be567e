"""A running server on a board in a notebook.

    from visualizer import watch
    board = watch("http://localhost:8000")      # draws what the engine does, as it does it
    board.step = 12                             # looks back; the engine goes on
    board.following = True                      # ... back to the newest step

The kernel holds the connection and passes the events on: a browser may not be able to reach the server
(a notebook on another machine), or may not be allowed to (pages may read from their own server only).
It is open while somebody looks at the board. A message sent before a view exists is lost, so each view
says hello, and gets a keyframe of its own to begin with; `frontend/src/live/live_feed.js` says what is told.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import anywidget
import httpx
import ipywidgets
import msgspec
import traitlets

from engine.events import State
from engine.events.vocabulary import AnyEvent, Event, Keyframe
from visualizer.html import MODULE
from visualizer.server_events import RefusedError, Sent, batches

WAITS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)  # seconds before the connection is tried again

logger = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(AnyEvent).decode
_encode = msgspec.json.Encoder().encode


class Feed(ipywidgets.Widget):  # type: ignore[misc]
    """What kernel and page tell each other: messages, and what is shown, which the browser writes.

    It is a widget of Jupyter's own kind: one of anywidget's hears nothing more from the kernel if the
    page was too busy to begin within two seconds.
    """

    shown = traitlets.Dict().tag(sync=True)


class Live(anywidget.AnyWidget):
    """A board over a server's event feed.

    url         of the server
    connected   whether events come in
    """

    _esm = MODULE
    live = traitlets.Bool(True).tag(sync=True)
    feed = traitlets.Instance(Feed).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(self, url: str, api_key: str | None = None) -> None:
        super().__init__(feed=Feed())
        self.url = url.rstrip("/")
        self.connected = False
        self._key = api_key
        self._lock = threading.Lock()  # the state, and the order of what is sent
        self._state: State | None = None
        self._run = ""
        self._status: dict[str, Any] = {}
        self._views: set[str] = set()
        self._stop: _Stop | None = None
        self.feed.on_msg(self._heard)

    @property
    def step(self) -> int:
        """The step that is shown; 0 while nothing is. Set it to look back."""
        return int(self.feed.shown.get("step", 0))

    @step.setter
    def step(self, step: int) -> None:
        self.feed.send({"type": "go", "step": step})

    @property
    def selected(self) -> int | None:
        """The id of the selected request. Set it to select one."""
        return self.feed.shown.get("selected")

    @selected.setter
    def selected(self, request: int | None) -> None:
        self.feed.send({"type": "go", "selected": request})

    @property
    def following(self) -> bool:
        """Whether the newest step is shown. Set it to follow, or to stay."""
        return bool(self.feed.shown.get("following", True))

    @following.setter
    def following(self, on: bool) -> None:
        self.feed.send({"type": "go", "following": on})

    def state(self) -> dict[str, Any]:
        """The engine's state as of the newest event, as plain values; see `State.core`."""
        with self._lock:
            if self._state is None:
                raise ValueError(f"nothing has come from {self.url} yet: show the board first")
            return self._state.core()

    def close(self) -> None:
        """Leave the server, and take the board away."""
        self._views.clear()
        self._leave()
        self.feed.close()
        super().close()

    def __repr__(self) -> str:
        return f"Live({self.url})"

    # What views say

    def _heard(self, _widget: object, message: dict[str, Any], _buffers: object) -> None:
        if view := message.get("hello"):
            self._views.add(view)
            self._greet(view)
            self._connect()
        elif view := message.get("bye"):
            self._views.discard(view)
            if not self._views:
                self._leave()

    def _greet(self, view: str) -> None:
        """A keyframe for one view; what comes from now on is for all."""
        with self._lock:
            if self._state is not None and self.connected:
                text = _encode(self._state.keyframe()).decode() + "\n"
                self._say_events(self._state.seq, 1, text, joins=True, to=view)
                self.feed.send({"type": "status", "status": self._status, "to": view})

    # The connection, on a thread of its own

    def _connect(self) -> None:
        with self._lock:
            if self._stop is not None:
                return
            stop = self._stop = _Stop()
        thread = threading.Thread(
            target=lambda: asyncio.run(self._listen(stop)),
            name=f"watch {self.url}",
            daemon=True,
        )
        thread.start()

    def _leave(self) -> None:
        with self._lock:
            stop, self._stop = self._stop, None
            if stop is not None:
                stop.set()
                self._state = None

    async def _listen(self, stop: "_Stop") -> None:
        listening = asyncio.create_task(self._keep_listening())
        with stop.ending(listening):
            await asyncio.wait({listening})
        self.connected = False
        with self._lock:
            if self._stop is stop:  # it ended by itself: the next view connects again
                self._stop = None
        if not listening.cancelled():
            listening.result()  # the thread reports what it raised

    async def _keep_listening(self) -> None:
        attempt = 0
        while True:
            try:
                async with aclosing(batches(self.url, self._key, self._last_seen())) as received:
                    async for batch in received:
                        self.connected = True
                        self._pass_on(batch)
                        attempt = 0
            except RefusedError:
                self._say_to_all({"type": "refused", "status": 401})
                return
            except httpx.HTTPError:
                pass
            except Exception:
                logger.exception("cannot read the events of %s; starting over", self.url)
                with self._lock:
                    self._state = (
                        None  # it may be half applied: the next connection gets a keyframe
                    )
            self.connected = False
            seconds = WAITS[min(attempt, len(WAITS) - 1)]
            attempt += 1
            self._say_to_all({"type": "lost", "seconds": seconds})
            await asyncio.sleep(seconds)

    def _last_seen(self) -> str | None:
        return None if self._state is None else f"{self._run}:{self._state.seq}"

    def _pass_on(self, batch: list[Sent]) -> None:
        """Fold what came, and tell all views in as few messages as it takes."""
        with self._lock:
            lines: list[str] = []
            dropped = first = 0
            joins = False

            def tell() -> None:
                if lines:
                    text = "\n".join(lines) + "\n"
                    self._say_events(first, len(lines), text, joins=joins, dropped=dropped)
                    lines.clear()

            for sent in batch:
                if sent.name == "status":
                    self._status = json.loads(sent.data)
                elif sent.name == "dropped":
                    dropped = json.loads(sent.data)["dropped"]
                elif sent.id:
                    run, _, number = sent.id.partition(":")
                    event: Event = _decode(sent.data)
                    is_keyframe = isinstance(event, Keyframe)
                    if is_keyframe or not lines:
                        tell()
                        first, joins = int(number), is_keyframe
                    if is_keyframe:
                        self._state, self._run = State(), run
                    assert self._state is not None
                    self._state.apply(event)
                    lines.append(sent.data)
            tell()
            if any(sent.name == "status" for sent in batch):
                self.feed.send({"type": "status", "status": self._status})

    def _say_events(
        self, first: int, count: int, text: str, *, joins: bool, dropped: int = 0, to: str = ""
    ) -> None:
        self.feed.send(
            {
                "type": "events",
                "run": self._run,
                "first": first,
                "count": count,
                "text": text,
                "joins": joins,
                "dropped": dropped,
                "to": to,
            }
        )

    def _say_to_all(self, message: dict[str, Any]) -> None:
        with self._lock:
            self.feed.send(message)


class _Stop:
    """Ends a task of another thread's loop, whether it has begun or not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end: Callable[[], object] | None = None
        self._asked = False

    @contextmanager
    def ending(self, task: "asyncio.Task[None]") -> Iterator[None]:
        loop = asyncio.get_running_loop()
        with self._lock:
            self._end = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._asked:
                task.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._end = None

    def set(self) -> None:
        with self._lock:
            self._asked = True
            if self._end is not None:
                self._end()


def watch(url: str = "http://localhost:8000", api_key: str | None = None) -> Live:
    """A board that follows a running server: `underglass serve`, or `serve_in_background().url`.

    It joins in the middle, goes on after a lost connection, and begins anew where the server was
    started again. `api_key` is the server's, if it has one.
    """
    return Live(url, api_key)
