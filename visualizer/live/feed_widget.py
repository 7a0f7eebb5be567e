"""Connect a server's event stream to the page. This is the base of every live board.

The kernel holds the connections, because the browser may not be able to reach the server (a notebook
on another machine) or may not be allowed to (CORS). Each view of the board has one: the view asks for
it as it would call `fetch`, and the kernel passes the text on (`frontend/src/live/kernel_feed.ts`). So
a view reads the stream, resumes it and starts over exactly as a page of the server does. What it asks
the server besides, such as the scheduler's seat, takes the same way.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import ipywidgets
import traitlets
from httpx_sse import EventSource

from visualizer.front_end import part_of_board
from visualizer.widgets.picture import PictureWidget

READ_TIMEOUT = 40.0  # seconds; an idle server sends a comment every 15 seconds
EVENTS = "/events"
_ASKED = ("/seat", "/tour", "/regimes")  # what a page asks a server besides
_PATIENCE = 120.0  # seconds; running a long log again takes a while
BATCH_SECONDS = 0.04  # what arrives within this time is one message


class Feed(ipywidgets.Widget):  # type: ignore[misc]
    """The channel between the kernel and the page: messages, and `shown`, which the browser sets.

    This is an ipywidgets.Widget because an anywidget gets no messages from the kernel if the page is
    too busy to start it within two seconds.
    """

    shown = traitlets.Dict().tag(sync=True)


class FeedWidget(PictureWidget):
    """A widget that shows a server's event stream. Its picture is that of the last calm moment.

    url         the server's URL
    connected   whether an event stream is open
    """

    kind = traitlets.Unicode("watch").tag(sync=True)
    feed = traitlets.Instance(Feed).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(self, url: str, api_key: str | None = None) -> None:
        super().__init__(feed=Feed())
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._readers: dict[str, _Reader] = {}
        self.feed.on_msg(self._on_message)

    @property
    def connected(self) -> bool:
        """Whether an event stream is open."""
        return any(reader.connected for reader in self._readers.values())

    def close(self) -> None:
        """Disconnect from the server and close the widget."""
        for name in list(self._readers):
            self._readers.pop(name).cancel()
        self.feed.close()
        super().close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url})"

    def ended(self, name: str) -> None:
        """Forget a connection that has ended."""
        self._readers.pop(name, None)

    def _on_message(self, _widget: object, message: dict[str, Any], _buffers: object) -> None:
        if name := message.get("open"):
            last = {"Last-Event-ID": message["last"]} if message.get("last") else {}
            path, body = message.get("path", EVENTS), message.get("body")
            if path in (EVENTS, *_ASKED):
                self._readers[name] = _Reader(self, name, path, body, self._headers | last)
        elif message.get("ask") == "seat.js":
            self.feed.send({"seat.js": True}, [part_of_board("seat.js")])
        elif (name := message.get("close")) in self._readers:
            self._readers.pop(name).cancel()

    def _present(self) -> Iterator[str]:
        """Yield the lines of the log with which a view begins, up to the newest event.

        Raises ValueError if the server does not answer.
        """
        options = {"headers": self._headers, **connection_options(self.url)}
        try:
            with httpx.stream("GET", f"{self.url}/events", **options) as response:
                response.raise_for_status()
                for event in EventSource(response).iter_sse():
                    if event.event == "status":  # a server sends it after all events that it has
                        return
                    yield event.data
        except httpx.HTTPError as error:
            raise ValueError(f"no events from {self.url}: {error}") from error


class _Reader:
    """A connection for one view, read by a thread of its own.

    The view `name` gets the answer's status, then the text in pieces, and at last that it has ended.
    """

    def __init__(
        self, widget: FeedWidget, name: str, path: str, body: str | None, headers: dict[str, str]
    ) -> None:
        self.connected = False
        self._widget, self._name, self._headers = widget, name, headers
        self._path, self._body = path, body
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        task = self._task = runner.get_loop().create_task(self._read())

        def read() -> None:
            with runner:
                runner.run(asyncio.wait({task}))
            if not task.cancelled():
                task.result()  # re-raises an unexpected error so that the thread reports it

        threading.Thread(target=read, name=f"watch {widget.url}", daemon=True).start()

    def cancel(self) -> None:
        """End the connection, from any thread."""
        with suppress(RuntimeError):  # the loop is closed: the connection has just ended by itself
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def _read(self) -> None:
        url, pieces = self._widget.url, list[str]()
        is_feed, headers = self._path == EVENTS, self._headers
        if self._body is not None:
            headers = headers | {"Content-Type": "application/json"}
        timeout = httpx.Timeout(10.0, read=READ_TIMEOUT if is_feed else _PATIENCE)
        loop = asyncio.get_running_loop()

        def flush() -> None:
            if pieces:
                self._send(text="".join(pieces))
                pieces.clear()

        try:
            async with (
                httpx.AsyncClient(**connection_options(url)) as client,
                client.stream(
                    "GET" if self._body is None else "POST",
                    f"{url}{self._path}",
                    headers=headers,
                    content=self._body,
                    timeout=timeout,
                ) as response,
            ):
                self.connected = is_feed and response.is_success
                self._send(status=response.status_code)
                async for piece in response.aiter_text():
                    if not pieces:
                        loop.call_later(BATCH_SECONDS, flush)
                    pieces.append(piece)
        except httpx.HTTPError:
            pass
        finally:
            self.connected = False
        flush()
        self._widget.ended(self._name)
        self._send(end=True)

    def _send(self, **message: Any) -> None:
        self._widget.feed.send({"to": self._name, **message})


def connection_options(url: str) -> dict[str, Any]:
    """Return httpx's options for a connection to a server."""
    timeout = httpx.Timeout(10.0, read=READ_TIMEOUT)
    return {"trust_env": False, "verify": url.startswith("https:"), "timeout": timeout}
