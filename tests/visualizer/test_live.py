"""watch(): the kernel passes on to a board's views exactly what the server sends."""

import queue
import threading
from typing import Any

import msgspec
import pytest

from engine.core.log import State
from engine.core.log.vocabulary import AnyEvent
from tests.server.harness import post, start, trace
from tests.visualizer.clusters import three_replicas
from visualizer import watch
from visualizer.live.live_log import LiveLog
from visualizer.live.local_server import LocalServer
from visualizer.live.pages import live_routes
from visualizer.live.watch import LiveCluster

BODY = {"prompt": "Once upon a time", "max_tokens": 5}
PATIENCE = 30.0


class FakeView:
    """A view of a board: it asks for the stream, as `kernel_feed.ts` does, and folds its events."""

    def __init__(self, board: Any, name: str = "view", last: str | None = None) -> None:
        self.board, self.name = board, name
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self.state, self.last, self.rest = State(), last, ""
        self.sent = board.feed.send
        board.feed.send = self._send
        self.say({"open": name, "last": last})

    def _send(self, message: dict[str, Any], *rest: Any) -> None:
        self.messages.put(message)
        self.sent(message, *rest)

    def say(self, message: dict[str, Any]) -> None:
        self.board._on_message(self.board, message, [])

    def hear(self) -> dict[str, Any]:
        message = self.messages.get(timeout=PATIENCE)
        if message.get("to", self.name) != self.name:
            return self.hear()
        *events, self.rest = (self.rest + message.get("text", "")).split("\n\n")
        for event in events:
            fields = dict(line.split(": ", 1) for line in event.splitlines() if line[0] != ":")
            if "id" in fields:
                self.last = fields["id"]
                self.state.apply(msgspec.json.decode(fields["data"], type=AnyEvent))
        return message

    def until(self, url: str) -> None:
        """Listen until this view has everything the server's trace has."""
        expected = trace(url).state()
        while self.state.seq < expected.seq:
            self.hear()
        assert self.state.core() == expected.core()

    def until_field(self, name: str) -> Any:
        while name not in (message := self.hear()):
            pass
        return message[name]


@pytest.fixture(scope="module")
def server():
    with start(engine={"max_kv_tokens": 4096}) as server:
        yield server


@pytest.fixture
def board(server):
    board = watch(server.url)
    yield board
    board.close()


def test_a_view_joins_in_the_middle_and_has_what_the_trace_has(board, server):
    post(server.url, "/v1/completions", BODY)
    view = FakeView(board)
    view.until(server.url)
    for _ in range(3):
        post(server.url, "/v1/completions", BODY)
    view.until(server.url)
    assert board.state() == trace(server.url).state().core()
    assert board.connected
    assert repr(board) == f"Live({server.url})"


def test_each_view_has_a_connection_of_its_own_until_it_closes_it(board, server):
    first = FakeView(board, "first")
    first.until(server.url)
    post(server.url, "/v1/completions", BODY)
    second = FakeView(board, "second")
    second.until(server.url)
    first.until(server.url)
    both = [thread for thread in threading.enumerate() if thread.name.startswith("watch ")]
    assert len(both) == 2
    for view in (first, second):
        view.say({"close": view.name})
    for thread in both:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not board.connected
    assert board.state() == trace(server.url).state().core()


def test_a_server_with_a_key_refuses_without_it_and_not_with_it():
    with start(server={"api_key": "sesame"}) as server:
        refused, board = watch(server.url), watch(f"{server.url}/", "sesame")
        assert FakeView(refused).until_field("status") == 401
        assert FakeView(board).until_field("status") == 200
        refused.close()
        board.close()


def test_a_gateways_board_has_the_states_of_its_replicas(tmp_path):
    log = LiveLog("cluster")
    log.take(three_replicas())
    with LocalServer(live_routes(log, None)) as server:
        server.start()
        board = LiveCluster(server.address)
        path = tmp_path / "run.jsonl"
        three_replicas().save(path)
        followed = watch(path)
        assert isinstance(followed, LiveCluster)
        followed.close()
        assert board.states() == {
            replica: log.state().core() for replica, log in three_replicas().replicas.items()
        }
        board.close()


def test_where_no_gateway_answers_it_is_the_board_of_one_server():
    board = watch("http://127.0.0.1:9")
    assert not isinstance(board, LiveCluster)
    with pytest.raises(ValueError):
        board.state()
    board.close()
