"""The checks of `benchmarks/chaos` find each broken promise that is planted."""

from dataclasses import replace

import msgspec
import pytest

from benchmarks.chaos.checks import check_answers, check_kv, check_log
from benchmarks.chaos.traffic import Answer, Outcome, Question, seen
from engine import Cost, Workload, simulate_cluster
from engine.cluster import events as c
from engine.core.log import vocabulary as v
from engine.simulation.workload import Arrival
from server.load.client import Reply

LABELS = ["client-0", "client-1"]
ASKED, ANSWER = Question("teaching", "/v1/completions", "{}"), Answer(("ab",), ("length",))
GOOD = Outcome("", ASKED, 0.0, 1.0, kind="complete", status=200, ends=1, answer=ANSWER)
ARRIVALS = [Arrival(prompt=[97] * 9, at_ms=0, label=label) for label in LABELS]
LOG = list(simulate_cluster(Workload(ARRIVALS), cost=Cost(10, 1), router="round_robin"))
STREAM = b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {"token":"ab"}\n\n'
END = b'data: {"done":true,"full_text":"ab","finish_reason":"length"}\n\n'
WRONG = {
    "answered twice": replace(GOOD, ends=2),
    "hangs": replace(GOOD, kind="hung", answer=None),
    "cut off": replace(GOOD, kind="cut"),
    "failed": replace(GOOD, kind="error"),
    "refused": replace(GOOD, kind="refused", status=503),
    "another answer": replace(GOOD, answer=Answer(("ac",), ("length",))),
    "too long a silence": replace(GOOD, silence=9.0),
}


@pytest.mark.parametrize("what", WRONG)
def test_answer_that_breaks_a_promise_is_found(what):
    found = check_answers([GOOD, WRONG[what]], {ASKED: ANSWER}, longest_silence=5.0)
    assert [one.what for one in found] == [what]
    assert check_kv({"0": None}) and not check_kv({})


@pytest.mark.parametrize(("end", "kind"), [(END, "complete"), (b"", "cut"), (END + END, "cut")])
def test_stream_is_complete_if_it_ends_once(end, kind):
    outcome = seen("", ASKED, Reply(0.0, [(0.5, STREAM + end)]), 0.0)
    assert (outcome.kind, outcome.ends, outcome.silence) == (kind, end.count(b"done"), 0.5)


def test_log_that_breaks_a_promise_is_found():
    def found(events: list[c.ClusterEvent]) -> list[str]:
        data = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
        outcomes = [replace(GOOD, label=label) for label in LABELS]
        return [one.what for one in check_log([data], outcomes)[1]]

    first, second = (one for one in LOG if isinstance(one, c.Placed))
    [routed, _] = (one for one in LOG if isinstance(one, c.Routed))
    lost = next(one for one in LOG if isinstance(one, c.Of) and type(one.event) is v.Admitted)
    again = msgspec.structs.replace(routed, attempt=2)
    twice = c.Placed(first.request, second.replica, second.its_request)
    at = LOG.index(second) + 1
    assert found(LOG) == []
    assert found([one for one in LOG if one is not first]) == ["the log is not complete"]
    assert found([one for one in LOG if one is not lost]) == ["the log cannot be folded"]
    assert found([*LOG, again]) == ["routed again without a reason"]
    assert found([*LOG[:at], twice, *LOG[at:]]) == ["finished twice"]
