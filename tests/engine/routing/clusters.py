"""Random clusters: small memories, shared prefixes, samples, aborts, cleared caches and deaths."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from engine import ClusterLog, Cost, EngineConfig, SamplingParams, Workload, simulate_cluster
from engine.cluster import ROUTERS, Decision
from engine.cluster.events import Routed
from engine.cluster.recorded_faults import Fault
from engine.simulation.workload import Abort, Answer, Arrival, Clear, Input

COST = Cost(10, 0.25, cpu_ms=1)
GAPS = st.sampled_from([0.0, 3.0, 11.0, 40.0])


@dataclass
class Case:
    workload: Workload
    config: EngineConfig
    replicas: int = 2
    router: str = "prefix_events"
    lag_ms: float = 0.0
    faults: list[Fault] = field(default_factory=list)

    def run(self, log: ClusterLog | None = None) -> ClusterLog:
        return simulate_cluster(
            self.workload,
            self.config,
            cost=COST,
            replicas=self.replicas,
            router=self.router,
            lag_ms=self.lag_ms,
            faults=self.faults,
            log=log,
        )


def check_decision(one: Decision | Routed, loads: dict[str, int]) -> None:
    """The choice and the reason follow from the recorded fields alone."""
    assert one.scores == (
        {name: sum(its.values()) for name, its in one.terms.items()} or one.scores
    )
    if one.scores:
        equal = [name for name, score in one.scores.items() if score == min(one.scores.values())]
        assert list(one.ties) == (equal if len(equal) > 1 else [])
        compared = {name: tuple(one.ties.get(name, {}).values()) for name in equal}
        assert one.replica == max(equal, key=lambda name: compared[name])
    hit, load = one.hits.get(one.replica, 0), loads[one.replica]
    most = max((one.hits.get(name, 0) for name in loads), default=0)
    match one.reason:
        case "longest_prefix" | "prefix_on_its_way":
            assert hit == most > 0
        case "lowest_cost":
            assert hit < most
        case "least_work":
            assert most == 0
        case "least_loaded" | "load_unbalanced":
            assert load == min(loads.values())
        case "less_loaded_of_two":
            assert len(one.scores) == 2 and len(loads) > 2
        case "least_cached":
            assert one.scores
        case _:
            assert not one.scores


@st.composite
def inputs(draw: st.DrawFn, gap_ms: st.SearchStrategy[float]) -> list[Input]:
    """Requests whose prompts share prefixes, and now and then an abort or a cleared cache."""
    made, at, samples = list[Input](), 0.0, 0
    for _ in range(draw(st.integers(1, 9))):
        at += draw(gap_ms)
        kind = draw(st.sampled_from(["arrival"] * 6 + ["abort", "clear"]))
        if kind == "abort" and samples:
            made.append(Abort(at_ms=at, request=draw(st.integers(1, samples))))
        elif kind == "clear":
            made.append(Clear(at_ms=at))
        else:
            prefix = draw(st.sampled_from([[], [97] * 6, [98] * 9, [97] * 4 + [98] * 3]))
            own = draw(st.lists(st.sampled_from([97, 98, 99]), min_size=1, max_size=6))
            params = SamplingParams(
                max_tokens=draw(st.integers(1, 6)), n=draw(st.sampled_from([1, 1, 1, 3]))
            )
            length = draw(st.integers(1, params.max_tokens))
            one = Arrival(at_ms=at, prompt=prefix + own, params=params, answers={0: Answer(length)})
            one.extra_key = draw(st.sampled_from([(), (), ("", "salt")]))
            made.append(one)
            samples += params.n
    return made


@st.composite
def cases(draw: st.DrawFn, gap_ms: st.SearchStrategy[float] = GAPS) -> Case:
    """Small clusters that hypothesis can shrink to the shortest failing one."""
    size = draw(st.integers(1, 4))
    config = EngineConfig(
        token_budget=draw(st.integers(2, 16)),
        max_batch_size=draw(st.integers(1, 4)),
        max_kv_tokens=size * -(-draw(st.integers(64, 120)) // size),
        block_size=size,
        prefix_cache=draw(st.sampled_from(["radix", "hash", "off"])),
        async_scheduling=draw(st.booleans()),
    )
    replicas = draw(st.integers(1, 3))
    dying = draw(st.integers(0, replicas - 1))  # at least one survives
    return Case(
        Workload(draw(inputs(gap_ms))),
        config,
        replicas,
        draw(st.sampled_from(sorted(ROUTERS))),
        draw(st.sampled_from([0.0, 2.5, 50.0])),
        [draw(faults(str(number))) for number in range(dying)],
    )


@st.composite
def faults(draw: st.DrawFn, replica: str) -> Fault:
    """A replica that stops, is missed at once or later, and may come back with or without its cache."""
    at = draw(st.sampled_from([0.0, 7.0, 14.0, 33.0, 90.0]))
    noticed = at + draw(st.sampled_from([0.0, 0.0, 12.5]))
    back = draw(st.sampled_from([None, 0.0, 40.0]))
    return Fault(
        replica, at, noticed, back if back is None else noticed + back, draw(st.booleans())
    )
