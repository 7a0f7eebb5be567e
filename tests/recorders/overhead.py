"""Measure what recording costs vLLM's scheduler per step. Needs vLLM, and no model runs.

    PYTHONPATH=recorders/vllm:notebooks VLLM_PYTHON -m tests.recorders.overhead

Two schedulers, one with the recorder and one without, play the same requests in lockstep: each step
is timed on both, in alternating order, so that a busy machine slows both. A step is `schedule` and
`update_from_output`; all requests decode, and one in 32 steps fills a block. Prints the median and
the 99th percentile in microseconds, and the median of the differences of the pairs. The writer's
thread runs meanwhile. The clock is the CPU time of the scheduler's thread, which other processes do
not lengthen.
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parity.records import Ask, Workload
from tests.parity.record_vllm import FILLER, QUIET, SchedulerFactory
from tests.parity.recorded_steps import recording_to


def filled(factory: SchedulerFactory, workload: Workload, scheduler: Any) -> Any:
    """Return a scheduler whose requests all decode."""
    for number, ask in enumerate(workload.requests, start=1):
        scheduler.add_request(factory.request(workload, number, ask))
    while any(one.num_output_tokens == 0 for one in scheduler.requests.values()):
        step(scheduler)
    return scheduler


def step(scheduler: Any) -> int:
    """Schedule a step and process its tokens. Return its nanoseconds without the model's."""
    from vllm.v1.outputs import ModelRunnerOutput

    begin = time.thread_time_ns()
    output = scheduler.schedule()
    middle = time.thread_time_ns()
    keys = list(output.num_scheduled_tokens)
    ready = [one.num_computed_tokens >= one.num_tokens for one in map(scheduler.requests.get, keys)]
    told = ModelRunnerOutput(
        req_ids=keys,
        req_id_to_index={key: index for index, key in enumerate(keys)},
        sampled_token_ids=[[FILLER] if one else [] for one in ready],
    )
    again = time.thread_time_ns()
    scheduler.update_from_output(output, told)
    return middle - begin + time.thread_time_ns() - again


def measure(factory: SchedulerFactory, batch: int, steps: int, folder: Path) -> str:
    """Return a line for one batch size."""
    from vllm.v1.core.sched.scheduler import Scheduler

    prompt = [97 + index % 26 for index in range(64)]
    asks = [Ask(1, [*prompt, 97 + number % 26, 98], [], steps + 200) for number in range(batch)]
    workload = Workload("overhead", "", 8192, batch, 128 * batch, 32, requests=asks)
    with recording_to(folder / f"{batch}.jsonl.gz", tokens=False):
        recorded = factory.scheduler(workload)
    plain = factory.scheduler(workload, Scheduler)
    schedulers = [filled(factory, workload, one) for one in (plain, recorded)]
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(steps):
        for which in (number % 2, 1 - number % 2):
            times[which].append(step(schedulers[which]) / 1000)
        time.sleep(0.002)  # the model's time, in which the writer works
    assert recorded._recorder is not None, "the recorder has stopped"
    recorded.shutdown()
    differences = [ours - theirs for theirs, ours in zip(*times, strict=True)]
    figures = [
        statistics.median(times[0]),
        statistics.median(times[1]),
        statistics.median(differences),
        statistics.quantiles(times[0], n=100)[-1],
        statistics.quantiles(times[1], n=100)[-1],
    ]
    return f"{batch:6}" + "".join(f"{figure:12.1f}" for figure in figures)


def main() -> None:
    """Measure each batch size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 32, 128])
    options = parser.parse_args()
    os.environ |= QUIET
    factory = SchedulerFactory()
    print(" batch       plain    recorded  difference   plain p99 recorded p99   (us per step)")
    with TemporaryDirectory() as folder:
        for batch in options.batches:
            print(measure(factory, batch, options.steps, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
