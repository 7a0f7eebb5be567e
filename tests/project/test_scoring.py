"""Points, seeds and runs. The template has 0 points, our solution 100; parts see only the present."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.simulation.workload import Answer
from project import parts, scoring
from project.learner import EXACT, FREE, PARTS, Mine, MineError, Source
from project.process import Process
from project.runs import Run, serve
from project.scoring import BARE, OURS, Result, checks, hidden_seeds, references, score, total
from project.workloads import END, WORKLOADS, Kind
from tests.facts import assert_names, raises_naming
from tests.project.test_gates import solution
from visualizer import read

TEMPLATE = Path(scoring.__file__).parent / "template.py"
SMALL = tuple(replace(kind, requests=40) for kind in WORKLOADS)
RUSH = SMALL[2]
LESSONS = [name for name, lesson in PARTS.items() if lesson.isdigit()]


def result(yours: list[float], starved: int = 0, ours_starved: int = 0) -> Result:
    runs = [Run(one, starved, 0) for one in yours]
    return Result(RUSH, runs, [Run(100.0, 0, 0)] * 3, [Run(200.0, ours_starved, 0)] * 3)


def points_of(mine: Mine, kind: Kind, seed: int = 1) -> float:
    bare, best = references(kind, seed)
    return Result(kind, [serve(mine, kind, seed).measure()], [bare], [best]).points


def lessons(*without: str) -> Mine:
    """The lessons' own solutions, called directly."""
    free: dict[str, Any] = {}
    exec("\n".join(solution(PARTS[name]) for name in FREE if name in LESSONS), free)
    found = [name for name in LESSONS if name not in without]
    return scoring.Trusted({}, {name: free[name] if name in FREE else None for name in found})


def test_the_template_has_a_stub_of_every_part():
    source = Source.read(TEMPLATE)
    assert source.load().parts == {}
    assert source.load().settings == {}
    names: dict[str, Any] = {}
    exec(source.code, names)
    assert set(PARTS) == {name for name, value in names.items() if callable(value)}


def test_the_template_has_no_points(monkeypatch):
    monkeypatch.setattr(scoring, "WORKLOADS", SMALL[::3])
    assert [one.points for one in score(Source.read(TEMPLATE))] == [0, 0, 0]


def test_the_lessons_reach_half_and_settings_nearly_nothing(soak):
    """`make soak` prints the table: the lessons' parts, each one missing, settings only."""
    kinds = WORKLOADS if soak else WORKLOADS[2:4]
    assert [points_of(OURS, kind) for kind in kinds] == [100] * len(kinds)
    points = [points_of(lessons(), kind) for kind in kinds]
    assert 30 < total(points) < 70
    for name in LESSONS if soak else ():
        row = [points_of(lessons(name), kind) for kind in kinds]
        print(f"{name:18}", *(f"{one:6.1f}" for one in row))
        assert total([*row, checks([*{*LESSONS} - {name}])]) < total([*points, 100]) - 0.5
    for policy in ("sjf", "priority"):
        assert total([points_of(Mine({"policy": policy}, {}), kind) for kind in kinds]) < 25


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for kind in WORKLOADS for name in kind.uses if name in EXACT or name == "route"],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_each_ability_comes_from_its_part(name, kind):
    short = replace(kind, requests=25)
    assert serve(lessons(name), short, 1).times != serve(lessons(), short, 1).times


@pytest.mark.parametrize(
    ("yours", "starved", "ours_starved", "points"),
    [
        ([100, 150, 200], 0, 0, 50),
        ([50] * 3, 0, 0, 0),
        ([500] * 3, 0, 0, 130),
        # Starved requests cost points beyond those of our solution.
        ([200] * 3, 3, 0, 94),
        ([200] * 3, 3, 2, 98),
        ([200] * 3, 0, 2, 100),
        ([100] * 3, 3, 0, 0),
    ],
)
def test_points_are_the_share_of_the_way_from_no_parts_to_our_solution(
    yours, starved, ours_starved, points
):
    assert result(yours, starved, ours_starved).points == pytest.approx(points)


def test_an_edit_draws_other_hidden_seeds(monkeypatch):
    seeds = hidden_seeds(Source("mine.py", "SETTINGS = {}\n"))
    assert len(set(seeds)) == 2
    assert seeds == hidden_seeds(Source("elsewhere.py", "SETTINGS = {}\n"))
    assert not set(seeds) & set(hidden_seeds(Source("mine.py", "SETTINGS = {} \n")))
    monkeypatch.setenv("UNDERGLASS_SEED", "autumn")
    final = hidden_seeds(Source("mine.py", "SETTINGS = {}\n"))
    assert not set(seeds) & set(final)
    assert final == hidden_seeds(Source("mine.py", "SETTINGS = {} \n"))  # the same for everyone


def test_a_part_that_throws_dice_is_found(monkeypatch):
    monkeypatch.setattr(scoring, "WORKLOADS", SMALL[:1])
    dice = Source("mine.py", "import random\ndef order(request): return random.random()\n")
    with raises_naming(MineError, "assistants", 1, "random"):
        score(dice)


def test_the_worst_request_comes_with_its_reason():
    served = serve(BARE, RUSH, 1)
    worst = int(read(served.log).requests.ttft_ms.idxmax())
    assert_names(served.worst_request(), worst, served.requests[worst - 1].label, "Step")
    assert_names(serve(BARE, SMALL[6], 1).worst_request(), "guide", "Step")  # of a cluster


class Notes(Mine):
    """Parts that decide as ours, and note their calls, each with the time in ms."""

    def __init__(self) -> None:
        super().__init__({}, dict(OURS.parts))
        self.calls: list[tuple[float, Any]] = []

    def guarded(self, name: str) -> Any:
        part = self.parts[name]
        return part and (lambda *call: self.calls.append(self.note(name, call)) or part(*call))

    def note(self, *call: Any) -> tuple[float, Any]:
        return parts.seen_ms(), deepcopy(call)


def longer(answer: Answer) -> Answer:
    return Answer(answer.length + 1, answer.ids and [*answer.ids[:-1], ord("a"), END])


@pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.name)
def test_a_part_sees_neither_the_future_nor_the_length_of_an_answer(kind, monkeypatch):
    """With another future after a moment, the parts see the same until then."""
    moment, notes, arrivals = 600, Notes(), kind.arrivals(1)
    served = serve(notes, kind, 1)
    first = [call for at, call in notes.calls if at <= moment]
    assert {name for name, _ in first} >= {"order", "admit"}
    changed = deepcopy([one for one in arrivals if one.at_ms <= moment])
    unfinished = [
        one for number, one in enumerate(changed, 1) if max(served.times[number]) > moment
    ]
    for one in unfinished:
        one.answers[0] = longer(one.answers[0])
    monkeypatch.setattr(Kind, "arrivals", lambda *_: changed)
    again = Notes()
    serve(again, kind, 1)
    assert [call for at, call in again.calls if at <= moment] == first
    assert len(changed) < len(arrivals) and unfinished


def test_a_part_remembers_nothing_of_an_earlier_run():
    counting = "CALLS = []\ndef order(request):\n    CALLS.append(1)\n    return len(CALLS)\n"
    with Process(Source("mine.py", counting)) as process:
        logs = [serve(process.load(), RUSH, 1).log.deterministic() for _ in range(2)]
    assert logs[0] == logs[1]
