"""Connect a server's event stream to the page. This is the base of every live board.

The kernel holds the connection and forwards the events, because the browser may not be able to reach
the server (a notebook on another machine) or may not be allowed to (CORS). The connection is open
while the page shows the board. A message sent before a view exists is lost, so each new view sends
"hello" and gets the current state to start from. See `frontend/src/live/live_feed.ts` for the messages.
"""

import asyncio
import logging
import threading
from contextlib import aclosing
from typing import Any

import anywidget
import httpx
import ipywidgets
import traitlets
from httpx_sse import ServerSentEvent

from visualizer.live.server_events import UnauthorizedError, batches

RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)

logger = logging.getLogger(__name__)


class Feed(ipywidgets.Widget):  # type: ignore[misc]
    """The channel between the kernel and the page: messages, and `shown`, which the browser sets.

    This is an ipywidgets.Widget because an anywidget gets no messages from the kernel if the page is
    too busy to start it within two seconds.
    """

    shown = traitlets.Dict().tag(sync=True)


class FeedWidget(anywidget.AnyWidget):
    """A widget that shows a server's event stream. A subclass folds the events and forwards them.

    url         the server's URL
    connected   whether the event stream is open
    """

    live = traitlets.Bool(True).tag(sync=True)
    feed = traitlets.Instance(Feed).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(self, url: str, api_key: str | None = None) -> None:
        super().__init__(feed=Feed())
        self.url = url.rstrip("/")
        self.connected = False
        self._key = api_key
        self._lock = threading.Lock()  # guards the state and the order of messages
        self._run = ""
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

    def _send_state(self, view: str) -> None:
        """Send the current state to one view, if it is known. Later events go to all views."""
        raise NotImplementedError

    def _forward(self, batch: list[ServerSentEvent]) -> None:
        """Fold a batch and send it to all views."""
        raise NotImplementedError

    def _last_seen(self) -> str | None:
        """Return the id of the last event, or None to begin with the current state."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Drop the state. Called with the lock held."""
        raise NotImplementedError

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
                    self._forget()  # the state may be incomplete; the next connection sends all of it
            self.connected = False
            seconds = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
            attempt += 1
            self._send_to_all({"type": "lost", "seconds": seconds})
            await asyncio.sleep(seconds)

    def _send_to_all(self, message: dict[str, Any]) -> None:
        with self._lock:
            self.feed.send(message)
