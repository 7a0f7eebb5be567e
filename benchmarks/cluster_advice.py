"""Prove advice on replicas: record our own server, take the first advice, serve again, compare.

    python -m benchmarks.cluster_advice FOLDER      # three minutes, on a machine that does nothing else

Both runs of a load have the same arrivals, prompts and lengths. The replicas are servers of this
machine with one thread each, so two of them share two cores with the gateway and with the client.
"""

import asyncio
import random
import re
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.gateway import serve_over
from engine.cluster.cluster_log import ClusterLog
from engine.cluster.routed_parts import cluster_samples, routed_parts
from engine.core.log.log import EventLog
from engine.simulation.measures import Samples, samples
from server.load.client import begin
from server.process import BackgroundServer
from visualizer.advice import advise, goals_of
from visualizer.advice.advise import SIDES
from visualizer.advice.goal import in_unit
from visualizer.sources import read_source

SECONDS = 20
TOKENS = range(5, 2048)


@dataclass(frozen=True)
class Load:
    """What is served, and what advice may change; "" for everything.

    replicas  0: one server without a gateway
    trunks    prompts begin with one of so many prefixes of 384 tokens
    """

    goal: str
    replicas: int
    rate: float
    prompt: tuple[int, int]
    output: tuple[int, int]
    flags: str
    trunks: int = 0
    only: str = ""

    def asks(self) -> list[tuple[float, list[int], int]]:
        """Return when each request is sent, in seconds, its prompt, and how many tokens it gets."""
        rng, at, asks = random.Random(1), 0.0, list[tuple[float, list[int], int]]()
        trunks = [rng.choices(TOKENS, k=384) for _ in range(self.trunks)] or [[]]
        while (at := at + rng.expovariate(self.rate)) < SECONDS:
            own = rng.choices(TOKENS, k=rng.randint(*self.prompt))
            asks.append((at, rng.choice(trunks) + own, rng.randint(*self.output)))
        return asks


LOADS = {
    "seats": Load(
        "p99 ttft < 300ms", 2, 16, (20, 80), (40, 80), "--max-batch-size 1 --max-kv-tokens 8192"
    ),
    "router": Load(
        "p50 ttft < 7ms",
        2,
        6,
        (20, 60),
        (20, 40),
        "--router round_robin --max-kv-tokens 2048 --token-budget 256",
        trunks=6,
    ),
    "engines": Load(
        "p99 ttft < 150ms",
        0,
        24,
        (200, 600),
        (4, 8),
        "--max-batch-size 4 --max-kv-tokens 16384 --token-budget 512",
        only="replicas",
    ),
}


def record(load: Load, flags: str, path: Path) -> None:
    """Serve a load and write the log."""
    given = dict(re.findall(r"--(\S+) (\S+)", f"--replicas {load.replicas} {load.flags} {flags}"))
    replicas, router = int(given.pop("replicas")), given.pop("router", "")
    path.unlink(missing_ok=True)
    own = [word for name, value in given.items() for word in (f"--{name}", value)]
    traced = ["--trace-file", str(path), "--request-log", "off"]
    with ExitStack() as stack:
        command = [sys.executable, "-m", "underglass", "serve", "--port", "0"]
        command += ["--until-stdin-closes", "--max-waiting", "1000", *own]
        servers = [
            stack.enter_context(BackgroundServer([*command, *(() if replicas else traced)]))
            for _ in range(replicas or 1)
        ]
        front = servers[0]
        if replicas:
            routed = ["--router", router] if router else []
            asyncio.run(
                _send([one.url for one in servers], [(0.1 * n, [9] * 99, 8) for n in range(9)])
            )
            front = stack.enter_context(serve_over(servers, *traced, *routed))
        asyncio.run(_send([front.url], load.asks()))


async def _send(urls: list[str], asks: list[tuple[float, list[int], int]]) -> None:
    start = time.monotonic() + 0.5

    async def one(url: str, at: float, prompt: list[int], output: int) -> None:
        await asyncio.sleep(start + at - time.monotonic())
        body = {"prompt": prompt, "max_tokens": output, "ignore_eos": True, "temperature": 0}
        await (await begin(url, "/v1/completions", body | {"stream": True})).ended

    await asyncio.gather(*(one(url, *ask) for ask in asks for url in urls))
    await asyncio.sleep(1.5)  # the last events reach the log


def measured(log: EventLog | ClusterLog) -> Samples:
    """Return the samples of a run."""
    return samples(log) if isinstance(log, EventLog) else cluster_samples(routed_parts(log))


def prove(name: str, load: Load, folder: Path) -> str:
    """Record, advise and record again; return a row of the table."""
    record(load, "", folder / f"old-{name}.jsonl")
    log, [goal] = read_source(folder / f"old-{name}.jsonl"), goals_of(load.goal)
    answer = advise(log, [goal], settings=load.only.split(), replays=16)
    (folder / f"{name}.txt").write_text(str(answer))
    flags = (best := answer.advice[0]).how[""]
    record(load, flags, folder / f"new-{name}.jsonl")
    again = measured(read_source(folder / f"new-{name}.jsonl"))
    predicted = {one.measure: one.predicted for one in (*best.goals, *best.others)}
    was = in_unit(goal.name, best.goals[0].recorded)
    cells = [f"{name}: {goal}", flags, was, in_unit(goal.name, goal.value(again))]
    for side in SIDES:
        value = side.value(again) or 0.0
        figures = ", ".join(in_unit(side.name, one) for one in (predicted[side.name], value))
        cells.append(f"{figures} ({predicted[side.name] / value - 1:+.0%})")
    steps = best.steps[1]
    cells.append(f"{steps:,.0f}, {again.steps:,} ({steps / again.steps - 1:+.0%})")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    _folder.mkdir(parents=True, exist_ok=True)
    print("| load, goal | advice | recorded | measured |", end="")
    print("", *(side.name for side in SIDES), "steps |", sep=" | ")
    for _name in sys.argv[2:] or LOADS:
        print(prove(_name, LOADS[_name], _folder), flush=True)
