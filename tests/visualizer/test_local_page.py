"""The page on loopback is for its reader alone, and needs no package of the server."""

import gzip
import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from engine.core.log import EventLog
from engine.core.log.vocabulary import AnyEvent
from tests.engine.workloads import random_log, windowed
from tests.facts import assert_names
from tests.visualizer.test_html import packed_log
from visualizer import packed, read, to_html
from visualizer.html import write_page
from visualizer.live import pages
from visualizer.live.live_log import LiveLog, open_live
from visualizer.live.local_server import LocalServer
from visualizer.live.pages import board_routes, indexed_routes, live_routes
from visualizer.live.ranges import MOST
from visualizer.sources import READERS
from visualizer.sources.follow import FollowedInput
from visualizer.sources.limits import MAX_DROPPED
from visualizer.sources.reader import LogEvent

ROOT = Path(__file__).parents[2]
# What `pip install underglass` will lack without its extras; importing any of them fails.
BLOCKED = ("torch", "fastapi", "starlette", "uvicorn", "websockets", "anywidget", "pandas", "httpx")
RUN = f"""import sys
for name in {BLOCKED}: sys.modules[name] = None
from underglass.commands import main
main()
"""


@pytest.fixture
def trace(log, tmp_path):
    log.save(tmp_path / "run.jsonl")
    return tmp_path / "run.jsonl"


class Client:
    """Asks a server, with any headers."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.place, self.root = parts.netloc, parts.path

    def ask(
        self, path: str = "", method: str = "GET", body: bytes = b"", **headers: str
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.place, timeout=20)
        path = path if path.startswith("/") else self.root + path
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Host": self.place, **named})
        answer = connection.getresponse()
        read = answer.status, answer.read()
        connection.close()
        return read


@pytest.fixture
def served():
    """Serve routes; returns a client of theirs."""
    servers = []

    def serve(routes: object, **at: object) -> Client:
        servers.append(LocalServer(routes, **at))
        servers[-1].start()
        return Client(servers[-1].address)

    yield serve
    for server in servers:
        server.close()


@pytest.fixture
def client(served, log):
    return served(board_routes(lambda **options: "the page", [log]))


def test_only_its_own_page_gets_an_answer_and_nothing_else_is_served(client):
    assert client.ask() == (200, b"the page")
    port = client.place.partition(":")[2]
    assert client.ask(Host=f"localhost:{port}")[0] == 200
    assert client.ask(Origin=f"http://{client.place}")[0] == 200
    for host in ("evil.example", "evil.example:80", f"127.0.0.1.evil.example:{port}", "", "["):
        assert client.ask(Host=host)[0] == 403
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{int(port) + 1}"):
        assert client.ask(Origin=origin)[0] == 403
        assert client.ask("translate", "POST", b"x", Origin=origin)[0] == 403
    for path in ("/", "/x/", "//[", "/etc/passwd", client.root[:-1], client.root[:-2] + "/"):
        assert client.ask(path)[0] == 404
    for path in ("../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "board.js"):
        assert client.ask(path)[0] == 404
    assert client.ask("", "POST")[0] == 404
    assert client.ask("translate")[0] == 404
    assert client.ask("", "DELETE")[0] == 501


def test_on_other_addresses_the_secret_of_the_address_is_the_key(served, log):
    client = served(
        board_routes(lambda **options: "the page", [log]), host="0.0.0.0", secret="k" * 16
    )
    client.place = f"127.0.0.1:{client.place.rpartition(':')[2]}"
    assert (
        client.ask(Host="gpu7.lab:8001") == client.ask("/" + "k" * 16 + "/") == (200, b"the page")
    )
    assert client.ask("/" + "k" * 15 + "/")[0] == client.ask("/")[0] == 404
    assert client.ask(Host="gpu7.lab", Origin="http://evil.example")[0] == 403


def test_standard_input_is_followed_until_its_end(log):
    live, (read_end, write_end) = LiveLog("a pipe"), os.pipe()
    with os.fdopen(read_end, "rb") as stream, os.fdopen(write_end, "wb") as pipe:
        thread = live.follow(FollowedInput(stream, READERS))
        pipe.write(gzip.compress(log.to_bytes()))
        pipe.close()
        thread.join()
    assert live.kept().to_bytes() == log.to_bytes()
    assert live.ended == "its writer has ended"


def test_a_dropped_file_is_translated_or_refused_in_one_line(client, log):
    status, packed = client.ask("translate", "POST", gzip.compress(log.to_bytes()))
    assert status == 200
    assert gzip.decompress(packed) == log.to_bytes()
    for body in (b"", b"hello\n", gzip.compress(bytes(64 << 20)), b"\x1f\x8bdamaged"):
        status, why = client.ask("translate", "POST", body)
        assert status == 422
        assert why.count(b"\n") == 0 and len(why) > 20
    status, why = client.ask("translate", "POST", Content_Length=str(MAX_DROPPED + 1))
    assert (status, b"underglass open" in why) == (422, True)
    for length in ("many", "9" * 5000):
        assert client.ask("translate", "POST", Content_Length=length)[0] == 400


def test_a_step_of_the_log_is_decided_otherwise(client):
    status, lines = client.ask("seat", "POST", b'{"seat": "helped"}')
    assert (status, json.loads(lines.splitlines()[-1])["done"]) == (200, True)
    for wrong in (b"[]", b"{", b" " * 20_000):
        assert client.ask("seat", "POST", wrong)[0] == 422


def test_a_file_that_is_too_large_is_refused_while_it_is_sent(client, monkeypatch):
    """The page gets the reason, not a connection that breaks."""
    monkeypatch.setattr(pages, "MAX_DROPPED", 1 << 20)
    status, why = client.ask("translate", "POST", bytes(32 << 20))
    assert (status, why.startswith(b"it is larger than 1 MB")) == (422, True)


def events_of(stream: Iterator[bytes]) -> tuple[list[str], list[AnyEvent], dict[str, str]]:
    """The ids and events of the next pieces, up to a status, and the status."""
    text = ""
    while "event: status" not in text:
        text += next(stream).decode()
    blocks = [
        dict(line.split(": ", 1) for line in one.split("\n")) for one in text.split("\n\n")[:-1]
    ]
    numbered = [one for one in blocks if "event" not in one]
    lines = "".join(one["data"] + "\n" for one in numbered).encode()
    events = list(EventLog.from_bytes(lines)) if lines else []
    return [one.get("id", "") for one in numbered], events, json.loads(blocks[-1]["data"])


def test_a_page_gets_each_event_once_and_the_window_if_it_fell_behind(log):
    live, events = LiveLog("run.jsonl", window=100), list(log)
    early = live.stream()
    _ids, nothing, status = events_of(early)
    assert (nothing, status["run"], status["source"]) == ([], "", "run.jsonl")
    live.take(events[:60])
    ids, got, status = events_of(live.stream())
    assert got == events[:60]
    assert ids == [f"{status['run']}:{seq}" for seq in range(60)]
    assert events_of(early)[1] == events[:60]
    # A page that has seen the first 50 gets the rest; after the window has moved on, the window.
    assert next(live.stream(f"{status['run']}:49")).count(b"data: ") == 10
    live.take(events[60:])
    text = next(live.stream(f"{status['run']}:49")).decode()
    assert text.startswith("event: dropped\n")
    assert '"type":"keyframe"' in text
    live.take(events[:5])  # the file was replaced: another run
    ids, got, again = events_of(live.stream(f"{status['run']}:49"))
    assert got == events[:5]
    assert again["run"] != status["run"]
    live.end("line 7: damaged")
    assert events_of(live.stream())[2]["ended"] == "line 7: damaged"


def test_a_defect_of_a_source_ends_the_page_and_closes_the_source():
    closed = threading.Event()

    class Broken:
        def events(self) -> Generator[list[LogEvent], None, None]:
            try:
                yield []
            finally:
                closed.set()

        def close(self) -> None:
            """Do nothing."""

    live = LiveLog("broken")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda _args: None)
        patch.setattr(live, "take", lambda _events: 1 / 0)
        live.follow(Broken()).join()
    assert live.ended == "ZeroDivisionError: division by zero"
    assert closed.is_set()


def test_a_source_that_cannot_be_read_is_told_on_the_page_and_the_terminal(tmp_path):
    (tmp_path / "notes.txt").write_text("hello\n")
    live, told = LiveLog("notes.txt"), queue.SimpleQueue[str]()
    live.follow(open_live(str(tmp_path / "notes.txt")), tell=told.put)
    assert told.get(timeout=20) == f"notes.txt: {live.ended}"
    assert "line 1: no known log begins with 'hello'" in live.ended


def test_a_live_page_is_served_with_its_script_and_feed(served, log):
    live = LiveLog("<run>")
    client = served(live_routes(live, "dark"))
    kinds = live.kind()
    live.take(log)
    assert b"".join(kinds).strip() == client.ask("kind")[1].strip() == b"engine"
    page = client.ask()[1].decode()
    assert "&lt;run&gt;" in page and "<run>" not in page and 'data-theme="dark"' in page
    assert json.loads(client.ask("regimes")[1]) == read(log).regimes.as_dict()
    assert client.ask("tour")[1] == read(log).tour.to_json()
    assert client.ask("live.js")[1] == (ROOT / "visualizer/static/modules/live.js").read_bytes()
    connection = http.client.HTTPConnection(client.place, timeout=20)
    connection.request("GET", client.root + "events?past=true")
    answer = connection.getresponse()
    assert answer.readline().endswith(b":0\n")
    assert json.loads(answer.readline()[6:])["type"] == "run_started"
    connection.close()


def test_open_needs_no_package_of_the_server_and_ends_with_ctrl_c(trace):
    command = [sys.executable, "-c", RUN, "open", str(trace), "--no-browser"]
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=where
    ) as process:
        assert process.stdout and process.stderr
        client = Client(process.stdout.readline().strip())
        (status, page), (_, tour) = client.ask(), client.ask("tour")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0, process.stderr.read()
        assert "Traceback" not in process.stderr.read()
    assert status == 200
    log = EventLog.load(trace)
    more = packed.told_later(log)
    assert tour.decode() == json.dumps({"scenes": more["tour"], "saved": more["saved"]})
    board = write_page(packed.packed_log(log), None, theme=None, title="run.jsonl")
    asked = ', translate: "translate", tour: "tour", decide: "seat"'
    assert len(page) == len(board.encode()) + len(asked)
    for command in ("open", "listen"):
        shown = [sys.executable, "-c", RUN, command, "--help"]
        done = subprocess.run(shown, capture_output=True, text=True, check=True, env=where)
        assert "--no-browser" in done.stdout


def test_without_text_nothing_on_the_page_has_a_prompt_an_output_or_a_name(log, tmp_path):
    row = read(log).request_rows[0]
    secrets = {row.label.encode(), *(text.encode() for text in log.state().prefix_texts(1))}
    for events in (log, windowed(log, 60)):
        path = tmp_path / "board.html"
        to_html(events, path, text=False)
        shown = packed_log(path.read_text("utf-8"))
        assert b'"type":"step_scheduled"' in shown
        assert b'""' in shown
        for texts in (b'"texts":["', b'"label":"'):
            parts = shown.split(texts)[1:]
            assert all(part.startswith(b'"') for part in parts), texts
        assert not [one for one in secrets if len(one) > 3 and one in shown]
    to_html(log, path)
    assert row.label.encode() in packed_log(path.read_text("utf-8")), "the search would find it"


def test_ranges_of_an_index_are_answered_and_others_refused(served, tmp_path):
    path = tmp_path / "log.index"
    path.write_bytes(data := bytes(range(256)) * 40_000)
    client = served({f"GET {pages.INDEX}": pages.ranges_of(path)})
    for header, begin, end in (
        ("bytes=0-0", 0, 1),
        ("bytes=300-899", 300, 900),
        ("bytes=-64", len(data) - 64, len(data)),
        (f"bytes={len(data) - 5}-", len(data) - 5, len(data)),
        (f"bytes=7-{2 * len(data)}", 7, 7 + MOST),
    ):
        assert client.ask("index", Range=header) == (206, data[begin:end])
    for header in ("", "bytes=-", "bytes=9-8", f"bytes={len(data)}-", "bytes=0-1,3-4", "lines=0-1"):
        assert client.ask("index", Range=header) == (416, b"")


def test_a_log_that_contradicts_itself_gets_no_index_and_the_page_hears_why(served, tmp_path):
    log = random_log(1)
    path = tmp_path / "run.jsonl"
    path.write_bytes(
        log.to_bytes() + b'{"type":"radix_evicted","node":99999,"needed_by":1,"reason":"room"}\n'
    )
    client = served(indexed_routes(path, None, is_cluster=False))
    status, stream = client.ask("growing")
    assert status == 200
    end = stream[stream.rindex(b'{"error"') :]
    assert_names(json.loads(end)["error"], f"event {len(log)}", "radix_evicted")
    assert list(tmp_path.iterdir()) == [path]
    assert client.ask("index", Range="bytes=0-9")[0] == 422
