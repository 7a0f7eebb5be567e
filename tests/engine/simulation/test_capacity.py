"""A sweep's rows, figures, marks and file; on curves whose knee is known, it finds the knee."""

from dataclasses import dataclass, replace
from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Cost, EngineConfig, Load, Sweep, Workload, simulate, simulated, sweep
from engine.simulation.capacity.curve import SweepError, compared, relative_errors
from engine.simulation.capacity.load import PROMPT
from engine.simulation.capacity.point import SHARES, Point
from engine.simulation.capacity.rates import (
    CLOSE,
    MOST_POINTS,
    is_saturated,
    knee,
    next_rate,
    usable,
)
from engine.simulation.capacity.served import Served, served_in
from engine.simulation.capacity.slo import Slo, SloError
from engine.simulation.workload import poisson, uniform
from tests.facts import assert_names, raises_naming
from visualizer import read

SMALL = Load(requests=30, seconds=2, prompt=uniform(8, 40), output=uniform(1, 12))


def times_of(workload: Workload) -> list[float]:
    return [one.at_ms for one in workload.inputs]


@pytest.mark.parametrize("load", [
    SMALL,
    Load(burstiness=0.3, seconds=0),
    Load(recorded=Workload.generate(50, arrivals=poisson(3), prompt=PROMPT, output=uniform(2, 4))),
])  # fmt: skip
def test_another_rate_has_the_same_requests_at_scaled_times(load):
    slow, fast = load.at(2.0), load.at(8.0)
    both = list(zip(slow.inputs, fast.inputs, strict=False))
    assert all((a.prompt, a.answers) == (b.prompt, b.answers) for a, b in both)
    count = len(slow.inputs)
    gaps, faster = np.diff(times_of(slow)), np.diff(times_of(fast)[:count])
    assert np.allclose(gaps / gaps.mean(), faster / faster.mean())
    for rate, workload in ((2.0, slow), (8.0, fast)):
        n, end = len(workload.inputs), times_of(workload)[-1]
        assert end == pytest.approx(1000 * (n - 1) / rate)
        assert n >= ceil(rate * load.seconds) or load.recorded is not None


@pytest.mark.parametrize("burstiness", [0.2, 1, 5])
def test_the_gaps_vary_as_the_burstiness_says(burstiness):
    gaps = np.diff(times_of(Load(burstiness=burstiness, prompt=uniform(1, 1)).at(1, 3000)))
    assert (gaps.std() / gaps.mean()) ** 2 == pytest.approx(1 / burstiness, rel=0.15)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=150))
def test_percentiles_are_those_of_numpy(waits):
    rows = [
        Served(rate=5, request=n, scheduled=100.0 * n, sent=100.0 * n, first=100.0 * n + wait,
               last=100.0 * n + 2 * wait, output_tokens=2, gaps=[wait])
        for n, wait in enumerate(waits)
    ]  # fmt: skip
    point = Point(5.0, rows)
    for share in SHARES:
        for name, factor in (("ttft", 1), ("itl", 1), ("e2e", 2)):
            known = np.quantile(np.array(waits) * factor, share)
            assert point.percentile(name, share) == pytest.approx(known, rel=1e-6, abs=1e-6)


def test_the_rows_of_a_simulated_run_are_those_of_its_log():
    log = simulate(SMALL.at(60), EngineConfig(max_batch_size=3), cost=Cost(10, 0.25))
    frame, rows = read(log).requests, served_in(log, 60)
    assert frame.ttft_ms.max() > 1000
    assert np.allclose(frame.ttft_ms, [row.latency("ttft") for row in rows])
    assert np.allclose(frame.e2e_ms, [row.latency("e2e") for row in rows])
    assert list(frame.output_tokens) == [row.output_tokens for row in rows]
    assert all(len(row.gaps) == row.output_tokens - 1 for row in rows)


def test_an_aborted_request_misses_the_slo_and_is_in_no_percentile():
    fine = Served(
        rate=1, request=0, scheduled=0, sent=0, first=50, last=90, output_tokens=2, gaps=[40]
    )
    lost = Served(rate=1, request=1, scheduled=10, sent=10, first=11, last=12, error="abort")
    point = Point(1.0, [fine, lost], Slo.parse("ttft<1s, itl<50ms"))
    assert (point.failed, point.attained, point.meets) == (1, 0.5, False)
    assert [point.percentile("ttft", share) for share in SHARES] == [50, 50, 50]
    assert point.goodput == point.requests_per_s == 0.5
    assert Point(1.0, [lost]).percentile("ttft", 0.5) is None


# Synthetic curves


@dataclass
class Known:
    """A point of an M/G/1 queue: its mean latency is the formula's (Pollaczek and Khinchine).

    variation  the squared coefficient of variation of the service times
    """

    rate: float
    capacity: float
    variation: float
    limit_ms: float
    rows = range(10_000)

    @property
    def requests_per_s(self) -> float:
        return min(self.rate, self.capacity)

    @property
    def mean_e2e_ms(self) -> float:
        used = min(self.rate / self.capacity, 0.999)
        return 1000 * (1 + used / (1 - used) * (1 + self.variation) / 2) / self.capacity

    @property
    def meets(self) -> bool:
        return self.mean_e2e_ms <= self.limit_ms


@given(st.floats(0.5, 500), st.floats(0, 4), st.floats(1.2, 20))
def test_the_marks_are_those_of_queueing_theory(capacity, variation, times):
    """The power of M/G/1 is highest at 1 / (1 + sqrt((1 + c²) / 2)) of its capacity (Kleinrock)."""
    points: list[Known] = []
    alone_ms = 1000 / capacity
    while (rate := next_rate(points, alone_ms)) is not None:
        assert all(rate != point.rate for point in points)
        points.append(Known(rate, capacity, variation, times * alone_ms))
    bend = capacity / (1 + sqrt((1 + variation) / 2))
    assert bend / CLOSE**2 / 1.1 < knee(points).rate < bend * CLOSE**2 * 1.1
    # The mean latency is the limit at this share of the capacity.
    used = (times - 1) / (times - 1 + (1 + variation) / 2)
    found = usable(points)
    assert (
        used * capacity / CLOSE / 1.1 < found.rate <= 1.001 * used * capacity
        if found
        else used < 0.1
    )
    past = [point.rate for point in points if is_saturated(point, alone_ms)]
    assert past and min(past) > capacity and len(points) <= MOST_POINTS


def test_a_target_that_fails_every_goal_ends_the_sweep():
    found = sweep(simulated(), SMALL, slo="ttft<1ms")
    assert found.usable is None and len(found.points) <= MOST_POINTS
    assert_names(found, "no measured rate")


def test_a_faster_machine_can_take_more_and_bursts_less():
    slo = "ttft<300ms"
    load = Load(requests=60, seconds=2, output=uniform(4, 12))
    base = sweep(simulated(), load, slo=slo)
    faster = sweep(simulated(cost=Cost(5, 0.125)), load, slo=slo)
    bursty = sweep(simulated(), replace(load, burstiness=0.25), slo=slo)
    assert faster.usable.rate > 1.5 * base.usable.rate > 1.5 * bursty.usable.rate
    for point in base.points:  # Little's law, counted in the log's instants
        inside = [(row.scheduled, row.last) for row in point.rows]
        area = sum(end - begin for begin, end in inside) / 1000
        assert point.in_system == pytest.approx(area / point.seconds)


# Files and endings


def test_a_sweep_is_the_same_after_it_was_saved(tmp_path):
    found = sweep(
        simulated(), SMALL, slo="ttft<300ms, tpot<30ms", name="here", load_words={"seed": 0}
    )
    found.save(tmp_path / "rows.jsonl")
    again = Sweep.load(tmp_path / "rows.jsonl")
    assert str(again) == str(found) and again.header == found.header
    assert len(list(tmp_path.iterdir())) == 1
    assert again.with_slo("ttft<1ms").usable is None
    assert all(not any(map(abs, row.values())) for _, row in relative_errors(again, again))
    assert compared(found, again).count("±0%") >= 9 * len(found.points)
    (tmp_path / "rows.jsonl").write_bytes(b"".join(found.lines()) + b'{"rate": "fast"}\n')
    lines = 2 + sum(len(point.rows) for point in found.points)
    with raises_naming(SweepError, f"line {lines}", "rate"):
        Sweep.load(tmp_path / "rows.jsonl")
    (tmp_path / "rows.jsonl").write_bytes(b'{"another": "file"}\n')
    with raises_naming(SweepError, "line 1", "not a sweep"):
        Sweep.load(tmp_path / "rows.jsonl")


def test_ctrl_c_keeps_the_rates_that_were_measured():
    serve, kept = simulated(), []

    def interrupted(workload: Workload, rate: float) -> list[Served]:
        if rate == 8.0:
            raise KeyboardInterrupt
        return serve(workload, rate)

    found = sweep(
        interrupted, SMALL, rates=[8, 2, 4, 16], progress=lambda _, point: kept.append(point.rate)
    )
    assert [point.rate for point in found.points] == kept == [2, 4] and found.was_interrupted
    with pytest.raises(KeyboardInterrupt):
        sweep(interrupted, SMALL, rates=[8.0])


def test_a_target_without_an_answer_says_why():
    rows = [Served(rate=1, request=0, scheduled=0, sent=0, error="HTTP 404: no such model")]
    with raises_naming(SweepError, "HTTP 404", "model"):
        sweep(lambda workload, rate: rows, SMALL)


@pytest.mark.parametrize(
    "text", ["ttft<fast", "ttl<1s", "ttft<1s ttft<2s", "ttft<1s, ttft<2s", "ttft<1.2.3s"]
)
def test_a_goal_that_cannot_be_read_is_named(text):
    with raises_naming(SloError, "ttft"):
        Slo.parse(text)


@pytest.mark.parametrize(
    "wrong", [{"requests": 0}, {"burstiness": 0}, {"seconds": -1}, {"recorded": Workload([])}]
)
def test_a_wrong_load_is_named(wrong):
    with raises_naming(ValueError, *wrong):
        Load(**wrong)
