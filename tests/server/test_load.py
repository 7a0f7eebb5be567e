"""`benchmarks/load` on small counts: whatever happens, nothing is lost and nothing stays."""

import asyncio
from pathlib import Path

from benchmarks.load import faults, leavers, overload, slow_readers, streams
from tests.server.harness import Serve

ROOM = {"max_kv_tokens": 16_384, "token_budget": 512}


def test_many_streams_are_complete_and_have_the_tokens_they_have_alone(serve: Serve) -> None:
    url = serve(engine=ROOM | {"max_batch_size": 16}).url
    figures = asyncio.run(streams.measure(url, count=60, max_tokens=24))
    assert (figures["complete"], figures["differ"]) == (60, 0)


def test_under_overload_admitted_requests_finish_and_the_others_get_429(serve: Serve) -> None:
    url = serve(engine=ROOM | {"max_batch_size": 2}, server={"max_waiting": 4}).url
    figures = asyncio.run(overload.measure(url, count=60, max_tokens=100))
    assert figures["other"] == 0
    assert figures["complete"] >= 4
    assert figures["refused"] > 0


def test_of_clients_that_leave_at_random_moments_nothing_stays(serve: Serve) -> None:
    server = serve(engine=ROOM | {"max_batch_size": 8})
    figures = asyncio.run(
        leavers.measure(server.url, server.process.pid, count=90, at_once=30, seconds=0.05)
    )
    assert (figures["held"], figures["live"], figures["sockets"]) == (0, 0, 0)
    assert figures["next_is_unaffected"]


def test_streams_beside_slow_readers_are_complete(serve: Serve) -> None:
    url = serve(engine=ROOM | {"max_batch_size": 32}).url
    replies = asyncio.run(slow_readers.beside(url, 5, 10, slow=True, max_tokens=24))
    assert [len(reply.tokens()) for reply in replies] == [24] * 5


def test_what_clients_see_of_a_forward_pass_that_raises(serve: Serve) -> None:
    figures = asyncio.run(faults.raising(serve().url))
    assert figures.pop("next_ms") > 0
    assert figures == {
        "teaching stream": "200: 3 tokens, forward_pass_failed",
        "stream": "200: forward_pass_failed, then [DONE]",
        "whole": "500: forward_pass_failed",
        "next_complete": True,
        "held": 0,
    }


def test_what_clients_see_of_one_that_hangs(serve: Serve, gate: Path) -> None:
    url = serve(gate=gate, server={"stuck_seconds": 0.2}).url
    figures = asyncio.run(faults.hanging(url, gate, returns_after=0))
    assert figures["in it"] == "200: engine_stuck"
    assert {figures[f"behind it, {form}"] for form in faults.FORMS} == {"503: engine_stuck"}
    assert (figures["meanwhile"], figures["/ready"]) == ("503: engine_stuck", "503")
    assert (figures["next_complete"], figures["held"]) == (True, 0)


def test_sigterm_under_load_cuts_no_stream(serve: Serve) -> None:
    server = serve(engine=ROOM | {"max_batch_size": 4})
    figures = asyncio.run(faults.sigterm(server, count=40, max_tokens=400))
    assert (figures["complete"], figures["exit_code"]) == (40, 0)
    assert figures["refused_meanwhile"] == "503: shutdown"


def test_after_kill_the_trace_has_what_clients_have_seen(serve: Serve, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    server = serve(engine=ROOM | {"max_batch_size": 16}, trace_file=str(trace))
    figures = asyncio.run(faults.killed(server, trace, count=8))
    assert figures["events"] > 10
    assert figures["seen_but_not_in_trace"] == 0
