"""The live feed: messages over ZMQ, with replays, gaps and restarts."""

import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from engine.core.log.log import EventLog
from engine.core.log.vocabulary import Event, EventsMissing, StepReported
from server.core.kv_publisher import KVPublisher
from tests.engine.workloads import make_engine, play, random_workload
from tests.server.subscriber import END
from tests.server.test_kv_events import cached_prefixes
from tests.sources.kv_feed import chains, folded, stored, translated
from visualizer.sources import zmq_source
from visualizer.sources.reader import SourceError
from visualizer.sources.zmq_source import ZmqSource

PATIENCE = 30_000  # ms; a message takes far less
LOOPBACK = "tcp://127.0.0.1"


class Publisher:
    """Sends chosen messages and answers replays with chosen ones. It knows when it is subscribed to.

    Once `start` has been called, only that thread uses the sockets, and `close` waits for its end: ZMQ
    aborts the process if a socket is closed while another thread uses it.
    """

    def __init__(self) -> None:
        self.run = 0  # a new engine's messages differ
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._context = zmq.Context()
        self.pub, self.router = self._context.socket(zmq.XPUB), self._context.socket(zmq.ROUTER)
        for one in (self.pub, self.router):
            one.linger = 0
        self.port = self.pub.bind_to_random_port(LOOPBACK)
        self.replay = f"{LOOPBACK}:{self.router.bind_to_random_port(LOOPBACK)}"

    @property
    def endpoint(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self, action: Callable[[], Any]) -> None:
        """Run an action in the thread that uses the sockets."""
        assert self._thread is None
        self._thread = threading.Thread(target=action, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the action has returned: its last message may arrive before it does."""
        self._thread.join(PATIENCE / 1000)

    def receive(self, one: Any) -> list[bytes]:
        """Return the next message of a socket, or end the thread when the test has ended."""
        while not one.poll(20):
            if self._closing.is_set():
                raise SystemExit
        return list(one.recv_multipart())

    def send(self, *numbers: int) -> None:
        """Send messages once a subscriber is there."""
        if not hasattr(self, "_subscribed"):
            self._subscribed = self.receive(self.pub)
        for number in numbers:
            self.pub.send_multipart((b"kv", number.to_bytes(8, "big"), payload(number, self.run)))

    def again(self) -> None:
        """Start a new engine, whose messages differ."""
        self.run = 1

    def answer(self, *numbers: int) -> int:
        """Answer one question with these messages; return the number that was asked for."""
        client, _, first = self.receive(self.router)
        for number in numbers:
            parts = (client, b"", b"kv", number.to_bytes(8, "big"), payload(number, self.run))
            self.router.send_multipart(parts)
        self.router.send_multipart((client, b"", b"", END, b""))
        return int.from_bytes(first, "big")

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._context.destroy(linger=0)


def payload(number: int, run: int) -> bytes:
    """Each message stores one block after that of the message before."""
    here = 100 + 1000 * run + number
    tokens = [1000 * run + 4 * number + slot for slot in range(4)]
    change = stored([here], here - 1 if number else None, tokens)
    return msgspec.msgpack.encode([1e9 + here, [change], 0])


def chain(*numbers: int, run: int = 0) -> set[tuple[int, ...]]:
    return {tuple(1000 * run + token for token in range(4 * (one + 1))) for one in numbers}


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    one = Publisher()
    yield one
    one.close()


@pytest.fixture
def listening() -> Iterator[Callable[..., tuple[ZmqSource, Iterator[list[Event]]]]]:
    opened = list[tuple[ZmqSource, Any]]()
    watchdogs = list[threading.Timer]()

    def listen(endpoint: str, **options: Any) -> tuple[ZmqSource, Iterator[list[Event]]]:
        source = ZmqSource(endpoint, **options)
        opened.append((source, source.events()))
        watchdog = threading.Timer(PATIENCE / 1000, source.close)  # a test fails, and never hangs
        watchdog.daemon = True
        watchdog.start()
        watchdogs.append(watchdog)
        return opened[-1]

    yield listen
    for watchdog in watchdogs:
        watchdog.cancel()
    for source, feed in opened:
        source.close()
        feed.close()
        assert source._context.closed


def take(events: Iterator[list[Event]], messages: int) -> list[Event]:
    return [event for batch in islice(events, messages) for event in batch]


def gaps(events: list[Event]) -> list[tuple[int, str]]:
    return [(one.count, one.message) for one in events if isinstance(one, EventsMissing)]


# What the publisher does in turn, what it is asked for, the messages taken, their chains and the gaps.
# The first answer of each is to a subscriber that asks for everything.
FEEDS: dict[str, tuple[list[list[Any]], list[int], int, set[Any], list[tuple[int, str]]]] = {
    "messages become events": ([["send", 0, 1, 2]], [], 3, chain(0, 1, 2), []),
    "everything published before is asked for; number 2 comes twice, and counts once": (
        [["answer", 0, 1, 2], ["send", 2, 3]],
        [0],
        4,
        chain(0, 1, 2, 3),
        [],
    ),
    "missing messages are replayed": (
        [["answer"], ["send", 0, 3, 4], ["answer", 1, 2, 3, 4], ["send", 5]],
        [0, 1],
        6,
        chain(0, 1, 2, 3, 4, 5),
        [],
    ),
    "1 and 2 have left its buffer, so they are a gap": (
        [["answer"], ["send", 0, 4], ["answer", 3, 4]],
        [0, 1],
        3,
        chain(0) | {tuple(range(12, 16)), tuple(range(12, 20))},
        [(2, "numbers 1 to 2")],
    ),
    "a gap without a replay endpoint": (
        [["send", 0, 2]],
        [],
        2,
        chain(0) | {tuple(range(8, 12))},
        [(1, "number 1")],
    ),
    "a new engine has an empty cache, and what it published before is asked for": (
        [["answer", 0, 1, 2], ["again"], ["send", 1], ["answer", 0, 1]],
        [0, 0],
        5,
        chain(0, 1, run=1),
        [(0, "the engine was started again, and its numbers begin at 0")],
    ),
}


@pytest.mark.parametrize("feed", FEEDS)
def test_the_feed(feed: str, publisher: Publisher, listening: Any) -> None:
    acts, wanted, messages, cached, missing = FEEDS[feed]
    _, events = listening(publisher.endpoint, replay=publisher.replay if wanted else None)
    asked = list[int]()

    def publish() -> None:
        for act, *numbers in acts:
            found = getattr(publisher, act)(*numbers)
            asked.extend([found] if act == "answer" else [])

    publisher.start(publish)
    found = take(events, messages)
    publisher.wait()
    assert asked == wanted
    assert gaps(found) == missing
    assert chains(folded(found)) == cached


def test_a_replay_endpoint_that_does_not_answer(
    publisher: Publisher, listening: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq_source, "REPLAY_SECONDS", 0.2)
    notes = list[str]()
    _, feed = listening(publisher.endpoint, replay=publisher.replay, tell=notes.append)
    publisher.start(lambda: publisher.send(7))
    take(feed, 1)
    wanted = "does not answer: messages from 0 on cannot be replayed"
    assert notes == [f"{publisher.replay} {wanted}"]


def test_a_publisher_that_connects(publisher: Publisher, listening: Any) -> None:
    """vLLM binds only addresses with a `*`, so this side has to."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"{LOOPBACK}:{free.getsockname()[1]}"
    notes: list[str] = []
    source, feed = listening(endpoint, tell=notes.append)
    assert source.bound
    assert endpoint in notes[0] and "start the engine first" in notes[0]
    publisher.pub.connect(endpoint)
    publisher.start(lambda: publisher.send(0))
    assert chains(folded(take(feed, 1))) == chain(0)


def test_a_saved_feed_is_a_capture(publisher: Publisher, listening: Any) -> None:
    file = io.BytesIO()
    _, feed = listening(publisher.endpoint, save=file)
    publisher.start(lambda: publisher.send(0, 1))
    events = take(feed, 2)
    lines = file.getvalue().splitlines()
    assert len(lines) == 2
    assert translated(lines) == events


def test_our_own_engine_over_zmq(listening: Any) -> None:
    workload, log = random_workload(3), EventLog()
    engine = make_engine(workload, log)
    play(engine, workload)
    with closing(KVPublisher("0", topic="kv")) as publisher:
        for event in log:
            publisher.publish([event])
        count = publisher._count
        assert count > 10
        source, feed = listening(publisher.endpoint, replay=publisher.replay_endpoint, topic="k")
        assert not source.bound
        state = folded(take(feed, count))
        assert chains(state) == cached_prefixes(folded(list(log)))


def test_forward_pass_metrics_of_sglang(
    publisher: Publisher, listening: Any, tmp_path: Path
) -> None:
    """SGLang publishes them on a path of this machine."""
    endpoint = f"ipc://{tmp_path / 'metrics'}"
    publisher.pub.bind(endpoint)
    source, feed = listening(endpoint)
    counts = {"version": 1, "wall_time": 0.01, "queued_requests": {"num_prefill_requests": 3}}
    message = msgspec.msgpack.encode(counts | {"scheduled_requests": {"num_decode_requests": 2}})

    def publish() -> None:
        publisher.receive(publisher.pub)
        publisher.pub.send_multipart((b"", bytes(8), message))

    publisher.start(publish)
    [report] = [one for one in take(feed, 1) if isinstance(one, StepReported)]
    assert (report.decodes, report.waiting) == (2, 3)
    assert not source.bound


def test_close_ends_the_feed(publisher: Publisher, listening: Any) -> None:
    source, feed = listening(publisher.endpoint)
    closer = threading.Timer(0, source.close)
    closer.start()
    assert list(feed) == []
    closer.join()


def test_errors_say_what_was_expected(publisher: Publisher, listening: Any) -> None:
    for wrong in ("5557", "tcp://127.0.0.1", "tcp://127.0.0.1:70000", "http://a:1", "ipc://"):
        with pytest.raises(SourceError, match="endpoint must be tcp://ADDRESS:PORT or ipc://PATH"):
            ZmqSource(wrong)
    with pytest.raises(SourceError, match="replay must be"):
        ZmqSource(publisher.endpoint, replay="5558")
    with pytest.raises(SourceError, match=r"cannot bind .*: Address already in use"):
        ZmqSource(publisher.endpoint, bind=True)
    _, feed = listening(publisher.endpoint)
    publisher.start(
        lambda: (publisher.receive(publisher.pub), publisher.pub.send_multipart((b"log", b"text")))
    )
    with pytest.raises(SourceError, match="sent 2 frames of 3, 4 bytes"):
        next(feed)
