"""What a step costs on several devices: the closed formulas, and a simulation that charges them."""

from dataclasses import replace
from itertools import pairwise

import pytest

from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.models.configurations import CONFIGURATIONS
from engine.simulation.devices import (
    H100,
    NETWORK,
    NVLINK,
    DeviceRunner,
    Division,
    Link,
    Machine,
    StepLoad,
    devices_table,
)
from engine.simulation.simulate import simulate
from engine.simulation.workload import Workload, poisson, uniform

LLAMA, QWEN = (CONFIGURATIONS[name].entries for name in ("Llama 3.1 70B", "Qwen3 30B-A3B"))
DECODE = StepLoad(64, 64 * 1024, 64 * 1024, 64)
FREE = Link("free", float("inf"), 0.0)


def machine(entries=LLAMA, device=H100, link=NVLINK, **division):
    return Machine(entries, Division(**division), device, link)


def test_the_bytes_of_a_decode_step_set_its_time():
    """All weights but the embedding, and all KV, are read once."""
    device = replace(H100, efficiency=1.0, step_ms=0.0)
    one = machine(device=device, link=FREE)
    sizes = one.sizes
    embedding = sizes.vocab * sizes.hidden * 2
    read = sizes.kv.weights - embedding + DECODE.context * sizes.kv.per_token()
    assert one.price(DECODE).total == pytest.approx(read / device.gb_per_s / 1e6, rel=1e-3)
    for tensor in (2, 4, 8):
        divided = machine(device=device, link=FREE, tensor=tensor).price(DECODE).total
        assert divided == pytest.approx(one.price(DECODE).total / tensor, rel=1e-3)


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (8, 1), (1, 2), (1, 8), (2, 4)])
def test_it_sends_what_the_real_devices_send(tensor, pipeline):
    """Two sums per layer: a ring all-reduce of n bytes sends 2 (p - 1) n. Stages pass on the rest."""
    sizes = machine().sizes
    n = sizes.hidden * 2
    expected = 2 * (tensor - 1) * 2 * sizes.layers * n + (pipeline - 1) * n * tensor
    price = machine(tensor=tensor, pipeline=pipeline).price(DECODE)
    assert price.bytes_per_token_layer * sizes.layers == pytest.approx(expected)


def test_experts_are_sent_all_to_all():
    """Each token goes to k experts and back, of which 7 of 8 are on another device."""
    price = machine(QWEN, expert=8).price(DECODE)
    assert price.bytes_per_token_layer == pytest.approx(2 * 8 * 7 / 8 * 2048 * 2)


def test_tensor_parallelism_stops_paying_on_a_slow_link():
    def times(link):
        return [machine(link=link, tensor=n).price(DECODE).total for n in (1, 2, 4, 8, 16)]

    assert times(FREE) == sorted(times(FREE), reverse=True)
    slow = times(NETWORK)
    assert slow.index(min(slow)) == 2
    assert slow[4] > slow[3] > slow[2]


def test_a_pipeline_does_not_shorten_the_step_of_one_request():
    one = StepLoad(1, 1024, 1024, 1)
    times = [machine(link=FREE, pipeline=n).price(one).total for n in (1, 2, 8)]
    assert times == pytest.approx([times[0]] * 3)


def test_what_does_not_fit_has_no_times():
    workload = Workload.generate(
        6, arrivals=poisson(5), prompt=uniform(300, 400), output=uniform(5, 9)
    )
    table = devices_table(
        LLAMA, [Division(data=8), Division(tensor=8), Division(expert=8)], workload
    )
    assert [one.decode_ms is None for one in table] == [True, False, True]
    assert table[0].gigabytes == pytest.approx(141, abs=1)
    assert table[1].ttft_p50 <= table[1].ttft_p99


@pytest.mark.parametrize("division", [{"tensor": 8}, {"pipeline": 4}, {"expert": 8}])
def test_a_simulated_step_takes_its_price(division):
    """Alone in a pipeline; behind others it takes longer, and no stage has two batches at a time."""
    one = machine(QWEN, **division)
    workload = Workload.generate(
        20, arrivals=poisson(90), prompt=uniform(9, 4000), output=uniform(2, 9)
    )
    passes, rows = [], {}
    config = EngineConfig(token_budget=2048, max_batch_size=64, max_kv_tokens=2**16)
    for event in simulate(workload, config, cost=DeviceRunner(one)):
        if isinstance(event, v.StepStarted):
            step = event.step
        elif isinstance(event, v.StepScheduled):
            ends = [row.start + row.count for row in event.rows]
            counts = [row.count for row in event.rows]
            pairs = sum(count * end for count, end in zip(counts, ends, strict=True))
            rows[step] = StepLoad(sum(counts), sum(ends), pairs, len(counts))
        elif isinstance(event, v.StepFinished) and rows[event.step].tokens:
            t = event.t
            passes.append((t.get("launched", t["start"]), t.get("ready", t["end"]), event.step))
    before = -1
    for number, (start, end, step) in enumerate(passes):
        price = one.price(rows[step]).total * 1000
        flying = sum(other > start for _, other, _ in passes[:number])
        assert flying < one.division.pipeline
        if not flying:
            assert end - start == pytest.approx(price, abs=1)
        last = one.stages_ms(rows[step])[-1] * 1000
        assert end >= max(start + price, before + last) - 1
        before = end
    assert one.division.pipeline == 1 or any(a[1] > b[0] for a, b in pairwise(passes))


@pytest.mark.parametrize("wrong", [{"tensor": 0}, {"expert": 2, "tensor": 2}])
def test_impossible_divisions_are_rejected(wrong):
    with pytest.raises(ValueError, match=min(wrong)):
        Division(**wrong)
