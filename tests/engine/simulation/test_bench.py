"""The bench for schedulers: it judges differences, not noise, and its figures are those of the log."""

import gzip
from pathlib import Path

import pytest

from engine import Cost, EngineConfig, Policy, simulate
from engine.core.log import vocabulary as v
from engine.simulation import bench as b
from engine.simulation.capacity.slo import Slo
from engine.simulation.traces import Trace, TracedRequest, TraceError, read_trace, trace_of
from tests.facts import assert_names, raises_naming
from tests.server.console import invoke, refused

NAMES = [column.name for column in b.COLUMNS]
TRACE = Trace("even", [TracedRequest(90.0 * at, 20 + at % 7 * 8, 40 + at % 5 * 10, [], 1, "ab"[at % 2])
                       for at in range(120)])  # fmt: skip


class Oldest(Policy):
    """Preempt the request that has been running for longest, which loses the most."""

    def victim(self, running, needed_by):
        return running[0]


OLDEST = b.Candidate("oldest", Oldest)


def target(**settings: int) -> b.Target:
    sizes = {"token_budget": 128, "max_batch_size": 16, "max_kv_tokens": 640, "block_size": 16}
    return b.Target("t", EngineConfig.like("vllm", **(sizes | settings)), lambda: Cost(10, 0.25))


def test_a_policy_does_not_differ_from_itself_and_a_worse_one_is_told() -> None:
    pair = [b.candidate("fcfs"), OLDEST]
    ran, sizes = list[int](), {"loads": [4], "windows": 4, "requests": 30, "max_tokens": 128}
    every = [pair[0], b.Candidate("again", Policy), OLDEST]
    judged = b.bench(
        every, [TRACE], target=target(), progress=lambda *one: ran.append(one[0]), **sizes
    )
    (cell,) = judged.cells
    assert {cell.against_first("again", at) for at in range(len(NAMES))} == {(0, 0, 0)}
    found = cell.against_first("oldest", NAMES.index("recomputed, %"))
    assert found is not None and found.low > 0, found
    for verdict, facts in zip(
        judged.verdicts(cell), (["again", "equal"], ["worse in", found]), strict=True
    ):
        assert_names(verdict, *facts)
    one, other = (len(log.of(v.Preempted)) for log in b.parting(judged, cell, TRACE, pair, 128))
    assert one != other and ran == [*range(13)]


def test_measures_are_those_of_a_count_by_hand() -> None:
    """One seat, two requests at once: a prompt of 8 tokens takes 12 ms, a further token 10.25 ms."""
    machine = target(max_batch_size=1)
    two = Trace("two", [TracedRequest(0, 8, 3, [], 1, name) for name in "ab"])
    window = two.workload(max_tokens=9)
    alone = [b.alone_ms(one, machine) for one in b.arrivals(window)]
    assert alone == [32.5, 32.5]
    log = b.serve(b.candidate("fcfs"), window, 1e6, machine)
    found = dict(zip(NAMES, b.measured(log, 1e6, Slo.parse("ttft<20ms"), alone), strict=True))
    assert found["goodput, 1/s"] == pytest.approx(1 / 0.065)  # the second TTFT is 44.5 ms
    assert found["tokens/s"] == pytest.approx(6 / 0.065)
    assert found["fairness"] == pytest.approx(1.5**2 / 2 / 1.25)  # their speeds are 1 and 1/2
    log = b.serve(OLDEST, TRACE.workload(max_tokens=128), 50, target())
    positions = [(row.request, row.start + at) for event in log.of(v.StepScheduled)
                 for row in event.rows for at in range(row.count)]  # fmt: skip
    again = len(positions) - len({*positions})
    assert b.computed_tokens(log) == (len(positions), again) and again > 0


@pytest.mark.parametrize(
    "name, mean", [("azure_conv", 1150), ("azure_code", 2005), ("mooncake", 1748)]
)
def test_built_in_traces_are_read_and_a_log_has_its_requests(name: str, mean: int) -> None:
    found = read_trace(name)
    assert sum(one.prompt_tokens for one in found.requests) // len(found.requests) == mean
    window = read_trace(name, shrink=16).workload(5, 4, max_tokens=None)
    log = simulate(window, target(max_kv_tokens=16384).config, cost=Cost(10, 0.25))
    one, other = (
        [(len(arrival.prompt), arrival.params.max_tokens) for arrival in b.arrivals(workload)]
        for workload in (window, trace_of(log, "log").workload(max_tokens=None))
    )
    assert one == other


@pytest.mark.parametrize("text, facts", [
    ("a,b\n1,2", ["trace.csv", "ContextTokens", "a,b"]),
    ("0,5,x", ["line", 2, "x"]),
    ("9,5,5\n3,5,5", ["line", 3]),
    ("0,-1,5", ["line", 2, "prompt_tokens"]),
    ("0,7,0", ["no request"]),
    ('{"chat_id": 1, "input_length": 3}', ["line", 1, "timestamp"]),
])  # fmt: skip
def test_a_wrong_line_is_named(text: str, facts: list, tmp_path: Path) -> None:
    head = "Timestamp,Request tokens,Response tokens\n" if text[0].isdigit() else ""
    (tmp_path / "trace.csv").write_text(head + text)
    with raises_naming(TraceError, *facts):
        read_trace(tmp_path / "trace.csv")


def test_other_formats_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    own = b"at_s,prompt_tokens,output_tokens,tenant\n5,30,4,A\n6,8,0,B\n6,0,0,B\n7,8,2,B\n"
    path.write_bytes(gzip.compress(own))
    found = read_trace(path)
    assert [one[:3] + one[5:] for one in found.requests] == [(0, 30, 4, "A"), (2000, 8, 2, "B")]
    assert found.failed == 2
    line = '{"chat_id":7,"timestamp":6.1,"input_length":20,"output_length":3,"hash_ids":[%s]}\n'
    path.write_text(line % "4, 5" + line % "4, 6")
    one, other = (arrival.prompt for arrival in b.arrivals(read_trace(path).workload()))
    assert len(one) == 20 and one[:16] == other[:16] and not {*one[16:]} & {*other[16:]}


def test_the_command_takes_a_policy_from_a_file_and_names_mistakes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from engine import Policy\nclass Mine(Policy): pass\nNo = 1")
    mine, page = f"{tmp_path / 'mine.py'}:Mine", tmp_path / "page.html"
    small = "--windows 2 --requests 3 --loads 1 --shrink 8 --html".split()
    done = invoke("bench", "fcfs", mine, "fcfs+watermark=0.05", *small, str(page))
    assert done.returncode == 0, done.stderr
    assert_names(done.stdout, "azure_conv", "Mine", "fcfs+watermark=0.05", "goodput")
    assert "azure_conv at 1" in page.read_text("utf-8")
    for words, facts in [
        (["slowest"], ["slowest", "lcf"]),
        ([mine.replace("Mine", "No")], ["No", "Policy"]),
        (["fcfs", "max_kv_tokens=64"], ["max_kv_tokens", 2048]),
        (["fcfs", "--trace", "none.csv"], ["--trace", "none.csv", "mooncake"]),
        (["fcfs", "--requests", "999"], ["azure_conv", 3000]),
    ]:
        refused(invoke("bench", *words), *facts)
