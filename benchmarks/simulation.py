"""The simulated machine against the real one, and the limits of simulation.

1. A cost is fitted to calibration runs of the engine with the bundled model. Then the engine serves
   three workloads that the cost was not fitted to, with requests arriving on the clock, and the same
   workloads are simulated. What is printed is simulated over real. A machine's speed drifts, so there
   is a calibration before and after each workload, whose prices are averaged, and all is repeated;
   medians count. The machine is faster than requests arrive, so that throughput is easy to meet; the
   time that steps take in all ("busy") is not, and is printed beside it.
2. 100,000 requests, simulated, with a windowed log: how long, and how much memory.
3. How large a log is, per 1,000 output tokens.

The clock is the wall's. On a machine with other work to do, UNDERGLASS_SIMULATION_CLOCK=cpu takes this
process's CPU time and the idle time instead.
"""

import gc
import gzip
import os
import random
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
from matplotlib.figure import Figure
from tqdm import tqdm

from benchmarks.memory import resident_mib
from benchmarks.report import panels, save
from benchmarks.workload import Bench
from engine import Cost, Engine, EngineConfig, EventLog, SamplingParams, Workload, simulate
from engine.core.log.recorder import WallClock
from engine.core.log.vocabulary import Event, Preempted, RequestFinished
from engine.models import loader
from engine.simulation.fit import fit
from engine.simulation.workload import (
    Arrival,
    ArrivalProcess,
    bursts,
    lognormal,
    poisson,
    uniform,
)
from visualizer import read

ROUNDS = 3
CALIBRATION = [1, 4, 2, 8, 1, 16, 3, 6, 1, 12] * 3  # requests that come together
PAUSE_US = 40_000
MEASURES = ("throughput", "busy", "mean TTFT", "mean ITL")
AIM = 0.08
REQUESTS = 100_000


class PatientClock(WallClock):
    """Real time, and how to wait."""

    def wait_until(self, at_us: float) -> None:
        """Sleep."""
        time.sleep(max(0.0, (at_us - self.now()) / 1e6))


class BusyClock:
    """CPU time of this process; idle time is skipped."""

    name = "wall"

    def __init__(self) -> None:
        self._start = time.process_time_ns()
        self._waited_us = 0

    def now(self) -> int:
        """Microseconds."""
        return (time.process_time_ns() - self._start) // 1000 + self._waited_us

    def wait_until(self, at_us: float) -> None:
        """Skip."""
        self._waited_us += max(0, round(at_us) - self.now())


CLOCK: type[PatientClock | BusyClock] = PatientClock
if os.environ.get("UNDERGLASS_SIMULATION_CLOCK") == "cpu":
    CLOCK = BusyClock


# 1. Against the engine


@dataclass
class Case:
    """A workload and the settings under which it is served."""

    workload: Workload
    config: EngineConfig
    ratios: dict[str, list[float]] = field(default_factory=dict)  # simulated over real
    real: list[dict[str, float]] = field(default_factory=list)

    def medians(self) -> dict[str, float]:
        """Simulated over real, for each measure."""
        return {measure: statistics.median(self.ratios[measure]) for measure in MEASURES}


def cases() -> dict[str, Case]:
    """Three workloads that differ in what they stress."""
    short = {"prompt": uniform(8, 80), "output": uniform(8, 64)}
    ragged = {"prompt": lognormal(60, 1.0, 900), "output": lognormal(24, 0.7, 120)}
    long = {"prompt": uniform(300, 1200), "output": uniform(16, 120)}
    config = EngineConfig(token_budget=256, max_batch_size=16, max_kv_tokens=16384)
    scarce = EngineConfig(token_budget=128, max_batch_size=8, max_kv_tokens=3072)
    return {
        "Poisson arrivals, ragged lengths": Case(draw(240, poisson(14), seed=1, **ragged), config),
        "bursts, shared prefixes": Case(
            draw(160, bursts(10, 700), seed=2, groups=8, shared_tokens=480, **short), config
        ),
        "long prompts, too little memory": Case(draw(64, poisson(4), seed=3, **long), scarce),
    }


def draw(count: int, arrivals: ArrivalProcess, seed: int, **parts: Any) -> Workload:
    """A generated workload whose requests run to their drawn length on a real model, too."""
    workload = Workload.generate(count, arrivals=arrivals, seed=seed, **parts)
    for one in workload.inputs:
        assert isinstance(one, Arrival)
        one.params = msgspec.structs.replace(one.params, ignore_eos=True)
    return workload


class Machine:
    """The engine with the bundled model, and what a step costs it at the moment."""

    def __init__(self) -> None:
        self._runner, self._tokenizer = loader.load("bundled")
        # As in the server, no collection has to look at the objects that the libraries have loaded.
        gc.collect()
        gc.freeze()

    def serve(self, workload: Workload, config: EngineConfig) -> EventLog:
        """Submit requests when they are due, between steps, to the end."""
        clock = CLOCK()
        engine = Engine(self._runner, config, tokenizer=self._tokenizer, clock=clock)
        pending = deque(one for one in workload.inputs if isinstance(one, Arrival))
        while pending or engine.has_work():
            if not engine.has_work():
                clock.wait_until(pending[0].at_ms * 1000)
            while pending and pending[0].at_ms * 1000 <= clock.now():
                one = pending.popleft()
                at_us = round(one.at_ms * 1000)
                engine.submit(one.prompt, one.params, label=one.label, submitted_at=at_us)
            engine.step()
        return engine.log

    def calibrate(self) -> Cost:
        """Groups that come one by one: lone requests and full batches, short and long contexts.

        Every other group is ragged, and its members come while others are served.
        """
        config = EngineConfig(token_budget=256, max_batch_size=16, max_kv_tokens=32768)
        clock = CLOCK()
        engine = Engine(self._runner, config, tokenizer=self._tokenizer, clock=clock)
        rng = random.Random(11)
        for number, size in enumerate(CALIBRATION):
            ragged = number % 2
            for member in range(size):
                if ragged or not member:  # 10 to 1,200 tokens, evenly on a logarithmic scale
                    usual = 10 * 120 ** rng.random()
                for _ in range(ragged * rng.randint(0, 4)):
                    engine.step()
                length = round(usual * rng.uniform(0.8, 1.2))
                prompt = [97 + rng.randrange(26) for _ in range(length)]
                engine.submit(
                    prompt, SamplingParams(max_tokens=rng.randint(8, 48), ignore_eos=True)
                )
            while engine.has_work():
                engine.step()
            clock.wait_until(clock.now() + PAUSE_US)  # a machine that waits falls asleep
        return fit(engine.log).cost


def summary(log: EventLog) -> dict[str, float]:
    """Return output tokens per second, ms in steps, mean ms to the first token and between tokens."""
    requests, steps = read(log).requests, read(log).steps
    lasted = steps.start_ms.iloc[-1] + steps.duration_ms.iloc[-1] - requests.arrived_ms.min()
    gaps = (requests.output_tokens - 1).sum()
    return {
        "throughput": 1000 * float(requests.output_tokens.sum()) / lasted,
        "busy": float(steps.duration_ms.sum()),
        "mean TTFT": float(requests.ttft_ms.mean()),
        "mean ITL": float((requests.e2e_ms - requests.ttft_ms).sum() / gaps),
        "busy share": float(steps.duration_ms.sum() / lasted),
        "preemptions": len(log.of(Preempted)),
        "steps": len(steps),
    }


def against_the_engine() -> dict[str, Case]:
    """Part 1. Prints every run, then the medians."""
    machine = Machine()
    served = cases()
    machine.calibrate()  # warm
    before = machine.calibrate()
    for round_ in range(ROUNDS):
        for name, case in served.items():
            real = summary(machine.serve(case.workload, case.config))
            after = machine.calibrate()
            cost, before = mean(before, after), after
            told = summary(simulate(case.workload, case.config, cost=cost))
            case.real.append(real)
            for measure in MEASURES:
                case.ratios.setdefault(measure, []).append(told[measure] / real[measure])
            print(
                f"  {name}, round {round_ + 1}: {cost}\n"
                f"    real: {numbers(real)}\n"
                f"    simulated: {numbers(told)}",
                flush=True,
            )
    for name, case in served.items():
        ratios = ", ".join(f"{measure} {ratio:.3f}" for measure, ratio in case.medians().items())
        print(f"{name}: simulated over real, medians of {ROUNDS}: {ratios}")
    return served


def mean(one: Cost, other: Cost) -> Cost:
    """The prices half-way between."""
    prices, others = asdict(one), asdict(other)
    return Cost(**{name: (prices[name] + others[name]) / 2 for name in prices})


def numbers(measured: dict[str, float]) -> str:
    """In one line."""
    return ", ".join(f"{name} {value:.4g}" for name, value in measured.items())


# 2. Many


class Meter(EventLog):
    """A windowed log that counts finished requests and samples memory use."""

    def __init__(self, bar: "tqdm[Any]") -> None:
        super().__init__(window=20_000)
        self._bar = bar
        self.finished = 0
        self.peak_mib = resident_mib()

    def append(self, event: Event) -> None:
        """Add an event."""
        super().append(event)
        if isinstance(event, RequestFinished):
            self.finished += 1
            self._bar.update()
            if self.finished % 500 == 0:
                self.peak_mib = max(self.peak_mib, resident_mib())


def many_requests() -> dict[str, object]:
    """Part 2: seconds of CPU time, and MiB on top of what there was."""
    start_mib = resident_mib()
    workload = Workload.generate(
        REQUESTS,
        arrivals=poisson(50),
        prompt=lognormal(40, 0.8, 400),
        output=lognormal(24, 0.7, 200),
        groups=20,
        shared_tokens=64,
    )
    drawn_mib = resident_mib()
    config = EngineConfig(token_budget=512, max_batch_size=64, max_kv_tokens=32768)
    start = time.process_time()
    with tqdm(total=REQUESTS, desc="simulating", unit="request", leave=False) as bar:
        log = Meter(bar)
        simulate(workload, config, cost=Cost(1.2, 0.065, 0.08, 0.0004, 8e-5), log=log)
    seconds = time.process_time() - start
    assert log.finished == REQUESTS
    figures: dict[str, object] = {
        "requests": REQUESTS,
        "cpu_seconds": seconds,
        "steps": log.state().step,
        "events": log.next_seq,
        "workload_mib": drawn_mib - start_mib,
        "simulation_mib": log.peak_mib - drawn_mib,
    }
    print(
        f"{REQUESTS:,} requests simulated in {seconds:.0f} s of CPU time: {log.state().step:,} steps, "
        f"{log.next_seq:,} events; {drawn_mib - start_mib:.0f} MiB for the workload, "
        f"{log.peak_mib - drawn_mib:.0f} MiB for the simulation"
    )
    return figures


# 3. Logs


def log_sizes() -> dict[str, object]:
    """Part 3: bytes per 1,000 output tokens, plain and gzipped."""
    figures: dict[str, object] = {}
    for batch in (8, 32):
        log = Bench(max_batch_size=batch, max_kv_tokens=8192, block_size=16).run().log
        thousands = read(log).requests.output_tokens.sum() / 1000
        plain = log.to_bytes()
        sizes = {
            "bytes": round(len(plain) / thousands),
            "gzipped_bytes": round(len(gzip.compress(plain)) / thousands),
            "events": round(len(log) / thousands),
        }
        figures[f"batch {batch}"] = sizes
        print(
            f"log, batch {batch}: {sizes['bytes']:,} bytes and {sizes['events']} events per 1,000 "
            f"output tokens, {sizes['gzipped_bytes']:,} bytes gzipped"
        )
    return figures


def draw_ratios(served: dict[str, Case]) -> Figure:
    """A dot per run and measure; the aim is a band."""
    plot, columns = panels(list(served), "", "simulated over real", width=11)
    for axes, case in zip(columns, served.values(), strict=True):
        axes.axhspan(1 - AIM, 1 + AIM, alpha=0.12)
        for place, measure in enumerate(MEASURES):
            axes.plot([place] * ROUNDS, case.ratios[measure], "o", color="C0", alpha=0.6)
        axes.set_xticks(
            range(len(MEASURES)), [measure.removeprefix("mean ") for measure in MEASURES]
        )
        axes.set_ylim(0.75, 1.25)
    return plot


def main() -> None:
    """Print all three parts."""
    served = against_the_engine()
    figures: dict[str, object] = {
        "against_the_engine": {
            name: {"ratios": case.ratios, "medians": case.medians(), "real": case.real}
            for name, case in served.items()
        },
        "many_requests": many_requests(),
        "log_size_per_1000_output_tokens": log_sizes(),
    }
    save("simulation", figures, draw_ratios(served))


if __name__ == "__main__":
    main()
