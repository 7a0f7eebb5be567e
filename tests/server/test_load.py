"""The load client: an open loop that keeps to its times, streams in any pieces, and a real server."""

import asyncio
import json
import re
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Load, Sweep, sweep
from engine.core.log.vocabulary import RequestArrived
from engine.simulation.capacity.curve import SweepError
from engine.simulation.workload import uniform
from server.client import Client
from server.load.client import Reply
from server.load.endpoint import endpoint
from server.load.open_loop import open_loop
from tests.facts import assert_names, raises_naming
from tests.server.console import invoke

SMALL = Load(requests=5, seconds=0, prompt=uniform(3, 9), output=uniform(2, 6))


class FakeTime:
    """A clock that passes only when it is slept on, or when work is done."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        until = self.at + seconds
        await asyncio.sleep(0)
        self.at = max(self.at, until)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=20), st.integers(0, 19), st.floats(0, 3))
def test_requests_start_at_their_times_and_a_busy_client_is_late_not_lazy(gaps, busy, seconds):
    time, times = FakeTime(), list(accumulate(gaps))
    begun: list[float] = []

    async def begin(index: int) -> float:
        begun.append(time.now() - 1000.0)
        if index == busy:
            time.at += seconds  # this process is held up
        return begun[index]

    started, found = asyncio.run(open_loop(times, begin, now=time.now, sleep=time.sleep))
    assert started == 1000.0 and found == begun
    for at, real in zip(times, begun, strict=True):
        assert at - 1e-9 <= real <= at + seconds + 1e-9
    if busy >= len(times):
        assert begun == pytest.approx(times)


def test_a_request_without_an_answer_delays_no_other():
    time = FakeTime()
    begun: list[int] = []

    async def begin(index: int) -> None:
        begun.append(index)
        await asyncio.Event().wait()  # never answered

    async def run() -> None:
        loop = asyncio.ensure_future(open_loop([0, 1, 2], begin, now=time.now, sleep=time.sleep))
        while len(begun) < 3:
            await asyncio.sleep(0)
        loop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loop
        assert len(asyncio.all_tasks()) == 1  # cancelling it leaves no request behind

    asyncio.run(run())
    assert begun == [0, 1, 2]


@given(
    st.lists(st.text(max_size=5), min_size=1, max_size=8),
    st.lists(st.integers(1, 40), max_size=30),
    st.lists(st.integers(1, 25), max_size=30),
    st.booleans(),
)
def test_an_event_has_the_time_of_its_last_byte_however_it_was_cut(texts, chunks, pieces, crlf):
    end = b"\r\n\r\n" if crlf else b"\n\n"
    events = [b"data: " + json.dumps({"text": text}).encode() + end for text in texts]
    body, raw = b"".join(events), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    where = {}  # offset in the body -> in the raw bytes
    for begin, stop in pairwise(
        sorted({0, len(body), *(x for x in accumulate(chunks) if x < len(body))})
    ):
        raw += f"{stop - begin:x}\r\n".encode()
        where |= {at: len(raw) + at - begin for at in range(begin, stop)}
        raw += body[begin:stop] + b"\r\n"
    raw += b"0\r\n\r\n"
    cuts = sorted({0, len(raw), *(x for x in accumulate(pieces) if x < len(raw))})
    reply = Reply(0.0, [(float(stop), raw[begin:stop]) for begin, stop in pairwise(cuts)])
    found = reply.events()
    assert [data["text"] for _, data in found] == texts and reply.body == body
    for (at, _), end_of in zip(found, accumulate(map(len, events)), strict=True):
        assert at == min(cut for cut in cuts if cut > where[end_of - 1])


def test_a_sweep_of_a_server_has_the_tokens_of_its_log(serve):
    url = serve().url
    found = sweep(endpoint(f"{url}/v1/"), SMALL, rates=[50, 200], slo="ttft<60s")
    assert [len(point.rows) for point in found.points] == [5, 5]
    arrived = Client(url).trace().of(RequestArrived)[2:]  # after those that were sent alone
    for point in found.points:
        for row, one in zip(point.rows, SMALL.at(point.rate).inputs, strict=True):
            assert not row.error and row.scheduled <= row.sent <= row.first <= row.last
            assert row.output_tokens == one.params.max_tokens == len(row.gaps) + 1
            assert sum(row.gaps) == pytest.approx(row.last - row.first)
        assert point.attained == 1.0
    asked = [one.prompt for rate in (50, 200) for one in SMALL.at(rate).inputs]
    assert sorted(event.prompt for event in arrived) == sorted(asked)


def test_rejected_requests_are_rows_with_the_reason(serve):
    url = serve(engine={"max_kv_tokens": 64}).url
    only_long = Load(requests=3, seconds=0, prompt=uniform(200, 200), output=uniform(2, 2))
    with raises_naming(SweepError, "HTTP 400", "max_kv_tokens"):
        sweep(endpoint(url), only_long)
    with raises_naming(SweepError, "HTTP 400", "prompt"):
        sweep(endpoint(url, body={"prompt": None}), SMALL)
    with raises_naming(SweepError, "no server answers"):
        endpoint("http://127.0.0.1:1")
    rows = endpoint(url, timeout_s=0)(SMALL.at(1000), 1000)
    assert all("TimeoutError" in row.error for row in rows)


def test_the_command_measures_a_server_and_the_simulator_with_one_load(serve, tmp_path):
    url, out = serve().url, tmp_path / "server.jsonl"
    asked = ("--requests", "4", "--seconds", "0", "--output-tokens", "2-5", "--rates", "40,80")
    done = invoke("sweep", url, *asked, "--slo", "ttft<60s", "--out", out)
    assert done.returncode == 0, done.stderr
    assert_names(done.stdout, "Usable capacity: 80", "100.0%", "fewer than 100 requests")
    assert_names(done.stderr, "40 requests/s offered", "80 requests/s offered")
    kept = Sweep.load(out)
    assert [len(point.rows) for point in kept.points] == [4, 4]
    done = invoke("sweep", "simulator", "--machine", url, "--against", out)
    assert_names(done.stdout, "40", "80", "median", "ttft p99", "second against first")
    done = invoke(
        "sweep", "simulator", "token_budget=32", "--rates", "9", "--json", "--requests", "5"
    )
    found = json.loads(done.stdout)
    assert [point["rate"] for point in found["points"]] == [9] and found["load"]["requests"] == 5


@pytest.mark.parametrize("arguments, facts", [
    (["ftp://here"], ["TARGET", "ftp://here"]),
    (["--rates", "1,x"], ["--rates", "1,x"]),
    (["--slo", "fast"], ["slo", "fast"]),
    (["--prompt-tokens", "9-3"], ["--prompt-tokens", "9-3"]),
    (["simulator", "token_budget=0"], ["token_budget"]),
    (["simulator", "--model", "m"], ["--model", "simulator"]),
    (["http://127.0.0.1:1", "token_budget=32"], ["settings", "simulator"]),
    (["http://127.0.0.1:1", "--body", "[1"], ["--body", "[1"]),
    (["--against", "none.jsonl"], ["none.jsonl"]),
    (["--trace", "none.jsonl"], ["none.jsonl"]),
])  # fmt: skip
def test_a_wrong_option_is_refused_in_one_line(arguments, facts):
    done = invoke("sweep", *arguments)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert_names(done.stderr, *facts)
    assert not re.search("Traceback", done.stderr)
