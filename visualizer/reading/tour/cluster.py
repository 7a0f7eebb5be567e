"""The tour of a cluster's log: the router's decisions, a lost replica, and where requests waited."""

from collections import Counter
from dataclasses import dataclass

from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog
from visualizer.indexed.names import unique_names
from visualizer.reading.regimes import regimes_of
from visualizer.reading.rows.decisions import DecisionRow, decision_rows
from visualizer.reading.tour.claims import Claim, Facts, capital, sentence, verb
from visualizer.reading.tour.material import Material
from visualizer.reading.tour.memory import the_preemption
from visualizer.reading.tour.scene import Bar, Scene, Tour
from visualizer.reading.tour.waiting import the_queue, the_wait
from visualizer.reading.why.find import request_names

_OF_A_REPLICA = (the_queue, the_preemption, the_wait)
# What the router compared, in words that follow "because".
BECAUSE = {
    "longest_prefix": "the router knows of no longer cached prefix",
    "prefix_on_its_way": "a request on its way there computes the same prefix",
    "lowest_cost": "a longer prefix elsewhere would cost more in all",
    "least_work": "no replica has the prefix, and it has the least work",
    "least_loaded": "no replica has fewer requests",
    "less_loaded_of_two": "the other one that was drawn does not have fewer requests",
    "least_cached": "it has the most room for a new prefix",
    "load_unbalanced": "the loads differ too much for the prefix to count",
    "random": "the router chooses at random",
    "next_in_turn": "it is its turn",
    "pinned": "the session of its client belongs there",
}


@dataclass(frozen=True)
class _Cluster:
    log: ClusterLog
    facts: Facts
    routed: list[c.Routed]
    rows: list[DecisionRow]


def tour_of_cluster(log: ClusterLog) -> Tour:
    """Return the tour of a cluster's log: the router's decisions first, then the busiest replica."""
    routed = [event for event in log if isinstance(event, c.Routed)]
    names = unique_names({event.request: event.label for event in routed})
    of = _Cluster(log, Facts(names, "us"), routed, decision_rows(log))
    told = [_share(of), _largest_hit(of), _passed_over(of), _wrong(of), *_losses(of), _handover(of)]
    return Tour([one for one in told if one is not None] + worst_replica(log))


def _share(of: _Cluster) -> Scene | None:
    """Tell how the router divided the requests."""
    if not of.routed:
        return None
    counts = Counter(event.replica for event in of.routed)
    busiest = max(counts, key=lambda one: counts[one])
    facts, at = of.facts, of.facts.at(replica=busiest)
    replicas = {event.replica for event in of.log if isinstance(event, c.ReplicaJoined)}
    claims = [
        facts.number("decisions", len(of.routed), "decision"),
        facts.number("replicas", len(replicas), "replica"),
    ]
    said = [sentence("The router makes {}, and {} take part in the run.", *claims)]
    name, number = (
        facts.said("busiest", busiest),
        at.some("routed", counts[busiest], len(of.routed)),
    )
    said.append(sentence("Replica {} gets {} of them, and none gets more.", name, number))
    bars = [
        Bar(
            f"replica {one}",
            counts[one],
            sentence("{}", facts.at(replica=one).number("routed", counts[one], "request")),
            one == busiest,
        )
        for one in sorted(replicas | counts.keys())
    ]
    return Scene(
        kind="share",
        title="how the router divides the requests",
        sentences=said,
        panel="bars",
        bars=tuple(bars),
    )


def _because(event: c.Routed) -> str:
    """Return why a replica was chosen, as far as the decision's own numbers say it."""
    if event.reason == "least_loaded" and event.loads.get(event.replica, 0) > min(
        event.loads.values(), default=0
    ):
        return "it costs least there"  # logs of earlier versions called a low score a low load
    return BECAUSE[event.reason]


def _routing(
    of: _Cluster, kind: str, title: str, index: int, more: list[tuple[str | Claim, ...]]
) -> Scene:
    """Tell one decision: where the request went, what was predicted for each replica, and why."""
    event = of.routed[index]
    facts, chosen = of.facts.at(decision=index), event.replica
    name, where = facts.name("routed request", event.request), facts.said("chosen", chosen)
    because = facts.said("reason", event.reason, _because(event))
    said = [sentence("{} goes to replica {}, because {}.", name, where, because), *more]
    bars = []
    for replica in sorted(event.loads | event.hits):
        at = facts.at(replica=replica)
        hit, load = event.hits.get(replica, 0), event.loads.get(replica, 0)
        words = sentence(
            "{} cached, {} there",
            at.number("hit", hit, "token"),
            at.number("load", load, "request"),
        )
        bars.append(Bar(f"replica {replica}", hit, words, replica == chosen))
    return Scene(
        kind=kind,
        title=title,
        sentences=said,
        panel="bars",
        requests=(event.request,),
        bars=tuple(bars),
    )


def _largest_hit(of: _Cluster) -> Scene | None:
    """Tell the decision whose replica was predicted to have the most tokens cached."""
    # A request that goes on elsewhere takes its output along, which is no prompt.
    hits = [0 if event.output else event.hits.get(event.replica, 0) for event in of.routed]
    index = max(range(len(hits)), key=lambda one: (hits[one], -one), default=0)
    if not hits or not hits[index]:
        return None
    event, facts = of.routed[index], of.facts.at(decision=index, replica=of.routed[index].replica)
    hit, prompt = (
        facts.number("hit", hits[index]),
        facts.number("prompt", event.prompt, "prompt token"),
    )
    is_cached = verb(hits[index], "is", "are")
    said = [sentence(f"{{}} of its {{}} {is_cached} predicted to be cached there.", hit, prompt)]
    cached = of.rows[index].cached_tokens
    if cached is not None:
        found = facts.number("cached", cached)
        said.append(sentence(f"When it is admitted, {{}} {verb(cached, 'is', 'are')}.", found))
    return _routing(of, "routing", "a request that follows its prefix", index, said)


def _passed_over(of: _Cluster) -> Scene | None:
    """Tell the decision that gave up the most cached tokens for a replica with less to do."""
    lost = [
        max(event.hits.values(), default=0) - event.hits.get(event.replica, 0)
        if event.loads.get(event.replica, 0) < event.loads.get(_most_cached(event), 0)
        else 0
        for event in of.routed
    ]
    index = max(range(len(lost)), key=lambda one: (lost[one], -one), default=0)
    if not lost or lost[index] <= 0:
        return None
    event, facts = of.routed[index], of.facts.at(decision=index)
    other = _most_cached(event)
    at, its = facts.at(replica=other), facts.at(replica=event.replica)
    claims = [
        facts.said("most cached", other),
        at.number("hit", event.hits[other], "cached token"),
        at.number("load", event.loads.get(other, 0), "request"),
        its.number("load", event.loads.get(event.replica, 0)),
    ]
    said = [sentence("Replica {} has {}, but {} to serve; the chosen one has {}.", *claims)]
    return _routing(of, "passed over", "a prefix that does not decide", index, said)


def _most_cached(event: c.Routed) -> str:
    return max(event.hits, key=lambda one: event.hits[one], default="")


def _wrong(of: _Cluster) -> Scene | None:
    """Tell the prediction that differs most from what the replica found."""
    moved = {event.request for event in of.log if isinstance(event, c.Moved)}
    errors = [
        abs(row.predicted_tokens - row.cached_tokens)
        if row.cached_tokens is not None
        and row.prompt_tokens
        and not row.output_tokens
        and row.request not in moved
        else 0
        for row in of.rows
    ]
    index = max(range(len(errors)), key=lambda one: (errors[one], -one), default=0)
    if not errors or not errors[index]:
        return None
    row, facts = of.rows[index], of.facts.at(decision=index, replica=of.routed[index].replica)
    claims = [
        facts.number("hit", row.predicted_tokens, "token"),
        facts.number("cached", row.cached_tokens or 0),
    ]
    is_cached = verb(row.cached_tokens or 0, "is", "are")
    template = f"The router expects {{}} of its prompt in the cache there, and {{}} {is_cached}."
    return _routing(of, "wrong", "a prediction that is wrong", index, [sentence(template, *claims)])


def _losses(of: _Cluster) -> list[Scene]:
    """Tell which replica leaves first, and what becomes of its requests."""
    left = next((event for event in of.log if isinstance(event, c.ReplicaLeft)), None)
    if left is None:
        return []
    facts = of.facts.at(replica=left.replica)
    lost = len({one.request for one in of.log if isinstance(one, c.RequestLost)})
    again = len({event.request for event in of.routed if event.attempt > 1})
    saved = len({event.request for event in of.routed if event.output})
    said = [
        sentence(
            "Replica {} leaves: “{}”.",
            facts.said("left", left.replica),
            facts.said("why", left.why),
        )
    ]
    gone, twice = (of.facts.number("lost", lost, "request"), of.facts.number("again", again))
    template = f"In the whole run, {{}} {verb(lost, 'ends', 'end')} with an error"
    if again:
        template += f", and {{}} {verb(again, 'is', 'are')} sent to another replica"
    said.append(sentence(f"{template}.", *[gone, twice][: 1 + bool(again)]))
    if saved:
        number = capital(of.facts.number("continued", saved, "request"))
        had = f"after output that {verb(saved, 'its client has', 'their clients have')} already"
        said.append(sentence(f"{{}} {verb(saved, 'goes', 'go')} on there {had}.", number))
    return [
        Scene(
            kind="left",
            title="a replica that is lost",
            sentences=said,
            panel="bars",
            bars=_after(of, left),
        )
    ]


def _after(of: _Cluster, left: c.ReplicaLeft) -> tuple[Bar, ...]:
    """Return how many requests each replica gets after one has left."""
    events = list(of.log)
    later = [event for event in events[events.index(left) :] if isinstance(event, c.Routed)]
    counts = Counter(event.replica for event in later)
    names = sorted({event.replica for event in of.routed} | {left.replica})
    return tuple(
        Bar(
            f"replica {name}",
            counts[name],
            sentence(
                "{} afterwards",
                of.facts.at(replica=name, after=left.replica).number(
                    "routed", counts[name], "request"
                ),
            ),
            name == left.replica,
        )
        for name in names
    )


def _handover(of: _Cluster) -> Scene | None:
    """Tell the largest move of KV blocks from one replica to another."""
    moves = [event for event in of.log if isinstance(event, c.Moved)]
    if not moves:
        return None
    index = max(range(len(moves)), key=lambda one: (moves[one].tokens, -one))
    move, facts = moves[index], of.facts.at(move=index)
    claims = [
        facts.number("moved blocks", move.blocks, "KV block"),
        facts.name("moved request", move.request),
        facts.said("source", move.source),
        facts.said("target", move.target),
    ]
    said = [
        sentence(
            f"{{}} of {{}} {verb(move.blocks, 'is', 'are')} copied from replica {{}} to replica {{}}.",
            *claims,
        )
    ]
    words = "They hold the first {} of it"
    claims = [facts.number("moved tokens", move.tokens, "token")]
    if "us" in move.t:
        words += ", and the copy takes {}"
        claims.append(facts.time("move time", move.t["us"]))
    said.append(sentence(f"{words}.", *claims))
    totals = Counter[tuple[str, str]]()
    for one in moves:
        totals[one.source, one.target] += one.tokens
    bars = [
        Bar(
            f"{source} → {target}",
            tokens,
            sentence(
                "{}",
                of.facts.at(source=source, target=target).number("moved in all", tokens, "token"),
            ),
            (source, target) == (move.source, move.target),
        )
        for (source, target), tokens in sorted(totals.items())
    ]
    return Scene(
        kind="handover",
        title="a prefix that moves to another replica",
        sentences=said,
        panel="bars",
        requests=(move.request,),
        bars=tuple(bars),
    )


def worst_replica(log: ClusterLog) -> list[Scene]:
    """Tell about the replica at which requests wait longest."""
    waits = [(sum(regimes_of(part.log).waited.values()), part) for part in log.parts]
    longest, worst = max(waits, key=lambda one: one[0], default=(0, None))
    if worst is None or not longest:
        return []
    of = Material(worst.log, request_names(worst.log))
    found = [scene for kind in _OF_A_REPLICA if (scene := kind(of)) is not None]
    return [scene.of_replica(worst) for scene in sorted(found, key=lambda one: one.step or 0)]
