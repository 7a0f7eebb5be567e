"""Chaos: faults at random times under open-loop traffic, and what must be true afterwards.

    python -m benchmarks chaos --runs 10 --seconds 40     # or: make chaos ARGS="--runs 10"

Three servers run behind links that can be held, cut and slowed, and a gateway over their addresses. In
each run, requests of all kinds arrive at random times, and faults strike processes and connections.
Workload, faults and times follow from the run's seed, which is printed. Afterwards `checks.py` compares
what each client saw with the answers of a server without faults, folds the cluster log, and asks the
servers what they hold. In runs with an odd seed, prefill and decode replicas are apart.

    traffic.py   the requests, and what their clients saw
    network.py   the links between gateway and replicas
    cluster.py   the processes
    faults.py    the faults
    checks.py    what must be true
    rounding.py  how near an answer was to another one
    runs.py      a run, and its report
    injected.py  `--scenario table`: the fault of each row of the table of failures
    poison.py    a server whose forward passes fail on request

Source: Jepsen's tests have the same parts: a generator, clients, a nemesis and a checker.
"""

import asyncio
import random
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from benchmarks.chaos.cluster import FAKETIME, Cluster, alone, running
from benchmarks.chaos.faults import CLOCKS, KINDS
from benchmarks.chaos.injected import SCENES, Few, Measured, as_markdown, check_rows, play
from benchmarks.chaos.runs import FailedHop, Plan, Row, Wanted, plan, run, table
from benchmarks.chaos.traffic import Question, expected, questions
from benchmarks.harness import save
from engine import EventLog
from server.load.client import ask

POOL = 48  # different questions


def main(  # noqa: PLR0917
    runs: Annotated[int, typer.Option(help="how many runs")] = 10,
    seconds: Annotated[float, typer.Option(help="how long requests arrive in a run")] = 40.0,
    seed: Annotated[int, typer.Option(help="of the first run; the others count on")] = 0,
    rate: Annotated[float, typer.Option(help="requests per second, beside bursts")] = 2.0,
    faults: Annotated[int, typer.Option(help="faults per run")] = 6,
    only: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(KINDS)}")] = None,
    tokens: Annotated[int, typer.Option(help="tokens of the longest answers")] = 500,
    scenario: Annotated[str, typer.Option(help="random or table (of failures)")] = "random",
) -> None:
    """Run faults under traffic; the exit status is 1 if a promise was broken."""
    known = range(len(SCENES)) if scenario == "table" else KINDS
    if unknown := set(only or ()) - set(map(str, known)):
        raise typer.BadParameter(
            f"unknown: {', '.join(unknown)}; there are {', '.join(map(str, known))}"
        )
    directory = Path(tempfile.mkdtemp(prefix="underglass-chaos-"))
    if scenario == "table":
        check_rows()
        scenes = map(int, only or map(str, range(len(SCENES))))
        measured = asyncio.run(_table(directory, list(scenes), seed))
        print("\n".join(as_markdown(measured)))
        save("chaos-table", {"rows": [asdict(one) for one in measured]})
        broken = sum(len(one.violations) for one in measured)
    else:
        # Jumps of clocks are left out unless a run asks for them: libfaketime slows all its servers.
        names = only or [name for name in KINDS if name not in CLOCKS]
        cluster = Cluster(directory)
        if FAKETIME is None and set(names) & set(CLOCKS):
            raise typer.BadParameter("clocks jump with libfaketime: apt-get install faketime")
        cluster.jumps = not set(CLOCKS).isdisjoint(names)
        plans = [
            plan(number, seconds, rate, faults, names, POOL) for number in range(seed, seed + runs)
        ]
        pool = questions(POOL, random.Random(seed), tokens)
        rows, hops = asyncio.run(_runs(cluster, directory, plans, pool))
        for line in table(hops):
            print("  ".join(f"{name} {value}" for name, value in line.items()))
        save("chaos", {"runs": [asdict(row) for row in rows], "failed_hops": table(hops)})
        broken = sum(row.violations for row in rows)
    if broken:
        print(f"{broken} promises were broken; the logs are in {directory}")
        sys.exit(1)
    shutil.rmtree(directory)


async def _wanted(pool: list[Question]) -> Wanted:
    with alone() as url:
        answers = await expected(url, pool)
        return Wanted(answers, EventLog.from_bytes((await ask(url, "/trace")).body))


async def _runs(
    cluster: Cluster, directory: Path, plans: list[Plan], pool: list[Question]
) -> tuple[list[Row], list[FailedHop]]:
    rows, hops = list[Row](), list[FailedHop]()
    wanted = await _wanted(pool)
    async with running(cluster):
        for number, what in enumerate(tqdm(plans, desc="chaos", disable=None)):
            row, failed = await run(cluster, what, pool, wanted, directory / f"run-{number}")
            rows.append(row)
            hops += failed
            print("  ".join(f"{name} {value}" for name, value in asdict(row).items()), flush=True)
            if not row.continued:
                print("  no stream had to be continued: no fault caught one", flush=True)
    return rows, hops


async def _table(directory: Path, scenes: list[int], seed: int) -> list[Measured]:
    pool = questions(64, random.Random(seed), 360, repeats=9, shared=False)
    wanted, rows = await _wanted(pool), list[Measured]()
    async with running(Few(directory)) as cluster:
        for number in tqdm(scenes, desc="scenes", disable=None):
            measured, beside = await play(cluster, SCENES[number], pool, wanted, seed)
            rows += measured
            for row in measured:
                print(number, row, flush=True)
            for line in beside:
                print(f"{number} beside the rows: {line}", flush=True)
    return rows
