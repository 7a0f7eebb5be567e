"""The tour of two cluster runs: first tokens, hits, where requests go, and what each run waited for."""

from typing import TYPE_CHECKING

from visualizer.indexed.names import unique_names
from visualizer.reading.tour.claims import Claim, Facts, sentence
from visualizer.reading.tour.cluster import BECAUSE, worst_replica
from visualizer.reading.tour.scene import Bar, Scene, Tour

if TYPE_CHECKING:
    from visualizer.comparing.compared_clusters import ComparedClusters

US_PER_MS = 1000


def tour_of_clusters(of: "ComparedClusters") -> Tour:
    """Return the tour of two compared cluster runs; the scenes of one run are headed by its name."""
    told = [_first_tokens(of), _hits(of), _moved(of), _most_changed(of)]
    for run, log in enumerate(of.logs):
        found = worst_replica(log)[:1]
        told += [scene.of_run(run, of.names[run]) for scene in found]
    return Tour([scene for scene in told if scene is not None])


def _facts(of: "ComparedClusters", run: int) -> Facts:
    names = unique_names({event.request: event.label for event in of.routed(run)})
    return Facts(names, "us", {"run": run})


def _name(of: "ComparedClusters", run: int) -> Claim:
    return _facts(of, run).said("name", of.names[run])


def _both(of: "ComparedClusters", values: list[Claim], *, more: int) -> tuple[Bar, ...]:
    """Return a bar for each run; `more` is the one that is lit."""
    return tuple(
        Bar(of.names[run], float(value.value), sentence("{}", value), run == more)
        for run, value in enumerate(values)
    )


def _first_tokens(of: "ComparedClusters") -> Scene | None:
    """Tell how long the first tokens take in each run, on average and at most."""
    firsts = [of.first_tokens(run) for run in (0, 1)]
    if not all(firsts):
        return None
    means = [
        _facts(of, run).time("mean first token time", round(1000 * sum(times) / len(times)))
        for run, times in enumerate(firsts)
    ]
    worst = [
        _facts(of, run).time("max first token time", round(1000 * max(times)))
        for run, times in enumerate(firsts)
    ]
    names = [_name(of, run) for run in (0, 1)]
    said = [
        sentence(
            "On average, a request gets its first token after {} in {} and after {} in {}.",
            *(means[0], names[0], means[1], names[1]),
        ),
        sentence(
            "At most, it takes {} in {} and {} in {}.",
            worst[0],
            names[0],
            worst[1],
            names[1],
        ),
    ]
    more = int(means[1].value > means[0].value)  # type: ignore[operator]
    bars = _both(of, means, more=more)
    return Scene(kind="totals", title="both runs", sentences=said, panel="bars", bars=bars)


def _hits(of: "ComparedClusters") -> Scene | None:
    """Tell how much of the prompts the caches had in each run."""
    judged = [[row for row in of.rows(run) if row.cached_tokens is not None] for run in (0, 1)]
    prompts = [sum(row.prompt_tokens for row in rows) for rows in judged]
    cached = [sum(row.cached_tokens or 0 for row in rows) for rows in judged]
    if not all(prompts) or not any(cached):
        return None
    said, bars = [], []
    for run in (0, 1):
        facts = _facts(of, run)
        found = facts.number("cached tokens", cached[run])
        whole = facts.number("prompt tokens", prompts[run], "prompt token")
        said.append(sentence("In {}, the caches have {} of {}.", _name(of, run), found, whole))
        bars.append(found)
    more = int(cached[1] / prompts[1] > cached[0] / prompts[0])
    return Scene(
        kind="hits",
        title="what the caches had",
        sentences=said,
        panel="bars",
        bars=_both(of, bars, more=more),
    )


def _moved(of: "ComparedClusters") -> Scene | None:
    """Tell how many requests another replica answers, and how many each replica gets."""
    last = [of.last_rows(run) for run in (0, 1)]
    paired = last[0].keys() & last[1].keys()
    if not paired:
        return None
    moved = sum(last[0][one].replica != last[1][one].replica for one in paired)
    claims = [
        _facts(of, 0).number("paired", len(paired), "request"),
        _facts(of, 0).number("moved", moved),
    ]
    words = "Of {}, {} go to another replica in {} than in {}."
    said = [sentence(words, *claims, _name(of, 1), _name(of, 0))]
    bars = []
    for run in (0, 1):
        rows = last[run].values()
        for replica in sorted({row.replica for row in rows}):
            facts = _facts(of, run).at(replica=replica)
            count = facts.number("answers", sum(row.replica == replica for row in rows), "request")
            name = f"{of.names[run]}: replica {replica}"
            bars.append(Bar(name, float(count.value), sentence("{}", count), run == 1))
    title = "where the requests go"
    return Scene(kind="moved", title=title, sentences=said, panel="bars", bars=tuple(bars))


def _most_changed(of: "ComparedClusters") -> Scene | None:
    """Tell which request's first token moved most, and why each router sent it where it did."""
    last = [of.last_rows(run) for run in (0, 1)]
    changes = {
        one: abs((last[1][one].ttft_ms or 0) - (last[0][one].ttft_ms or 0))
        for one in last[0].keys() & last[1].keys()
        if None not in (last[0][one].ttft_ms, last[1][one].ttft_ms)
    }
    request = max(changes, key=lambda one: (changes[one], -one), default=None)
    if request is None or not changes[request]:
        return None
    rows = [last[run][request] for run in (0, 1)]
    times = [
        _facts(of, run)
        .at(request=request)
        .time("first token time", round(1000 * (rows[run].ttft_ms or 0)))
        for run in (0, 1)
    ]
    name = _facts(of, 0).name("most changed", request)
    words = (
        "{} gets its first token after {} in {} and after {} in {}; no other request changes more."
    )
    said = [sentence(words, name, times[0], _name(of, 0), times[1], _name(of, 1))]
    for run, row in enumerate(rows):
        facts = _facts(of, run).at(request=request)
        reason = facts.said("reason", row.reason, BECAUSE[row.reason])
        where = facts.said("replica", row.replica)
        said.append(
            sentence("In {}, it goes to replica {}, because {}.", _name(of, run), where, reason)
        )
    return Scene(
        kind="changed",
        title="the request that changes most",
        sentences=said,
        panel="bars",
        requests=(request,),
        twins=(request,),
        bars=_both(of, times, more=int(times[1].value > times[0].value)),  # type: ignore[operator]
    )
