"""Show a running server on a board in a notebook.

from visualizer import watch
board = watch("http://localhost:8000")      # draws each step as the engine runs it
watch("run.jsonl")                          # or a file that grows
watch("tcp://127.0.0.1:5557")               # or the KV events of vLLM or SGLang
board.step = 12                             # looks back while the engine keeps running
board.following = True                      # returns to the newest step
"""

from pathlib import Path
from typing import Any

import httpx
import msgspec

from engine.cluster.cluster_log import ClusterState
from engine.cluster.events import AnyClusterEvent
from engine.core.log import State
from engine.core.log.vocabulary import AnyEvent
from visualizer.front_end import with_board
from visualizer.html import CLUSTER_MODULE
from visualizer.live.feed_widget import FeedWidget
from visualizer.live.live_log import LiveLog, LiveSource, open_live
from visualizer.live.local_server import LocalServer
from visualizer.live.pages import live_routes
from visualizer.sources.limits import MAX_FIRST_LINE
from visualizer.sources.own_logs import CLUSTER_LOG

PROBE_TIMEOUT = 5.0  # seconds


class Live(FeedWidget):
    """A board of a server's event stream.

    url         the server's URL
    connected   whether the event stream is open
    """

    _esm = with_board("watch.js")

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
        """Return the engine's present state as plain values (see `State.core`).

        Raises ValueError if the server does not answer.
        """
        state, decode = State(), msgspec.json.Decoder(AnyEvent).decode
        for line in self._present():
            state.apply(decode(line))
        return state.core()


class LiveCluster(FeedWidget):
    """A board of a gateway's event stream: its router and its replicas.

    url         the gateway's URL
    connected   whether the event stream is open
    """

    _esm = CLUSTER_MODULE

    def states(self) -> dict[str, dict[str, Any]]:
        """Return each replica's present state as plain values (see `State.core`).

        Raises ValueError if the gateway does not answer.
        """
        cluster, decode = ClusterState(), msgspec.json.Decoder(AnyClusterEvent).decode
        for line in self._present():
            cluster.add(decode(line))
        return {replica: state.core() for replica, state in cluster.states.items()}


def watch(
    source: str | Path = "http://localhost:8000", api_key: str | None = None
) -> Live | LiveCluster:
    """Show a board that follows a server, a file that grows, or an engine's KV events.

    source   the URL of `underglass serve`, or `serve_in_background().url`; the path of a file; or the
             endpoint that publishes KV events, such as "tcp://127.0.0.1:5557"
    api_key  the server's API key, if it has one

    The board can join a server at any time. It resumes after a lost connection and starts over if the
    server has been restarted. The board of a cluster shows its replicas: a gateway must be running, or
    the log of one must have its first line, when `watch` is called. Raises SourceError for an endpoint
    that cannot be opened.
    """
    name = str(source)
    if name.startswith(("http://", "https://")):
        return (LiveCluster if is_gateway(name, api_key) else Live)(name, api_key)
    return (FollowedCluster if _is_cluster_log(name) else Followed)(name, open_live(name))


def _is_cluster_log(name: str) -> bool:
    try:
        with Path(name).open("rb") as file:
            return CLUSTER_LOG.recognizes(file.readline(MAX_FIRST_LINE))
    except OSError:  # an endpoint, or a file that does not exist yet
        return False


def is_gateway(url: str, api_key: str | None) -> bool:
    """Return whether a gateway answers at this URL. If nothing answers, return False."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    health = f"{url.rstrip('/')}/health"
    try:
        answer = httpx.get(health, headers=headers, trust_env=False, timeout=PROBE_TIMEOUT)
        return "replicas" in answer.json()
    except (httpx.HTTPError, ValueError):
        return False


class _Followed(FeedWidget):
    """A board that follows a file or KV events. This process reads them and serves them to the board.

    source   the file or endpoint
    """

    def __init__(self, name: str, source: LiveSource) -> None:
        log = LiveLog(name)
        log.follow(source)
        self.source, self._source = name, source
        self._server = LocalServer(live_routes(log, None))
        self._server.start()
        super().__init__(self._server.address)

    def close(self) -> None:
        """Stop reading the source, and close the widget."""
        self._source.close()
        self._server.close()
        super().close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source})"


class Followed(_Followed, Live):
    """A board of one engine that follows a file or KV events."""


class FollowedCluster(_Followed, LiveCluster):
    """A board of a cluster that follows the file of its log."""
