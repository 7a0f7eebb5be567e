"""Points, seeds and runs. The template has 0 points, our solution 100; parts see only the present."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import CostRunner
from engine.simulation.workload import Arrival
from project import scoring
from project.learner import PARTS, MineError, Source
from project.runs import Run, serve, worst_request
from project.scoring import OURS, Result, hidden_seeds, score, total
from project.workloads import WORKLOADS, Kind
from tests.facts import assert_names, raises_naming
from visualizer import read

TEMPLATE = Path(scoring.__file__).parent / "template.py"
SMALL = tuple(replace(kind, requests=40) for kind in WORKLOADS)
RUSH = SMALL[2]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "WORKLOADS", SMALL)


def result(yours: list[float], starved: int = 0, ours_starved: int = 0) -> Result:
    return Result(
        WORKLOADS[0],
        [Run(one, starved, 0) for one in yours],
        [Run(100.0, 0, 0)] * 5,
        [Run(200.0, ours_starved, 0)] * 5,
    )


def test_the_template_has_a_stub_of_every_part():
    source = Source.read(TEMPLATE)
    assert source.load().parts == {}
    assert source.load().settings == {}
    names: dict[str, Any] = {}
    exec(source.code, names)
    assert set(PARTS) == {name for name, value in names.items() if callable(value)}


def test_the_template_has_no_points_and_our_solution_has_a_hundred(soak, request):
    if not soak:
        request.getfixturevalue("small")
    assert [one.points for one in score(Source.read(TEMPLATE))] == [0, 0, 0]
    results = score(Source.read(OURS))
    assert [one.points for one in results] == [100, 100, 100]
    assert total(results) == 100


@pytest.mark.parametrize(
    ("yours", "starved", "ours_starved", "points"),
    [
        ([100, 150, 0, 150, 300], 0, 0, 33.3),  # (100 + 150 + 150) / 3, the median of 0, 150, 300
        ([50] * 5, 0, 0, 0),
        ([500] * 5, 0, 0, 130),
        # Starved requests cost points beyond those of our solution.
        ([200] * 5, 3, 0, 94),
        ([200] * 5, 3, 2, 98),
        ([200] * 5, 0, 2, 100),
        ([100] * 5, 3, 0, 0),
    ],
)
def test_points_are_the_share_of_the_way_from_the_defaults_to_our_solution(
    yours, starved, ours_starved, points
):
    assert result(yours, starved, ours_starved).points == pytest.approx(points)


def test_the_total_is_half_the_mean_and_half_the_minimum():
    results = [result([value] * 5) for value in (200, 180, 110)]
    assert total(results) == pytest.approx((190 / 3 + 10) / 2, abs=0.05)


def test_an_edit_draws_other_hidden_seeds(monkeypatch):
    seeds = hidden_seeds(Source("mine.py", "SETTINGS = {}\n"))
    assert len(set(seeds)) == 3
    assert seeds == hidden_seeds(Source("elsewhere.py", "SETTINGS = {}\n"))
    assert not set(seeds) & set(hidden_seeds(Source("mine.py", "SETTINGS = {} \n")))
    monkeypatch.setenv("UNDERGLASS_SEED", "autumn")
    final = hidden_seeds(Source("mine.py", "SETTINGS = {}\n"))
    assert not set(seeds) & set(final)
    assert final == hidden_seeds(Source("mine.py", "SETTINGS = {} \n"))  # the same for everyone


def test_line_endings_of_another_system_are_the_same_file(tmp_path):
    for name, text in {"unix.py": b"A = 1\nB = 2\n", "windows.py": b"A = 1\r\nB = 2\r\n"}.items():
        (tmp_path / name).write_bytes(text)
    unix, windows = (Source.read(tmp_path / name) for name in ("unix.py", "windows.py"))
    assert unix.sha == windows.sha


@pytest.mark.usefixtures("small")
def test_a_part_that_throws_dice_is_found():
    dice = Source("mine.py", "import random\ndef order(request): return random.random()\n")
    with raises_naming(MineError, "rush", 1, "random"):
        score(dice)


def test_the_worst_request_comes_with_its_reason():
    log = serve(Source.read(TEMPLATE), RUSH, 1)
    worst = int(read(log).requests.ttft_ms.idxmax())
    assert_names(worst_request(log), worst, read(log).requests.label[worst], "Step")


SPY = """
import builtins

note = builtins.note

def order(request):
    note("order", request)
    return request.id

def admit(waiting, *limits):
    note("admit", waiting, limits)
    return [row[0] for row in waiting]

def victim(running, needed_by):
    note("victim", running, needed_by)
    return running[-1][0]

def choose_leaf(nodes):
    note("choose_leaf", nodes)
    leaves = [node for node in nodes if node[0] and not node[1] and not node[2]]
    return min(leaves, key=lambda node: node[3])[0]
"""


class Notes:
    """The calls of a spy's parts, each with the time in ms."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Any]] = []

    def runner(self, *prices: float) -> CostRunner:
        self.calls, self.clock = [], (runner := CostRunner(*prices)).clock
        return runner

    def note(self, *call: Any) -> None:
        self.calls.append((self.clock.now() / 1000, deepcopy(call)))


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    made = Notes()
    monkeypatch.setattr("builtins.note", made.note, raising=False)
    monkeypatch.setattr("project.runs.CostRunner", made.runner)
    return made


@pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.name)
def test_a_part_sees_neither_the_future_nor_the_length_of_an_answer(kind, notes, monkeypatch):
    """With another future after a moment, the parts see the same until then."""
    moment, spy, workload = 1000, Source("spy.py", SPY), kind.workload(1)
    tokens = read(serve(spy, kind, 1)).tokens
    first = [call for at, call in notes.calls if at <= moment]
    assert {name for name, *_ in first} >= {"order", "admit"}
    so_far = tokens[tokens.time_ms <= moment].groupby("request").size()
    arrivals = [one for one in workload.inputs if isinstance(one, Arrival)]
    unfinished = [
        one
        for number, one in enumerate(arrivals, 1)
        if so_far.get(number, 0) < one.answers[0].length
    ]
    for one in unfinished:
        one.answers = {}  # it goes on to its limit
    workload.inputs = [one for one in workload.inputs if one.at_ms <= moment]
    monkeypatch.setattr(Kind, "workload", lambda *_: workload)
    serve(spy, kind, 1)
    assert [call for at, call in notes.calls if at <= moment] == first
    assert 0 < len(workload.inputs) < len(arrivals) and unfinished


def test_a_part_gets_plain_values(notes):
    serve(Source("spy.py", SPY), RUSH, 1)

    def check(value: Any) -> None:
        if isinstance(value, list | tuple):
            for one in value:
                check(one)
        else:
            assert type(value) in (int, float, str)

    assert {call[0] for _, call in notes.calls} == {"order", "admit", "victim", "choose_leaf"}
    check([call for _, call in notes.calls])


def test_a_part_remembers_nothing_of_an_earlier_run(notes):
    counting = Source(
        "mine.py",
        "import builtins\nCALLS = []\n"
        "def order(request):\n"
        "    CALLS.append(request)\n"
        "    builtins.note(len(CALLS))\n"
        "    return 0\n",
    )
    for _ in range(2):
        serve(counting, RUSH, 1)
        assert notes.calls[0][1] == (1,)


@pytest.mark.parametrize("kind", WORKLOADS, ids=lambda kind: kind.name)
def test_a_limit_does_not_tell_the_length_of_an_answer(kind):
    lengths: dict[tuple[str, int], set[int]] = {}
    for one in kind.workload(1).inputs:
        assert one.answers[0].length <= one.params.max_tokens
        client = one.label.split()[0], one.params.max_tokens
        lengths.setdefault(client, set()).add(one.answers[0].length)
    assert len({label for label, _ in lengths}) == len(lengths)  # one limit for each kind of client
    assert all(len(found) >= 8 for found in lengths.values())
