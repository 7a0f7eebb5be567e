"""Drive this project's engine through recorded workloads."""

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.log.vocabulary import Preempted
from engine.core.sampling_params import SamplingParams
from engine.core.scheduling.scheduler import Plan
from engine.extensions.kv_groups import Group, KVGroups
from engine.extensions.sglang_policies import SGLANG_POLICIES
from engine.simulation.cost_runner import CostRunner
from parity.records import STOP, Arrivals, Row, Step, Workload

MAX_PASSES = 5000


def vllm_config(workload: Workload) -> EngineConfig:
    """Return the settings under which the engine should decide like vLLM."""
    return EngineConfig.like(
        "vllm",
        token_budget=workload.token_budget,
        max_batch_size=workload.max_batch_size,
        max_kv_tokens=workload.num_blocks * workload.block_size,
        block_size=workload.block_size,
        policy=workload.policy,
        chunked_prefill=workload.chunked_prefill,
        prefix_cache="hash" if workload.prefix_cache else "off",
        async_scheduling=workload.async_scheduling,
        watermark=workload.watermark,
        long_prefill_token_threshold=workload.long_prefill,
        long_prefill_token_threshold_adaptive=workload.long_prefill_adaptive,
        admission="whole" if workload.whole_sequence else "first_chunk",
    )


def sglang_config(workload: Workload) -> EngineConfig:
    """Return the settings under which the engine should decide like SGLang."""
    return EngineConfig.like(
        "sglang",
        scheduler=workload.scheduler,
        schedule_conservativeness=workload.schedule_conservativeness,
        token_budget=workload.token_budget,
        max_batch_size=workload.max_batch_size,
        max_kv_tokens=workload.num_blocks * workload.block_size,
        block_size=workload.block_size,
        policy="fcfs" if workload.policy in SGLANG_POLICIES else workload.policy,
        chunked_prefill=workload.chunked_prefill,
        prefix_cache="radix" if workload.prefix_cache else "off",
        async_scheduling=workload.async_scheduling,
    )


class Player:
    """An engine that plays a workload and records each step.

    outputs  what each request said
    """

    def __init__(self, workload: Workload, engine: Engine) -> None:
        self._workload = workload
        self._engine = engine
        self._plan = engine.scheduler.schedule
        engine.scheduler.schedule = self._schedule  # type: ignore[method-assign]
        self._step = Step()
        self.outputs: list[list[int]] = [[] for _ in workload.requests]

    def play(self, like: list[Step] | None = None) -> list[Step]:
        """Play the workload to its end, or to the first step that is decided otherwise in `like`."""
        arrivals, engine = Arrivals(self._workload), self._engine
        steps: list[Step] = []
        while arrivals or engine.has_work():
            arriving, aborted = arrivals.next(idle=not engine.has_work())
            for number, ask in arriving:
                params = SamplingParams(
                    max_tokens=ask.max_tokens,
                    temperature=0.0,
                    ignore_eos=ask.ignore_eos or self._workload.scheduler == "vllm",
                    stop_token_ids=(STOP,) if len(ask.output) < ask.max_tokens else (),
                )
                request = engine.submit(ask.prompt, params, priority=ask.priority, label=ask.label)
                assert request.id == number
            for number in aborted:
                if number in engine.requests:
                    engine.abort(number)
            if not engine.has_work():  # the last request was aborted
                continue
            if like and steps and steps[-1].decisions != like[: len(steps)][-1].decisions:
                return steps
            if engine.requests:  # else only a running step is left, whose tokens are dropped
                self._step = Step([], [], [], 0, {})
                steps.append(self._step)
            output = engine.step()
            self._step.finished += [one.id for one in output.finished]
            for tokens in output.tokens:
                self.outputs[tokens.request.id - 1] += tokens.ids
            assert len(steps) < MAX_PASSES, f"{self._workload.name} does not end"
        return steps

    def _schedule(self) -> Plan:
        """Schedule, and record the plan before the step runs."""
        log = self._engine.log
        start = log.next_seq
        plan = self._plan()
        step = self._step
        for row in plan.rows:
            step.rows.append(Row(row.request.id, row.start, row.count))
            step.tables[row.request.id] = list(row.request.block_table)
        step.preempted = [
            event.request for event in log.since(start) if isinstance(event, Preempted)
        ]
        step.free = self._engine.cache.num_available_blocks
        return plan


def machine(workload: Workload) -> CostRunner:
    """Return a machine that says what the invented model says, with its KV cache groups."""
    outputs = {number: ask.output for number, ask in enumerate(workload.requests, start=1)}
    runner = CostRunner(1.0, 0.0, outputs=outputs, end_token=STOP)
    if workload.groups:
        groups = [*workload.groups, Group("full", workload.block_size)]
        runner.kv_groups = KVGroups(groups, workload.retention)
    return runner


def replay(
    workload: Workload, config: EngineConfig | None = None, like: list[Step] | None = None
) -> list[Step]:
    """Play a workload on the engine with its invented tokens, by default as the recorded engine does.

    It ends at the first step that is decided otherwise than the same step of `like`.
    """
    runner = machine(workload)
    like_other = vllm_config if workload.scheduler == "vllm" else sglang_config
    kind = SGLANG_POLICIES.get(workload.policy)
    policy = kind() if kind else None
    engine = Engine(runner, config or like_other(workload), clock=runner.clock, policy=policy)
    return Player(workload, engine).play(like)
