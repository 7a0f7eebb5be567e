"""Run one workload with one learner's engine, and measure it."""

from dataclasses import dataclass

from checks.broken import Broken
from engine.core.config import ConfigError
from engine.core.log.log import EventLog
from engine.core.part_errors import PartError
from engine.core.scheduling.admission import RequestError
from engine.simulation.cost_runner import US_PER_MS, CostRunner
from engine.simulation.simulate import simulate
from project.learner import MineError, Source, said
from project.parts import config_of, parts_of
from project.workloads import MACHINE, Kind
from visualizer import read
from visualizer.reading.why import why

STARVED = 5  # a request whose TTFT is more than this many times the goal has starved


@dataclass(frozen=True)
class Run:
    """What a run measured.

    goodput   output tokens per second of the requests within both goals
    starved   the number of requests that starved
    in_time   the number of requests within both goals
    """

    goodput: float
    starved: int
    in_time: int


def serve(source: Source, kind: Kind, seed: int) -> EventLog:
    """Serve a workload with a learner's engine and return the log.

    Raises MineError if a part of the learner's fails.
    """
    mine = source.load()
    runner = CostRunner(MACHINE.base_ms, MACHINE.per_token_ms)
    config = config_of(mine, kind)
    parts = parts_of(mine, config, lambda: runner.clock.now() / US_PER_MS, kind.ttft_ms)
    where = f"{kind.name}, seed {seed}"
    try:
        return simulate(kind.workload(seed), config, cost=runner, **parts)
    except Broken as broken:
        raise MineError(f"{where}: {said(broken)}") from None
    except PartError as error:
        cause = error.__cause__
        raise MineError(f"{where}: {said(cause) if isinstance(cause, Broken) else error}") from None
    except (ConfigError, RequestError) as error:
        raise MineError(f"{where}: SETTINGS cannot serve this workload: {error}") from None


def measure(log: EventLog, kind: Kind) -> Run:
    """Measure a run. The run ends with the last token."""
    frame = read(log).requests
    in_time = (frame.ttft_ms <= kind.ttft_ms) & ~(frame.itl_max_ms > kind.gap_ms)
    seconds = (frame.arrived_ms + frame.e2e_ms).max() / 1000
    return Run(
        goodput=round(float(frame.output_tokens[in_time].sum() / seconds), 2),
        starved=int((frame.ttft_ms > STARVED * kind.ttft_ms).sum()),
        in_time=int(in_time.sum()),
    )


def worst_request(log: EventLog) -> str:
    """Return what happened to the request that waited longest for its first token, in words."""
    frame = read(log).requests
    request = int(frame.ttft_ms.idxmax())
    row = frame.loc[request]
    step = max(int(row.arrived_step), int(row.admitted_step) - 1)  # the last step of its wait
    return (
        f"request {request} ({row.label}) waited {row.ttft_ms:,.0f} ms for its first token.\n"
        f"{why(log, request, step)}"
    )
