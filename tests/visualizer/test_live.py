"""watch(): the kernel forwards to a board's views exactly what the server's engine did."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from httpx_sse import ServerSentEvent

import visualizer.live.feed_widget
from engine import Engine, EngineConfig
from engine.core.log import State
from engine.core.log.vocabulary import AnyEvent
from tests.server.app_under_test import TOKENIZER, AlphabetRunner
from tests.server.harness import post, start, trace
from visualizer import watch

BODY = {"prompt": "Once upon a time", "max_tokens": 5}
PATIENCE = 30.0


class FakeView:
    """A view of a board: it says hello and folds the events that it gets."""

    def __init__(self, board: Any, name: str = "view") -> None:
        self.board, self.name = board, name
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self.state = State()
        self.seen: list[dict[str, Any]] = []
        self.sent = board.feed.send
        board.feed.send = self._send
        self.say("hello")

    def _send(self, message: dict[str, Any], *rest: Any) -> None:
        self.messages.put(message)
        self.sent(message, *rest)

    def say(self, what: str) -> None:
        self.board._on_message(self.board, {what: self.name}, [])

    def hear(self) -> dict[str, Any]:
        message = self.messages.get(timeout=PATIENCE)
        if message.get("to", "") not in ("", self.name):
            return self.hear()
        self.seen.append(message)
        if message["type"] == "events":
            if message["joins"]:
                self.state = State()
            elif message["first"] != self.state.seq + 1:
                return message  # a view that has more than this leaves it out
            for line in message["text"].splitlines():
                self.state.apply(msgspec.json.decode(line, type=AnyEvent))
        return message

    def until(self, url: str) -> None:
        """Listen until this view has everything the server's trace has."""
        expected = trace(url).state()
        while self.state.seq < expected.seq:
            self.hear()
        assert self.state.core() == expected.core()

    def until_type(self, type_: str) -> dict[str, Any]:
        while (message := self.hear())["type"] != type_:
            pass
        return message


@pytest.fixture(scope="module")
def server():
    with start(engine={"max_kv_tokens": 4096}) as server:
        yield server


@pytest.fixture
def board(server):
    board = watch(server.url)
    yield board
    board.close()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("watch ")]


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


def test_a_second_view_gets_a_keyframe_of_its_own(board, server):
    first = FakeView(board, "first")
    first.until(server.url)
    post(server.url, "/v1/completions", BODY)
    first.until(server.url)
    second = FakeView(board, "second")
    second.until(server.url)
    assert second.seen[0]["joins"]
    assert not any(message.get("to") == "second" for message in first.seen)
    assert len(threads()) == 1


def test_without_a_view_there_is_no_connection(board, server):
    view = FakeView(board)
    view.until(server.url)
    [thread] = threads()
    view.say("bye")
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with pytest.raises(ValueError):
        board.state()
    view.say("hello")
    view.state = State()
    view.until(server.url)


def test_a_lost_server_is_reported_and_a_new_one_is_a_new_run():
    with start() as first:
        post(first.url, "/v1/completions", BODY)
        board = watch(first.url)
        view = FakeView(board)
        view.until(first.url)
        run = view.until_type("status")["status"]["run"]
        first.process.kill()
        assert view.until_type("lost")["seconds"] > 0
        assert not board.connected
    with start(port=urlsplit(first.url).port) as second:
        message = view.until_type("events")
        assert message["joins"]
        assert message["run"] != run
        post(second.url, "/v1/completions", BODY)
        view.until(second.url)
        board.close()


def test_a_server_with_a_key_refuses_without_it_and_not_with_it():
    with start(server={"api_key": "sesame"}) as server:
        refused = watch(server.url)
        for name in ("first", "second"):  # each new view learns it
            assert FakeView(refused, name).until_type("refused")["status"] == 401
            for thread in threads():
                thread.join(PATIENCE)
        board = watch(f"{server.url}/", "sesame")
        view = FakeView(board)
        assert view.until_type("events")["joins"]
        refused.close()
        board.close()


def test_python_moves_the_picture_by_message(board):
    view = FakeView(board)
    board.step, board.selected, board.following = 3, None, False
    assert [view.until_type("go") for _ in range(3)] == [
        {"type": "go", "step": 3},
        {"type": "go", "selected": None},
        {"type": "go", "following": False},
    ]
    board.feed.shown = {"step": 9, "selected": 2, "following": True}
    assert (board.step, board.selected, board.following) == (9, 2, True)


def test_events_that_cannot_be_read_are_logged_and_the_board_starts_over(monkeypatch, caplog):
    """The first connection gets an event before any keyframe."""
    engine = Engine(AlphabetRunner(None), EngineConfig(), tokenizer=TOKENIZER)
    keyframe = msgspec.json.encode(engine.log.state().keyframe()).decode()
    connections = 0

    async def feed(
        _url: str, _key: str | None, last: str | None
    ) -> AsyncIterator[list[ServerSentEvent]]:
        nonlocal connections
        connections += 1
        assert last is None
        if connections == 1:
            yield [ServerSentEvent(id="r:5", data='{"type":"step_started","step":1}')]
        yield [ServerSentEvent(id="r:0", data=keyframe)]
        await asyncio.Event().wait()

    monkeypatch.setattr(visualizer.live.feed_widget, "batches", feed)
    monkeypatch.setattr(visualizer.live.feed_widget, "RETRY_SECONDS", (0.01,))
    board = watch("http://server")
    view = FakeView(board)
    view.until_type("lost")
    assert view.until_type("events")["joins"]
    [record] = caplog.records
    assert record.exc_info is not None
    assert connections == 2
    [thread] = threads()
    board.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
