"""KV cache groups: one memory for full attention, windows and linear layers."""

import pytest

from engine import Engine, EngineConfig, EventLog, SamplingParams
from engine.core.config import ConfigError
from engine.core.log.fold import State
from engine.core.scheduling.admission import RequestError
from engine.extensions.kv_groups import Group, KVGroups
from engine.simulation.cost_runner import Cost
from engine.simulation.simulate import simulate
from engine.simulation.workload import Arrival, Workload
from parity.replay import Player, machine, vllm_config
from tests.parity.workloads import COUNTS, GENERATORS


class ComparedLog(EventLog):
    def append(self, event):
        super().append(event)
        self.folded.apply(event)
        assert self.engine is None or self.folded.core() == self.engine.snapshot()


@pytest.mark.parametrize("stratum", COUNTS)
def test_the_fold_has_what_the_engine_has_after_each_event(stratum, soak):
    for seed in range(200 if soak else 2):
        workload = GENERATORS[stratum](seed)
        workload.num_blocks, size = 3 * workload.num_blocks, workload.block_size
        runner, log = machine(workload), ComparedLog()
        log.engine = None
        groups = [Group("window", size, 7), Group("full", size), Group("linear", size)]
        if seed % 2:
            groups = [Group("chunk", size, 2 * size), groups[1], Group("aligned", size, 0, 1)]
            workload.prefix_cache = workload.chunked_prefill = True
        runner.kv_groups, log.folded = KVGroups(groups, [None, 0][seed // 2 % 2]), State()
        log.engine = Engine(runner, vllm_config(workload), clock=runner.clock, log=log)
        Player(workload, log.engine).play()
        log.engine.cache.check_integrity()


def test_what_several_groups_cannot_have_is_named():
    asks, groups = [], KVGroups([Group("window", 16, 20), Group("full", 16), Group("aligned", 16)])
    workload = Workload(asks, kv_groups=groups)
    wrongs = {"prefix_cache": "radix", "preemption": False, "block_size": 8}
    for wrong in ({name: value} for name, value in (wrongs | {"chunked_prefill": False}).items()):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            simulate(workload, EngineConfig.like("vllm", **wrong), cost=Cost(1, 0))
    for named, samples in (("max_tokens", 1), ("n: must be 1", 2)):
        asks[:] = [Arrival(prompt=[97] * 50, params=SamplingParams(n=samples, max_tokens=100))]
        with pytest.raises(RequestError, match=named):
            simulate(workload, EngineConfig.like("vllm", max_kv_tokens=160), cost=Cost(1, 0))
