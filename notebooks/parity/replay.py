"""Drive this project's engine through recorded workloads, and compare it with the recording.

    PYTHONPATH=notebooks python -m parity.replay                   # the committed recording of vLLM
    PYTHONPATH=notebooks python -m parity.replay /tmp/fresh.gz     # another one

Prints the share of equal workloads by stratum, and the kinds of first differences.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.log.vocabulary import Preempted
from engine.core.sampling_params import SamplingParams
from engine.core.scheduling.scheduler import Plan
from engine.simulation.cost_runner import CostRunner
from parity.records import (
    DECISIONS_OF_VLLM,
    STOP,
    Arrivals,
    Difference,
    Recording,
    Row,
    Step,
    Workload,
    first_difference,
    read,
    shares_equally,
)

MAX_PASSES = 5000
NO_SETTING = {  # fields of a workload that the engine has no setting for
    "long_prefill": "no limit on the tokens of a long prompt",
}
FREE, SHARING, IDS = "different free counts", "different sharing", "different block numbers"
CAUSES = {  # of the differences that are left
    NO_SETTING["long_prefill"]: "vLLM's long_prefill_token_threshold is not a setting here",
    IDS: "without a prefix cache, the first of a request's released blocks is reused first, in vLLM "
    "the last; and vLLM still finds blocks of a victim that was scheduled in the same step",
}


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
    )


class _Player:
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

    def play(self) -> list[Step]:
        arrivals, engine = Arrivals(self._workload), self._engine
        steps: list[Step] = []
        while arrivals or engine.has_work():
            arriving, aborted = arrivals.next(idle=not engine.has_work())
            for number, ask in arriving:
                params = SamplingParams(
                    max_tokens=ask.max_tokens,
                    temperature=0.0,
                    ignore_eos=True,
                    stop_token_ids=(STOP,) if len(ask.output) < ask.max_tokens else (),
                )
                request = engine.submit(ask.prompt, params, priority=ask.priority)
                assert request.id == number
            for number in aborted:
                if number in engine.requests:
                    engine.abort(number)
            if not engine.has_work():  # the last request was aborted
                continue
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


def replay(workload: Workload, config: EngineConfig | None = None) -> list[Step]:
    """Play a workload on the engine with its invented tokens, by default with `vllm_config`."""
    outputs = {number: ask.output for number, ask in enumerate(workload.requests, start=1)}
    runner = CostRunner(1.0, 0.0, outputs=outputs, end_token=STOP)
    engine = Engine(runner, config or vllm_config(workload), clock=runner.clock)
    return _Player(workload, engine).play()


def run_model(workload: Workload) -> tuple[list[Step], list[list[int]]]:
    """Play a workload with the bundled model. Return the steps, and what each request said."""
    player = _Player(workload, Engine.load("bundled", vllm_config(workload)))
    return player.play(), player.outputs


class Comparison(NamedTuple):
    """How one workload compares: `difference` is the first decision that differs.

    kind  what differs, for the list of expected differences; "" if nothing does. Where all decisions
          are equal, it names the first of these that differs: the counts of free blocks, which
          requests share blocks, the numbers of the blocks.
    """

    workload: Workload
    difference: Difference | None
    kind: str


def compare(recording: Recording, config: EngineConfig | None = None) -> Comparison:
    """Replay a recorded workload and compare."""
    return compare_steps(recording, replay(recording.workload, config))


def compare_steps(recording: Recording, ours: list[Step]) -> Comparison:
    """Compare the engine's steps with the recorded ones."""
    workload, theirs = recording
    difference = first_difference(ours, theirs)
    kind = ""
    if difference is not None:
        missing = (text for field, text in NO_SETTING.items() if getattr(workload, field))
        kind = next(missing, difference.kind)
    elif any(one.free != other.free for one, other in zip(ours, theirs, strict=True)):
        kind = FREE
    elif not shares_equally(ours, theirs):
        kind = SHARING
    elif any(one.tables != other.tables for one, other in zip(ours, theirs, strict=True)):
        kind = IDS
    return Comparison(workload, difference, kind)


def table(comparisons: Sequence[Comparison]) -> str:
    """Return as text how many workloads of each stratum are equal, and the kinds of differences."""
    totals = Counter(one.workload.stratum for one in comparisons)
    kinds = Counter(one.kind for one in comparisons if one.kind)
    columns = ("decisions", "free", "sharing", "ids", "of")
    lines = ["".join([f"{'equal in':14}", *(f"{name:>11}" for name in columns)])]
    for stratum, total in totals.items():
        some = Counter(one.kind for one in comparisons if one.workload.stratum == stratum)
        ids = some[""]
        sharing = ids + some[IDS]
        free = sharing + some[SHARING]
        shown = (free + some[FREE], free, sharing, ids, total)
        lines.append(f"{stratum:14}" + "".join(f"{count:11}" for count in shown))
    return "\n".join([*lines, "", *(f"{count:5}  {kind}" for kind, count in kinds.most_common())])


def listing(comparisons: Sequence[Comparison]) -> str:
    """Return as text which workloads differ in what; seeded workloads by their seed."""
    lines = []
    for kind in sorted({one.kind for one in comparisons if one.kind}):
        lines.append(f"{kind}: {CAUSES.get(kind, 'cause unknown')}")
        names: dict[str, list[str]] = {}
        for one in comparisons:
            if one.kind == kind:
                stratum = one.workload.stratum
                short = one.workload.name.removeprefix(stratum + " ")
                names.setdefault(stratum, []).append(short)
        for stratum, some in names.items():
            mark = " " if some[0].isdecimal() else "; "
            lines.append(f"    {stratum}: {mark.join(some)}")
    return "\n".join(lines)


def main() -> None:
    """Compare a recording, and print the table."""
    parser = argparse.ArgumentParser(description="Compare the engine with a recording of vLLM.")
    parser.add_argument("file", type=Path, nargs="?", default=DECISIONS_OF_VLLM)
    options = parser.parse_args()
    started = time.perf_counter()
    print(table([compare(recording) for recording in read(options.file)]))
    print(f"{time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
