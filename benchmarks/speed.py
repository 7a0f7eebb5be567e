"""Decode steps of the bundled model, and decisions without a model; also against another checkout.

    python -m benchmarks speed --against ../underglass-before

Each checkout is measured in a process of its own, which runs this file with that checkout's engine.
They take turns, a few steps at a time. A decision is a step whose forward pass costs nothing:
scheduling, commit and event log. Its time is the thread's CPU time, because other load on the machine
would easily hide a fraction of a millisecond.
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).parent.parent
PROMPT = 64  # tokens
STEPS = 16  # measured at a time
# What is measured -> whether with the bundled model, and the number of running requests.
WORKS = {f"decode, batch {count}": (True, count) for count in (1, 8, 32)} | {
    f"decisions, {count} running": (False, count) for count in (32, 128)
}


class Steps:
    """An engine that decodes `count` requests, with new ones when they end."""

    def __init__(self, with_model: bool, count: int) -> None:
        from engine import CostRunner, Engine, EngineConfig, SamplingParams

        length = 8 * STEPS
        config = EngineConfig(
            token_budget=count * PROMPT,
            max_batch_size=count,
            max_kv_tokens=count * (PROMPT + length + 16),
        )
        self._engine = (
            Engine.load("bundled", config) if with_model else Engine(CostRunner(0, 0), config)
        )
        self._params = SamplingParams(max_tokens=length, temperature=0, ignore_eos=True)
        self._count, self._left, self._submitted = count, 0, 0
        self._clock = time.perf_counter if with_model else time.thread_time

    def seconds(self) -> float:
        """Return the mean seconds of the next steps."""
        if self._left < STEPS:
            self._begin()
        start = self._clock()
        for _ in range(STEPS):
            self._engine.step()
        self._left -= STEPS
        return (self._clock() - start) / STEPS

    def _begin(self) -> None:
        while self._engine.has_work():
            self._engine.step()
        for _ in range(self._count):
            self._submitted += 1
            tokens = [97 + (self._submitted * 7 + i * i) % 26 for i in range(PROMPT)]
            self._engine.submit(tokens, self._params)
        for _ in range(4):  # the prompts, and a few steps to warm
            self._engine.step()
        self._left = self._params.max_tokens - 8


class Checkout:
    """A process that measures the engine of one checkout."""

    def __init__(self, root: Path) -> None:
        if not (root / "engine" / "__init__.py").is_file():
            raise typer.BadParameter(f"{root} has no engine: name the root of a checkout")
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, work: str) -> float:
        """Return the mean seconds of a few steps of one of WORKS."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(work, file=self._process.stdin, flush=True)
        return float(json.loads(self._process.stdout.readline()))

    def stop(self) -> None:
        """End the process."""
        self._process.communicate()


def main(
    against: Annotated[Path | None, typer.Option(help="the root of another checkout")] = None,
    rounds: Annotated[int, typer.Option(min=2, help="pairs for each work")] = 21,
) -> None:
    """Print the time of a step for each work, and the ratio of speeds if there is another checkout."""
    from benchmarks.harness import Ratio, in_turns, save

    roots = {"this": HERE} | ({"other": against} if against else {})
    checkouts = {name: Checkout(root) for name, root in roots.items()}
    figures: dict[str, Any] = {}
    for work in WORKS:
        works = {
            name: (lambda one=one, work=work: one.seconds(work)) for name, one in checkouts.items()
        }
        in_turns(work, works, 1)  # warm
        seconds = in_turns(work, works, rounds)
        medians = {name: 1000 * statistics.median(each) for name, each in seconds.items()}
        line = ", ".join(f"{name} {ms:.3f} ms" for name, ms in medians.items())
        figures[work] = {"ms_per_step": medians}
        if against:
            ratio = Ratio.of(seconds["this"], seconds["other"])
            figures[work]["this_over_other"] = ratio.figures()
            line += f"; speed of this over the other {ratio}"
        print(f"{work:24} {line}", flush=True)
    for one in checkouts.values():
        one.stop()
    save("speed", figures)


def _serve() -> None:
    """The other process: for each work on stdin, print its seconds."""
    works: dict[str, Steps] = {}
    for line in sys.stdin:
        work = line.strip()
        if work not in works:
            works[work] = Steps(*WORKS[work])
            gc.freeze()  # a collection in a measured step does not look at torch's objects
        print(json.dumps(works[work].seconds()), flush=True)


if __name__ == "__main__":
    _serve()
