"""The tour of a comparison: which run took longer, where they part, and what limited each."""

from typing import TYPE_CHECKING

from engine.core.log import EventLog
from visualizer import read
from visualizer.logs import StepIndex
from visualizer.reading.busy_time import busy_us
from visualizer.reading.tour.claims import Claim, Facts, sentence
from visualizer.reading.tour.material import Material
from visualizer.reading.tour.memory import the_preemption
from visualizer.reading.tour.scene import Bar, Scene, Tour
from visualizer.reading.tour.waiting import the_queue

if TYPE_CHECKING:
    from visualizer.comparing.compared_runs import ComparedRuns

_OF_A_RUN = (the_queue, the_preemption)


def tour_of_comparison(of: "ComparedRuns") -> Tour:
    """Return the tour of two compared runs; the scenes of one run are headed by its name."""
    told = [_totals(of), _fork(of), _most_changed(of)]
    for make in _OF_A_RUN:
        for run, log in enumerate(of.logs):
            scene = make(Material(log, of.names_of(run)))
            told.append(scene and scene.of_run(run, of.names[run]))
    return Tour([scene for scene in told if scene is not None])


def _facts(of: "ComparedRuns", run: int) -> Facts:
    return Facts(of.names_of(run), "us", {"run": run})


def _size(of: "ComparedRuns", run: int) -> Claim:
    """Return how long a run was busy; of a log without times, its number of steps."""
    log: EventLog = of.logs[run]
    busy = busy_us(log)[0]
    if all(busy_us(one)[0] for one in of.logs):
        return _facts(of, run).time("busy time", busy)
    return _facts(of, run).number("steps", len(StepIndex(log).ends), "step")


def _totals(of: "ComparedRuns") -> Scene | None:
    """Tell how long each run was busy."""
    if any(read(log).knowledge.lacks("step_times") for log in of.logs):
        return None
    sizes = [_size(of, run) for run in (0, 1)]
    both = [(_facts(of, run).said("name", of.names[run]), sizes[run]) for run in (0, 1)]
    said = [sentence("In {}, the steps take {}; in {}, {}.", *both[0], *both[1])]
    change = int(sizes[1].value) - int(sizes[0].value)
    longer, verdict = (1 if change > 0 else 0), of.better_busy
    if not change:
        said.append(sentence("The two are equal."))
    elif verdict in ("noise", "unknown"):
        words = {
            "noise": "That is too little to tell the two apart",
            "unknown": "How much such times vary is unknown",
        }
        said.append(sentence("{}.", _facts(of, 0).said("better", verdict, words[verdict])))
    bars = [
        Bar(of.names[run], int(sizes[run].value), sentence("{}", sizes[run]), run == longer)
        for run in (0, 1)
    ]
    return Scene(kind="totals", title="both runs", sentences=said, panel="bars", bars=tuple(bars))


def _fork(of: "ComparedRuns") -> Scene:
    """Tell in which step the runs part."""
    found = of.difference
    if found is None:
        same = _facts(of, 0).said("difference", "", of.verdict)
        return Scene(
            kind="fork", title="no decision differs", sentences=[sentence("{}", same)], panel="run"
        )
    step = _facts(of, 0).step("fork", found.step)
    words = (
        "The first decision that differs is in {}." if found.step > 1 else "They differ from {} on."
    )
    a, b = found.requests
    return Scene(
        kind="fork",
        title="where they part",
        sentences=[sentence(words, step)],
        step=found.step,
        panel="both",
        requests=() if a is None else (a,),
        twins=() if b is None else (b,),
        question="what differs?",
        why=of.first_difference or "",
    )


def _most_changed(of: "ComparedRuns") -> Scene | None:
    """Tell which request's time changed most."""
    rows = [both for both in of.paired_rows if None not in (both[0].e2e_ms, both[1].e2e_ms)]
    changes = [abs((b.e2e_ms or 0) - (a.e2e_ms or 0)) for a, b in rows]
    if not changes or not max(changes):
        return None
    a, b = rows[changes.index(max(changes))]
    times = [
        _facts(of, run).at(request=row.request).time("e2e", round(1000 * (row.e2e_ms or 0)))
        for run, row in ((0, a), (1, b))
    ]
    name = _facts(of, 0).name("most changed", a.request)
    runs = [_facts(of, run).said("name", of.names[run]) for run in (0, 1)]
    said = [
        sentence("{} takes {} in {} and {} in {}.", name, times[0], runs[0], times[1], runs[1]),
        sentence("No other request changes more."),
    ]
    bars = [
        Bar(
            of.names[run],
            int(times[run].value),
            sentence("{}", times[run]),
            run == int((b.e2e_ms or 0) > (a.e2e_ms or 0)),
        )
        for run in (0, 1)
    ]
    return Scene(
        kind="changed",
        title="the request that changes most",
        sentences=said,
        panel="bars",
        requests=(a.request,),
        twins=(b.request,),
        bars=tuple(bars),
    )
